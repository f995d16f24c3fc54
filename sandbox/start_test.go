//go:build linux

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// box1 is a sandbox around an empty workspace.
func box1(t testing.TB) (*Sandbox, string) {
	ws := t.TempDir()
	return openBox(t, Spec{Workspace: ws}), ws
}

func TestExitCodes(t *testing.T) {
	b, _ := box1(t)
	for _, c := range []struct {
		script string
		code   int
		signal int
	}{
		{"exit 0", 0, 0},
		{"exit 7", 7, 0},
		{"exit 255", 255, 0},
		{"kill -TERM $$", 143, 15},
		{"kill -KILL $$", 137, 9},
		{"kill -SEGV $$", 139, 11},
	} {
		out, x := sh(t, b, c.script)
		if x.Code != c.code || x.Signal != c.signal || out != "" {
			t.Errorf("%s: code %d signal %d output %q, want %d %d", c.script, x.Code, x.Signal, out, c.code, c.signal)
		}
	}
}

func TestOutputKeepsItsOrder(t *testing.T) {
	b, _ := box1(t)
	out, _ := sh(t, b, `i=0; while [ $i -lt 200 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done`)
	var want strings.Builder
	for i := range 200 {
		fmt.Fprintf(&want, "out %d\nerr %d\n", i, i)
	}
	if out+"\n" != want.String() {
		t.Errorf("merged output differs: %d bytes, want %d", len(out), want.Len())
	}
}

func TestLargeOutput(t *testing.T) {
	b, _ := box1(t)
	out, _ := sh(t, b, "head -c 8000000 /dev/zero")
	if len(out) != 8000000 {
		t.Errorf("%d bytes", len(out))
	}
}

func TestSplitStderr(t *testing.T) {
	b, _ := box1(t)
	p := start(t, b, Command{Argv: []string{"sh", "-c", "echo out; echo err >&2"}, SplitStderr: true})
	errOut := make(chan string, 1)
	go func() {
		e, err := io.ReadAll(p.Stderr())
		if err != nil {
			t.Error(err)
		}
		errOut <- string(e)
	}()
	out, _ := finish(t, p)
	if e := <-errOut; out != "out\n" || e != "err\n" {
		t.Errorf("stdout %q stderr %q", out, e)
	}
}

func TestStdin(t *testing.T) {
	b, _ := box1(t)
	t.Run("none is empty", func(t *testing.T) {
		if out, _ := sh(t, b, "wc -c"); strings.TrimSpace(out) != "0" {
			t.Errorf("%q", out)
		}
	})
	t.Run("reader", func(t *testing.T) {
		big := strings.Repeat("0123456789", 100000)
		out, _ := finish(t, start(t, b, Command{Argv: []string{"wc", "-c"}, Stdin: strings.NewReader(big)}))
		if strings.TrimSpace(out) != "1000000" {
			t.Errorf("%q", out)
		}
	})
	t.Run("not read", func(t *testing.T) {
		_, x := finish(t, start(t, b, Command{Argv: []string{"true"}, Stdin: strings.NewReader(strings.Repeat("x", 1<<20))}))
		if x.Code != 0 {
			t.Errorf("code %d", x.Code)
		}
	})
	t.Run("kept", func(t *testing.T) {
		p := start(t, b, Command{Argv: []string{"cat"}, KeepStdin: true})
		var got bytes.Buffer
		buf := make([]byte, 100)
		for _, word := range []string{"one\n", "two\n"} {
			if _, err := p.Write([]byte(word)); err != nil {
				t.Fatal(err)
			}
			n, err := p.Output().Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			got.Write(buf[:n])
		}
		if err := p.CloseStdin(); err != nil {
			t.Fatal(err)
		}
		out, x := finish(t, p)
		if got.String()+out != "one\ntwo\n" || x.Code != 0 {
			t.Errorf("%q, code %d", got.String()+out, x.Code)
		}
		if _, err := p.Write([]byte("late")); err == nil {
			t.Error("a write after the end succeeded")
		}
	})
}

