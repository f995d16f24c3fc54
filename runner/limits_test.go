package runner

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
)

// purposes are what the requests were made for.
func (l *loop) purposes() string {
	var out []string
	for _, r := range l.model.requests {
		out = append(out, r.Purpose)
	}
	return strings.Join(out, " ")
}

// TestLimits runs into each limit. The last column is what the model was asked:
// the closing summary is a response like any other, without tools.
func TestLimits(t *testing.T) {
	t.Parallel()
	work := func(id string) step { return reply(shell(id, "true")) }
	fails := func(id string) step { return reply(shell(id, "exit 3")) }
	big := func(id string) step {
		return replyWith(model.Response{Usage: event.Usage{Input: 1_000_000, Output: 0}}, shell(id, "true"))
	}
	prices := `model="m" prices.models.m.input=3.0 prices.models.m.output=0.0`
	for _, c := range []struct {
		name      string
		overrides string
		steps     []step
		class     string
		calls     int // tool calls that ran
		purposes  string
	}{
		{"turns", "limits.max_turns=3", []step{work("a"), work("b"), says("sum")}, "max_turns", 2, "turn turn final_answer"},
		{"one turn", "limits.max_turns=1", []step{work("a")}, "max_turns", 1, "turn"},
		{"turns without a summary", "limits.max_turns=2 limits.no_final_answer=true", []step{work("a"), work("b")}, "max_turns", 2, "turn turn"},
		{"the summary calls a tool", "limits.max_turns=2", []step{work("a"), work("b")}, "max_turns", 1, "turn final_answer"},
		{"the summary fails", "limits.max_turns=2", []step{work("a"), breaks("overloaded", "busy")}, "max_turns", 1, "turn final_answer"},
		{"tool calls", "limits.max_tool_calls=2", []step{work("a"), work("b"), work("c"), says("sum")}, "max_tool_calls", 2, "turn turn turn final_answer"},
		{"tool calls of one response", "limits.max_tool_calls=2", []step{reply(shell("a", "true"), shell("b", "true"), shell("c", "true")), says("sum")},
			"max_tool_calls", 0, "turn final_answer"},
		{"tokens", "limits.max_tokens=200", []step{work("a"), work("b"), says("sum")}, "max_tokens", 2, "turn turn final_answer"},
		{"money", prices + " limits.max_cost_usd=5.0", []step{big("a"), big("b"), says("sum")}, "max_cost", 2, "turn turn final_answer"},
		{"the same failure", "limits.max_repeated_failures=2", []step{fails("a"), work("x"), fails("b"), fails("c"), says("sum")}, "repeated_failure", 4,
			"turn turn turn turn final_answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLoop(t, strings.Fields(c.overrides)...).says(c.steps...)
			res := l.play()
			l.want(res, "limit", c.class, ExitLimit)
			ran := 0
			for _, d := range finished[event.CommandExecution](l.seen) {
				if d.Status != event.Declined {
					ran++
				} else if d.Denial == nil || d.Denial.Source != "limit" {
					t.Errorf("a call that a limit stopped does not say so: %+v", d)
				}
			}
			if ran != c.calls {
				t.Errorf("%d calls ran, want %d", ran, c.calls)
			}
			if got := l.purposes(); got != c.purposes {
				t.Errorf("requests %q, want %q", got, c.purposes)
			}
			if last := l.model.requests[len(l.model.requests)-1]; last.Purpose == "final_answer" && len(last.Tools) > 0 {
				t.Error("the closing summary may call tools")
			}
			if n := len(all[event.LimitReached](l.seen)); n != 1 {
				t.Errorf("limit.reached %d times", n)
			}
			if res.Hint == "" {
				t.Error("no hint how to go on")
			}
		})
	}
}

// TestLimitNotReached: a limit that is just kept does not end the run.
func TestLimitNotReached(t *testing.T) {
	t.Parallel()
	l := newLoop(t, "limits.max_turns=3", "limits.max_tool_calls=1", "limits.max_tokens=221", "limits.max_repeated_failures=2").
		says(reply(shell("a", "exit 3")), says("done"))
	l.want(l.play(), "success", "completed", 0)
}

// TestCompactionCounts: a compaction is a response too, and none is made once
// the limit is reached.
func TestCompactionCounts(t *testing.T) {
	t.Parallel()
	l := newLoop(t, "limits.max_turns=2", "limits.no_final_answer=true", "model_auto_compact_token_limit=50").
		says(reply(shell("a", "echo "+strings.Repeat("x", 4000))), says("summary"))
	l.rewrites = true
	l.want(l.play(), "limit", "max_turns", ExitLimit)
	if got := l.purposes(); got != "turn compaction" {
		t.Errorf("requests %q", got)
	}
}

