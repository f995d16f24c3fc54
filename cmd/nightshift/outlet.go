package main

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// Times after the first signal. The steps of ending share signalBudget: tools
// and sandbox, diff, credential, sinks. The watchdog (shutdownBound) is for the
// step that does not keep to it.
const (
	signalBudget = 5500 * time.Millisecond
	leastBudget  = 500 * time.Millisecond
	// outletGrace is how long one write may be waited for once the process has to
	// end.
	outletGrace = 500 * time.Millisecond
)

// ending knows whether the process has to come to an end, and since when. A nil
// *ending never has to. Its methods may be called from any goroutine.
type ending struct {
	mu      sync.Mutex
	since   time.Time     // of the first signal
	settled bool          // the exit code is decided
	hurried chan struct{} // closed when no write is to be waited for any more
	once    sync.Once
}

func newEnding() *ending { return &ending{hurried: make(chan struct{})} }

// hurry says that whoever does not read our outputs must not hold us up: a
// limit or a signal has ended the work.
func (e *ending) hurry() {
	if e != nil {
		e.once.Do(func() { close(e.hurried) })
	}
}

// signalled notes the first signal.
func (e *ending) signalled() {
	e.mu.Lock()
	if e.since.IsZero() {
		e.since = time.Now()
	}
	e.mu.Unlock()
	e.hurry()
}

// settle says that the last record is about to tell the exit code of the process.
func (e *ending) settle() {
	if e != nil {
		e.mu.Lock()
		e.settled = true
		e.mu.Unlock()
	}
}

func (e *ending) isSettled() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.settled
}

// left is what remains of the time after a signal.
func (e *ending) left() time.Duration {
	if e == nil {
		return leastBudget
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return max(leastBudget, signalBudget-time.Since(e.since))
}

// errUnread is an output that nobody reads.
var errUnread = errors.New("nobody reads it, and the run had to end")

// outlet is a file whose reader may never read. Writes wait for the reader, as
// they should, until the process has to end. From then on each waits no longer than
// outletGrace, and after the first that was not read all fail at once. It is safe for concurrent use.
type outlet struct {
	file *os.File
	end  *ending

	mu   sync.Mutex
	err  error
	todo chan []byte // nil until the first write
	done chan wrote
}

type wrote struct {
	n   int
	err error
}

// outlet returns f as a writer that gives up in the end. Ordinary files need no
// reader and are returned as they are.
func (e *ending) outlet(f *os.File) io.WriteCloser {
	if fi, err := f.Stat(); e == nil || err == nil && fi.Mode().IsRegular() {
		return f
	}
	return &outlet{file: f, end: e}
}

// Fd is the descriptor, for those who ask what it is.
func (o *outlet) Fd() uintptr { return o.file.Fd() }

// Write writes p, or says that nobody reads.
func (o *outlet) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	if o.todo == nil {
		o.todo, o.done = make(chan []byte), make(chan wrote, 1)
		go o.work(o.todo, o.done)
	}
	// The writer may be stuck with it for ever; p is the caller's.
	o.todo <- append([]byte(nil), p...)
	select {
	case w := <-o.done:
		return w.n, w.err
	case <-o.end.hurried:
	}
	t := time.NewTimer(outletGrace)
	defer t.Stop()
	select {
	case w := <-o.done:
		return w.n, w.err
	case <-t.C:
		o.err = errUnread
		return 0, o.err
	}
}

// work is the goroutine that writes. It ends with Close, or with the process
// when a write never returns.
func (o *outlet) work(todo <-chan []byte, done chan<- wrote) {
	for p := range todo {
		n, err := o.file.Write(p)
		done <- wrote{n, err}
	}
}

// Close closes the file; one that is stuck is left to the end of the process.
func (o *outlet) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.todo != nil {
		close(o.todo)
		o.todo = nil
	}
	if o.err != nil {
		return nil
	}
	o.err = os.ErrClosed
	return o.file.Close()
}
