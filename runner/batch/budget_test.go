package batch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/nightshift-ci/nightshift/runner/event"
)

func TestBudgets(t *testing.T) {
	for name, b := range map[string]Budget{
		"money":   {CostUSD: 3},
		"tokens":  {Tokens: 300},
		"failure": {FailureRate: 0.5, FailureMin: 3},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t.TempDir(), 20)
			o.Workers, o.Budget = 1, b
			o.Work = func(context.Context, Task, Workspace) (Result, error) {
				r := Result{Outcome: "success", CostUSD: 1}
				r.Usage.Input = 100
				if name == "failure" {
					r.Outcome, r.ExitCode = "failed", 1
				}
				return r, nil
			}
			sum, err := Run(context.Background(), o)
			var spent *BudgetError
			if !errors.As(err, &spent) || sum.Ran != 3 || len(sum.Missing) != 17 || sum.Stopped == "" {
				t.Errorf("ran %d, missing %d, %v", sum.Ran, len(sum.Missing), err)
			}
			if name == "failure" {
				return // what failed before is no reason not to begin
			}
			// The next invocation has the same budget, which is used up.
			o.Owner = "next"
			if sum, err = Run(context.Background(), o); !errors.As(err, &spent) || sum.Ran != 0 {
				t.Errorf("the next one ran %d, %v", sum.Ran, err)
			}
			o.Budget = Budget{CostUSD: 5, Tokens: 500}
			if sum, err = Run(context.Background(), o); !errors.As(err, &spent) || sum.Ran != 2 {
				t.Errorf("with more budget it ran %d, %v", sum.Ran, err)
			}
		})
	}
}

// A batch whose last task uses up the budget is complete, not stopped.
func TestBudgetThatIsJustEnough(t *testing.T) {
	o := options(t.TempDir(), 3)
	o.Workers, o.Budget = 1, Budget{CostUSD: 3}
	o.Work = func(context.Context, Task, Workspace) (Result, error) {
		return Result{Outcome: "success", CostUSD: 1}, nil
	}
	for range 2 {
		if sum, err := Run(context.Background(), o); err != nil || len(sum.Results) != 3 {
			t.Errorf("%d results, %v", len(sum.Results), err)
		}
	}
}

// One task that goes on and on is stopped in the middle, and what it cost is
// known to the next invocation although it left no result.
func TestBudgetStopsRunningTasks(t *testing.T) {
	o := options(t.TempDir(), 4)
	o.Workers, o.Budget = 2, Budget{Tokens: 1000}
	o.Work = func(ctx context.Context, _ Task, w Workspace) (Result, error) {
		for ctx.Err() == nil {
			if err := w.Spend(event.Usage{Input: 10}, 0); err != nil {
				return Result{}, err
			}
		}
		return Result{Outcome: "interrupted", ExitCode: 7}, nil
	}
	sum, err := Run(context.Background(), o)
	var spent *BudgetError
	if !errors.As(err, &spent) || len(sum.Results) != 0 || len(sum.Missing) != 4 {
		t.Fatalf("%+v, %v", sum, err)
	}
	l, err := openLedger(filepath.Join(o.Out, spentDir), "reader")
	if err != nil || l.spent().Tokens < 1000 || l.spent().Tokens > 1100 {
		t.Errorf("%+v, %v", l.spent(), err)
	}
}

// Sub-agents and retries that no single response told of are in the result.
func TestLedgerSettles(t *testing.T) {
	o := options(t.TempDir(), 1)
	o.Work = func(_ context.Context, _ Task, w Workspace) (Result, error) {
		r := Result{Outcome: "success", CostUSD: 2}
		r.Usage.Input = 50
		return r, w.Spend(event.Usage{Input: 20}, 0.5)
	}
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	l, err := openLedger(filepath.Join(o.Out, spentDir), "reader")
	if want := (spending{2, 50}); err != nil || l.spent() != want {
		t.Errorf("%+v, %v", l.spent(), err)
	}
}

