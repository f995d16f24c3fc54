package runner

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/tool"
)

// meeting is a call that ends only when n of its kind run at once, or never
// could.
type meeting struct {
	mu   sync.Mutex
	n    int
	open chan struct{}
}

func (m *meeting) join(ctx context.Context, all int) bool {
	m.mu.Lock()
	if m.open == nil {
		m.open = make(chan struct{})
	}
	if m.n++; m.n == all {
		close(m.open)
	}
	m.mu.Unlock()
	select {
	case <-m.open:
		return true
	case <-ctx.Done():
		return false
	}
}

// TestParallel: neighbours that may run beside each other do, others never, and
// the outputs come in the order of the calls.
func TestParallel(t *testing.T) {
	t.Parallel()
	var together meeting
	var running, most, alone atomic.Int32
	l := newLoop(t)
	l.tools = []tool.Tool{
		&fakeTool{"beside", true, func(ctx context.Context, c tool.Call) (tool.Result, error) {
			if !together.join(ctx, 3) {
				return failed("the others did not come")
			}
			return done("beside " + c.ID)
		}},
		&fakeTool{"shared", true, func(context.Context, tool.Call) (tool.Result, error) {
			n := running.Add(1)
			defer running.Add(-1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			time.Sleep(20 * time.Millisecond)
			return done("shared")
		}},
		&fakeTool{"alone", false, func(context.Context, tool.Call) (tool.Result, error) {
			if running.Add(1) != 1 || alone.Add(1) != 1 {
				return failed("not alone")
			}
			time.Sleep(20 * time.Millisecond)
			alone.Add(-1)
			running.Add(-1)
			return done("alone")
		}},
	}
	var many []any
	for i := range 40 {
		many = append(many, callOf(fmt.Sprint("s", i), "shared", object{}))
	}
	l.says(
		reply(callOf("a", "beside", object{}), callOf("b", "beside", object{}), callOf("c", "beside", object{})),
		reply(callOf("d", "shared", object{}), callOf("e", "alone", object{}), callOf("f", "alone", object{}), callOf("g", "shared", object{})),
		reply(many...),
		says("done"))
	soon(t, time.Minute, func() { l.want(l.play(), "success", "completed", 0) })
	for _, id := range []string{"a", "b", "c"} {
		if got := l.output(id); got != "beside "+id {
			t.Errorf("the output of %s is %q", id, got)
		}
	}
	for _, id := range []string{"d", "e", "f", "g"} {
		if got := l.output(id); got != "alone" && got != "shared" {
			t.Errorf("the output of %s is %q", id, got)
		}
	}
	if most.Load() > maxParallel || most.Load() < 2 {
		t.Errorf("%d calls ran at once, want up to %d", most.Load(), maxParallel)
	}
	var order []string
	for _, it := range l.model.requests[3].Input {
		if o, err := readItem(it); err == nil && o.Type == "function_call_output" {
			order = append(order, o.CallID)
		}
	}
	if got := strings.Join(order, ""); got[:7] != "abcdefg" || got[7:] != func() (s string) {
		for i := range 40 {
			s += fmt.Sprint("s", i)
		}
		return s
	}() {
		t.Errorf("outputs in the order %s", got)
	}
}

// TestBrokenTool: a tool that fails or panics ends the turn; its neighbours are
// joined, later calls never run, and every call has an output.
func TestBrokenTool(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		call    func(context.Context, tool.Call) (tool.Result, error)
		outcome string
		class   string
		code    int
	}{
		{"error", func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{}, errTool }, "failed", "failed", 1},
		{"panic", func(context.Context, tool.Call) (tool.Result, error) { panic("a bug") }, "internal", "internal", 70},
		{"nil map", func(context.Context, tool.Call) (tool.Result, error) {
			var m map[string]int
			//lint:ignore SA5000 the bug this test is about
			m["x"]++
			return tool.Result{}, nil
		}, "internal", "internal", 70},
	} {
		for _, parallel := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s parallel=%v", c.name, parallel), func(t *testing.T) {
				t.Parallel()
				var neighbour atomic.Bool
				l := newLoop(t)
				l.tools = []tool.Tool{
					&fakeTool{"broken", parallel, func(ctx context.Context, call tool.Call) (tool.Result, error) {
						// An item of its own stays open.
						l.opts.Log.Start(event.MCPToolCall{Server: "s", Tool: "t", Status: event.InProgress})
						return c.call(ctx, call)
					}},
					&fakeTool{"neighbour", true, func(ctx context.Context, _ tool.Call) (tool.Result, error) {
						<-ctx.Done() // it ends with the group
						neighbour.Store(true)
						return failed("stopped")
					}},
				}
				calls := []any{callOf("x", "broken", object{}), callOf("z", "exec_command", object{"cmd": "touch never"})}
				if parallel {
					calls = []any{callOf("y", "neighbour", object{}), callOf("x", "broken", object{}), patchOf("z", "*** Begin Patch\n*** Add File: never\n+x\n*** End Patch\n")}
				}
				l.says(reply(calls...))
				var res Result
				soon(t, time.Minute, func() { res = l.play() })
				l.want(res, c.outcome, c.class, c.code)
				if parallel && !neighbour.Load() {
					t.Error("the neighbour was not joined")
				}
				if _, err := os.Stat(l.ws + "/never"); err == nil {
					t.Error("a call after the broken one ran")
				}
				if open := openCalls(items(res.History)); len(open) > 0 {
					t.Errorf("calls without an output: %v", open)
				}
				items := finished[event.MCPToolCall](l.seen)
				if len(items) != 1 || items[0].Status != event.Failed || items[0].Error == nil {
					t.Errorf("the item of the broken tool: %+v", items)
				}
				if c.code == ExitInternal && !strings.Contains(l.seen.text(), "dispatch_test.go") {
					t.Error("the log does not tell where the bug is")
				}
			})
		}
	}
}

