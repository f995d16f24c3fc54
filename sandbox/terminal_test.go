//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
)

func TestTerminal(t *testing.T) {
	b, _ := box1(t)
	p := start(t, b, Command{Argv: []string{"sh", "-c", `tty; stty size; read x; echo "got $x"; stty size; read y || echo end`},
		TTY: &Winsize{Rows: 33, Cols: 101}})
	lines := lineReader(p.Output())
	expect := func(want string) {
		t.Helper()
		for {
			line, err := lines()
			if err != nil {
				t.Fatalf("waiting for %q: %v", want, err)
			}
			if line == want {
				return
			}
		}
	}
	expect("/dev/pts/0")
	expect("33 101")
	if err := p.Resize(Winsize{Rows: 10, Cols: 20}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	expect("got hello")
	expect("10 20")
	if err := p.CloseStdin(); err != nil {
		t.Fatal(err)
	}
	expect("end")
	if x, err := p.Wait(); err != nil || x.Code != 0 {
		t.Errorf("%v %v", x, err)
	}
	if _, err := lines(); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

// A command may have ended before its start is awaited: its terminal is there all
// the same, and one that is not wanted any more is closed.
func TestTerminalOfBriefCommands(t *testing.T) {
	_, ws, _ := world(t)
	for name, mode := range map[string]Mode{"confined": WorkspaceWrite, "full access": FullAccess} {
		b := openBox(t, Spec{Mode: mode, Workspace: ws})
		var g sync.WaitGroup
		for range 4 {
			g.Go(func() {
				for range 15 {
					p, err := b.Start(t.Context(), Command{Argv: []string{"echo", "x"}, TTY: &Winsize{Rows: 24, Cols: 80}})
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					out, err := io.ReadAll(p.Output())
					x, werr := p.Wait()
					if err != nil || werr != nil || x.Code != 0 || string(out) != "x\r\n" {
						t.Errorf("%s: %q %v %+v %v", name, out, err, x, werr)
					}
				}
			})
		}
		g.Wait()
		before := openFiles(t)
		for range 10 {
			ctx, cancel := context.WithCancel(t.Context())
			go cancel()
			if p, err := b.Start(ctx, Command{Argv: []string{"sleep", "60"}, TTY: &Winsize{Rows: 24, Cols: 80}}); err == nil {
				p.Kill()
				_, _ = io.Copy(io.Discard, p.Output())
			}
			var se *StartError
			if _, err := b.Start(t.Context(), Command{Argv: []string{"/no/such"}, TTY: &Winsize{Rows: 24, Cols: 80}}); !errors.As(err, &se) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for end := time.Now().Add(10 * time.Second); openFiles(t) > before+1 && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		if n := openFiles(t); n > before+1 {
			t.Errorf("%s: %d open files, then %d", name, before, n)
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// lineReader reads terminal lines.
func lineReader(r io.Reader) func() (string, error) {
	var pending []byte
	return func() (string, error) {
		for {
			if i := bytes.IndexByte(pending, '\n'); i >= 0 {
				line := strings.TrimRight(string(pending[:i]), "\r")
				pending = pending[i+1:]
				return line, nil
			}
			buf := make([]byte, 1024)
			n, err := r.Read(buf)
			pending = append(pending, buf[:n]...)
			if err != nil {
				return "", err
			}
		}
	}
}

func TestTerminalSignals(t *testing.T) {
	b, _ := box1(t)
	p := start(t, b, Command{Argv: []string{"sh", "-c", "trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.05; done"}, TTY: &Winsize{Rows: 24, Cols: 80}})
	lines := lineReader(p.Output())
	if line, err := lines(); err != nil || line != "ready" {
		t.Fatalf("%q %v", line, err)
	}
	if _, err := p.Write([]byte{3}); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	if x, err := p.Wait(); err != nil || x.Code != 3 {
		t.Errorf("%+v %v", x, err)
	}
}

// On a terminal the command gets one of its own, and what it prints is made
// harmless all the same.
func TestForegroundTerminal(t *testing.T) {
	_, ws, _ := world(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "confine", "--", "sh", "-c", `test -t 0 && test -t 1 && tty; stty size; printf '::set-env x\n\033[2J'; read x; echo "got $x"; exit 5`)
	cmd.Dir = ws
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + ws}
	m, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 11, Cols: 44})
	if err != nil {
		t.Fatal(err)
	}
	lines := lineReader(m)
	var got []string
	for len(got) < 3 {
		line, err := lines()
		if err != nil {
			t.Fatalf("%q %v", got, err)
		}
		got = append(got, line)
	}
	if got[0] != "/dev/pts/0" || got[1] != "11 44" || got[2] != ": :set-env x" {
		t.Errorf("%q", got)
	}
	if _, err := m.Write([]byte("word\r")); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(m)
	if len(rest) == 0 {
		t.Fatal(err)
	}
	if !strings.Contains(string(rest), "got word") || strings.Contains(string(rest), "\x1b[2J") {
		t.Errorf("%q", rest)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 5 {
		t.Errorf("%v", err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// A regular file gets every byte; a pipe may lead to a service's log.
func TestForegroundStreams(t *testing.T) {
	_, ws, _ := world(t)
	const script = `printf '::x\r\033[31mred\n'; printf '##[y\n' >&2; exit 3`
	cmd := confined(t, ws, "--", "sh", "-c", script)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 3 {
		t.Fatal(err)
	}
	if out.String() != ": :x\nred\n" || errOut.String() != "## [y\n" {
		t.Errorf("%q %q", out.String(), errOut.String())
	}
	file, err := os.Create(ws + "/out")
	if err != nil {
		t.Fatal(err)
	}
	cmd = confined(t, ws, "--", "sh", "-c", script)
	cmd.Stdout = file
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 3 {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(ws + "/out"); err != nil || string(b) != "::x\r\033[31mred\n" {
		t.Errorf("%q %v", b, err)
	}
	// A reader that goes away is not an error of the command.
	cmd = exec.Command("sh", "-c", `"$0" confine -- sh -c 'yes | head -c 1000000' | head -c 10 >/dev/null; echo done`, cmd.Path)
	cmd.Dir = ws
	if b, err := cmd.CombinedOutput(); err != nil || string(b) != "done\n" {
		t.Errorf("%q %v", b, err)
	}
}