func TestStartErrors(t *testing.T) {
	b, ws := box1(t)
	script := filepath.Join(ws, "script")
	if err := os.WriteFile(script, []byte("echo no first line\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(ws, "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		cmd    Command
		reason string
		errno  syscall.Errno
	}{
		{"no argv", Command{}, "no program given", 0},
		{"not in PATH", Command{Argv: []string{"no-such-program"}}, "no such program in PATH", syscall.ENOENT},
		{"no such path", Command{Argv: []string{"/no/such"}}, "no such program", syscall.ENOENT},
		{"not executable", Command{Argv: []string{plain}}, "may not be executed", syscall.EACCES},
		{"a folder", Command{Argv: []string{"/usr"}}, "may not be executed", syscall.EACCES},
		{"no first line", Command{Argv: []string{script}}, "needs a first line with #!", syscall.ENOEXEC},
		{"no folder", Command{Argv: []string{"true"}, Dir: "/no/such/dir"}, "the working folder does not exist", syscall.ENOENT},
		{"folder is a file", Command{Argv: []string{"true"}, Dir: plain}, "the working folder is a file", syscall.ENOTDIR},
		{"relative folder", Command{Argv: []string{"true"}, Dir: "x"}, "is not an absolute path", 0},
		{"zero byte", Command{Argv: []string{"echo", "a\x00b"}}, "holds a zero byte", 0},
		{"too long", Command{Argv: []string{"echo", strings.Repeat("x", 3<<20)}}, "too long for the kernel", syscall.E2BIG},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := b.Start(testContext(t), c.cmd)
			var se *StartError
			if !errors.As(err, &se) {
				t.Fatalf("error %v is no StartError", err)
			}
			if !strings.Contains(se.Error(), c.reason) {
				t.Errorf("%q does not say %q", se, c.reason)
			}
			if c.errno != 0 && !errors.Is(err, c.errno) {
				t.Errorf("errno of %v is not %v", err, c.errno)
			}
		})
	}
	if out, _ := sh(t, b, "echo fine"); out != "fine" {
		t.Errorf("after failed starts: %q", out)
	}
}

