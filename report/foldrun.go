package report

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

func (f *Fold) turnEvent(rec event.Record) {
	switch e := rec.Event.(type) {
	case event.TurnStarted:
		f.closeTurn("interrupted", rec.Time, nil)
		n := len(f.s.Turns) + f.s.Omitted["turns"] + 1
		f.turn = &Turn{Number: n, StartedAt: rec.Time}
	case event.TurnCompleted:
		f.closeTurn("completed", rec.Time, nil)
		f.s.ThreadUsage = e.Usage
	case event.TurnFailed:
		failure := e.Error
		failure.Message, failure.Hint = cut(failure.Message, maxText), cut(failure.Hint, maxText)
		if f.turn == nil { // failed before it began
			f.turn = &Turn{Number: len(f.s.Turns) + f.s.Omitted["turns"] + 1, StartedAt: rec.Time}
		}
		f.closeTurn("failed", rec.Time, &failure)
		if e.Usage != nil {
			f.s.ThreadUsage = *e.Usage
		}
	}
}

func (f *Fold) closeTurn(status string, at time.Time, failure *event.Failure) {
	if f.turn == nil {
		return
	}
	f.turn.Status, f.turn.Error = status, failure
	f.turn.DurationMS = span(f.turn.StartedAt, at)
	add(f, &f.s.Turns, "turns", *f.turn)
	f.turn = nil
}

func (f *Fold) turnNumber() int {
	if f.turn != nil {
		return f.turn.Number
	}
	return len(f.s.Turns) + f.s.Omitted["turns"]
}

func span(from, to time.Time) int64 {
	if from.IsZero() || to.Before(from) {
		return 0
	}
	return to.Sub(from).Milliseconds()
}

func (f *Fold) model(name string) *ModelUse {
	m := f.models[name]
	if m == nil {
		m = &ModelUse{Model: cut(name, maxTitle)}
		if len(f.models) >= maxEntries {
			f.s.Omitted["models"]++
			return m
		}
		f.models[name] = m
		f.modelList = append(f.modelList, name)
	}
	return m
}

func (f *Fold) modelEvent(rec event.Record, agent string) {
	switch e := rec.Event.(type) {
	case event.ModelRequest:
		f.model(e.Model).Requests++
		if c := f.calls[e.Request]; c != nil {
			c.Attempts, c.Model = e.Attempt, cut(e.Model, maxTitle)
			return
		}
		if len(f.calls) < maxLive {
			f.calls[e.Request] = &ModelCall{Request: e.Request, Turn: f.turnNumber(), Attempts: e.Attempt,
				Purpose: e.Purpose, Model: cut(e.Model, maxTitle), Status: "none", StartedAt: rec.Time, AgentID: agent}
		}
	case event.ModelResponse:
		f.response(rec, e, agent)
	case event.ModelRetried:
		f.observed.ModelRetries++
		if c := f.calls[e.Request]; c != nil {
			f.model(c.Model).Retries++
			c.DurationMS = span(c.StartedAt, rec.Time)
		}
		e.Message = cut(e.Message, maxText)
		add(f, &f.s.Retries, "retries", Retry{At: rec.Time, ModelRetried: e, AgentID: agent})
	case event.ModelFallback:
		e.Reason = cut(e.Reason, maxText)
		add(f, &f.s.Fallbacks, "fallbacks", Fallback{rec.Time, e})
	}
}

func (f *Fold) response(rec event.Record, e event.ModelResponse, agent string) {
	f.observed.ModelResponses++
	c := f.calls[e.Request]
	delete(f.calls, e.Request)
	// The model that was asked for is the one with a price; the service may
	// answer with the name of a dated variant, or with none.
	name := e.Model
	if c != nil {
		name = c.Model
	}
	m := f.model(name)
	m.Responses++
	m.Usage = m.Usage.Add(e.Usage)
	cost, _ := f.cost(name, e.Usage)
	if f.turn != nil {
		f.turn.Responses++
		f.turn.Usage = f.turn.Usage.Add(e.Usage)
		f.turn.CostUSD += cost
	}
	if c == nil {
		c = &ModelCall{Request: e.Request, Turn: f.turnNumber(), Attempts: 1, AgentID: agent,
			StartedAt: rec.Time.Add(-time.Duration(e.DurationMS) * time.Millisecond)}
	}
	c.Model, c.Status, c.Usage, c.CostUSD = cut(cmp.Or(e.Model, name), maxTitle), e.Status, e.Usage, cost
	c.FirstEventMS, c.DurationMS = e.FirstEventMS, e.DurationMS
	c.ResponseID, c.ServiceID = cut(e.ResponseID, maxTitle), cut(e.ServiceID, maxTitle)
	f.addModelCall(*c)
}

