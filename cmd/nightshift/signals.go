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
// the process at once: confined trees die with it. The exit code is that of the
// first, which a report may have told of already. Signals are held off until
// the process is gone: one that came after the last record would make the exit
// code say something else than the record.
func withSignals(parent context.Context, end *ending) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	go func() {
		var watchdog <-chan time.Time
		first := 0
		for {
			select {
			case s := <-ch:
				switch {
				case first == 0:
					first = int(s.(syscall.Signal))
					end.signalled()
					cancel(runner.SignalError{Signal: first})
					watchdog = time.After(shutdownBound)
				case !end.isSettled():
					os.Exit(128 + first)
				}
			case <-watchdog:
				os.Exit(128 + first)
			}
		}
	}()
	return ctx
}