func TestSearchPath(t *testing.T) {
	b, ws := box1(t)
	for _, d := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(ws, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(ws, "a/tool"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(ws, "b/tool"), []byte("#!/bin/sh\necho b $0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=/no/such:" + ws + "/a:" + ws + "/b:/usr/bin:/bin"}
	out, _ := finish(t, start(t, b, Command{Argv: []string{"tool"}, Env: env}))
	if out != "b "+ws+"/b/tool\n" {
		t.Errorf("%q", out)
	}
	// An empty element is the working folder.
	out, _ = finish(t, start(t, b, Command{Argv: []string{"tool"}, Dir: ws + "/b", Env: []string{"PATH=:/bin"}}))
	if out != "b ./tool\n" {
		t.Errorf("%q", out)
	}
}

func TestLargeArguments(t *testing.T) {
	b, _ := box1(t)
	big := strings.Repeat("y", 100000)
	env := []string{"PATH=/usr/bin:/bin"}
	for i := range 10 {
		env = append(env, fmt.Sprintf("V%d=%s", i, big))
	}
	out, _ := finish(t, start(t, b, Command{Argv: []string{"sh", "-c", `printf %s "$1$V9" | wc -c`, "sh", big}, Env: env}))
	if strings.TrimSpace(out) != "200000" {
		t.Errorf("%q", out)
	}
}

func TestEnvironmentIsExact(t *testing.T) {
	t.Setenv("NIGHTSHIFT_SECRET_OF_TEST", "x")
	b, _ := box1(t)
	out, _ := finish(t, start(t, b, Command{Argv: []string{"/usr/bin/env"}, Env: []string{"A=1", "B=two words", "PATH=/bin"}}))
	if out != "A=1\nB=two words\nPATH=/bin\n" {
		t.Errorf("%q", out)
	}
}

func TestHelper(t *testing.T) {
	b, ws := box1(t)
	out, x := finish(t, start(t, b, Command{Helper: "echo", Argv: []string{"a", "b"}, Stdin: strings.NewReader("from stdin")}))
	if out != "a b\nfrom stdin" || x.Code != 7 {
		t.Errorf("%q code %d", out, x.Code)
	}
	if _, x := finish(t, start(t, b, Command{Helper: "write", Argv: []string{filepath.Join(ws, "f")}})); x.Code != 0 {
		t.Errorf("a helper could not write in the workspace: %d", x.Code)
	}
	outside := filepath.Join(t.TempDir(), "f")
	if out, x := finish(t, start(t, b, Command{Helper: "write", Argv: []string{outside}})); x.Code != 1 {
		t.Errorf("a helper wrote outside: %d %s", x.Code, out)
	}
	if _, err := os.Lstat(outside); err == nil {
		t.Error("the file is there")
	}
	if out, x := finish(t, start(t, b, Command{Helper: "no such"})); x.Code != 127 || !strings.Contains(out, "no helper") {
		t.Errorf("%q code %d", out, x.Code)
	}
}

func TestCommandsAtOnce(t *testing.T) {
	b, _ := box1(t)
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			p, err := b.Start(testContext(t), Command{Argv: []string{"sh", "-c", fmt.Sprintf("sleep 0.05; echo %d; exit %d", i, i)}, Env: []string{"PATH=/usr/bin:/bin"}})
			if err != nil {
				t.Error(err)
				return
			}
			out, err := io.ReadAll(p.Output())
			x, werr := p.Wait()
			if err != nil || werr != nil || x.Code != i || string(out) != fmt.Sprintln(i) {
				t.Errorf("%d: %q %+v %v %v", i, out, x, err, werr)
			}
		})
	}
	wg.Wait()
}

// Commands of one sandbox share /tmp and localhost, and one that runs on can be
// used by the next.
func TestCommandsShare(t *testing.T) {
	b, _ := box1(t)
	sh(t, b, "echo shared > /tmp/file")
	if out, _ := sh(t, b, "cat /tmp/file /var/tmp/file"); out != "shared\nshared" {
		t.Errorf("/tmp: %q", out)
	}
	if got, err := os.ReadFile(filepath.Join(b.TmpDir(), "file")); err != nil || string(got) != "shared\n" {
		t.Errorf("TmpDir: %q %v", got, err)
	}
	if _, err := os.Lstat("/tmp/file"); err == nil {
		t.Error("the host's /tmp was written")
	}
	server := start(t, b, Command{Argv: []string{"python3", "-u", "-c", `
import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(1); print(s.getsockname()[1])
c, _ = s.accept(); c.sendall(b"served\n"); c.close()`}})
	line, err := lineReader(server.Output())()
	if err != nil {
		t.Skipf("no python3 here: %v", err)
	}
	out, _ := finish(t, start(t, b, Command{Argv: []string{"python3", "-c", `
import socket, sys
print(socket.create_connection(("127.0.0.1", int(sys.argv[1]))).recv(100).decode(), end="")`, line}}))
	if out != "served\n" {
		t.Errorf("%q", out)
	}
	finish(t, server)
}

