package batch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// Options of a batch.
type Options struct {
	Tasks   []Task
	Out     string // results folder, absolute
	Workers int
	Shard   Shard
	Only    []string // ids; nil: all
	// RetryFailed runs tasks again whose result is not a success.
	RetryFailed bool
	Budget      Budget
	// Lease is how long a claim lives without being renewed.
	Lease time.Duration
	Owner string // unique name of this process
	Apply Apply
	// Checkout makes the working folder of a task and says which commit it is.
	Checkout func(ctx context.Context, t Task, dir string) (base string, err error)
	// Work runs one task in dir and leaves its files in out. It must come back
	// when ctx ends.
	Work func(ctx context.Context, t Task, w Workspace) (Result, error)
	// Publish makes the branch of --apply and returns its name.
	Publish func(ctx context.Context, t Task, w Workspace, r Result) (branch string, err error)
	// Progress is told after each task.
	Progress func(Progress)
	Now      func() time.Time
}

// Apply says what becomes of a task's change.
type Apply string

// Ways of applying.
const (
	ApplyNone   Apply = "none"   // a patch in the task's folder
	ApplyCommit Apply = "commit" // a commit in the task's checkout
	ApplyBranch Apply = "branch" // a branch nightshift/ID in the task's repository
)

// Workspace is where one task works.
type Workspace struct {
	Tree string // the checkout
	Out  string // events, reports, patch
	Base string // commit
	// Gate is passed before every model request: the batch's rate.
	Gate func(context.Context) error
	// Pause tells all workers of a wait that the service asked for.
	Pause func(time.Duration)
}

// Budget bounds a whole batch; zero is no bound.
type Budget struct {
	CostUSD           float64
	Tokens            int64
	WallTime          time.Duration
	RequestsPerMinute int
	// FailureRate stops the batch when more than that share of at least
	// FailureMin finished tasks failed.
	FailureRate float64
	FailureMin  int
}

// Progress is where a batch stands.
type Progress struct {
	Total, Done, Failed, Running, Skipped int
	CostUSD                               float64
	Usage                                 event.Usage
	Elapsed, Left                         time.Duration // Left is an estimate, 0 before the first task ended
	Last                                  *Result
}

// Summary is how a batch ended.
type Summary struct {
	Results []Result // of this shard's tasks that have one, by id
	Total   int      // tasks of this shard
	Ran     int      // run by this process
	Missing []string // tasks without a result: not reached, or another process has them
	Stopped string   // which budget stopped the batch, if any
}

// BudgetError is a batch that a budget stopped.
type BudgetError struct{ What string }

// Error names the budget.
func (e *BudgetError) Error() string {
	return "the batch was stopped: " + e.What
}

// Hint tells how to go on.
func (e *BudgetError) Hint() string {
	return "finished tasks are kept; run the same command again with a higher budget to go on"
}

// engine is one process's part of a batch.
type engine struct {
	o      Options
	store  *store
	rate   *rate
	cancel context.CancelCauseFunc
	start  time.Time

	mu       sync.Mutex
	progress Progress
	ran      int
	failed   int
	// attempted are the tasks that this process has run: a failed one is retried
	// by the next batch, not in a loop.
	attempted map[string]bool
}

