package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/auth"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
	"github.com/nightshift-ci/nightshift/runner/workspace"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// retriedThen yields n retries, then plays s.
func retriedThen(n int, s step) step {
	return func(ctx context.Context, req model.Request, yield func(model.Delta, error) bool) {
		for i := range n {
			err := &model.APIError{Class: "stream_ended", Message: "the stream broke", Retryable: true}
			if !yield(model.Delta{Progress: &model.Progress{Event: "response.created"}}, nil) ||
				!yield(model.Delta{Retrying: &model.Retrying{Err: err, Layer: model.LayerStream, Attempt: i + 1, Max: n}}, nil) {
				return
			}
		}
		s(ctx, req, yield)
	}
}

// TestSignalInEveryPhase ends a run with a signal wherever it may be. Each ends
// as interrupted, with all items closed and nothing left running.
func TestSignalInEveryPhase(t *testing.T) {
	t.Parallel()
	type setup func(l *loop, signal func())
	onEvent := func(is func(event.Event) bool) setup {
		return func(l *loop, signal func()) {
			l.seen.on = func(r event.Record) {
				if is(r.Event) {
					signal()
				}
			}
		}
	}
	started := onEvent(is[event.ItemStarted])
	for _, c := range []struct {
		name  string
		conf  string
		args  []string
		steps []step
		when  setup
		early bool // before the turn began
	}{
		{name: "before the start", steps: nil, when: func(_ *loop, signal func()) { signal() }, early: true},
		{name: "opening", steps: nil, when: onEvent(is[event.RunStarted]), early: true},
		{name: "sandbox ready", steps: []step{hangs}, when: onEvent(is[event.SandboxEnforced])},
		{name: "turn started", steps: []step{hangs}, when: onEvent(is[event.TurnStarted])},
		{name: "stream", steps: []step{hangs}, when: func(l *loop, signal func()) { l.model.steps[0] = after(signal, hangs) }},
		{name: "command", steps: []step{reply(shell("a", "trap '' TERM; sleep 60"))}, when: started},
		{name: "commands beside each other", steps: []step{reply(shell("a", "sleep 60"), shell("b", "sleep 60 & sleep 61 & wait"), shell("c", "cat /dev/zero"))}, when: started},
		{name: "background session", steps: []step{reply(callOf("a", "exec_command", object{"cmd": "sleep 60", "yield_time_ms": 250})), hangs},
			when: func(l *loop, signal func()) { l.model.steps[1] = after(signal, hangs) }},
		{name: "patch", args: []string{"sandbox_mode=workspace-write"}, steps: []step{reply(patchOf("p", "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch\n")), hangs}, when: started},
		{name: "retry", steps: []step{retriedThen(1, hangs)}, when: onEvent(is[event.Error])},
		{name: "compaction", args: []string{"model_auto_compact_token_limit=50"}, steps: []step{reply(shell("a", "true")), hangs},
			when: func(l *loop, signal func()) { l.model.steps[1] = after(signal, hangs) }},
		{name: "verify", args: []string{`verify=["sleep 60"]`}, steps: []step{after(func() {}, says("done"))},
			when: func(l *loop, signal func()) {
				l.model.steps[0] = after(func() { time.AfterFunc(300*time.Millisecond, signal) }, says("done"))
			}},
		{name: "stop hook", conf: "[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = \"command\"\ncommand = \"sleep 60\"\n", steps: []step{says("done")},
			when: func(l *loop, signal func()) {
				l.model.steps[0] = after(func() { time.AfterFunc(300*time.Millisecond, signal) }, says("done"))
			}},
		{name: "session hook", conf: "[[hooks.SessionStart]]\n[[hooks.SessionStart.hooks]]\ntype = \"command\"\ncommand = \"sleep 60\"\n", steps: []step{says("done")},
			when: func(l *loop, signal func()) {
				onEvent(is[event.ThreadStarted])(l, func() { time.AfterFunc(200*time.Millisecond, signal) })
			}},
		{name: "closing summary", args: []string{"limits.max_turns=2"}, steps: []step{reply(shell("a", "true")), hangs},
			when: func(l *loop, signal func()) { l.model.steps[1] = after(signal, hangs) }},
		{name: "turn completed", args: []string{"sandbox_mode=workspace-write"}, steps: []step{reply(shell("a", "echo x > f")), says("done")}, when: onEvent(is[event.TurnCompleted])},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLoop(t).config(c.conf, c.args...).says(c.steps...)
			ctx, signal := signalled()
			c.when(l, signal)
			begin := time.Now()
			var res Result
			soon(t, 30*time.Second, func() { res = l.playIn(ctx) })
			l.want(res, "interrupted", "signal", 128+int(syscall.SIGTERM))
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
			if c.early && len(all[event.TurnStarted](l.seen)) > 0 {
				t.Error("the turn began")
			}
			if n := len(all[event.TurnFailed](l.seen)) + len(all[event.TurnCompleted](l.seen)); n != 1 {
				t.Errorf("the turn ended %d times", n)
			}
			if open := openCalls(items(res.History)); len(open) > 0 {
				t.Errorf("calls without an output: %v", open)
			}
		})
	}
}