// TestTimeLimits ends runs that hang in the model, in a command and in a gate.
func TestTimeLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		overrides []string
		steps     []step
		class     string
	}{
		{"wall, model", []string{"limits.max_wall_time=\"1s\""}, []step{hangs, hangs}, "max_wall"},
		{"wall, command", []string{"limits.max_wall_time=\"1s\""}, []step{reply(shell("a", "sleep 60")), hangs}, "max_wall"},
		{"wall, verify", []string{"limits.max_wall_time=\"1s\"", "verify=[\"sleep 60\"]"}, []step{says("done"), hangs}, "max_wall"},
		{"idle, model", []string{"limits.max_idle_time=\"1s\""}, []step{reply(shell("a", "true")), hangs, says("sum")}, "max_idle"},
		{"idle, trickle", []string{"limits.max_idle_time=\"1s\""}, []step{trickles, says("sum")}, "max_idle"},
		{"idle, command", []string{"limits.max_idle_time=\"1s\"", "limits.no_final_answer=true"}, []step{reply(shell("a", "while :; do echo x; sleep 0.1; done"))}, "max_idle"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLoop(t, c.overrides...).says(c.steps...)
			var res Result
			soon(t, 40*time.Second, func() { res = l.play() })
			l.want(res, "limit", c.class, ExitLimit)
		})
	}
}

// trickles sends a sign of life again and again, and never a response.
func trickles(ctx context.Context, _ model.Request, yield func(model.Delta, error) bool) {
	for yield(model.Delta{Progress: &model.Progress{Event: "response.output_text.delta", Text: "x"}}, nil) {
		select {
		case <-ctx.Done():
			yield(model.Delta{}, context.Cause(ctx))
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TestClock checks the timers in made-up time.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			limits     policy.Limits
			touch      time.Duration // until when progress is made, every 10 s
			work, run  time.Duration // when each ends, 0: not within an hour
			workReason string
		}{
			{policy.Limits{}, 0, 0, 0, ""},
			{policy.Limits{MaxWallTime: 10 * time.Minute}, 0, 10*time.Minute - 30*time.Second, 10 * time.Minute, "max_wall"},
			{policy.Limits{MaxWallTime: 100 * time.Second}, 0, 90 * time.Second, 100 * time.Second, "max_wall"},
			{policy.Limits{MaxWallTime: 100 * time.Second, NoFinalAnswer: true}, 0, 100 * time.Second, 100 * time.Second, "max_wall"},
			{policy.Limits{MaxIdleTime: 30 * time.Second}, 0, 30 * time.Second, 0, "max_idle"},
			{policy.Limits{MaxIdleTime: 30 * time.Second}, time.Minute, time.Minute + 30*time.Second, 0, "max_idle"},
			{policy.Limits{MaxIdleTime: 5 * time.Second}, time.Minute, 5 * time.Second, 0, "max_idle"},
		} {
			run, cancel := context.WithCancelCause(t.Context())
			work, cancelWork := context.WithCancelCause(run)
			begin := time.Now()
			clock := startClock(c.limits, cancelWork, cancel, func() {})
			ended := map[string]time.Duration{}
			for at := time.Duration(0); at < time.Hour; at += time.Second {
				synctest.Wait()
				for name, ctx := range map[string]context.Context{"work": work, "run": run} {
					if _, ok := ended[name]; !ok && ctx.Err() != nil {
						ended[name] = time.Since(begin)
					}
				}
				if at > 0 && at <= c.touch && at%(10*time.Second) == 0 {
					clock.touch()
				}
				time.Sleep(time.Second)
			}
			if ended["work"] != c.work || ended["run"] != c.run {
				t.Errorf("%+v: the work ended at %s and the run at %s, want %s and %s", c.limits, ended["work"], ended["run"], c.work, c.run)
			}
			var limit *LimitError
			if c.workReason != "" && (!errors.As(context.Cause(work), &limit) || limit.Limit != c.workReason) {
				t.Errorf("%+v: the cause is %v", c.limits, context.Cause(work))
			}
			clock.stop()
			clock.touch() // a late call does no harm
			cancel(nil)
			cancelWork(nil)
		}
	})
}

func TestMeter(t *testing.T) {
	m := meter{spent: &spending{}, limits: policy.Limits{MaxRepeatedFailures: 3}}
	for _, s := range []struct {
		step   string
		failed bool
		limit  bool
	}{
		{"a", true, false}, {"a", true, false}, {"b", true, false}, {"a", true, false}, {"a", true, false}, {"x", false, false},
		{"a", true, false}, {"a", true, false}, {"a", true, true},
	} {
		m.step(s.step, s.failed)
		if got := m.beforeRequest() != nil; got != s.limit {
			t.Errorf("after %s: limit %v", s.step, got)
		}
	}
	shared := &spending{}
	a := meter{spent: shared, limits: policy.Limits{MaxTokens: 100, MaxTurns: 5}}
	b := meter{spent: shared, limits: a.limits}
	a.response("m", event.Usage{Input: 60})
	b.response("m", event.Usage{Input: 50})
	if a.beforeRequest() == nil || b.beforeRequest() == nil || a.usage.Input != 60 || b.usage.Input != 50 {
		t.Error("two runs that share a budget do not see each other")
	}
	if !slices.Equal([]int{shared.responses, int(shared.tokens)}, []int{2, 110}) {
		t.Errorf("%+v", shared)
	}
}
