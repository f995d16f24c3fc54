package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	// KeepTrees keeps the checkouts of tasks that succeeded, too.
	KeepTrees bool
	// Checkout makes the working folder of a task and says which commit it is.
	Checkout func(ctx context.Context, t Task, dir string) (base string, err error)
	// Work runs one task in w.Tree and leaves its files in w.Out. It must come
	// back when ctx ends.
	Work func(ctx context.Context, t Task, w Workspace) (Result, error)
	// Progress is told after each task, and every Heartbeat in between. It is
	// never called concurrently.
	Progress  func(Progress)
	Heartbeat time.Duration
	Now       func() time.Time
}

// Workspace is where one task works.
type Workspace struct {
	Tree string // the checkout
	Out  string // events, reports, patch
	Base string // commit
	// Gate is passed before every model request: the batch's rate. Again is its
	// like for a request that failed and is made once more after a delay; asked is
	// the wait that the service asked for, 0 for none.
	Gate  func(context.Context) error
	Again func(ctx context.Context, asked time.Duration) error
	// CostLeft and TokensLeft are what the batch's budget still allows; 0 is no
	// bound.
	CostLeft   float64
	TokensLeft int64
	// Pause tells all workers of a wait that the service asked for.
	Pause func(context.Context, time.Duration) error
	// Spend tells of what one model response cost, the moment it is known, so
	// that a budget stops a batch in the middle of its tasks.
	Spend func(event.Usage, float64) error
}

// Progress is where a batch stands.
type Progress struct {
	Total, Done, Failed, Running, Skipped int
	CostUSD                               float64 // spent by all processes and attempts
	Tokens                                int64
	Elapsed, Left                         time.Duration // Left is an estimate, 0 before the first task ended
	Wait                                  time.Duration // until the next model request may be made
	Last                                  *Result       // nil in a heartbeat
}

// Summary is how a batch ended.
type Summary struct {
	Results []Result // of this shard's tasks that have one, by id
	Total   int      // tasks of this shard
	Ran     int      // run by this process
	Missing []string // tasks without a result
	Stopped string   // what stopped the batch, if anything
}