// brokenSink panics or fails from the n-th record on.
type brokenSink struct {
	n     int
	panic bool
}

func (b *brokenSink) Handle(event.Record) error {
	if b.n--; b.n >= 0 {
		return nil
	}
	if b.panic {
		panic("a bug in a sink")
	}
	return errors.New("the disk is full")
}

func (b *brokenSink) Close(context.Context) error { return b.Handle(event.Record{}) }

// TestBrokenSink: one reader of the log that fails, or panics, takes nothing
// from the others.
func TestBrokenSink(t *testing.T) {
	for _, n := range []int{0, 3, 10, 1000} {
		for _, panics := range []bool{true, false} {
			l := newLoop(t).says(reply(shell("a", "true")), says("done"))
			l.opts.Log = event.NewLog(nil, nil, &brokenSink{n, panics}, l.seen)
			l.opts.Log.Settle()
			res := Run(t.Context(), l.opts)
			l.want(res, "success", "completed", 0)
			err := l.opts.Log.Finish(t.Context(), res.Completed)
			if (err != nil) != (n < 1000) {
				t.Errorf("n=%d panics=%v: %v", n, panics, err)
			}
			l.check()
		}
	}
}

// TestBugInTheEnd: a panic while the run is closed is said and is exit 70; the
// other steps still happen.
func TestBugInTheEnd(t *testing.T) {
	t.Parallel()
	l := newLoop(t, "sandbox_mode=workspace-write").says(reply(shell("a", "echo x > f")), says("done"))
	l.opts.Log = event.NewLog(nil, nil, l.seen)
	l.opts.Log.Settle()
	r := newRun(l.opts)
	l.model.first = func() { r.onEnd(func(context.Context) { panic("a bug at the end") }) }
	res := r.carryOut(t.Context())
	l.want(res, "internal", "internal", ExitInternal)
	if err := l.opts.Log.Finish(t.Context(), res.Completed); err != nil {
		t.Error(err)
	}
	l.check()
	if d := all[event.DiffCaptured](l.seen); len(d) != 1 || len(d[0].Files) != 1 {
		t.Errorf("the diff: %+v", d)
	}
}

// TestNoBaseline: a workspace whose state cannot be taken is no reason to fail;
// the run says so and goes on.
func TestNoBaseline(t *testing.T) {
	t.Parallel()
	l := newLoop(t, "sandbox_mode=workspace-write").says(reply(shell("a", "echo x > f"), shell("b", "true")), reply(shell("c", "true")), says("done"))
	// Where the baseline's private folder should be is a file.
	if err := os.WriteFile(l.opts.Private+"/baseline", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.want(l.play(), "success", "completed", 0)
	said := 0
	for _, n := range all[event.Notice](l.seen) {
		if n.Class == "no_baseline" {
			said++
		}
	}
	d := all[event.DiffCaptured](l.seen)
	if said != 1 || len(d) != 1 || d[0].Error == "" {
		t.Errorf("said %d times; the diff: %+v", said, d)
	}
}

// TestNotify: the notify program runs after a completed turn only.
func TestNotify(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		step step
		want int
	}{{says("done"), 1}, {breaks("overloaded", "busy"), 0}} {
		l := newLoop(t, `notify=["/bin/sh","-c","echo \"$0\" | grep -q agent-turn-complete"]`).says(c.step)
		l.play()
		ran := 0
		for _, h := range all[event.HookCompleted](l.seen) {
			if h.Event == "notify" && h.Outcome == "completed" {
				ran++
			}
		}
		if ran != c.want {
			t.Errorf("it ran %d times, want %d\n%s", ran, c.want, l.seen.text())
		}
	}
}

