package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nightshift-ci/nightshift/runner"
)

// shutdownBound is how long a run may take to end after the first signal. CI
// systems kill after 7.5 s at the earliest; the run's own steps are bounded so
// that they fit, and this watchdog covers a step that does not keep its bound.
const shutdownBound = 6500 * time.Millisecond

// signal is what has ended the work of this process, if a signal has.
func (rt *runtime) signal() (runner.SignalError, bool) {
	var sig runner.SignalError
	ok := errors.As(context.Cause(rt.ctx), &sig)
	return sig, ok
}

// withSignals returns a context that SIGINT, SIGTERM, SIGHUP and SIGQUIT cancel
// with a runner.SignalError as cause. A second signal, or the watchdog, ends
// the process at once: confined trees die with it.
func withSignals(parent context.Context, end *ending) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	done := make(chan struct{})
	go func() {
		var watchdog <-chan time.Time
		first := 0
		for {
			select {
			case s := <-ch:
				n := int(s.(syscall.Signal))
				if first != 0 {
					os.Exit(128 + n)
				}
				first = n
				end.signalled()
				cancel(runner.SignalError{Signal: n})
				watchdog = time.After(shutdownBound)
			case <-watchdog:
				os.Exit(128 + first)
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(done)
		cancel(nil)
	}
}