// TestAtMostOnce: an attempt that breaks after it has sent calls is void; the
// calls of the attempt that counts run once.
func TestAtMostOnce(t *testing.T) {
	t.Parallel()
	var ran atomic.Int32
	l := newLoop(t)
	l.tools = []tool.Tool{&fakeTool{"act", true, func(context.Context, tool.Call) (tool.Result, error) {
		ran.Add(1)
		return done("acted")
	}}}
	l.says(retriedThen(3, reply(callOf("a", "act", object{}))), says("done"))
	l.want(l.play(), "success", "completed", 0)
	if ran.Load() != 1 {
		t.Errorf("the call ran %d times", ran.Load())
	}
	if n := len(all[event.ToolCompleted](l.seen)); n > 1 {
		t.Errorf("%d records of the call", n)
	}
}

// TestUnknownCall: what was never offered is answered and shown.
func TestUnknownCall(t *testing.T) {
	t.Parallel()
	l := newLoop(t).says(reply(callOf("a", "launch", object{}), agentCall("b", "spawn_agent", object{"message": "x"}),
		object{"type": "custom_tool_call", "call_id": "c", "name": "brew", "input": "tea"}), says("done"))
	res := l.play()
	l.want(res, "success", "completed", 0)
	for id, want := range map[string]string{"a": "unsupported call: launch", "b": "unsupported call: spawn_agent", "c": "unsupported custom tool call: brew"} {
		if got := l.output(id); got != want {
			t.Errorf("the output of %s is %q", id, got)
		}
	}
	if res.Completed.Totals.ToolCalls != 3 || res.Completed.Totals.FailedTools != 3 {
		t.Errorf("%+v", res.Completed.Totals)
	}
}

// TestStrict: denied and failed calls are a failed gate under --strict, and none
// are none.
func TestStrict(t *testing.T) {
	t.Parallel()
	for script, code := range map[string]int{"true": 0, "exit 1": ExitGate, "rm -rf x": ExitGate} {
		l := newLoop(t).says(reply(shell("a", script)), says("done"))
		l.opts.Strict = true
		if res := l.play(); res.ExitCode != code {
			t.Errorf("%s: exit code %d, want %d (%s)", script, res.ExitCode, code, res.Message)
		}
	}
}

// announced is a tool that tells when a call has begun.
type announced struct{ fakeTool }

func (*announced) Announces() {}

// TestCallsBeginInOrder: calls that run beside each other begin in the order in
// which the model made them, and one that says nothing holds up nobody.
func TestCallsBeginInOrder(t *testing.T) {
	t.Parallel()
	var together meeting
	var mu sync.Mutex
	var began []string
	l := newLoop(t)
	l.tools = []tool.Tool{
		&announced{fakeTool{"told", true, func(ctx context.Context, c tool.Call) (tool.Result, error) {
			time.Sleep(time.Millisecond)
			mu.Lock()
			began = append(began, c.ID)
			mu.Unlock()
			tool.Begun(ctx)
			if !together.join(ctx, 10) {
				return failed("the others did not come")
			}
			return done("told")
		}}},
		&fakeTool{"silent", true, func(ctx context.Context, c tool.Call) (tool.Result, error) {
			if !together.join(ctx, 10) {
				return failed("the others did not come")
			}
			return done("silent")
		}},
		&announced{fakeTool{"brief", true, func(_ context.Context, c tool.Call) (tool.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			began = append(began, c.ID)
			return failed("it never began")
		}}},
	}
	var calls []any
	var want []string
	for i := range 8 {
		calls = append(calls, callOf(fmt.Sprint("c", i), "told", object{}))
		want = append(want, fmt.Sprint("c", i))
		switch i {
		case 1, 3:
			calls = append(calls, callOf(fmt.Sprint("s", i), "silent", object{}))
		case 5:
			calls = append(calls, callOf("b", "brief", object{}))
			want = append(want, "b")
		}
	}
	l.says(reply(calls...), says("done"))
	soon(t, time.Minute, func() { l.want(l.play(), "success", "completed", 0) })
	if got, want := strings.Join(began, " "), strings.Join(want, " "); got != want {
		t.Errorf("the calls began as %s, want %s", got, want)
	}
}
