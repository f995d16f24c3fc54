//go:build linux

package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// confined starts this test binary as the program that confines.
func confined(t testing.TB, ws string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, append([]string{"confine"}, args...)...)
	cmd.Dir = ws
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + filepath.Dir(ws)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

const stubborn = `trap '' TERM INT HUP QUIT; setsid sh -c "trap '' TERM INT HUP; while :; do echo x >> beat; sleep 0.02; done" & while :; do echo x >> beat; sleep 0.02; done`

// Whatever ends the runner ends the tree, however stubborn it is.
func TestRunnerDies(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT} {
		for _, mode := range []Mode{WorkspaceWrite, FullAccess} {
			t.Run(fmt.Sprint(sig, " ", mode), func(t *testing.T) {
				_, ws, _ := world(t)
				cmd := confined(t, ws, "--mode", string(mode), "--", "sh", "-c", stubborn)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				beat := filepath.Join(ws, "beat")
				waitFor(t, func() bool { fi, err := os.Stat(beat); return err == nil && fi.Size() > 8 })
				began := time.Now()
				if err := cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait() // it is killed or reports 137
				if d := time.Since(began); d > 20*time.Second {
					t.Errorf("took %s", d)
				}
				// Without a pid namespace the init needs a moment after the runner's end.
				waitFor(t, func() bool {
					before := size(t, beat)
					time.Sleep(150 * time.Millisecond)
					return size(t, beat) == before
				})
			})
		}
	}
}

// A tree that is only reaped, not enclosed, dies all the same.
func TestFullAccessTreesDie(t *testing.T) {
	_, ws, out := world(t)
	b := openBox(t, Spec{Mode: FullAccess, Workspace: ws, Require: TreeDies})
	for name, script := range map[string]string{
		"background":  "(while :; do echo x >> beat; sleep 0.02; done) & sleep 0.1",
		"session":     "setsid sh -c 'while :; do echo x >> beat; sleep 0.02; done' & sleep 0.1",
		"double fork": "(setsid sh -c '(while :; do echo x >> beat; sleep 0.02; done) &' &) ; sleep 0.1",
		"stopped":     "sh -c 'echo x >> beat; sleep 300' & sleep 0.1; kill -STOP $!",
	} {
		if _, x := sh(t, b, script); x.Code != 0 {
			t.Errorf("%s: %+v", name, x)
		}
		before := size(t, ws+"/beat")
		time.Sleep(100 * time.Millisecond)
		if size(t, ws+"/beat") != before {
			t.Errorf("%s: a process lives on", name)
		}
	}
	if _, x := sh(t, b, "echo x > "+out+"/file && kill -0 1"); x.Code != 0 && os.Geteuid() == 0 {
		t.Errorf("full access is confined: %+v", x)
	}
	if r := b.Report(); r.Level != LevelNone || r.Writable != nil {
		t.Errorf("%+v", r)
	}
	for _, s := range b.Report().Guarantees {
		if s.Held != (s.Guarantee == TreeDies || s.Guarantee == Limited) {
			t.Errorf("%+v", s)
		}
	}
	out2, x := finish(t, start(t, b, Command{Argv: []string{"sh", "-c", "tty; echo x"}, TTY: &Winsize{Rows: 24, Cols: 80}}))
	if x.Code != 0 || !bytes.Contains([]byte(out2), []byte("/dev/pts/")) {
		t.Errorf("%q %+v", out2, x)
	}
	if out3, x := finish(t, start(t, b, Command{Helper: "echo", Argv: []string{"h"}})); out3 != "h\n" || x.Code != 7 {
		t.Errorf("%q %+v", out3, x)
	}
}

// The two hundredth command is as fast as the first, and nothing piles up.
func TestCommandsDoNotPileUp(t *testing.T) {
	_, ws, _ := world(t)
	b := openBox(t, Spec{Workspace: ws, ProtectNames: protectNames, Limits: DefaultLimits()})
	const many = 200
	var took []time.Duration
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	initFiles := func() int {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.init.proc.Pid))
		if err != nil {
			return 0 // not for an ordinary user: it is undumpable
		}
		return len(list)
	}
	var ours, its int
	for i := range many {
		began := time.Now()
		if out, x := sh(t, b, "echo x"); out != "x" || x.Code != 0 {
			t.Fatalf("%d: %q %+v", i, out, x)
		}
		took = append(took, time.Since(began))
		if i == 20 {
			ours, its = files(), initFiles()
		}
	}
	if n := files(); n > ours+3 {
		t.Errorf("%d open files after 20 commands, %d after %d", ours, n, many)
	}
	if n := initFiles(); n > its+3 {
		t.Errorf("%d open files of the init after 20 commands, %d after %d", its, n, many)
	}
	median := func(d []time.Duration) time.Duration { d = slices.Clone(d); slices.Sort(d); return d[len(d)/2] }
	first, last := median(took[:40]), median(took[many-40:])
	t.Logf("median of the first 40: %s, of the last 40: %s", first, last)
	if last > 3*first {
		t.Errorf("the last commands take %s, the first took %s", last, first)
	}
}

