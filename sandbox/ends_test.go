//go:build linux

package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestBackgroundChildHoldsNothing(t *testing.T) {
	b, ws := box1(t)
	for name, script := range map[string]string{
		"in the pipe":     "sleep 300 & echo done",
		"own session":     "setsid sleep 300 & echo done",
		"double fork":     "(setsid sh -c 'sleep 300 & sleep 300' &) & echo done",
		"ignores signals": "sh -c 'trap \"\" TERM HUP INT; echo started > " + ws + "/flag; sleep 300' & while ! [ -e " + ws + "/flag ]; do sleep 0.01; done; echo done",
		"stopped":         "sleep 300 & kill -STOP $!; echo done",
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			out, x := sh(t, b, script)
			if out != "done" || x.Code != 0 {
				t.Errorf("%q %+v", out, x)
			}
			if d := time.Since(began); d > 30*time.Second {
				t.Errorf("took %s", d)
			}
		})
	}
}

func TestKill(t *testing.T) {
	b, ws := box1(t)
	p := start(t, b, Command{Argv: []string{"sh", "-c", "trap '' TERM; (while :; do echo x >> beat; sleep 0.02; done) & while :; do sleep 1; done"}})
	waitFor(t, func() bool { fi, err := os.Stat(filepath.Join(ws, "beat")); return err == nil && fi.Size() > 4 })
	p.Kill()
	x, err := p.Wait()
	if err != nil || x.Signal != 9 {
		t.Errorf("%+v %v", x, err)
	}
	before := size(t, filepath.Join(ws, "beat"))
	time.Sleep(100 * time.Millisecond)
	if after := size(t, filepath.Join(ws, "beat")); after != before {
		t.Error("the tree lives on after Kill")
	}
	p.Kill() // harmless
}

func size(t testing.TB, name string) int64 {
	t.Helper()
	fi, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return fi.Size()
}

// waitFor waits until something is so; the bound is generous since machines are
// loaded.
func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(testBound / 2); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("it never came to be")
}

func TestSignalReachesTheTree(t *testing.T) {
	b, ws := box1(t)
	p := start(t, b, Command{Argv: []string{"sh", "-c", `trap 'echo parent > p; exit 5' USR1; sh -c 'trap "echo child > c; exit" USR1; touch ready; while :; do sleep 0.02; done' & while :; do sleep 0.02; done`}})
	waitFor(t, func() bool { _, err := os.Stat(filepath.Join(ws, "ready")); return err == nil })
	if err := p.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if x, err := p.Wait(); err != nil || x.Code != 5 {
		t.Errorf("%+v %v", x, err)
	}
	if _, err := os.Stat(filepath.Join(ws, "c")); err != nil {
		// The parent may end, and the tree with it, before the child has written.
		t.Logf("the child had no time: %v", err)
	}
	if _, err := os.Stat(filepath.Join(ws, "p")); err != nil {
		t.Error(err)
	}
}

func TestDefaultSignalAction(t *testing.T) {
	b, _ := box1(t)
	p := start(t, b, Command{Argv: []string{"sleep", "300"}})
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if x, err := p.Wait(); err != nil || x.Signal != 15 {
		t.Errorf("a program that handles nothing does not end at SIGTERM: %+v %v", x, err)
	}
}

func TestCancel(t *testing.T) {
	b, _ := box1(t)
	for name, script := range map[string]string{
		"obeys":   "trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done",
		"ignores": "trap '' TERM; echo ready; while :; do sleep 0.02; done",
		"stopped": "echo ready; kill -STOP $$; sleep 300",
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(testContext(t))
			p, err := b.Start(ctx, Command{Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}})
			if err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 6)
			if _, err := io.ReadFull(p.Output(), buf); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			cancel()
			x, err := p.Wait()
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(began); d > 20*time.Second {
				t.Errorf("took %s", d)
			}
			want := map[string]int{"obeys": 9, "ignores": 137, "stopped": 143}[name]
			if x.Code != want {
				t.Errorf("code %d, want %d", x.Code, want)
			}
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.Start(ctx, Command{Argv: []string{"true"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("start with an ended context: %v", err)
	}
}

func TestDoneBeforeTheTree(t *testing.T) {
	b, _ := box1(t)
	p := start(t, b, Command{Argv: []string{"true"}})
	select {
	case <-p.Done():
	case <-time.After(testBound / 2):
		t.Fatal("Done was never closed")
	}
	finish(t, p)
}