// Run runs the tasks of this shard that have no result yet. A failing task
// never stops the others. The error is about the batch, not about tasks: a
// *BudgetError, the cause of ctx, or a results folder that cannot be used.
func Run(ctx context.Context, o Options) (Summary, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Lease <= 0 {
		o.Lease = time.Minute
	}
	st, err := openStore(o.Out)
	if err != nil {
		return Summary{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e := &engine{o: o, store: st, cancel: cancel, start: o.Now(), rate: newRate(o.Budget.RequestsPerMinute), attempted: map[string]bool{}}
	if w := o.Budget.WallTime; w > 0 {
		t := time.AfterFunc(w, func() { cancel(&BudgetError{"wall time " + w.String()}) })
		defer t.Stop()
	}
	tasks := e.mine()
	e.progress.Total = len(tasks)
	err = e.runAll(ctx, tasks)
	sum, serr := e.summary(tasks)
	var b *BudgetError
	if errors.As(err, &b) {
		sum.Stopped = b.What
	}
	return sum, errors.Join(err, serr, st.writeList())
}

// mine are the tasks of this shard, in the order of the file.
func (e *engine) mine() []Task {
	var out []Task
	for _, t := range e.o.Tasks {
		if (len(e.o.Only) == 0 || slices.Contains(e.o.Only, t.ID)) && e.o.Shard.Has(t.ID) {
			out = append(out, t)
		}
	}
	return out
}

// runAll gives the tasks to the workers. Tasks that another process holds are
// looked at again at the end: their holder may have died.
func (e *engine) runAll(ctx context.Context, tasks []Task) error {
	for len(tasks) > 0 {
		held, err := e.pass(ctx, tasks)
		if err != nil {
			return err
		}
		if len(held) == 0 {
			return nil
		}
		tasks = held
		select {
		case <-time.After(min(e.o.Lease/2, 2*time.Second)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (e *engine) pass(ctx context.Context, tasks []Task) (held []Task, err error) {
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(max(1, e.o.Workers))
	for _, t := range tasks {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			got, err := e.one(ctx, t)
			if err == nil && !got {
				mu.Lock()
				held = append(held, t)
				mu.Unlock()
			}
			return err
		})
	}
	err = g.Wait()
	if err == nil {
		err = context.Cause(ctx)
	}
	return held, err
}

// one runs t unless it has a result or somebody else holds it (false).
func (e *engine) one(ctx context.Context, t Task) (bool, error) {
	old, has, err := e.store.done(t)
	if err != nil {
		return false, err
	}
	if has && e.settled(old) {
		e.note(old, true)
		return true, nil
	}
	c, err := e.store.take(t, e.o.Owner, e.o.Lease)
	if err != nil || c == nil {
		return false, err
	}
	got, err := e.claimed(ctx, t, old.Attempt)
	return got, errors.Join(err, c.give())
}

// claimed runs t under our claim, unless its former holder has just finished it.
func (e *engine) claimed(ctx context.Context, t Task, attempts int) (bool, error) {
	if again, has, derr := e.store.done(t); derr != nil {
		return false, derr
	} else if has && e.settled(again) {
		e.note(again, true)
		return true, nil // finished by its holder while we waited for the claim
	}
	r, ended := e.work(ctx, t, attempts+1)
	if !ended {
		return true, nil // the batch was stopped: the task has no result and runs again next time
	}
	if err := e.store.put(t, r); err != nil {
		return false, err
	}
	e.note(r, false)
	return true, nil
}

// settled tells whether a result stands: a success, or a failure that is not to
// be retried now.
func (e *engine) settled(r Result) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return r.OK() || !e.o.RetryFailed || e.attempted[r.ID]
}

// work makes the checkout and runs the task; false when the batch was stopped
// in the middle.
func (e *engine) work(ctx context.Context, t Task, attempt int) (Result, bool) {
	e.mu.Lock()
	e.progress.Running++
	e.attempted[t.ID] = true
	e.mu.Unlock()
	defer func() { e.mu.Lock(); e.progress.Running--; e.mu.Unlock() }()
	dir := filepath.Join(taskDir, t.Dir())
	w := Workspace{Tree: filepath.Join(e.o.Out, dir, "tree"), Out: filepath.Join(e.o.Out, dir), Gate: e.rate.wait, Pause: e.rate.pause}
	start := e.o.Now()
	r := Result{ID: t.ID}
	// What an earlier, unfinished attempt left is not part of this one.
	err := os.RemoveAll(filepath.Join(e.o.Out, dir))
	if err == nil {
		err = os.MkdirAll(filepath.Join(e.o.Out, dir), 0o755)
	}
	if err == nil {
		w.Base, err = e.o.Checkout(ctx, t, w.Tree)
	}
	if err != nil {
		r.Outcome, r.Class, r.ExitCode, r.Message = "failed", "checkout", 1, err.Error()
	} else if r, err = e.o.Work(ctx, t, w); err != nil {
		r.Outcome, r.Class, r.ExitCode, r.Message = "failed", "internal", 70, err.Error()
	}
	if ctx.Err() != nil && !r.OK() {
		return r, false
	}
	if r.OK() && r.Files > 0 && e.o.Publish != nil && e.o.Apply != ApplyNone && e.o.Apply != "" {
		if r.Branch, err = e.o.Publish(ctx, t, w, r); err != nil {
			r.Outcome, r.Class, r.ExitCode, r.Message = "output", "apply", 8, err.Error()
		}
	}
	r.ID, r.Digest, r.Dir, r.Repo, r.Base, r.Attempt = t.ID, t.Digest(), dir, t.Repo, w.Base, attempt
	r.DurationMS = e.o.Now().Sub(start).Milliseconds()
	return r, true
}

// note counts a result and stops the batch where a budget says so.
func (e *engine) note(r Result, old bool) {
	e.mu.Lock()
	p := &e.progress
	p.Done++
	if !r.OK() {
		p.Failed++
	}
	p.CostUSD += r.CostUSD
	p.Usage = p.Usage.Add(r.Usage)
	if old {
		p.Skipped++
	} else {
		e.ran++
		if !r.OK() {
			e.failed++
		}
	}
	p.Elapsed = e.o.Now().Sub(e.start)
	if e.ran > 0 {
		p.Left = p.Elapsed / time.Duration(e.ran) * time.Duration(max(0, p.Total-p.Done))
	}
	last := r
	p.Last = &last
	snap := *p
	stop := e.spent()
	e.mu.Unlock()
	if e.o.Progress != nil && !old {
		e.o.Progress(snap)
	}
	if stop != nil {
		e.cancel(stop)
	}
}

// spent returns the budget that is used up. Results of earlier processes count:
// the budget is that of the whole batch.
func (e *engine) spent() *BudgetError {
	b, p := e.o.Budget, e.progress
	switch {
	case p.Done >= p.Total:
		return nil
	case b.CostUSD > 0 && p.CostUSD >= b.CostUSD:
		return &BudgetError{fmt.Sprintf("$%.2f of $%.2f are spent", p.CostUSD, b.CostUSD)}
	case b.Tokens > 0 && p.Usage.Total() >= b.Tokens:
		return &BudgetError{fmt.Sprintf("%d of %d tokens are used", p.Usage.Total(), b.Tokens)}
	case b.FailureRate > 0 && e.ran >= max(1, b.FailureMin) && float64(e.failed) > b.FailureRate*float64(e.ran):
		return &BudgetError{fmt.Sprintf("%d of %d tasks failed, more than the failure rate %.2f", e.failed, e.ran, b.FailureRate)}
	}
	return nil
}

func (e *engine) summary(tasks []Task) (Summary, error) {
	s := Summary{Total: len(tasks), Ran: e.ran}
	for _, t := range tasks {
		r, has, err := e.store.done(t)
		if err != nil {
			return s, err
		}
		if has {
			s.Results = append(s.Results, r)
		} else {
			s.Missing = append(s.Missing, t.ID)
		}
	}
	slices.SortFunc(s.Results, func(a, b Result) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return s, nil
}