// engine is one process's part of a batch.
type engine struct {
	o      Options
	store  *store
	claims *claims
	rate   *rate
	ledger *ledger
	cancel context.CancelCauseFunc
	start  time.Time

	mu       sync.Mutex
	progress Progress
	ran      int
	failed   int
	// attempted are the tasks that this process has run: a failed one is retried
	// by the next batch, not in a loop.
	attempted map[string]bool

	tell   sync.Mutex // held while Progress is called
	listed time.Time  // when results.jsonl was last written; guarded by tell
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
	e, err := newEngine(o)
	if err != nil {
		return Summary{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e.cancel = cancel
	if w := o.Budget.WallTime; w > 0 {
		t := time.AfterFunc(w, func() { cancel(&BudgetError{"wall time " + w.String()}) })
		defer t.Stop()
	}
	tasks := e.mine()
	e.progress.Total = len(tasks)
	// The dead leave claims. Of those of another machine only time tells: they are
	// looked at now and once more at the end.
	if err := e.claims.sweep(); err != nil {
		return Summary{}, errors.Join(err, e.ledger.close())
	}
	stop := e.beat()
	err = e.runAll(ctx, tasks)
	stop()
	err = errors.Join(err, e.claims.sweep())
	sum, serr := e.summary(tasks)
	var b *BudgetError
	if errors.As(err, &b) {
		sum.Stopped = b.What
	}
	var p *PauseError
	if errors.As(err, &p) {
		sum.Stopped = "the model service asks to wait " + p.Asked.String()
	}
	return sum, errors.Join(err, serr, e.store.writeList(), e.ledger.close())
}

func newEngine(o Options) (*engine, error) {
	st, err := openStore(o.Out)
	if err != nil {
		return nil, err
	}
	r, err := newRate(o.Out, o.Budget.RequestsPerMinute)
	if err != nil {
		return nil, err
	}
	l, err := openLedger(st.path(spentDir), o.Owner)
	if err != nil {
		return nil, err
	}
	return &engine{o: o, store: st, rate: r, ledger: l, start: time.Now(), attempted: map[string]bool{},
		claims: &claims{dir: st.path(claimDir), me: thisProcess(o.Owner), lease: o.Lease, seen: map[string]sighting{}}}, nil
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

// heldPoll is how often tasks that another process holds are looked at again.
const heldPoll = 2 * time.Second

// runAll gives the tasks to the workers. Tasks that another process holds are
// looked at again at the end: their holder may have died.
func (e *engine) runAll(ctx context.Context, tasks []Task) error {
	for {
		held, err := e.pass(ctx, tasks)
		if err != nil || len(held) == 0 {
			return err
		}
		tasks = held
		if err := sleep(ctx, min(e.o.Lease/4, heldPoll)); err != nil {
			return err
		}
	}
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
		return true, e.note(old, true)
	}
	if e.overspent() {
		return true, nil // the batch is being stopped
	}
	if err := e.rate.calm(ctx); err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c, err := e.claims.take(t, cancel)
	if err != nil || c == nil {
		return false, err
	}
	got, err := e.claimed(ctx, t, c)
	return got, errors.Join(err, c.give())
}

// claimed runs t under our claim, unless its former holder has just finished it.
func (e *engine) claimed(ctx context.Context, t Task, c *claim) (bool, error) {
	if again, has, err := e.store.done(t); err != nil {
		return false, err
	} else if has && e.settled(again) {
		return true, e.note(again, true)
	}
	r, ended, err := e.work(ctx, t)
	if err != nil {
		return false, err
	}
	if errors.Is(context.Cause(ctx), errLost) || ended && !c.held() {
		return false, nil // whoever took the task over has its result, or will
	}
	if !ended {
		return true, nil // the batch was stopped: the task has no result and runs again next time
	}
	if err := e.store.put(t, r); err != nil {
		return false, err
	}
	return true, e.note(r, false)
}

// settled tells whether a result stands: a success, or a failure that is not to
// be retried now.
func (e *engine) settled(r Result) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return r.OK() || !e.o.RetryFailed || e.attempted[r.ID]
}

// listEvery is how often results.jsonl is brought up to date while tasks run.
const listEvery = 5 * time.Second

// note counts a result, tells of it, and stops the batch where a budget says
// so.
func (e *engine) note(r Result, old bool) error {
	e.mu.Lock()
	p := &e.progress
	p.Done++
	if !r.OK() {
		p.Failed++
	}
	if old {
		p.Skipped++
	} else {
		e.ran++
		if !r.OK() {
			e.failed++
		}
	}
	e.mu.Unlock()
	e.overspent()
	if old {
		return nil
	}
	e.report(&r)
	e.tell.Lock()
	defer e.tell.Unlock()
	if time.Since(e.listed) < listEvery {
		return nil
	}
	e.listed = time.Now()
	return e.store.writeList()
}

// report tells Progress where the batch stands.
func (e *engine) report(last *Result) {
	if e.o.Progress == nil {
		return
	}
	e.tell.Lock()
	defer e.tell.Unlock()
	e.mu.Lock()
	p := e.progress
	p.Elapsed = time.Since(e.start)
	if e.ran > 0 {
		p.Left = p.Elapsed / time.Duration(e.ran) * time.Duration(max(0, p.Total-p.Done))
	}
	e.mu.Unlock()
	s := e.ledger.spent()
	p.CostUSD, p.Tokens, p.Last, p.Wait = s.CostUSD, s.Tokens, last, e.rate.ahead()
	e.o.Progress(p)
}

// beat reports every Heartbeat, until the returned function is called.
func (e *engine) beat() func() {
	if e.o.Heartbeat <= 0 {
		return func() {}
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(e.o.Heartbeat)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				e.report(nil)
			case <-stop:
				return
			}
		}
	}()
	return func() { close(stop); <-done }
}

func (e *engine) summary(tasks []Task) (Summary, error) {
	s := Summary{Total: len(tasks), Ran: e.ran}
	for _, t := range tasks {
		r, has, err := e.store.done(t)
		if err != nil {
			return s, fmt.Errorf("summing up the results: %w", err)
		}
		if has {
			s.Results = append(s.Results, r)
		} else {
			s.Missing = append(s.Missing, t.ID)
		}
	}
	slices.SortFunc(s.Results, func(a, b Result) int { return strings.Compare(a.ID, b.ID) })
	return s, nil
}
