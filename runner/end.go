package runner

import (
	"context"
	"fmt"
	"os"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/hook"
	"github.com/nightshift-ci/nightshift/runner/model"
)

// store writes an item to the thread on disk. A thread that cannot be kept is
// said once and does not stop the work.
func (r *run) store(it model.Item) {
	if r.Thread.Store != nil {
		r.stored(r.Thread.Store.Item(it))
	}
}

func (r *run) stored(err error) {
	if err == nil || r.context.saveError {
		return
	}
	r.context.saveError = true
	r.log.Complete("", event.ErrorItem{Message: "The thread can no longer be saved, so this run cannot be resumed: " + err.Error()})
}

// notice records something that a person should know.
func (r *run) notice(class, message, hint string) {
	r.log.Emit(event.Notice{Class: class, Message: message, Hint: hint})
}

// logError records an error of cleaning up.
func (r *run) logError(what string, err error) {
	if err != nil {
		r.notice("cleanup", fmt.Sprintf("%s could not be closed: %v", what, err), "")
	}
}

// onEnd registers something to close at the end, last first.
func (r *run) onEnd(f func(context.Context)) { r.closers = append(r.closers, f) }

// end closes everything in order: sessions and their items, the turn, the
// sandbox and with it every process, then the diff. It works on a context of
// its own, since the run's is often the reason why it ends.
func (r *run) end(err error) Result {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupBound)
	defer cancel()
	if r.tools != nil && r.tools.builtin != nil {
		r.tools.builtin.CloseAll(ctx)
	}
	r.totals.Denials += int(r.denied.Load())
	outcome := r.closeTurn(err)
	r.endThread(outcome)
	for i := len(r.closers) - 1; i >= 0; i-- {
		r.closers[i](ctx)
	}
	if r.box != nil {
		r.logError("the sandbox", r.box.Close())
	}
	r.captureDiff()
	return r.result(outcome)
}

// closeTurn decides the outcome and says it in the stream.
func (r *run) closeTurn(err error) Outcome {
	o := Classify(err)
	usage := r.Thread.Usage.Add(r.meter.usage)
	todo := func() {
		if r.tools != nil && r.tools.builtin != nil {
			r.tools.builtin.CompletePlan()
		}
	}
	if err != nil {
		r.log.Emit(event.Error{Message: o.Message, Class: o.Class})
		todo()
		r.log.Emit(event.TurnFailed{Error: event.Failure{Message: o.Message, Class: o.Class, Retryable: o.Retryable, Hint: o.Hint}, Usage: &usage})
		return o
	}
	todo()
	r.log.Emit(event.TurnCompleted{Usage: usage})
	if r.final == "" {
		return Outcome{Outcome: "failed", Class: "empty_answer", ExitCode: ExitFailed, Message: "the model ended the turn without an answer",
			Hint: "an empty answer is never a success here; run the task again, or look at the thread"}
	}
	return r.gate(o)
}

// gate turns a success into exit 9 where --strict or --fail-on say so.
func (r *run) gate(o Outcome) Outcome {
	if r.Strict && (r.totals.Denials > 0 || r.totals.FailedTools > 0) {
		return Outcome{Outcome: "gate", Class: "strict", ExitCode: ExitGate,
			Message: fmt.Sprintf("--strict: %d denied and %d failed tool calls", r.totals.Denials, r.totals.FailedTools),
			Hint:    "the report lists each of them"}
	}
	if r.context.review != nil {
		return r.context.review.gate(o, r.FailOn)
	}
	return o
}

func (r *run) endThread(o Outcome) {
	if r.Thread.Store == nil {
		return
	}
	reason := ""
	if o.Outcome == "interrupted" {
		reason = "interrupted"
	}
	r.stored(r.Thread.Store.EndTurn(r.turnID, r.final, reason))
	r.stored(r.Thread.Store.Close())
}

// captureDiff records what the run changed. It has a bound of its own: a
// repository that is too large gets a record that says so.
func (r *run) captureDiff() {
	if r.context.dir == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.diffBound())
	defer cancel()
	d := r.context.dir.Diff(ctx)
	r.log.Emit(d)
	r.logError("the workspace", r.context.dir.Close())
}

// result sums up for the last record.
func (r *run) result(o Outcome) Result {
	c := event.RunCompleted{Outcome: o.Outcome, Class: o.Class, ExitCode: o.ExitCode, Message: o.Message, Hint: o.Hint,
		Retryable: o.Retryable, FinalMessage: r.final, DurationMS: r.Now().Sub(r.started).Milliseconds(),
		Usage: r.meter.usage, ThreadUsage: r.Thread.Usage.Add(r.meter.usage), CostUSD: r.meter.cost, Totals: r.totals}
	res := Result{Outcome: o, Completed: c, Usage: c.ThreadUsage}
	for _, it := range r.history.items {
		res.History = append(res.History, it.Raw)
	}
	return res
}

// notify runs the notify program of the configuration after a turn.
func (r *run) notify(ctx context.Context, o hook.Options) {
	if len(r.cfg.Notify) == 0 {
		return
	}
	hook.Notify(ctx, o, r.cfg.Notify, hook.Notification{ThreadID: r.Thread.ID, TurnID: r.turnID, Cwd: r.Workdir,
		Client: "codex_exec", Inputs: []string{r.Prompt}, LastMessage: r.final})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
