package report

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// What a fold keeps at most. A run of ordinary length stays far below; beyond,
// entries are counted in Summary.Omitted.
const (
	maxCalls   = 2000    // tool calls and model calls, each
	maxEntries = 1000    // denials, failed tools, retries, notices, findings, …
	maxLive    = 1024    // items whose other half has not come yet
	maxUnnamed = 1 << 16 // agents that are counted and not listed

	maxTitle   = 4 << 10
	maxText    = 16 << 10
	maxPrompt  = 64 << 10
	maxMessage = 1 << 20
)

// Fold reads records one by one and keeps what reports need. Its memory does
// not grow with the log. It is not safe for concurrent use.
type Fold struct {
	s Summary

	turn      *Turn
	calls     map[int]*ModelCall // open requests by number
	models    map[string]*ModelUse
	tally     tally
	agents    map[string]*Agent
	agentList []string
	unnamed   map[uint64]struct{} // agents beyond the list, by a hash of their ids
	modelList []string

	live      fifo[*liveTool]
	byItem    fifo[*Denial]
	byCall    fifo[*Denial]
	denials   []*Denial
	observed  event.Totals
	truncated int // instruction files that were cut
	last      time.Time
}

// liveTool joins the item of a tool call with its measures: either may come
// first, and a bare wire stream has items only.
type liveTool struct {
	call         ToolCall
	item, timing bool
}

// NewFold returns an empty fold.
func NewFold() *Fold {
	f := &Fold{
		calls: map[int]*ModelCall{}, models: map[string]*ModelUse{},
		tally: tally{use: map[string]*ToolUse{}}, agents: map[string]*Agent{}, unnamed: map[uint64]struct{}{},
	}
	f.s.Omitted = map[string]int{}
	f.s.Outcome, f.s.ExitCode = "unknown", -1
	return f
}

// Add folds one record.
func (f *Fold) Add(rec event.Record) {
	f.s.Records++
	if !rec.Time.IsZero() {
		if f.s.StartedAt.IsZero() {
			f.s.StartedAt = rec.Time
		}
		f.last = rec.Time
	}
	switch e := rec.Event.(type) {
	case event.RunStarted:
		f.runStarted(e)
	case event.ThreadStarted:
		f.s.Run.ThreadID = cut(e.ThreadID, maxTitle)
	case event.SandboxEnforced:
		f.s.Sandbox = boundSandbox(e)
	case event.CredentialSelected:
		f.s.Auth.Credential = &e
	case event.AuthRefreshed:
		e.Message = cut(e.Message, maxText)
		add(f, &f.s.Auth.Refreshes, "auth.refreshes", e)
	case event.InstructionsLoaded:
		e.Path = cut(e.Path, maxTitle)
		add(f, &f.s.Instructions, "instructions", e)
		if e.LostBytes > 0 {
			f.truncated++
		}
	case event.ServerStatus:
		f.server(e)
	case event.TurnStarted, event.TurnCompleted, event.TurnFailed:
		f.turnEvent(rec)
	case event.ModelRequest, event.ModelResponse, event.ModelRetried, event.ModelFallback:
		f.modelEvent(rec, "")
	case event.HistoryCompacted:
		f.observed.Compactions++
		add(f, &f.s.Compactions, "compactions", Compaction{rec.Time, e})
	case event.ItemStarted:
		f.item(rec, e.Item, false, "")
	case event.ItemUpdated:
	case event.ItemCompleted:
		f.item(rec, e.Item, true, "")
	case event.ToolCompleted:
		f.toolCompleted(rec, e, "")
	case event.PolicyDecision:
		f.decision(rec, e, "")
	case event.AgentEvent:
		f.agent(rec, e, 0)
	case event.DiffCaptured:
		f.diff(e)
	case event.RunCompleted:
		f.runCompleted(e)
	default:
		f.rest(rec)
	}
}