// TestClassify pins every kind of error to its outcome, class and exit code.
func TestClassify(t *testing.T) {
	service := func(class string) error { return &model.APIError{Class: class, Message: "m", Retryable: true} }
	for _, c := range []struct {
		err     error
		outcome string
		class   string
		code    int
	}{
		{nil, "success", "completed", 0},
		{errors.New("x"), "failed", "failed", 1},
		{fmt.Errorf("x: %w", &workspace.RefError{Ref: "r"}), "usage", "revision", 2},
		{fmt.Errorf("x: %w", &workspace.RevisionError{Ref: "r"}), "usage", "revision", 2},
		{SignalError{2}, "interrupted", "signal", 130},
		{SignalError{15}, "interrupted", "signal", 143},
		{SignalError{1}, "interrupted", "signal", 129},
		{&LimitError{"max_turns", "1", "1"}, "limit", "max_turns", 7},
		{&TurnError{Class: "refused", Code: ExitFailed}, "failed", "refused", 1},
		{&TurnError{Class: "schema_mismatch", Code: ExitOutput}, "output", "schema_mismatch", 8},
		{&TurnError{Class: "verify_failed", Code: ExitGate}, "gate", "verify_failed", 9},
		{&TurnError{Class: "hook_config", Code: ExitUsage}, "usage", "hook_config", 2},
		{&Panic{Value: "x"}, "internal", "internal", 70},
		{&auth.Error{Class: "refresh_refused"}, "auth", "refresh_refused", 5},
		{service("unauthorized"), "auth", "unauthorized", 5},
		{service("forbidden"), "auth", "forbidden", 5},
		{service("quota"), "service", "quota", 6},
		{service("overloaded"), "service", "overloaded", 6},
		{service("network"), "service", "network", 6},
		{service("stream_ended"), "service", "stream_ended", 6},
		{service("idle_timeout"), "service", "idle_timeout", 6},
		{service("rate_limit"), "service", "rate_limit", 6},
		{service("server_error"), "service", "server_error", 6},
		{service("something_new"), "service", "something_new", 6},
		{service("bad_request"), "failed", "bad_request", 1},
		{service("context_length"), "failed", "context_length", 1},
		{service("invalid_model"), "failed", "invalid_model", 1},
		{service("content_filter"), "failed", "content_filter", 1},
		{service("incomplete"), "failed", "incomplete", 1},
		{&policy.Errors{List: []*policy.Error{{Kind: policy.KindPolicy}}}, "policy", "policy", 3},
		{&policy.Errors{List: []*policy.Error{{}}}, "usage", "usage", 2},
		{fmt.Errorf("x: %w", &policy.Error{Kind: policy.KindPolicy}), "policy", "policy", 3},
		{&policy.Error{}, "usage", "usage", 2},
		{&policy.Errors{List: []*policy.Error{{}, {Kind: policy.KindPolicy}}}, "policy", "policy", 3},
		{&sandbox.UnsupportedError{}, "sandbox", "sandbox_unsupported", 4},
		{context.DeadlineExceeded, "failed", "timeout", 1},
	} {
		for _, err := range []error{c.err, fmt.Errorf("around it: %w", c.err)} {
			if c.err == nil {
				err = nil
			}
			o := Classify(err)
			if o.Outcome != c.outcome || o.Class != c.class || o.ExitCode != c.code {
				t.Errorf("%T %v: %s/%s %d, want %s/%s %d", c.err, c.err, o.Outcome, o.Class, o.ExitCode, c.outcome, c.class, c.code)
			}
			if err != c.err && o.Message == "" {
				t.Errorf("%v has no message", err)
			}
		}
	}
	if o := Classify(errors.Join(errors.New("x"), SignalError{15})); o.ExitCode != 143 {
		t.Errorf("a signal among other errors: %+v", o)
	}
	seen := map[int]bool{}
	for _, c := range ExitCodes {
		if seen[c.Code] || c.Meaning == "" || !strings.Contains(c.Meaning, " ") {
			t.Errorf("the table of exit codes: %+v", c)
		}
		seen[c.Code] = true
	}
}
