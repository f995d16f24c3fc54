package hook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// Notification is what the notify program is told after a turn.
type Notification struct {
	ThreadID, TurnID, Cwd, Client string
	Inputs                        []string
	LastMessage                   string
}

// notifyTimeout bounds the notify program: it must not hold the end of a run.
const notifyTimeout = 30 * time.Second

// notifyEvent is the name under which a run of the program is reported.
const notifyEvent = "notify"

// Notify runs argv with the notification as one more argument, and reports how
// it ended as a hook.completed event. Nothing it does changes the run.
func Notify(ctx context.Context, o Options, argv []string, n Notification) {
	if len(argv) == 0 {
		return
	}
	began := time.Now()
	code, err := notify(ctx, o, argv, n)
	done := event.HookCompleted{
		Event: notifyEvent, Hook: short(argv[0]), Outcome: "completed", ExitCode: code, DurationMS: time.Since(began).Milliseconds(),
	}
	var late timeoutError
	switch {
	case errors.As(err, &late):
		done.Outcome, done.Message = "timeout", err.Error()
	case err != nil:
		done.Outcome, done.Message = "failed", short(err.Error())
	}
	if o.Log != nil {
		o.Log.Emit(done)
	}
}

func notify(ctx context.Context, o Options, argv []string, n Notification) (*int, error) {
	inputs := n.Inputs
	if inputs == nil {
		inputs = []string{}
	}
	told, err := event.Marshal(struct {
		Type    string   `json:"type"`
		Thread  string   `json:"thread-id"`
		Turn    string   `json:"turn-id"`
		Cwd     string   `json:"cwd"`
		Client  string   `json:"client"`
		Inputs  []string `json:"input-messages"`
		Message string   `json:"last-assistant-message"`
	}{"agent-turn-complete", n.ThreadID, n.TurnID, n.Cwd, n.Client, inputs, n.LastMessage})
	if err != nil {
		return nil, err
	}
	bound := o.Timeout
	if bound <= 0 {
		bound = notifyTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bound, timeoutError{bound})
	defer cancel()
	p, err := o.Sandbox.Start(ctx, sandbox.Command{Argv: append(append([]string{}, argv...), string(told)), Dir: o.Dir, Env: o.Env})
	if err != nil {
		return nil, err
	}
	said := o.said(p.Output()) // only shown when it fails
	exit, err := p.Wait()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	case exit.Code != 0:
		return &exit.Code, fmt.Errorf("exit code %d: %s", exit.Code, said)
	}
	return &exit.Code, nil
}
