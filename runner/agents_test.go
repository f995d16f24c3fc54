package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
)

// withAgents lets the run start sub-agents. Parent and agents share one model;
// script picks what to do by the first line of each conversation's task.
func withAgents(t *testing.T, c policy.AgentsConfig, script func(task string, req model.Request, n int) step, overrides ...string) *loop {
	t.Helper()
	l := newLoop(t, overrides...)
	l.opts.Agents = NewAgentPool(c)
	var mu sync.Mutex
	asked := map[string]int{}
	next := func(ctx context.Context, req model.Request, yield func(model.Delta, error) bool) {
		task := taskOf(req.Input)
		mu.Lock()
		asked[task]++
		n := asked[task]
		mu.Unlock()
		script(task, req, n)(ctx, req, yield)
	}
	l.says(again(500, next)...)
	l.rewrites = true // requests of several conversations are mixed
	return l
}

// taskOf is the last prompt in the input.
func taskOf(in []model.Item) string {
	task := ""
	for _, it := range in {
		if o, err := readItem(it); err == nil && o.Type == "message" && o.Role == "user" {
			for _, c := range o.Content {
				if strings.HasPrefix(c.Text, "do ") {
					task = c.Text
				}
			}
		}
	}
	return task
}

func spawn(id, task string) object { return agentCall(id, "spawn_agent", object{"message": task}) }