// rest folds the events that are kept as they are.
func (f *Fold) rest(rec event.Record) {
	switch e := rec.Event.(type) {
	case event.Error:
		if !strings.HasPrefix(e.Message, "Reconnecting...") {
			add(f, &f.s.Warnings, "warnings", cut(e.Message, maxText))
		}
	case event.HookCompleted:
		e.Message, e.Hook = cut(e.Message, maxText), cut(e.Hook, maxTitle)
		if hookFailed(e) {
			f.observed.HookFailures++
		}
		add(f, &f.s.Hooks, "hooks", e)
	case event.VerifyCompleted:
		e.Output, e.Command = cutTail(e.Output, maxText), cut(e.Command, maxTitle)
		add(f, &f.s.Verify, "verify", e)
	case event.SchemaChecked:
		e.Errors = boundStrings(e.Errors)
		add(f, &f.s.SchemaChecks, "schema_checks", e)
	case event.FindingReported:
		e.Title, e.Body, e.Path = cut(e.Title, maxTitle), cut(e.Body, maxText), cut(e.Path, maxTitle)
		add(f, &f.s.Findings, "findings", e)
	case event.LimitReached:
		add(f, &f.s.Limits, "limits", e)
	case event.Notice:
		e.Message, e.Hint, e.Origin = cut(e.Message, maxText), cut(e.Hint, maxText), cut(e.Origin, maxTitle)
		add(f, &f.s.Notices, "notices", e)
	case event.TelemetryFlushed:
		e.Message = cut(e.Message, maxText)
		f.s.Telemetry = &e
	}
}

func (f *Fold) runStarted(e event.RunStarted) {
	f.s.Run = Run{
		Version: e.Version, Mode: e.Mode, ThreadID: e.ThreadID, ParentID: e.ParentID, Model: e.Model,
		Provider: e.Provider, Effort: e.Effort, Workdir: cut(e.Workdir, maxTitle), Sandbox: e.Sandbox,
		Approval: e.Approval, Network: e.Network, Prompt: cut(e.Prompt, maxPrompt),
		Requester: cut(e.Requester, maxTitle), Job: cut(e.Job, maxTitle), Task: cut(e.Task, maxTitle),
	}
	if e.Prompt != "" {
		f.s.Run.PromptSHA = sha256Hex(e.Prompt)
	}
	f.s.Policy = Policy{Digest: e.PolicyDigest, Origins: e.Origins}
	f.s.Git, f.s.Prices = e.Git, e.Prices
}

// server keeps the last state of each server.
func (f *Fold) server(e event.ServerStatus) {
	e.Message, e.Tools = cut(e.Message, maxText), boundStrings(e.Tools)
	for i := range f.s.Servers {
		if f.s.Servers[i].Server == e.Server {
			if len(e.Tools) == 0 {
				e.Tools = f.s.Servers[i].Tools
			}
			f.s.Servers[i] = e
			return
		}
	}
	add(f, &f.s.Servers, "mcp_servers", e)
}

func (f *Fold) diff(e event.DiffCaptured) {
	c := Changes{Captured: e.Error == "", Error: cut(e.Error, maxText), Base: e.Base, Head: e.Head, Digest: e.Digest, Bytes: len(e.Patch),
		Dirty: e.Dirty, NotInPatch: boundStrings(e.Omitted)}
	for _, file := range e.Files {
		c.Added += file.Added
		c.Deleted += file.Deleted
	}
	c.Files = e.Files
	if extra := len(e.Files) - maxCalls; extra > 0 {
		c.Files = slices.Clone(e.Files[:maxCalls])
		f.s.Omitted["changes.files"] = extra
	} else {
		delete(f.s.Omitted, "changes.files")
	}
	f.s.Changes, f.s.patch, f.s.mail = c, e.Patch, e.Mail
}

func (f *Fold) runCompleted(e event.RunCompleted) {
	f.s.Complete = true
	f.s.Outcome, f.s.Class, f.s.ExitCode = e.Outcome, e.Class, e.ExitCode
	f.s.Message, f.s.Hint, f.s.Retryable = cut(e.Message, maxText), cut(e.Hint, maxText), e.Retryable
	if e.FinalMessage != "" {
		f.s.FinalMessage = cut(e.FinalMessage, maxMessage)
	}
	f.s.DurationMS = e.DurationMS
	f.s.Usage, f.s.ThreadUsage = e.Usage, e.ThreadUsage
	f.s.CostUSD = e.CostUSD
	f.s.Totals = e.Totals
}