// A pipe's write end may be handed to a process outside the tree; the reader
// must not wait for that.
func TestOutputEndsWithTheTree(t *testing.T) {
	b, ws := box1(t)
	holder := start(t, b, Command{Argv: []string{"python3", "-c", `
import array, socket, os, time
s = socket.socket(socket.AF_UNIX); s.bind("` + ws + `/s"); s.listen(1); open("` + ws + `/ready", "w")
c, _ = s.accept(); m, a, f, _ = c.recvmsg(1, 4096); open("` + ws + `/held", "w"); time.sleep(300)`}})
	defer holder.Kill()
	waitFor(t, func() bool {
		select {
		case <-holder.Done():
			return true
		default:
		}
		_, err := os.Stat(ws + "/ready")
		return err == nil
	})
	if _, err := os.Stat(ws + "/ready"); err != nil {
		t.Skip("no python3 here")
	}
	p := start(t, b, Command{Argv: []string{"python3", "-c", `
import socket, array, os, time
print("hello", flush=True)
s = socket.socket(socket.AF_UNIX); s.connect("` + ws + `/s")
s.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1]).tobytes())])
while not os.path.exists("` + ws + `/held"): time.sleep(0.01)`}})
	if out, _ := finish(t, p); out != "hello\n" {
		t.Errorf("%q", out)
	}
}

func TestUnsandboxed(t *testing.T) {
	b, _ := box1(t)
	outside := filepath.Join(t.TempDir(), "written")
	p := start(t, b, Command{Argv: []string{"sh", "-c", "sleep 300 & echo x > " + outside + "; grep NoNewPrivs /proc/self/status"}, Unsandboxed: true})
	out, x := finish(t, p)
	if x.Code != 0 || !strings.HasSuffix(strings.TrimSpace(out), "0") {
		t.Errorf("%q %+v", out, x)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	ws := t.TempDir()
	b := openBox(t, Spec{Workspace: ws})
	p := start(t, b, Command{Argv: []string{"sh", "-c", "trap '' TERM; while :; do echo x >> beat; sleep 0.02; done"}})
	waitFor(t, func() bool { _, err := os.Stat(filepath.Join(ws, "beat")); return err == nil })
	tmp := b.TmpDir()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if x, err := p.Wait(); err != nil || x.Signal != 9 {
		t.Errorf("%+v %v", x, err)
	}
	before := size(t, filepath.Join(ws, "beat"))
	time.Sleep(100 * time.Millisecond)
	if size(t, filepath.Join(ws, "beat")) != before {
		t.Error("the command lives on")
	}
	if _, err := os.Stat(tmp); err == nil {
		t.Error("the private /tmp is still there")
	}
	if _, err := b.Start(testContext(t), Command{Argv: []string{"true"}}); err == nil {
		t.Error("a closed sandbox started a command")
	}
	if err := b.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

func TestStartClosesWithTheCommand(t *testing.T) {
	ws := t.TempDir()
	p, err := Start(testContext(t), Spec{Mode: WorkspaceWrite, Workspace: ws, Require: DefaultRequire, ProtectNames: []string{".codex"}},
		Command{Argv: []string{"sh", "-c", "ls -A; echo x > f"}, Env: []string{"PATH=/bin:/usr/bin"}})
	if err != nil {
		unsupported(t, err)
		t.Fatal(err)
	}
	out, _ := finish(t, p)
	if out != ".codex\n" {
		t.Errorf("%q", out)
	}
	if list, err := os.ReadDir(ws); err != nil || len(list) != 1 {
		t.Errorf("left behind: %v %v", list, err)
	}
	if _, err := Start(testContext(t), Spec{Mode: WorkspaceWrite, Workspace: ws, Require: DefaultRequire}, Command{Argv: []string{"no-such-program"}}); err == nil {
		t.Error("a program that is not there was started")
	}
}

// When the init dies, commands are reported as killed and the next command gets
// an error or a new init, never a hang.
func TestInitDies(t *testing.T) {
	b, _ := box1(t)
	p := start(t, b, Command{Argv: []string{"sleep", "300"}})
	if err := b.init.proc.Kill(); err != nil {
		t.Fatal(err)
	}
	if x, err := p.Wait(); err != nil || x.Signal != 9 {
		t.Errorf("%+v %v", x, err)
	}
	out, x := sh(t, b, "echo again")
	if out != "again" || x.Code != 0 {
		t.Errorf("after the init was killed: %q %+v", out, x)
	}
}
