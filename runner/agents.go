package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/tool"
)

// agentNamespace is the namespace of the sub-agent tools in requests.
const agentNamespace = "multi_agent_v1"

// Defaults of [agents].
const (
	defaultMaxAgents = 6
	defaultMaxDepth  = 1
	// agentWaitDefault and agentWaitMax bound one wait, besides the limits of
	// the run.
	agentWaitDefault = 30 * time.Second
	agentWaitMax     = 10 * time.Minute
)

// AgentPool bounds the sub-agents of a whole run, whatever depth starts them.
// It is safe for concurrent use.
type AgentPool struct {
	slots slots // shared by all depths
	depth int   // how much deeper agents may start agents
}

// slots holds one value for each agent that works at the moment.
type slots chan struct{}

// NewAgentPool returns the pool that [agents] allows.
func NewAgentPool(c policy.AgentsConfig) *AgentPool {
	p := &AgentPool{slots: make(slots, defaultMaxAgents), depth: c.MaxDepth}
	if c.MaxThreads > 0 {
		p.slots = make(slots, c.MaxThreads)
	}
	if p.depth == 0 {
		p.depth = defaultMaxDepth
	}
	return p
}

func (s slots) max() int { return cap(s) }

// take takes a slot if one is free.
func (s slots) take() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

// wait takes a slot as soon as one is free.
func (s slots) wait(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s slots) give() { <-s }

// agents are the sub-agents that one run has started. A nil *agents has none.
type agents struct {
	r   *run
	ctx context.Context

	mu     sync.Mutex
	byID   map[string]*agent
	used   event.Usage
	cost   float64
	totals event.Totals
}

// agent is one sub-agent: a run of its own with the parent's rights or fewer.
// Its fields are guarded by agents.mu, but for id and name.
type agent struct {
	id, name string
	opts     Options
	cancel   context.CancelFunc
	done     chan struct{} // closed when the current turn has ended
	state    event.AgentState
	closed   bool
}

// agentNames are what agents are called in messages to the model.
var agentNames = []string{"Alder", "Birch", "Cedar", "Elm", "Fir", "Hazel", "Larch", "Maple", "Oak", "Pine", "Rowan", "Willow"}

// openAgents offers the sub-agent tools, where the configuration wants them.
func (r *run) openAgents(ctx context.Context) {
	if r.Agents == nil || r.Agents.depth <= 0 {
		return
	}
	a := &agents{r: r, ctx: ctx, byID: map[string]*agent{}}
	r.state.agents = a
	r.tools.list = append(r.tools.list,
		&agentTool{a, "spawn_agent", a.spawn}, &agentTool{a, "send_input", a.send}, &agentTool{a, "wait_agent", a.wait},
		&agentTool{a, "close_agent", a.close})
	if r.cfg.Features[fanout] {
		r.tools.list = append(r.tools.list, &csvTool{a})
	}
}

// agentTool is one of the sub-agent tools.
type agentTool struct {
	agents *agents
	name   string
	call   func(context.Context, tool.Call) (tool.Result, error)
}

// Name is the tool's name.
func (t *agentTool) Name() string { return t.name }

// Namespace groups the tools in the request.
func (t *agentTool) Namespace() string { return agentNamespace }

// Parallel lets agents be started and awaited beside each other.
func (t *agentTool) Parallel() bool { return true }

// Spec describes the tool.
func (t *agentTool) Spec() json.RawMessage {
	return json.RawMessage(agentSpecs[t.name](t.agents.r.cfg.Agents.Roles))
}

// Call runs the tool.
func (t *agentTool) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	return t.call(ctx, c)
}