// agentIDs are the ids that the spawn calls returned, in order.
func agentIDs(req model.Request) []string {
	var ids []string
	for _, it := range req.Input {
		var o struct {
			Output string `json:"output"`
		}
		var r struct {
			ID string `json:"agent_id"`
		}
		if json.Unmarshal(it.Raw, &o) == nil && json.Unmarshal([]byte(o.Output), &r) == nil && r.ID != "" {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

func waitFor(id string, ids []string) object {
	return agentCall(id, "wait_agent", object{"ids": ids, "timeout_ms": 20000})
}

// TestAgents: an agent works in the same folder under the same policy, its
// records are nested in the log, and its usage is in the totals.
func TestAgents(t *testing.T) {
	t.Parallel()
	l := withAgents(t, policy.AgentsConfig{}, func(task string, req model.Request, n int) step {
		switch {
		case task == "do a" && n == 1:
			return reply(shell("x", "echo from the agent > a.txt"), shell("y", "rm -rf /"))
		case task == "do a":
			return says("a is done")
		case task == "do more":
			return says("more is done")
		case n == 1:
			return reply(spawn("s1", "do a"))
		case n == 2:
			return reply(waitFor("w1", agentIDs(req)))
		case n == 3:
			return reply(agentCall("i1", "send_input", object{"id": agentIDs(req)[0], "message": "do more"}))
		case n == 4:
			return reply(waitFor("w2", agentIDs(req)))
		case n == 5:
			return reply(agentCall("c1", "close_agent", object{"id": agentIDs(req)[0]}))
		case n == 6:
			return reply(agentCall("i2", "send_input", object{"id": agentIDs(req)[0], "message": "do a"}))
		}
		return says("done")
	}, "sandbox_mode=workspace-write")
	res := l.play()
	l.want(res, "success", "completed", 0)
	for id, want := range map[string]string{"w1": "a is done", "w2": "more is done", "c1": `"status":"completed"`, "i2": "is closed"} {
		if got := l.output(id); !strings.Contains(got, want) {
			t.Errorf("the output of %s is %q, want %q in it", id, got, want)
		}
	}
	c := res.Completed
	if c.Totals.Agents != 1 || c.Totals.ModelResponses != 10 || c.Totals.Denials != 1 || c.Usage.Input != 1000 || c.ThreadUsage.Input != 700 {
		t.Errorf("totals %+v, usage %+v, of the thread %+v", c.Totals, c.Usage, c.ThreadUsage)
	}
	byAgent := map[string][]event.Record{}
	for _, e := range all[event.AgentEvent](l.seen) {
		var rec event.Record
		if err := json.Unmarshal(e.Record, &rec); err != nil {
			t.Fatal(err)
		}
		byAgent[e.AgentID] = append(byAgent[e.AgentID], rec)
	}
	if len(byAgent) != 1 {
		t.Fatalf("%d agents in the log", len(byAgent))
	}
	if d := all[event.DiffCaptured](l.seen); len(d) != 1 || len(d[0].Files) != 1 || d[0].Files[0].Path != "a.txt" {
		t.Errorf("the diff: %+v", d)
	}
}

// TestAgentLimits: agents at once are bounded over all depths, and depth is.
func TestAgentLimits(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	outputs := map[string]string{}
	remember := func(req model.Request) {
		mu.Lock()
		defer mu.Unlock()
		for _, it := range req.Input {
			var o struct {
				CallID string `json:"call_id"`
				Output string `json:"output"`
			}
			if json.Unmarshal(it.Raw, &o) == nil && o.Output != "" {
				outputs[o.CallID] = o.Output
			}
		}
	}
	release := make(chan struct{})
	l := withAgents(t, policy.AgentsConfig{MaxThreads: 2, MaxDepth: 2}, func(task string, req model.Request, n int) step {
		remember(req)
		switch {
		case task == "do a" && n == 1:
			return reply(spawn("a1", "do b"), spawn("a2", "do b"))
		case task == "do a" && n == 2:
			close(release)
			return says("a is done")
		case task == "do b" && n == 1:
			return reply(spawn("b1", "do c"))
		case task == "do b":
			return says("b is done")
		case n == 1:
			return reply(spawn("s1", "do a"))
		}
		return after(func() { <-release }, says("done"))
	})
	soon(t, time.Minute, func() { l.want(l.play(), "success", "completed", 0) })
	mu.Lock()
	defer mu.Unlock()
	refused := 0
	for _, id := range []string{"a1", "a2"} {
		if strings.Contains(outputs[id], "limit of 2 agents") {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("%d of two agents of an agent were refused, want 1: %v", refused, outputs)
	}
	if got, ok := outputs["b1"]; ok && !strings.Contains(got, "unsupported call") {
		t.Errorf("an agent at the greatest depth could start another: %q", got)
	}
}

// TestAgentsShareTheLimits: what agents use counts for the run.
func TestAgentsShareTheLimits(t *testing.T) {
	t.Parallel()
	for name, class := range map[string]string{"limits.max_turns=5": "max_turns", "limits.max_tokens=500": "max_tokens", "limits.max_tool_calls=4": "max_tool_calls"} {
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			l := withAgents(t, policy.AgentsConfig{}, func(task string, req model.Request, n int) step {
				switch {
				case len(req.Tools) == 0:
					return says("summary")
				case task == "do a":
					return reply(shell(fmt.Sprint("x", n), "true"))
				case n == 1:
					return reply(spawn("s1", "do a"))
				}
				return reply(waitFor(fmt.Sprint("w", n), agentIDs(req)))
			}, name)
			var res Result
			soon(t, time.Minute, func() { res = l.play() })
			l.want(res, "limit", class, ExitLimit)
			if n := res.Completed.Totals.ModelResponses; n > 10 {
				t.Errorf("%d responses", n)
			}
		})
	}
}

// TestAgentsEnd: whatever ends the parent ends its agents, and their items.
func TestAgentsEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		class string
		last  func(signal func()) step
	}{
		{"answer", "completed", func(func()) step { return says("done") }},
		{"signal", "signal", func(signal func()) step { return after(signal, hangs) }},
		{"failure", "overloaded", func(func()) step { return breaks("overloaded", "busy") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, signal := signalled()
			working := make(chan struct{}, 2)
			l := withAgents(t, policy.AgentsConfig{}, func(task string, _ model.Request, n int) step {
				switch {
				case task == "do a":
					return reply(shell("x", "sleep 60"))
				case task == "do b":
					return after(func() { working <- struct{}{} }, hangs)
				case n == 1:
					return reply(spawn("s1", "do a"), spawn("s2", "do b"))
				}
				return after(func() { <-working }, c.last(signal))
			})
			var res Result
			soon(t, 30*time.Second, func() { res = l.playIn(ctx) })
			if res.Class != c.class || res.Completed.Totals.Agents != 2 {
				t.Errorf("%s (%s), %+v", res.Class, res.Message, res.Completed.Totals)
			}
			said := 0
			for _, e := range all[event.ItemCompleted](l.seen) {
				if w, ok := e.Item.Details.(event.ErrorItem); ok && strings.Contains(w.Message, "2 agents were still at work") {
					said++
				}
			}
			if want := c.class == "completed"; (said == 1) != want || said > 1 {
				t.Errorf("unfinished work is told %d times", said)
			}
			nested := map[string][]event.Record{}
			for _, e := range all[event.AgentEvent](l.seen) {
				var rec event.Record
				if err := json.Unmarshal(e.Record, &rec); err != nil {
					t.Fatal(err)
				}
				nested[e.AgentID] = append(nested[e.AgentID], rec)
			}
			for id, recs := range nested {
				if bad := itemFaults(recs); len(bad) > 0 {
					t.Errorf("agent %s: %v", id, bad)
				}
				if !is[event.RunCompleted](recs[len(recs)-1].Event) {
					t.Errorf("the last record of agent %s is %T", id, recs[len(recs)-1].Event)
				}
			}
		})
	}
}