func (f *Fold) addModelCall(c ModelCall) {
	if len(f.s.ModelCalls) >= maxCalls {
		f.s.Omitted["model_calls"]++
		return
	}
	f.s.ModelCalls = append(f.s.ModelCalls, c)
}

func (f *Fold) cost(model string, u event.Usage) (float64, bool) {
	if f.s.Prices == nil {
		return 0, false
	}
	p, ok := f.s.Prices.Models[model]
	return p.Cost(u), ok
}

// item folds an item: it names tool calls and carries denials.
func (f *Fold) item(rec event.Record, it event.Item, done bool, agent string) {
	tool, title, status, denial := describe(it.Details)
	switch d := it.Details.(type) {
	case event.AgentMessage:
		if done && agent == "" {
			f.s.FinalMessage = cut(d.Text, maxMessage)
		}
		return
	case event.ErrorItem:
		if done && agent == "" {
			add(f, &f.s.Warnings, "warnings", cut(d.Message, maxText))
		}
		return
	}
	if tool == "" {
		return
	}
	key := agent + "/" + it.ID
	if done && (denial != nil || status == event.Declined) {
		f.itemDenied(rec, key, it.ID, agent, tool, title, denial)
	}
	t := f.liveTool(key, it.ID, agent)
	t.call.Tool, t.call.Title = cmp.Or(t.call.Tool, tool), cut(title, maxTitle)
	if !done {
		t.call.StartedAt = rec.Time
		return
	}
	t.item = true
	if !t.timing {
		t.call.Seq, t.call.Status = rec.Seq, status
		t.call.DurationMS = span(t.call.StartedAt, rec.Time)
	}
	switch d := it.Details.(type) {
	case event.CommandExecution:
		t.call.ExitCode = d.ExitCode
	case event.FileChange:
		t.call.Message = cut(d.Message, maxText)
	case event.ToolCall:
		t.call.Message = cut(d.Message, maxText)
	case event.MCPToolCall:
		if d.Error != nil {
			t.call.Message = cut(d.Error.Message, maxText)
		}
	}
	f.closeTool(key, t)
}

// describe says which tool an item is a call of; "" for other items.
func describe(d event.ItemDetails) (tool, title string, status event.Status, denial *event.Denial) {
	switch d := d.(type) {
	case event.CommandExecution:
		return "exec_command", d.Command, d.Status, d.Denial
	case event.FileChange:
		paths := make([]string, 0, min(len(d.Changes), 20))
		for i, c := range d.Changes {
			if i == 20 {
				paths = append(paths, "…")
				break
			}
			paths = append(paths, c.Kind+" "+c.Path)
		}
		return "apply_patch", strings.Join(paths, ", "), d.Status, d.Denial
	case event.MCPToolCall:
		return "mcp", d.Server + "/" + d.Tool, d.Status, d.Denial
	case event.ToolCall:
		return d.Tool, d.Message, d.Status, d.Denial
	case event.WebSearch:
		return "web_search", d.Query, event.Completed, nil
	case event.CollabToolCall:
		return d.Tool, strings.Join(d.ReceiverThreadIDs, ", "), d.Status, nil
	}
	return "", "", "", nil
}

func (f *Fold) toolCompleted(rec event.Record, e event.ToolCompleted, agent string) {
	f.link(agent, e.CallID, e.ItemID)
	id := e.ItemID
	if id == "" {
		id = "call " + e.CallID
	}
	key := agent + "/" + id
	t := f.liveTool(key, e.ItemID, agent)
	t.timing = true
	c := &t.call
	c.Seq, c.Tool, c.CallID, c.Status = rec.Seq, cut(e.Tool, maxTitle), cut(e.CallID, maxTitle), e.Status
	c.DurationMS, c.OutBytes, c.SeenBytes, c.Resources = e.DurationMS, e.OutBytes, e.SeenBytes, e.Resources
	c.StartedAt = rec.Time.Add(-time.Duration(e.DurationMS) * time.Millisecond)
	if e.ExitCode != nil {
		c.ExitCode = e.ExitCode
	}
	if e.Message != "" {
		c.Message = cut(e.Message, maxText)
	}
	if e.ItemID == "" {
		t.item = true // nothing else will come
	}
	f.closeTool(key, t)
}