// agent folds the record of a sub-agent, or of an agent of one: what it was
// denied and what failed belongs to the run.
func (f *Fold) agent(rec event.Record, e event.AgentEvent, depth int) {
	a := f.agents[e.AgentID]
	if a == nil {
		a = &Agent{ID: cut(e.AgentID, maxTitle)}
		if len(f.agents) < maxEntries {
			f.agents[e.AgentID] = a
			f.agentList = append(f.agentList, e.AgentID)
		} else { // not listed, but what it does belongs to the run all the same
			f.countUnnamed(e.AgentID)
		}
	}
	a.Records++
	var inner event.Record
	if json.Unmarshal(e.Record, &inner) != nil {
		return
	}
	inner.Seq = rec.Seq
	if inner.Time.IsZero() {
		inner.Time = rec.Time
	}
	switch x := inner.Event.(type) {
	case event.AgentEvent:
		if depth < event.MaxAgentDepth {
			f.agent(inner, x, depth+1)
		}
	case event.ItemStarted:
		f.item(inner, x.Item, false, a.ID)
	case event.ItemCompleted:
		f.item(inner, x.Item, true, a.ID)
	case event.ToolCompleted:
		f.toolCompleted(inner, x, a.ID)
	case event.PolicyDecision:
		f.decision(inner, x, a.ID)
	case event.ModelRequest, event.ModelRetried, event.ModelFallback:
		f.modelEvent(inner, a.ID)
	case event.ModelResponse:
		f.modelEvent(inner, a.ID)
		a.Usage = a.Usage.Add(x.Usage)
	case event.HistoryCompacted:
		f.observed.Compactions++
		add(f, &f.s.Compactions, "compactions", Compaction{inner.Time, x})
	case event.HookCompleted, event.LimitReached:
		f.rest(inner)
	case event.Notice:
		f.agentNotice(inner, x)
	case event.ServerStatus:
		f.agentServer(x, a.ID)
	case event.TurnFailed:
		a.Outcome = "failed"
	case event.TurnCompleted:
		a.Outcome = "success"
	case event.RunCompleted:
		a.Outcome = x.Outcome
		a.turns = a.turns.Add(x.Usage)
		if a.turns.Total() > a.Usage.Total() {
			a.Usage = a.turns // of logs without its responses
		}
	}
}

// countUnnamed counts an agent that is not listed, once.
func (f *Fold) countUnnamed(id string) {
	h := fnv.New64a()
	h.Write([]byte(id)) // never fails
	if len(f.unnamed) < maxUnnamed {
		f.unnamed[h.Sum64()] = struct{}{}
	}
	f.s.Omitted["agents"] = len(f.unnamed)
}

// agentNotice keeps what only the agent had to say: most of its notices are
// those of its parent.
func (f *Fold) agentNotice(rec event.Record, n event.Notice) {
	for _, old := range f.s.Notices {
		if old.Class == n.Class && old.Message == cut(n.Message, maxText) {
			return
		}
	}
	f.rest(event.Record{Seq: rec.Seq, Time: rec.Time, Event: n})
}

// agentServer keeps the servers that an agent could not use; those that work are
// its parent's.
func (f *Fold) agentServer(e event.ServerStatus, agent string) {
	if e.Status == "failed" || e.Status == "died" {
		e.Server = cut(e.Server, maxTitle) + " (agent " + agent + ")"
		f.server(e)
	}
}

// Summary returns what is known so far; the fold may go on afterwards.
func (f *Fold) Summary() *Summary {
	s := f.s
	s.SchemaVersion = SchemaVersion
	s.EndedAt = f.last
	s.Omitted = maps.Clone(f.s.Omitted)
	if !s.Complete && !s.StartedAt.IsZero() {
		s.DurationMS = span(s.StartedAt, s.EndedAt)
	}
	f.finishTools(&s)
	f.finishModels(&s)
	f.finishTurns(&s)
	s.Denials = make([]Denial, 0, len(f.denials))
	for _, d := range f.denials {
		s.Denials = append(s.Denials, *d)
	}
	s.Agents = make([]Agent, 0, len(f.agentList))
	for _, id := range f.agentList {
		s.Agents = append(s.Agents, *f.agents[id])
	}
	s.Totals = atLeast(s.Totals, f.observed)
	maps.DeleteFunc(s.Omitted, func(_ string, n int) bool { return n == 0 })
	s.Attention = attention(&s, f.truncated)
	nonNil(&s)
	return &s
}