// spawn starts an agent on a task and returns at once.
func (a *agents) spawn(_ context.Context, c tool.Call) (tool.Result, error) {
	var args struct {
		Message string `json:"message"`
		Prompt  string `json:"prompt"`
		Role    string `json:"agent_type"`
		Model   string `json:"model"`
	}
	if err := json.Unmarshal(c.Arguments, &args); err != nil {
		return a.refused(c, "spawn_agent", "failed to parse function arguments: "+err.Error()), nil
	}
	if args.Message == "" {
		args.Message = args.Prompt
	}
	if args.Message == "" {
		return a.refused(c, "spawn_agent", "failed to parse function arguments: missing field `message`"), nil
	}
	opts, err := a.options(args.Message, args.Role)
	if err != nil {
		return a.refused(c, "spawn_agent", err.Error()), nil
	}
	if !a.r.Agents.slots.take() {
		return a.refused(c, "spawn_agent", fmt.Sprintf("the limit of %d agents at once is reached; wait for one or close one", a.r.Agents.slots.max())), nil
	}
	done := make(chan struct{})
	close(done) // it has not begun
	a.mu.Lock()
	ag := &agent{id: opts.Thread.ID, name: agentNames[len(a.byID)%len(agentNames)], opts: opts, cancel: func() {}, done: done,
		state: event.AgentState{Status: "pending_init"}}
	a.byID[ag.id] = ag
	a.mu.Unlock()
	id := a.item(c, "", "spawn_agent", []string{ag.id}, &args.Message, event.InProgress)
	a.start(ag, args.Message)
	a.item(c, id, "spawn_agent", []string{ag.id}, &args.Message, event.Completed)
	return a.result(id, map[string]string{"agent_id": ag.id, "nickname": ag.name}), nil
}

// options are the parent's with a log of their own and less depth.
func (a *agents) options(prompt, role string) (Options, error) {
	p := a.r
	o := p.Options
	o.Mode, o.Prompt, o.Images, o.Schema, o.Strict, o.FailOn = "agent", prompt, nil, nil, false, ""
	id := p.NewID()
	o.Thread = Thread{ID: id, ParentID: p.Thread.ID, Source: "agent"}
	o.Agents = &AgentPool{slots: p.Agents.slots, depth: p.Agents.depth - 1}
	o.Private = filepath.Join(p.Private, "agent-"+id)
	if err := os.MkdirAll(o.Private, 0o700); err != nil {
		return o, fmt.Errorf("no private folder for the agent: %w", err)
	}
	o.Notices, o.row, o.role = nil, nil, policy.AgentRole{}
	o.Log = a.newLog(id)
	if role != "" && role != "default" {
		r, ok := p.cfg.Agents.Roles[role]
		if !ok {
			return o, fmt.Errorf("unknown agent_type %q", role)
		}
		o.Extra = slices.Clone(o.Extra)
		if r.Description != "" {
			o.Extra = append(o.Extra, "Your role: "+role+". "+r.Description)
		}
		if r.Instructions != "" {
			o.Extra = append(o.Extra, r.Instructions)
		}
		o.role = r
	}
	return o, nil
}

func (a *agents) newLog(id string) *event.Log {
	l := event.NewLog(a.r.Now, a.r.Mask, nest{a.r, id})
	l.Settle()
	return l
}

// nest hands a child's records to the parent's log.
type nest struct {
	parent *run
	id     string
}

// Handle wraps the record. What an agent finishes is progress of its parent too.
func (n nest) Handle(rec event.Record) error {
	raw, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("agent %s: %w", n.id, err)
	}
	switch rec.Event.(type) {
	case event.ModelResponse, event.ItemCompleted:
		n.parent.clock.touch()
	}
	n.parent.log.Emit(event.AgentEvent{AgentID: n.id, Record: raw})
	return nil
}

// Close has nothing to finish: the parent's log lives on.
func (n nest) Close(context.Context) error { return nil }