func TestLedgerOfOthers(t *testing.T) {
	dir := t.TempDir()
	one, err := openLedger(dir, "host/1")
	if err != nil {
		t.Fatal(err)
	}
	two, err := openLedger(dir, "host/2")
	if err != nil {
		t.Fatal(err)
	}
	add := func(l *ledger, n int64) {
		t.Helper()
		if err := l.add(entry{"a", 1, spending{0, n}}); err != nil {
			t.Fatal(err)
		}
	}
	add(one, 1)
	add(two, 10)
	add(one, 100)
	add(two, 1000)
	if one.spent().Tokens != 111 || two.spent().Tokens != 1111 {
		t.Errorf("%+v %+v", one.spent(), two.spent())
	}
	// The last line of a killed process may be half a line.
	if err := errors.Join(one.close(), two.close(), os.WriteFile(filepath.Join(dir, "dead.jsonl"), []byte(`{"tokens":7}`+"\n"+`{"tok`), 0o644)); err != nil {
		t.Fatal(err)
	}
	three, err := openLedger(dir, "host/3")
	if err != nil || three.spent().Tokens != 1118 {
		t.Errorf("%+v %v", three.spent(), err)
	}
	// What nobody can read is not taken for nothing spent.
	if err := os.WriteFile(filepath.Join(dir, "dead.jsonl"), []byte(`{"tokens":7}`+"\n"+`{"tok{"tokens":7}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := openLedger(dir, "host/4"); err == nil || !strings.Contains(err.Error(), "dead.jsonl:2 cannot be read") {
		t.Error(err)
	}
}

func TestRate(t *testing.T) {
	root, ctx := t.TempDir(), context.Background()
	one, err := newRate(root, 1200) // one every 50 ms
	if err != nil {
		t.Fatal(err)
	}
	two, err := newRate(root, 1200)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for range 4 {
		if err := errors.Join(one.wait(context.Background()), two.wait(context.Background())); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took < 7*50*time.Millisecond {
		t.Errorf("eight requests in %s", took)
	}
	// A pause is for everybody, also where there is no bound.
	root = t.TempDir()
	one, err = newRate(root, 0)
	if err != nil {
		t.Fatal(err)
	}
	two, err = newRate(root, 0)
	if err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	if err := errors.Join(one.pause(ctx, 300*time.Millisecond), two.wait(ctx)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 300*time.Millisecond {
		t.Errorf("the pause took %s", took)
	}
	// A slot that a clock gave which was set back since is nobody's.
	if err := one.pause(ctx, 30*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	if err := two.wait(ctx); err != nil || time.Since(start) > 10*time.Second {
		t.Errorf("%v after %s", err, time.Since(start))
	}
	// No task is begun while slots are far away; a cancelled one does not wait.
	if err := one.pause(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := errors.Join(two.calm(ctx)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("calm: %v", err)
	}
	if err := two.wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait: %v", err)
	}
	// A process that keeps the file locked, because it was stopped, holds up nobody for ever.
	lock := flock.New(filepath.Join(root, rateFile))
	if err := lock.Lock(); err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	if err := two.wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait: %v", err)
	}
}

// A request that is made again has a slot like any other; the wait that the
// service asked it for holds for the others and not twice for itself.
func TestRateOfRetries(t *testing.T) {
	root := t.TempDir()
	ctx := context.Background()
	one, err := newRate(root, 600) // one every 100 ms
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := errors.Join(one.wait(ctx), one.again(ctx, 0), one.wait(ctx)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 2*100*time.Millisecond {
		t.Errorf("three requests in %s", took)
	}
	start = time.Now()
	if err := one.again(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 10*time.Minute {
		t.Errorf("its own pause was waited for as well: %s", took)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := one.wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the others do not wait: %v", err)
	}
}

func TestWallTime(t *testing.T) {
	o := options(t.TempDir(), 3)
	o.Workers, o.Budget = 1, Budget{WallTime: 50 * time.Millisecond}
	var n atomic.Int32
	o.Work = func(ctx context.Context, _ Task, _ Workspace) (Result, error) {
		n.Add(1)
		<-ctx.Done()
		return Result{Outcome: "interrupted", ExitCode: 7}, nil
	}
	var spent *BudgetError
	if _, err := Run(context.Background(), o); !errors.As(err, &spent) || n.Load() != 1 {
		t.Errorf("%d began, %v", n.Load(), err)
	}
}

func TestHeartbeat(t *testing.T) {
	o := options(t.TempDir(), 1)
	o.Heartbeat = 5 * time.Millisecond
	beats := make(chan struct{}, 1)
	o.Progress = func(p Progress) {
		if p.Last == nil && p.Running == 1 && p.Total == 1 {
			select {
			case beats <- struct{}{}:
			default:
			}
		}
	}
	o.Work = func(ctx context.Context, _ Task, _ Workspace) (Result, error) {
		<-beats
		return Result{Outcome: "success"}, nil
	}
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
}

// A service that asks for hours ends the batch: its tasks have no result and run
// the next time.
func TestLongPause(t *testing.T) {
	o := options(t.TempDir(), 3)
	o.Workers = 1
	o.Work = func(ctx context.Context, _ Task, w Workspace) (Result, error) {
		return Result{Outcome: "failed", ExitCode: 6}, w.Pause(ctx, 2*time.Hour)
	}
	sum, err := Run(context.Background(), o)
	var paused *PauseError
	if !errors.As(err, &paused) || len(sum.Missing) != 3 || sum.Stopped == "" || !strings.Contains(err.Error(), "asks to wait 2h0m0s") {
		t.Fatalf("%+v, %v", sum, err)
	}
	o.Work = func(context.Context, Task, Workspace) (Result, error) { return Result{Outcome: "success"}, nil }
	if sum, err = Run(context.Background(), o); err != nil || len(sum.Results) != 3 {
		t.Fatalf("%+v, %v", sum, err)
	}
}
