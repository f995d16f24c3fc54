package batch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// Budget bounds a whole batch; zero is no bound. Money and tokens count over
// all processes that share the results folder, over all attempts, and over
// earlier invocations.
type Budget struct {
	CostUSD           float64
	Tokens            int64
	WallTime          time.Duration // of one invocation
	RequestsPerMinute int
	// FailureRate stops the batch when more than that share of at least
	// FailureMin tasks that this process ran failed.
	FailureRate float64
	FailureMin  int
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

// PauseError is a batch that ended because the model service asks for a wait of
// more than maxPause.
type PauseError struct{ Asked time.Duration }

// Error says how long.
func (e *PauseError) Error() string {
	wait := "far longer than a batch waits"
	if e.Asked < rateAhead*365 {
		wait = e.Asked.Round(time.Second).String()
	}
	return fmt.Sprintf("the batch was stopped: the model service asks to wait %s (a batch waits up to %s)", wait, maxPause)
}

// Hint tells how to go on.
func (e *PauseError) Hint() string {
	return "finished tasks are kept; run the same command again when that time is over, or with another account"
}

// pause lets every worker of every process wait as long as the service asks one
// of them to.
func (e *engine) pause(ctx context.Context, d time.Duration) error {
	if d > maxPause {
		e.cancel(&PauseError{d})
		return nil
	}
	return e.rate.pause(ctx, d)
}

// overspent stops the batch when a budget is used up and there is something
// left to begin.
func (e *engine) overspent() bool { return e.stopIf(e.ledger.spent(), false) }

// overrun stops the batch when a budget is exceeded in the middle of a task.
// Using it up exactly does no harm yet: the task may be at its end.
func (e *engine) overrun() bool { return e.stopIf(e.ledger.spent(), true) }

func (e *engine) stopIf(s spending, midway bool) bool {
	e.mu.Lock()
	stop := e.over(s, midway)
	e.mu.Unlock()
	if stop != nil {
		e.cancel(stop)
	}
	return stop != nil
}

func (e *engine) over(s spending, midway bool) *BudgetError {
	b := e.o.Budget
	switch {
	case e.progress.Done >= e.progress.Total:
		return nil
	case b.CostUSD > 0 && (s.CostUSD > b.CostUSD || !midway && s.CostUSD == b.CostUSD):
		return &BudgetError{fmt.Sprintf("$%.2f of $%.2f are spent", s.CostUSD, b.CostUSD)}
	case b.Tokens > 0 && (s.Tokens > b.Tokens || !midway && s.Tokens == b.Tokens):
		return &BudgetError{fmt.Sprintf("%d of %d tokens are used", s.Tokens, b.Tokens)}
	case midway:
		return nil
	case b.FailureRate > 0 && e.ran >= max(1, b.FailureMin) && float64(e.failed) > b.FailureRate*float64(e.ran):
		return &BudgetError{fmt.Sprintf("%d of %d tasks failed, more than the failure rate %.2f", e.failed, e.ran, b.FailureRate)}
	}
	return nil
}

// spending is money and tokens.
type spending struct {
	CostUSD float64 `json:"cost_usd"`
	Tokens  int64   `json:"tokens"`
}

func (s *spending) add(o spending) {
	s.CostUSD += o.CostUSD
	s.Tokens += o.Tokens
}

// entry is a line of a ledger: what one model response cost.
type entry struct {
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	spending
}

// ledger is what a batch has spent. Each process appends to a file of its own,
// response by response, so that nothing is lost when one is killed, and reads
// what the others append to theirs. It is safe for concurrent use.
type ledger struct {
	dir, own string

	mu    sync.Mutex
	f     *os.File
	size  int64 // of what is whole in f
	total spending
	read  map[string]int64 // bytes counted of each file of the others
	lines map[string]int   // lines of them
}

func openLedger(dir, owner string) (*ledger, error) {
	l := &ledger{dir: dir, own: unsafeName().ReplaceAllString(owner, "_") + ".jsonl", read: map[string]int64{}, lines: map[string]int{}}
	if err := l.refresh(); err != nil {
		return nil, err
	}
	return l, nil
}

// add writes e down.
func (l *ledger) add(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		if l.f, err = os.OpenFile(filepath.Join(l.dir, l.own), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
			return fmt.Errorf("the batch's ledger: %w", err)
		}
	}
	if _, err := l.f.Write(append(line, '\n')); err != nil {
		// Half a line would make one of the next and itself that nobody can read.
		return fmt.Errorf("the batch's ledger: %w", errors.Join(err, l.f.Truncate(l.size)))
	}
	l.size += int64(len(line)) + 1
	l.total.add(e.spending)
	return l.refresh()
}

// spent is the sum over all processes, as far as they have written it down.
func (l *ledger) spent() spending {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// refresh counts what other processes have appended.
func (l *ledger) refresh() error {
	files, err := os.ReadDir(l.dir)
	if err != nil {
		return fmt.Errorf("the batch's ledger: %w", err)
	}
	for _, f := range files {
		name := f.Name()
		if name == l.own || !strings.HasSuffix(name, ".jsonl") {
			continue
		}
		if fi, err := f.Info(); err != nil || fi.Size() <= l.read[name] {
			continue
		}
		if err := l.count(name); err != nil {
			return fmt.Errorf("the batch's ledger: %w", err)
		}
	}
	return nil
}

// count reads the whole lines of a file that were not read yet.
func (l *ledger) count(name string) error {
	f, err := os.Open(filepath.Join(l.dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(l.read[name], io.SeekStart); err != nil {
		return err
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	end := bytes.LastIndexByte(data, '\n') + 1
	for line := range bytes.Lines(data[:end]) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			at := l.lines[name] + 1
			return fmt.Errorf("%s:%d cannot be read: %w; it says what one answer cost, and may be deleted if that need not count", f.Name(), at, err)
		}
		l.total.add(e.spending)
		l.read[name] += int64(len(line))
		l.lines[name]++
	}
	return nil
}

func (l *ledger) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	return errors.Join(l.f.Sync(), l.f.Close())
}

// account follows what one attempt spends.
type account struct {
	e    *engine
	task string
	n    int

	mu   sync.Mutex
	seen spending
}

// spend writes down one response, and stops the batch if that was too much.
func (a *account) spend(u event.Usage, cost float64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.enter(spending{cost, u.Total()}); err != nil {
		return err
	}
	a.e.overrun()
	return nil
}

// settle writes down what the result says beyond the single responses.
func (a *account) settle(r Result) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	rest := spending{max(0, r.CostUSD-a.seen.CostUSD), max(0, r.Usage.Total()-a.seen.Tokens)}
	if rest == (spending{}) {
		return nil
	}
	return a.enter(rest)
}

func (a *account) enter(s spending) error {
	a.seen.add(s)
	return a.e.ledger.add(entry{a.task, a.n, s})
}