// TestAgentRaces sends to, waits for and closes the same agents at once; the
// race detector looks on.
func TestAgentRaces(t *testing.T) {
	t.Parallel()
	l := withAgents(t, policy.AgentsConfig{MaxThreads: 4}, func(task string, req model.Request, n int) step {
		if task != "do it" {
			return says("done")
		}
		if n == 1 {
			return reply(spawn("s1", "do a"), spawn("s2", "do b"))
		}
		if n > 5 {
			return says("done")
		}
		ids := agentIDs(req)
		var calls []any
		for i := range 12 {
			to := ids[i%len(ids)]
			id := fmt.Sprintf("r%d_%d", n, i)
			switch i % 4 {
			case 0, 1:
				calls = append(calls, agentCall(id, "send_input", object{"id": to, "message": "do c"}))
			case 2:
				calls = append(calls, waitFor(id, ids))
			case 3:
				if n == 5 {
					calls = append(calls, agentCall(id, "close_agent", object{"id": to}))
				} else {
					calls = append(calls, waitFor(id, []string{"no such agent"}))
				}
			}
		}
		return reply(calls...)
	})
	soon(t, 2*time.Minute, func() { l.want(l.play(), "success", "completed", 0) })
}

// TestAgentsKeepTheParentBusy: an agent that makes progress is progress of the
// parent that waits for it.
func TestAgentsKeepTheParentBusy(t *testing.T) {
	t.Parallel()
	l := withAgents(t, policy.AgentsConfig{}, func(task string, req model.Request, n int) step {
		switch {
		case task == "do a" && n <= 5:
			return reply(shell(fmt.Sprint("x", n), "sleep 0.7"))
		case task == "do a":
			return says("a is done")
		case n == 1:
			return reply(spawn("s1", "do a"))
		case n == 2:
			return reply(waitFor("w", agentIDs(req)))
		}
		return says("done")
	}, `limits.max_idle_time="3s"`)
	l.want(l.play(), "success", "completed", 0)
}

// TestAgentRoles: an agent of a role works with the role's model and
// instructions, and the gates at the end of the run are not for agents.
func TestAgentRoles(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string]model.Request{}
	l := withAgents(t, policy.AgentsConfig{}, func(task string, req model.Request, n int) step {
		mu.Lock()
		asked[task] = req
		mu.Unlock()
		switch {
		case task == "do a" || task == "do b":
			return says(task + " is done")
		case n == 1:
			return reply(agentCall("s1", "spawn_agent", object{"message": "do a", "agent_type": "critic"}), spawn("s2", "do b"),
				agentCall("s3", "spawn_agent", object{"message": "do c", "agent_type": "nobody"}))
		case n == 2:
			return reply(waitFor("w1", agentIDs(req)[:1]), waitFor("w2", agentIDs(req)[1:]))
		}
		return says("done")
	})
	if err := os.WriteFile(l.opts.Home+"/critic.toml", []byte("model = \"small\"\nmodel_reasoning_effort = \"high\"\ndeveloper_instructions = \"Find what is wrong.\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const gate = `command = "echo ran >> gates"`
	l.config("model = \"large\"\nsandbox_mode = \"workspace-write\"\nverify = [\"echo verified >> gates\"]\n" +
		"[agents.critic]\ndescription = \"A critic.\"\nconfig_file = \"critic.toml\"\n" +
		"[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = \"command\"\n" + gate + "\n" +
		"[[hooks.SessionStart]]\n[[hooks.SessionStart.hooks]]\ntype = \"command\"\n" + gate + "\n" +
		"[[hooks.UserPromptSubmit]]\n[[hooks.UserPromptSubmit.hooks]]\ntype = \"command\"\n" + gate + "\n")
	l.want(l.play(), "success", "completed", 0)
	if got := l.output("s3"); !strings.Contains(got, "unknown agent_type") {
		t.Errorf("s3: %s", got)
	}
	if a := asked["do a"]; a.Model != "small" || a.Effort != "high" || !strings.Contains(string(rawItem(a.Input).Raw), "Find what is wrong.") {
		t.Errorf("the critic was asked as %s with effort %q", a.Model, a.Effort)
	}
	if b := asked["do b"]; b.Model != "large" || strings.Contains(string(rawItem(b.Input).Raw), "Find what is wrong.") {
		t.Errorf("an agent without a role was asked as %s", b.Model)
	}
	out, err := os.ReadFile(l.ws + "/gates")
	if err != nil || string(out) != "ran\nran\nran\nverified\n" {
		t.Errorf("gates: %q, %v", out, err)
	}
}

// TestNoDepth: agents.max_depth = 0 is no sub-agents, and not the default.
func TestNoDepth(t *testing.T) {
	for depth, want := range map[int]bool{-1: false, 0: true, 1: true} {
		if pool := NewAgentPool(policy.AgentsConfig{MaxDepth: depth}); (pool.depth > 0) != want {
			t.Errorf("max depth %d: agents may start agents %d deep", depth, pool.depth)
		}
	}
}