// Runners in one workspace share placeholders; the last one removes them, and
// no command of any of them can use a gap.
func TestPlaceholdersAreShared(t *testing.T) {
	_, ws, _ := world(t)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 5 {
				b, err := Open(testContext(t), Spec{Mode: WorkspaceWrite, Workspace: ws, ProtectNames: protectNames, Require: DefaultRequire})
				if err != nil {
					t.Error(err)
					return
				}
				p, err := b.Start(testContext(t), Command{Argv: []string{"sh", "-c", "for i in 1 2 3 4 5; do mkdir .codex; echo evil > .codex/config.toml && echo CREATED; sleep 0.01; done 2>/dev/null"},
					Env: []string{"PATH=/bin:/usr/bin"}})
				if err != nil {
					t.Error(i, err)
				} else if out, _ := finish(t, p); out != "" {
					t.Errorf("%d: %s", i, out)
				}
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, n := range protectNames {
		if exists(filepath.Join(ws, n)) {
			t.Errorf("%s was left behind", n)
		}
	}
}

func TestPlaceholdersOfAKilledRunner(t *testing.T) {
	_, ws, _ := world(t)
	cmd := confined(t, ws, "--", "sh", "-c", "echo x > ready; sleep 300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return exists(ws + "/ready") })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if !exists(ws + "/.codex") {
		t.Fatal("the test expects what a killed runner leaves")
	}
	b := openBox(t, Spec{Workspace: ws, ProtectNames: protectNames})
	tryAll(t, b, []attempt{{"echo x > .codex/config.toml", readOnlyFS}, {"rmdir .codex", ""}})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for _, n := range protectNames {
		if exists(filepath.Join(ws, n)) {
			t.Errorf("%s was left behind", n)
		}
	}
}

// A real folder of that name is never taken for a placeholder.
func TestRealFoldersAreKept(t *testing.T) {
	_, ws, _ := world(t)
	if err := os.Mkdir(ws+"/.codex", 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, ws+"/.agents/skills/s", "x")
	if err := os.Chmod(ws+"/.agents", 0o555); err != nil {
		t.Fatal(err)
	}
	b := openBox(t, Spec{Workspace: ws, ProtectNames: protectNames})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if !exists(ws+"/.codex") || !exists(ws+"/.agents/skills/s") {
		t.Error("a folder of the user is gone")
	}
	if err := os.Chmod(ws+"/.agents", 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestHideSelf(t *testing.T) {
	_, ws, _ := world(t)
	cmd := confined(t, ws, "--mode", "danger-full-access", "--", "sleep", "300")
	cmd.Env = append(cmd.Env, "A_SECRET=nightshift-hidden")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	proc := fmt.Sprintf("/proc/%d/", cmd.Process.Pid)
	waitFor(t, func() bool {
		b, err := os.ReadFile(proc + "environ")
		return err != nil || !bytes.Contains(b, []byte("nightshift-hidden")) && len(b) > 0
	})
	if os.Geteuid() != 0 {
		for _, f := range []string{"environ", "mem", "maps"} {
			if b, err := os.ReadFile(proc + f); err == nil && len(b) > 0 {
				t.Errorf("%s can be read", f)
			}
		}
	}
}

// The program itself still sees its environment.
func TestHideSelfKeepsTheEnvironment(t *testing.T) {
	_, ws, _ := world(t)
	cmd := confined(t, ws, "--mode", "danger-full-access", "--", "sh", "-c", "echo $PLAIN")
	cmd.Env = append(cmd.Env, "PLAIN=still there")
	out, err := cmd.Output()
	if err != nil || string(out) != "still there\n" {
		t.Errorf("%q %v", out, err)
	}
}

// Commands beside each other do not take each other's children for orphans: what
// one leaves is looked for while the others fork.
func TestFullAccessSideBySide(t *testing.T) {
	_, ws, _ := world(t)
	b := openBox(t, Spec{Mode: FullAccess, Workspace: ws})
	long := start(t, b, Command{Argv: []string{"sh", "-c", `i=0; while [ ! -e stop ]; do i=$((i+1)); [ "$(echo $i)" = $i ] || exit 9; /bin/true || exit 8; done; echo fine`}})
	var g sync.WaitGroup
	for range 4 {
		g.Go(func() {
			for range 25 {
				p, err := b.Start(t.Context(), Command{Argv: []string{"sh", "-c", "echo $(echo a)$(/bin/echo b)"}})
				if err != nil {
					t.Error(err)
					return
				}
				out, err := io.ReadAll(p.Output())
				if x, werr := p.Wait(); err != nil || werr != nil || x.Code != 0 || string(out) != "ab\n" {
					t.Errorf("%q %v %+v %v", out, err, x, werr)
				}
			}
		})
	}
	g.Wait()
	if err := os.WriteFile(ws+"/stop", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, x := finish(t, long); x.Code != 0 || out != "fine\n" {
		t.Errorf("%q %+v", out, x)
	}
}

// Where no pid namespace ends a tree, it does not outlive a killed init: its
// supervisor ends it. The sandbox goes on with another init.
func TestFullAccessInitKilled(t *testing.T) {
	_, ws, _ := world(t)
	b := openBox(t, Spec{Mode: FullAccess, Workspace: ws})
	p := start(t, b, Command{Argv: []string{"sh", "-c", `(setsid sh -c '(trap "" HUP TERM INT; while :; do echo x >> beat; sleep 0.02; done) &' &)
		for i in $(seq 50); do sleep 60 & done; while :; do echo x >> beat; sleep 0.02; done`}})
	waitFor(t, func() bool { fi, err := os.Stat(ws + "/beat"); return err == nil && fi.Size() > 20 })
	if err := b.init.proc.Kill(); err != nil {
		t.Fatal(err)
	}
	if x, err := p.Wait(); err != nil || x.Code != 137 {
		t.Errorf("%+v %v", x, err)
	}
	waitFor(t, func() bool {
		before := size(t, ws+"/beat")
		time.Sleep(100 * time.Millisecond)
		return size(t, ws+"/beat") == before
	})
	if out, x := sh(t, b, "echo on"); out != "on" || x.Code != 0 {
		t.Errorf("%q %+v", out, x)
	}
	// Closing with a tree that lives leaves nothing either.
	p = start(t, b, Command{Argv: []string{"sh", "-c", "(setsid sh -c 'while :; do echo x >> other; sleep 0.02; done' &); sleep 60"}})
	waitFor(t, func() bool { _, err := os.Stat(ws + "/other"); return err == nil })
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if x, err := p.Wait(); err != nil || x.Code != 137 {
		t.Errorf("%+v %v", x, err)
	}
	before := size(t, ws+"/other")
	time.Sleep(100 * time.Millisecond)
	if size(t, ws+"/other") != before {
		t.Error("a process lives on after Close")
	}
}

// LeakSanitizer stops the threads of its own process in order to look at them.
// More of another process is out of reach: its memory, its calls, its options.
func TestThreadsCanBeLookedAt(t *testing.T) {
	needPython(t)
	_, ws, _ := world(t)
	b := openBox(t, Spec{Workspace: ws})
	if b.init.facts.Landlock == 0 {
		t.Skip("no Landlock: nothing is looked at")
	}
	got, x := py(t, b, `
import ctypes, os, platform, signal, time
libc = ctypes.CDLL(None, use_errno=True)
ptrace = libc.ptrace
ptrace.argtypes = [ctypes.c_long] * 2 + [ctypes.c_void_p] * 2
child = os.fork()
if child == 0:
    libc.prctl(0x59616d61, ctypes.c_long(-1), 0, 0, 0)
    while True: time.sleep(1)
assert ptrace(16, child, None, None) == 0, ctypes.get_errno()
os.waitpid(child, 0)
buf = ctypes.create_string_buffer(4096)
vec = (ctypes.c_size_t * 2)(ctypes.addressof(buf), 4096)
assert ptrace(0x4204, child, ctypes.c_void_p(1), ctypes.cast(vec, ctypes.c_void_p)) == 0, ctypes.get_errno()
for request in (1, 2, 4, 5, 13, 24, 31, 0x4200, 0x4203, 0x4205, 0x4206, 0x420e, 0):
    ctypes.set_errno(0)
    assert ptrace(request, child, None, None) == -1 and ctypes.get_errno() == 1, request
assert ptrace(17, child, None, None) == 0
os.kill(child, signal.SIGKILL)
assert ptrace(16, 1, None, None) == -1  # the supervisor
print("looked")`)
	if got != "looked" {
		t.Errorf("%q %+v", got, x)
	}
}
