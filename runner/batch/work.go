package batch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// work makes the checkout and runs the task in a new attempt folder. It returns
// false when the batch was stopped in the middle: then there is no result.
func (e *engine) work(ctx context.Context, t Task) (Result, bool, error) {
	e.mu.Lock()
	e.progress.Running++
	e.attempted[t.ID] = true
	e.mu.Unlock()
	defer func() { e.mu.Lock(); e.progress.Running--; e.mu.Unlock() }()
	start := e.o.Now()
	dir, n, err := e.store.attempt(t)
	if err != nil {
		return Result{}, false, err
	}
	acc := &account{e: e, task: t.ID, n: n}
	out := e.store.path(dir)
	w := Workspace{Tree: filepath.Join(out, treeDir), Out: out, Gate: e.rate.wait, Again: e.rate.again, Pause: e.pause, Spend: acc.spend}
	r := e.try(ctx, t, &w)
	if err := acc.settle(r); err != nil {
		return r, false, err
	}
	if ctx.Err() != nil && !r.OK() {
		return r, false, nil
	}
	r.ID, r.Digest, r.Dir, r.Repo, r.Base, r.Attempt = t.ID, t.Digest(), dir, CleanURL(t.Repo), w.Base, n
	r.Started, r.DurationMS = start.UTC(), e.o.Now().Sub(start).Milliseconds()
	if r.OK() && !r.KeepTree && !e.o.KeepTrees {
		err = sandbox.RemoveTree(w.Tree)
	} else if _, serr := os.Stat(w.Tree); serr == nil {
		r.Tree = filepath.Join(dir, treeDir)
	}
	return r, true, err
}

// try runs the task; whatever goes wrong is a result.
func (e *engine) try(ctx context.Context, t Task, w *Workspace) (r Result) {
	fail := func(class string, code int, err error) {
		r.Outcome, r.Class, r.ExitCode, r.Message = "failed", class, code, err.Error()
	}
	defer func() {
		if p := recover(); p != nil {
			fail("internal", exitInternal, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	var err error
	if w.Base, err = e.o.Checkout(ctx, t, w.Tree); err != nil {
		fail("checkout", exitFailed, err)
		return r
	}
	if r, err = e.o.Work(ctx, t, *w); err != nil {
		fail("internal", exitInternal, err)
	}
	return r
}

// Exit codes of results that no run has chosen; they are those of the runner.
const (
	exitFailed   = 1
	exitInternal = 70
)

// attempt makes the folder of the next attempt at t. Earlier ones keep their
// reports but not their checkouts; an attempt never writes where another one
// does, even if that one is only asleep.
func (s *store) attempt(t Task) (dir string, n int, err error) {
	base := filepath.Join(taskDir, t.Dir())
	if err := os.MkdirAll(s.path(base), 0o755); err != nil {
		return "", 0, err
	}
	old, err := os.ReadDir(s.path(base))
	if err != nil {
		return "", 0, err
	}
	for _, d := range old {
		k, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		n = max(n, k)
		if err := removeAbandoned(s.path(base, d.Name(), treeDir)); err != nil {
			return "", 0, err
		}
	}
	for {
		n++
		dir = filepath.Join(base, strconv.Itoa(n))
		err := os.Mkdir(s.path(dir), 0o755)
		if err == nil {
			return dir, n, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", 0, err
		}
	}
}

// Bounds of the removal of a checkout into which the git call of a killed process
// still writes: that ends within moments.
const (
	abandonedTries = 20
	abandonedPause = 50 * time.Millisecond
)

// removeAbandoned removes the checkout of an earlier attempt. One that does not
// stop growing is left to its owner, who is alive then: the next attempt works in
// a folder of its own.
func removeAbandoned(tree string) error {
	for range abandonedTries {
		err := sandbox.RemoveTree(tree)
		if !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
		time.Sleep(abandonedPause)
	}
	return nil
}
