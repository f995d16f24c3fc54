package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/hook"
	"github.com/nightshift-ci/nightshift/runner/model"
)

// store writes an item to the thread on disk. That a thread cannot
// be kept is reported once and does not stop the work.
func (r *run) store(it model.Item) {
	if r.Thread.Store != nil {
		r.stored(r.Thread.Store.Item(it))
	}
}

func (r *run) stored(err error) {
	if err == nil || r.state.saveError {
		return
	}
	r.state.saveError = true
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

// step is one step of ending. A bug in it must not keep the others from
// happening.
func (r *run) step(f func()) {
	if bug := guarded(func() error { f(); return nil }); bug != nil && r.bug == nil {
		r.bug = bug
		r.trace(bug)
	}
}

// maxStack bounds the stack of a bug in the log, in bytes.
const maxStack = 8 << 10

// trace logs where a bug was found, for the person who looks for it.
func (r *run) trace(err error) {
	var bug *Panic
	if errors.As(err, &bug) {
		r.notice("internal", bug.Error()+"\n"+string(bug.Stack[:min(len(bug.Stack), maxStack)]), bug.Hint())
	}
}

// end closes everything in order: sub-agents and sessions with their items, the
// turn, every process in the sandbox, then the diff and the sandbox. It works on a
// context of its own, since the run's is often the reason why it ends; caller is
// only asked whether to hurry.
func (r *run) end(caller context.Context, err error) Result {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupBound)
	defer cancel()
	defer context.AfterFunc(caller, func() { time.AfterFunc(hurriedCleanup, cancel) })()
	r.step(func() { r.trace(err) })
	r.step(func() {
		if n := r.state.agents.closeAll(ctx); n > 0 && err == nil {
			r.unfinished(n)
		}
	})
	if r.tools != nil && r.tools.builtin != nil {
		r.step(func() { r.tools.builtin.CloseAll(ctx) })
	}
	_, _, theirs := r.state.agents.spent()
	r.totals = r.totals.Add(theirs)
	r.totals.Denials += int(r.denied.Load())
	if r.tools != nil && r.tools.hooks != nil {
		r.totals.HookFailures += r.tools.hooks.Failures()
	}
	var outcome Outcome
	r.step(func() { outcome = r.closeTurn(err) })
	r.step(func() { r.endThread(outcome) })
	if err == nil {
		r.step(func() { r.notify(caller) })
	}
	for i := len(r.closers) - 1; i >= 0; i-- {
		r.step(func() { r.closers[i](ctx) })
	}
	// Nothing may change any more while it is looked at what changed.
	r.step(func() { r.logError("the commands", r.endCommands()) })
	r.step(func() { r.captureDiff(caller) })
	if r.box != nil {
		r.step(func() { r.logError("the sandbox", r.box.Close()) })
	}
	return r.result(r.lastWord(caller, outcome))
}

// unfinished says that the answer came while agents were at work: a caller who
// reads only the answer would take their tasks for done.
func (r *run) unfinished(agents int) {
	who := "1 agent was"
	if agents > 1 {
		who = fmt.Sprintf("%d agents were", agents)
	}
	r.log.Complete("", event.ErrorItem{Message: who + " still at work when the answer came, and ended with the run: that part of the task is not finished."})
}

// lastWord is the outcome after everything was closed: a signal that came in the
// meantime has ended the run, and a bug is never a success.
func (r *run) lastWord(caller context.Context, o Outcome) Outcome {
	if r.bug != nil && o.ExitCode != ExitInternal {
		return Classify(r.bug)
	}
	var sig SignalError
	if errors.As(context.Cause(caller), &sig) && o.ExitCode != ExitInternal {
		return Classify(sig)
	}
	return o
}

// closeTurn decides the outcome and says it in the stream.
func (r *run) closeTurn(err error) Outcome {
	o := Classify(err)
	usage := r.Thread.Usage.Add(r.meter.usage)
	if err != nil {
		r.log.Emit(event.Error{Message: o.Message, Class: o.Class})
	}
	if r.tools != nil && r.tools.builtin != nil {
		r.tools.builtin.CompletePlan()
	}
	r.log.CloseItems()
	if err != nil {
		r.log.Emit(event.TurnFailed{Error: o.Failure(), Usage: &usage})
		return o
	}
	if r.commentary {
		r.notice("commentary", "the model ended the turn with a commentary and gave no final answer", "read its last message: the work may not be finished")
	}
	r.log.Emit(event.TurnCompleted{Usage: usage})
	if !r.answered {
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
	if r.state.review != nil {
		return r.state.review.gate(o, r.FailOn)
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

// endCommands ends every process of the run, with the sandbox if the diff has no
// use for it.
func (r *run) endCommands() error {
	switch {
	case r.box == nil:
		return nil
	case r.state.dir != nil && r.state.dir.Shared():
		return r.box.Settle()
	}
	return r.box.Close()
}

// captureDiff records what the run changed. It has a bound of its own: a
// repository that is too large gets a record that says so. Once the caller wants
// the run to end, the diff has only little time left.
func (r *run) captureDiff(caller context.Context) {
	if r.state.dir == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), diffBound, fmt.Errorf("it took longer than %s", diffBound))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(caller, func() {
		time.AfterFunc(hurriedDiff, func() { stop(fmt.Errorf("the run had to end: %w", context.Cause(caller))) })
	})()
	d := r.state.dir.Diff(ctx)
	r.log.Emit(d)
	r.logError("the workspace", r.state.dir.Close())
}

// result sums up for the last record.
func (r *run) result(o Outcome) Result {
	used, cost, _ := r.state.agents.spent()
	thread := r.Thread.Usage.Add(r.meter.usage)
	c := event.RunCompleted{Outcome: o.Outcome, Class: o.Class, ExitCode: o.ExitCode, Message: o.Message, Hint: o.Hint,
		Retryable: o.Retryable, FinalMessage: r.final, DurationMS: r.Now().Sub(r.started).Milliseconds(),
		Usage: r.meter.usage.Add(used), ThreadUsage: thread, CostUSD: r.meter.cost + cost, Totals: r.totals}
	res := Result{Outcome: o, Completed: c, Usage: thread}
	for _, it := range closedCalls(r.history.items, r) {
		res.History = append(res.History, it.Raw)
	}
	return res
}

// notify runs the notify program of the configuration after a completed turn. It
// has a bound of its own and changes nothing.
func (r *run) notify(ctx context.Context) {
	if len(r.cfg.Notify) == 0 || r.Mode == "agent" {
		return
	}
	hook.Notify(ctx, r.hookOptions(), r.cfg.Notify, hook.Notification{ThreadID: r.Thread.ID, TurnID: r.turnID, Cwd: r.Workdir,
		Client: "codex_exec", Inputs: []string{r.Prompt}, LastMessage: r.final})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
