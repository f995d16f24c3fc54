package batch

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

func claimsAt(t *testing.T, dir, token string, lease time.Duration) *claims {
	t.Helper()
	return &claims{dir: dir, me: thisProcess(token), lease: lease, seen: map[string]sighting{}}
}

// foreign writes a claim of another process.
func foreign(t *testing.T, path string, h holder) {
	t.Helper()
	b, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func never(t *testing.T) context.CancelCauseFunc {
	return func(err error) { t.Errorf("lost: %v", err) }
}

func TestClaimIsExclusive(t *testing.T) {
	dir, task := t.TempDir(), Task{ID: "a"}
	one, two := claimsAt(t, dir, "one", time.Hour), claimsAt(t, dir, "two", time.Hour)
	c, err := one.take(task, never(t))
	if err != nil || c == nil {
		t.Fatalf("%v %v", c, err)
	}
	if other, err := two.take(task, never(t)); err != nil || other != nil {
		t.Fatalf("taken twice: %v", err)
	}
	if err := c.give(); err != nil {
		t.Fatal(err)
	}
	other, err := two.take(task, never(t))
	if err != nil || other == nil {
		t.Fatalf("not given back: %v", err)
	}
	if err := c.give(); err != nil || !other.held() {
		t.Errorf("giving back twice took the claim of another: %v", err)
	}
	if err := other.give(); err != nil {
		t.Fatal(err)
	}
}

// A holder that died on this machine is noticed without waiting for its lease.
func TestClaimOfTheDead(t *testing.T) {
	dir, task := t.TempDir(), Task{ID: "a"}
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h := thisProcess("other")
	h.PID, h.Start = cmd.Process.Pid, startTime(cmd.Process.Pid)
	foreign(t, filepath.Join(dir, task.Dir()), h)
	mine := claimsAt(t, dir, "mine", time.Hour)
	if c, err := mine.take(task, never(t)); err != nil || c != nil {
		t.Fatalf("took the claim of a living process: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	c, err := mine.take(task, never(t))
	if err != nil || c == nil {
		t.Fatalf("the claim of a dead process stands: %v", err)
	}
	if err := c.give(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// A holder elsewhere counts as dead when it has not renewed for a lease, as
// measured here: its clock may be wrong.
func TestClaimLease(t *testing.T) {
	dir, task := t.TempDir(), Task{ID: "a"}
	path := filepath.Join(dir, task.Dir())
	const lease = 200 * time.Millisecond
	for _, age := range []time.Duration{-time.Hour, time.Hour} {
		foreign(t, path, holder{Token: "far", Host: "elsewhere"})
		then := time.Now().Add(age)
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
		mine := claimsAt(t, dir, "mine", lease)
		start := time.Now()
		for {
			c, err := mine.take(task, never(t))
			if err != nil {
				t.Fatal(err)
			}
			if c != nil {
				if err := c.give(); err != nil {
					t.Fatal(err)
				}
				break
			}
			if time.Since(start) > time.Minute {
				t.Fatal("the claim was never taken over")
			}
			time.Sleep(lease / 8)
		}
		if waited := time.Since(start); waited < lease {
			t.Errorf("age %s: taken over after %s", age, waited)
		}
	}
}

// A batch leaves no claim of the dead, also on tasks that are finished or not
// its own, and no living one is touched.
func TestSweepRemovesClaimsOfTheDead(t *testing.T) {
	out := t.TempDir()
	o := options(out, 3)
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	dead := thisProcess("dead")
	dead.PID, dead.Start = 1<<30, "1"
	dir := filepath.Join(out, claimDir)
	foreign(t, filepath.Join(dir, o.Tasks[0].Dir()), dead)
	foreign(t, filepath.Join(dir, Task{ID: "of another batch"}.Dir()), dead)
	foreign(t, filepath.Join(dir, Task{ID: "moved"}.Dir()+".token"+staleMark), dead)
	living := filepath.Join(dir, Task{ID: "living"}.Dir())
	foreign(t, living, thisProcess("living"))
	far := filepath.Join(dir, Task{ID: "far"}.Dir())
	foreign(t, far, holder{Token: "far", Host: "elsewhere"})
	sum, err := Run(context.Background(), o)
	if err != nil || sum.Ran != 0 {
		t.Fatalf("%+v, %v", sum, err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{lockFile: true, filepath.Base(living): true, filepath.Base(far): true}
	for _, e := range left {
		if !want[e.Name()] {
			t.Errorf("%s is left", e.Name())
		}
		delete(want, e.Name())
	}
	if len(want) > 0 {
		t.Errorf("removed: %v", want)
	}
	// One of another machine goes once it was not renewed for a lease.
	mine := claimsAt(t, dir, "mine", 50*time.Millisecond)
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if err := mine.sweep(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(far); errors.Is(err, os.ErrNotExist) {
			break
		}
		if time.Since(start) > time.Minute {
			t.Fatal("the claim of another machine stays")
		}
	}
}

// A process that slept through its lease neither overwrites the result of the
// one that took over, nor writes where that one does, nor removes its claim.
func TestLostClaimHasNoResult(t *testing.T) {
	out := t.TempDir()
	o := options(out, 1)
	o.Lease = 60 * time.Millisecond
	task := o.Tasks[0]
	started := make(chan Workspace)
	slow := o
	slow.Owner = "slow"
	slow.Work = func(ctx context.Context, _ Task, w Workspace) (Result, error) {
		started <- w
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), errLost) {
			t.Errorf("ended by %v", context.Cause(ctx))
		}
		return Result{Outcome: "success", Final: "slow"}, os.WriteFile(filepath.Join(w.Out, "made"), []byte("slow"), 0o644)
	}
	done := make(chan error)
	var sum Summary
	go func() {
		var err error
		sum, err = Run(context.Background(), slow)
		done <- err
	}()
	w := <-started
	// What another process does that took the task over. It has its result before
	// this one notices, however slow the machine is.
	st := &store{out}
	dir, n, err := st.attempt(task)
	if err != nil || n != 2 || st.path(dir) == w.Out {
		t.Fatalf("attempt %d in %s: %v", n, dir, err)
	}
	if err := st.put(task, Result{ID: task.ID, Digest: task.Digest(), Outcome: "success", Final: "fast", Dir: dir, Attempt: n}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(out, claimDir, task.Dir())
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	foreign(t, path, holder{Token: "fast", Host: "elsewhere"})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(sum.Results) != 1 || sum.Results[0].Final != "fast" || sum.Ran != 0 {
		t.Errorf("%+v", sum)
	}
	if got := claimsAt(t, filepath.Dir(path), "x", time.Hour).read(path).Token; got != "fast" {
		t.Errorf("the claim is %q", got)
	}
}

func TestStartTime(t *testing.T) {
	if startTime(os.Getpid()) == "" || startTime(1<<30) != "" {
		t.Error("processes cannot be told apart")
	}
}

// The git call of a killed process may still write into its checkout while the
// next attempt begins: that stops no batch, and the checkout goes in the end.
func TestAbandonedCheckoutGrows(t *testing.T) {
	task := tasksN(1)[0]
	st, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	first, _, err := st.attempt(task)
	if err != nil {
		t.Fatal(err)
	}
	tree := st.path(first, treeDir)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_ = os.MkdirAll(filepath.Join(tree, ".git", strconv.Itoa(k), strconv.Itoa(i%20)), 0o755)
			}
		})
	}
	for n := 2; n < 4; n++ {
		if _, got, err := st.attempt(task); err != nil || got != n {
			t.Errorf("attempt %d: %d, %v", n, got, err)
		}
	}
	cancel()
	wg.Wait()
	if _, _, err := st.attempt(task); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(tree); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the checkout is still there: %v", err)
	}
}