func (f *Fold) liveTool(key, item, agent string) *liveTool {
	if t, ok := f.live.get(key); ok {
		return t
	}
	t := &liveTool{call: ToolCall{Turn: f.turnNumber(), ItemID: cut(item, maxTitle), AgentID: agent}}
	if old, full := f.live.put(key, t); full {
		f.keepTool(old)
	}
	return t
}

func (f *Fold) closeTool(key string, t *liveTool) {
	if t.item && t.timing {
		f.live.remove(key)
		f.keepTool(t)
	}
}

// keepTool counts a finished call.
func (f *Fold) keepTool(t *liveTool) {
	f.tally.add(t.call)
	if a := f.agents[t.call.AgentID]; a != nil {
		a.ToolCalls++
		if t.call.Status == event.Failed {
			a.FailedTools++
		}
	} else if t.call.AgentID == "" && f.turn != nil {
		f.turn.ToolCalls++
	}
}

// tally counts tool calls and keeps them while there is room.
type tally struct {
	use    map[string]*ToolUse
	names  []string
	calls  []ToolCall
	failed []ToolCall
	totals struct{ calls, failed, lostCalls, lostFailed int }
}

// add counts c. A call that was only started counts too: the log broke off
// inside it.
func (t *tally) add(c ToolCall) {
	if c.Status == "" {
		c.Status = event.InProgress
	}
	u := t.use[c.Tool]
	if u == nil {
		u = &ToolUse{Tool: c.Tool}
		if len(t.use) < maxEntries {
			t.use[c.Tool] = u
			t.names = append(t.names, c.Tool)
		}
	}
	u.Calls++
	u.DurationMS += c.DurationMS
	t.totals.calls++
	switch c.Status {
	case event.Failed:
		u.Failed++
		t.totals.failed++
		if len(t.failed) < maxEntries {
			t.failed = append(t.failed, c)
		} else {
			t.totals.lostFailed++
		}
	case event.Declined:
		u.Declined++
	}
	if len(t.calls) < maxCalls {
		t.calls = append(t.calls, c)
	} else {
		t.totals.lostCalls++
	}
}

func (t *tally) clone() *tally {
	c := &tally{use: make(map[string]*ToolUse, len(t.use)), names: slices.Clone(t.names),
		calls: list(t.calls), failed: list(t.failed), totals: t.totals}
	for k, u := range t.use {
		v := *u
		c.use[k] = &v
	}
	return c
}

func (f *Fold) decision(rec event.Record, e event.PolicyDecision, agent string) {
	if e.Outcome != "denied" {
		return
	}
	var d *Denial
	if e.ItemID != "" {
		d, _ = f.byItem.get(agent + "/" + e.ItemID)
	}
	if d == nil {
		d = f.addDenial(Denial{Seq: rec.Seq, At: rec.Time, ItemID: e.ItemID, AgentID: agent})
	}
	d.Action, d.Subject = e.Action, cut(e.Subject, maxTitle)
	d.CallID, d.Reason, d.Source = e.CallID, cut(cmp.Or(e.Reason, d.Reason), maxText), cmp.Or(e.Source, d.Source)
	d.Rule, d.Origin = cut(cmp.Or(e.Rule, d.Rule), maxTitle), cut(cmp.Or(e.Origin, d.Origin), maxTitle)
	if e.ItemID != "" {
		f.byItem.put(agent+"/"+e.ItemID, d)
	} else if e.CallID != "" {
		f.byCall.put(agent+"/"+e.CallID, d)
	}
}

func (f *Fold) itemDenied(rec event.Record, key, id, agent, tool, title string, why *event.Denial) {
	d, known := f.byItem.get(key)
	if !known {
		d = f.addDenial(Denial{Seq: rec.Seq, At: rec.Time, Action: actionOf(tool), ItemID: id, AgentID: agent})
		f.byItem.put(key, d)
	}
	d.Subject = cmp.Or(d.Subject, cut(title, maxTitle))
	if why != nil {
		d.Reason, d.Source = cmp.Or(d.Reason, cut(why.Reason, maxText)), cmp.Or(d.Source, why.Source)
		d.Rule, d.Origin = cmp.Or(d.Rule, cut(why.Rule, maxTitle)), cmp.Or(d.Origin, cut(why.Origin, maxTitle))
	}
}