// start runs the agent's next turn; the caller has taken a slot for it. close,
// or the end of the parent, joins it.
func (a *agents) start(ag *agent, prompt string) {
	ctx, cancel := context.WithCancel(a.ctx)
	done := make(chan struct{})
	a.mu.Lock()
	ag.cancel, ag.done = cancel, done
	ag.state = event.AgentState{Status: "running"}
	ag.opts.Prompt = prompt
	opts := ag.opts
	a.mu.Unlock()
	go func() {
		defer close(done)
		defer a.r.Agents.slots.give()
		defer cancel()
		res := Run(ctx, opts)
		ferr := opts.Log.Finish(ctx, res.Completed)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.account(res.Completed)
		ag.opts.Thread.History, ag.opts.Thread.Usage = res.History, res.Usage
		text := res.Completed.FinalMessage
		ag.state = event.AgentState{Status: "completed", Message: &text}
		if res.ExitCode != ExitSuccess || ferr != nil {
			text = errors.Join(errors.New(res.Message), ferr).Error()
			ag.state = event.AgentState{Status: "errored", Message: &text}
		}
		if ag.closed {
			ag.state.Status = "shutdown"
		}
	}()
}

// account adds what an agent's turn used; a.mu is held.
func (a *agents) account(c event.RunCompleted) {
	a.used = a.used.Add(c.Usage)
	a.cost += c.CostUSD
	a.totals = a.totals.Add(c.Totals)
}