// atLeast never understates: what was seen in the log counts even where the
// totals of the last record say less, or where that record is missing.
func atLeast(t, seen event.Totals) event.Totals {
	t.ModelResponses = max(t.ModelResponses, seen.ModelResponses)
	t.ModelRetries = max(t.ModelRetries, seen.ModelRetries)
	t.ToolCalls = max(t.ToolCalls, seen.ToolCalls)
	t.FailedTools = max(t.FailedTools, seen.FailedTools)
	t.Denials = max(t.Denials, seen.Denials)
	t.HookFailures = max(t.HookFailures, seen.HookFailures)
	t.Compactions = max(t.Compactions, seen.Compactions)
	t.Agents = max(t.Agents, seen.Agents)
	return t
}

// nonNil makes every list of report.json a list, never null.
func nonNil(s *Summary) {
	s.Attention = list(s.Attention)
	s.Instructions, s.Servers = list(s.Instructions), list(s.Servers)
	s.Auth.Refreshes = list(s.Auth.Refreshes)
	s.Retries, s.Fallbacks, s.Compactions = list(s.Retries), list(s.Fallbacks), list(s.Compactions)
	s.Hooks, s.Verify, s.SchemaChecks = list(s.Hooks), list(s.Verify), list(s.SchemaChecks)
	s.Findings, s.Limits, s.Notices = list(s.Findings), list(s.Limits), list(s.Notices)
	s.Warnings, s.Changes.Files = list(s.Warnings), list(s.Changes.Files)
}

// list copies, so that a summary does not change while its fold goes on.
func list[T any](s []T) []T { return append(make([]T, 0, len(s)), s...) }

// add appends up to the cap and counts the rest under name.
func add[T any](f *Fold, to *[]T, name string, v T) bool {
	if len(*to) >= maxEntries {
		f.s.Omitted[name]++
		return false
	}
	*to = append(*to, v)
	return true
}

func hookFailed(e event.HookCompleted) bool { return e.Outcome == "failed" || e.Outcome == "timeout" }

func boundSandbox(e event.SandboxEnforced) *event.SandboxEnforced {
	e.Writable, e.Protected, e.Denied = boundStrings(e.Writable), boundStrings(e.Protected), boundStrings(e.Denied)
	return &e
}

func boundStrings(in []string) []string {
	if len(in) > maxEntries {
		in = append(slices.Clone(in[:maxEntries]), fmt.Sprintf("… %d more", len(in)-maxEntries))
	}
	for i, s := range in {
		if len(s) > maxTitle {
			in = slices.Clone(in)
			in[i] = cut(s, maxTitle)
		}
	}
	return in
}

// cut keeps the first max bytes of s, at a character, and says how many are
// missing.
func cut(s string, max int) string {
	if len(s) <= max {
		return strings.Clone(s) // a short piece must not keep a long record alive
	}
	n := max
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return fmt.Sprintf("%s… [%d bytes omitted]", s[:n], len(s)-n)
}

// cutTail keeps the last max bytes.
func cutTail(s string, max int) string {
	if len(s) <= max {
		return strings.Clone(s)
	}
	n := len(s) - max
	for n < len(s) && !utf8.RuneStart(s[n]) {
		n++
	}
	return fmt.Sprintf("[%d bytes omitted] …%s", n, s[n:])
}

// fifo is a map that forgets its oldest entry when it is full.
type fifo[T any] struct {
	m     map[string]T
	order []string
}

// put stores v and returns the entry that had to go, if any.
func (q *fifo[T]) put(key string, v T) (evicted T, ok bool) {
	if q.m == nil {
		q.m = map[string]T{}
	}
	if _, there := q.m[key]; there {
		q.m[key] = v
		return evicted, false
	}
	q.m[key] = v
	q.order = append(q.order, key)
	for len(q.m) > maxLive {
		oldest := q.order[0]
		q.order = q.order[1:]
		if old, there := q.m[oldest]; there {
			delete(q.m, oldest)
			return old, true
		}
	}
	return evicted, false
}

func (q *fifo[T]) get(key string) (T, bool) { v, ok := q.m[key]; return v, ok }

// remove forgets the entry; the order list is swept when it is mostly holes.
func (q *fifo[T]) remove(key string) {
	delete(q.m, key)
	if len(q.order) > 2*maxLive {
		q.order = slices.DeleteFunc(q.order, func(k string) bool { _, ok := q.m[k]; return !ok })
	}
}