func actionOf(tool string) string {
	switch tool {
	case "exec_command":
		return "command"
	case "apply_patch":
		return "patch"
	case "mcp":
		return "mcp"
	}
	return "tool"
}

func (f *Fold) addDenial(d Denial) *Denial {
	f.observed.Denials++
	if a := f.agents[d.AgentID]; a != nil {
		a.Denials++
	}
	p := &d
	if len(f.denials) >= maxEntries {
		f.s.Omitted["denials"]++
		return p
	}
	f.denials = append(f.denials, p)
	return p
}

// link joins what was said of a denial under its call id with what was said
// under its item id.
func (f *Fold) link(agent, call, item string) {
	if call == "" || item == "" {
		return
	}
	a, ok := f.byCall.get(agent + "/" + call)
	if !ok {
		return
	}
	f.byCall.remove(agent + "/" + call)
	b, both := f.byItem.get(agent + "/" + item)
	a.ItemID = item
	f.byItem.put(agent+"/"+item, a)
	if !both || a == b {
		return
	}
	a.Reason, a.Source = cmp.Or(a.Reason, b.Reason), cmp.Or(a.Source, b.Source)
	if i := slices.Index(f.denials, b); i >= 0 {
		f.denials = slices.Delete(f.denials, i, i+1)
	}
	f.observed.Denials--
	if x := f.agents[agent]; x != nil {
		x.Denials--
	}
}

// finishTools adds the calls whose other half never came.
func (f *Fold) finishTools(s *Summary) {
	t := f.tally.clone()
	for _, key := range f.live.order {
		if open, ok := f.live.get(key); ok {
			t.add(open.call)
		}
	}
	s.ToolCalls, s.FailedTools = t.calls, t.failed
	slices.SortStableFunc(s.ToolCalls, func(a, b ToolCall) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.Seq, b.Seq))
	})
	s.Tools = make([]ToolUse, 0, len(t.names))
	for _, n := range t.names {
		s.Tools = append(s.Tools, *t.use[n])
	}
	s.Totals.ToolCalls = max(s.Totals.ToolCalls, t.totals.calls)
	s.Totals.FailedTools = max(s.Totals.FailedTools, t.totals.failed)
	s.Omitted["tool_calls"] = t.totals.lostCalls
	s.Omitted["failed_tools"] = t.totals.lostFailed
}

// finishModels adds requests that got no answer and sums what has no total yet.
func (f *Fold) finishModels(s *Summary) {
	s.ModelCalls = list(s.ModelCalls)
	open := make([]int, 0, len(f.calls))
	for n := range f.calls {
		open = append(open, n)
	}
	slices.Sort(open)
	for _, n := range open {
		if len(s.ModelCalls) < maxCalls {
			c := *f.calls[n]
			c.DurationMS = max(c.DurationMS, span(c.StartedAt, f.last))
			s.ModelCalls = append(s.ModelCalls, c)
		}
	}
	slices.SortStableFunc(s.ModelCalls, func(a, b ModelCall) int { return cmp.Compare(a.Request, b.Request) })
	s.Models = make([]ModelUse, 0, len(f.modelList))
	var sum event.Usage
	var cost float64
	for _, name := range f.modelList {
		m := *f.models[name]
		m.CostUSD, m.Priced = f.cost(name, m.Usage)
		if !m.Priced && m.Responses > 0 && s.Prices != nil {
			s.Unpriced = append(s.Unpriced, m.Model)
		}
		sum, cost = sum.Add(m.Usage), cost+m.CostUSD
		s.Models = append(s.Models, m)
	}
	if s.Usage == (event.Usage{}) {
		s.Usage = sum
	}
	if !s.Complete && len(f.modelList) == 0 { // a bare wire stream
		s.Usage = s.ThreadUsage
	}
	if s.CostUSD == 0 {
		s.CostUSD = cost
	}
	if s.ThreadUsage == (event.Usage{}) {
		s.ThreadUsage = s.Usage
	}
}

func (f *Fold) finishTurns(s *Summary) {
	s.Turns = list(s.Turns)
	if f.turn != nil && len(s.Turns) < maxEntries {
		t := *f.turn
		t.Status, t.DurationMS = "interrupted", span(t.StartedAt, f.last)
		s.Turns = append(s.Turns, t)
	}
}