// spent is what the agents used and did so far.
func (a *agents) spent() (event.Usage, float64, event.Totals) {
	if a == nil {
		return event.Usage{}, 0, event.Totals{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.totals
	t.Agents += len(a.byID)
	return a.used, a.cost, t
}

// send gives an agent that has ended its turn another message.
func (a *agents) send(_ context.Context, c tool.Call) (tool.Result, error) {
	var args struct {
		ID      string `json:"id"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(c.Arguments, &args); err != nil {
		return a.refused(c, "send_input", "failed to parse function arguments: "+err.Error()), nil
	}
	ag, problem := a.reserve(args.ID)
	if problem != "" {
		return a.refused(c, "send_input", problem), nil
	}
	id := a.item(c, "", "send_input", []string{ag.id}, &args.Message, event.InProgress)
	a.start(ag, args.Message)
	a.item(c, id, "send_input", []string{ag.id}, &args.Message, event.Completed)
	return a.result(id, map[string]string{"submission_id": c.ID}), nil
}

// reserve takes an idle agent and a slot for its next turn, or says why not.
func (a *agents) reserve(id string) (*agent, string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ag := a.byID[id]
	switch {
	case ag == nil:
		return nil, "no agent " + id
	case ag.closed:
		return nil, "agent " + id + " is closed"
	case ag.state.Status == "running" || ag.state.Status == "pending_init":
		return nil, "agent " + id + " is still working; wait for it first"
	case !a.r.Agents.slots.take():
		return nil, fmt.Sprintf("the limit of %d agents at once is reached; wait for one or close one", a.r.Agents.slots.max())
	}
	ag.state = event.AgentState{Status: "pending_init"}
	ag.opts.Log = a.newLog(ag.id)
	return ag, ""
}

// wait waits until one of the agents has ended its turn, or the time is up.
func (a *agents) wait(ctx context.Context, c tool.Call) (tool.Result, error) {
	var args struct {
		IDs     []string `json:"ids"`
		Targets []string `json:"targets"`
		Timeout int64    `json:"timeout_ms"`
	}
	if err := json.Unmarshal(c.Arguments, &args); err != nil {
		return a.refused(c, "wait", "failed to parse function arguments: "+err.Error()), nil
	}
	ids := append(args.IDs, args.Targets...)
	if len(ids) == 0 {
		return a.refused(c, "wait", "failed to parse function arguments: missing field `ids`"), nil
	}
	bound := agentWaitDefault
	if args.Timeout > 0 {
		bound = time.Duration(min(args.Timeout, agentWaitMax.Milliseconds())) * time.Millisecond
	}
	id := a.item(c, "", "wait", ids, nil, event.InProgress)
	timedOut := a.waitAny(ctx, ids, bound)
	status := map[string]any{}
	for agentID, st := range a.states(ids) {
		switch st.Status {
		case "completed", "errored":
			status[agentID] = map[string]any{st.Status: st.Message}
		case "running", "pending_init":
		default:
			status[agentID] = st.Status
		}
	}
	a.item(c, id, "wait", ids, nil, event.Completed)
	return a.result(id, map[string]any{"status": status, "timed_out": timedOut}), nil
}

func (a *agents) waitAny(ctx context.Context, ids []string, bound time.Duration) (timedOut bool) {
	first := make(chan struct{}, len(ids))
	stop := make(chan struct{})
	defer close(stop)
	for _, id := range ids {
		done := a.doneOf(id)
		if done == nil {
			return false
		}
		go func() {
			select {
			case <-done:
				first <- struct{}{}
			case <-stop:
			}
		}()
	}
	t := time.NewTimer(bound)
	defer t.Stop()
	select {
	case <-first:
		return false
	case <-t.C:
		return true
	case <-ctx.Done():
		return true
	}
}

// doneOf is closed when the agent has no turn any more; nil: no such agent.
func (a *agents) doneOf(id string) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ag := a.byID[id]; ag != nil {
		return ag.done
	}
	return nil
}

// close ends an agent.
func (a *agents) close(ctx context.Context, c tool.Call) (tool.Result, error) {
	var args struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(c.Arguments, &args); err != nil {
		return a.refused(c, "close_agent", "failed to parse function arguments: "+err.Error()), nil
	}
	a.mu.Lock()
	ag := a.byID[args.ID]
	a.mu.Unlock()
	if ag == nil {
		return a.refused(c, "close_agent", "no agent "+args.ID), nil
	}
	id := a.item(c, "", "close_agent", []string{ag.id}, nil, event.InProgress)
	before := a.shut(ctx, ag)
	a.item(c, id, "close_agent", []string{ag.id}, nil, event.Completed)
	return a.result(id, map[string]any{"status": before}), nil
}

// shut ends an agent for good and waits until it has ended, or ctx has. It
// returns the agent's status before.
func (a *agents) shut(ctx context.Context, ag *agent) string {
	a.mu.Lock()
	ag.closed = true
	before, cancel, done := ag.state.Status, ag.cancel, ag.done
	a.mu.Unlock()
	cancel()
	select {
	case <-done:
	case <-ctx.Done():
	}
	return before
}

// closeAll ends every agent. It returns how many had not finished their task.
func (a *agents) closeAll(ctx context.Context) (unfinished int) {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	list := make([]*agent, 0, len(a.byID))
	for _, ag := range a.byID {
		if s := ag.state.Status; !ag.closed && (s == "pending_init" || s == "running") {
			unfinished++
		}
		ag.cancel() // all at once; shut waits one by one
		list = append(list, ag)
	}
	a.mu.Unlock()
	for _, ag := range list {
		a.shut(ctx, ag)
	}
	return unfinished
}

func (a *agents) states(ids []string) map[string]event.AgentState {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]event.AgentState{}
	for _, id := range ids {
		if ag, ok := a.byID[id]; ok {
			out[id] = ag.state
		} else {
			out[id] = event.AgentState{Status: "not_found"}
		}
	}
	return out
}

// item emits the collab_tool_call item, started or completed.
func (a *agents) item(c tool.Call, id, name string, ids []string, prompt *string, st event.Status) string {
	d := event.CollabToolCall{Tool: name, SenderThreadID: a.r.Thread.ID, ReceiverThreadIDs: ids, Prompt: prompt, AgentsStates: a.states(ids), Status: st}
	if st == event.InProgress {
		return a.r.log.Start(d)
	}
	id = a.r.log.Complete(id, d)
	a.r.log.Emit(event.ToolCompleted{Tool: name, CallID: c.ID, ItemID: id, Status: st})
	return id
}

func (a *agents) result(itemID string, v any) tool.Result {
	return tool.Result{Output: quote(string(rawItem(v).Raw)), Status: event.Completed, ItemID: itemID}
}

func (a *agents) refused(c tool.Call, name, text string) tool.Result {
	id := a.item(c, "", name, []string{}, nil, event.Failed)
	return tool.Result{Output: quote(text), Status: event.Failed, ItemID: id, Message: text}
}
