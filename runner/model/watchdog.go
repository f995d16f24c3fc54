package model

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

var (
	errIdle    = errors.New("idle timeout")
	errEndless = errors.New("the response did not end in time")
)

// watchdog cancels an attempt that has shown no sign of life for too long, or
// that goes on for ever. It runs from before the connection is made to the
// terminal event.
type watchdog struct {
	idle time.Duration

	mu      sync.Mutex
	stopped bool
	silent  *time.Timer
	whole   *time.Timer
}

func watch(cancel context.CancelCauseFunc, idle, whole time.Duration) *watchdog {
	return &watchdog{
		idle:   idle,
		silent: time.AfterFunc(idle, func() { cancel(errIdle) }),
		whole:  time.AfterFunc(whole, func() { cancel(errEndless) }),
	}
}

// tick is a sign of life.
func (w *watchdog) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.silent.Reset(w.idle)
	}
}

func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.silent.Stop()
	w.whole.Stop()
}

// drain reads what follows the terminal event, so that the connection can be
// used for the next request. Over HTTP/2 the stream alone is given up, so there
// is nothing to win. A server that keeps the stream open costs drainTimeout.
func drain(body io.Reader, cancel context.CancelCauseFunc, proto int) {
	if proto >= 2 {
		return
	}
	t := time.AfterFunc(drainTimeout, func() { cancel(nil) })
	defer t.Stop()
	_, _ = io.CopyN(io.Discard, body, maxErrorBody) // any end will do
}
