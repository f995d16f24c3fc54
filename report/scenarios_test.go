package report

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// A scenario is a run, told to a log. Clock and ids are fixed.
type scenario struct {
	name   string
	tell   func(*event.Log)
	last   event.RunCompleted
	killed bool // the log breaks off
}

// record plays the scenario to sinks and returns its log.
func (sc scenario) record(t testing.TB, sinks ...event.Sink) []byte {
	t.Helper()
	var b bytes.Buffer
	now := time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)
	clock := func() time.Time { now = now.Add(250 * time.Millisecond); return now }
	log := event.NewLog(clock, nil, append([]event.Sink{NewJSONL(&b)}, sinks...)...)
	sc.tell(log)
	if sc.killed {
		for _, s := range sinks { // as a replay of the broken log does
			if err := s.Close(t.Context()); err != nil {
				t.Logf("close: %v", err)
			}
		}
		return b.Bytes()
	}
	if err := log.Finish(context.WithoutCancel(t.Context()), sc.last); err != nil {
		t.Logf("finish: %v", err)
	}
	return b.Bytes()
}

func (sc scenario) summary(t testing.TB) *Summary {
	t.Helper()
	s, err := ReadSummary(bytes.NewReader(sc.record(t)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const thread = "019c0000-0000-7000-8000-000000000001"

func begin(l *event.Log, mode string) {
	l.Emit(event.RunStarted{Version: "1.2.3", Mode: mode, ThreadID: thread, Model: "gpt-test", Provider: "mock", Effort: "medium",
		Workdir: "/w/shop", Sandbox: "workspace-write", Approval: "never", Network: "off", Prompt: "Make the tests pass.",
		Requester: "a-user", Job: "https://ci.example.com/jobs/7", PolicyDigest: "sha256:" + strings.Repeat("ab", 32),
		Origins: map[string]string{"sandbox_mode": "/etc/nightshift/requirements.toml:3", "model": "/home/u/.codex/config.toml:1"},
		Git:     &event.GitState{Root: "/w/shop", Commit: baseCommit, Branch: "main", Remote: "https://git.example.com/shop.git"},
		Prices:  &event.PriceTable{Date: "2026-01-01", Models: map[string]event.Price{"gpt-test": {Input: 1.25, CachedInput: 0.125, Output: 10}}}})
	l.Emit(event.ThreadStarted{ThreadID: thread})
	l.Emit(event.SandboxEnforced{Mode: "workspace-write", Level: "full", LandlockABI: 6, Writable: []string{"/w/shop"}, Protected: []string{"/w/shop/.git"},
		Guarantees: []event.GuaranteeStatus{{Name: "writes_confined", Held: true, Required: true, Mechanism: "landlock"}, {Name: "net_confined", Held: true, Required: true, Mechanism: "netns"}}})
	l.Emit(event.CredentialSelected{Source: "env CODEX_API_KEY", Mode: "apikey"})
	l.Emit(event.InstructionsLoaded{Path: "/w/shop/AGENTS.md", Bytes: 120})
	l.Emit(event.TurnStarted{})
}

func ask(l *event.Log, n int, u event.Usage) {
	l.Emit(event.ModelRequest{Request: n, Attempt: 1, Purpose: "turn", Model: "gpt-test", Bytes: 30000 + n, Items: n})
	l.Emit(event.ModelResponse{Request: n, Model: "gpt-test", ResponseID: "resp_1", ServiceID: "req_1", Status: "completed", Usage: u, FirstEventMS: 120, DurationMS: 250})
}

func run(l *event.Log, call, command, output string, code int) {
	id := l.Start(event.CommandExecution{Command: command, Status: event.InProgress})
	status := event.Completed
	if code != 0 {
		status = event.Failed
	}
	l.Complete(id, event.CommandExecution{Command: command, AggregatedOutput: output, ExitCode: &code, Status: status})
	l.Emit(event.ToolCompleted{Tool: "exec_command", CallID: call, ItemID: id, Status: status, DurationMS: 200, ExitCode: &code,
		OutBytes: int64(len(output)), SeenBytes: int64(len(output)), Resources: &event.Resources{CPUMS: 40, PeakBytes: 9 << 20, Source: "cgroup"}})
}

var used = event.Usage{Input: 2100, CachedInput: 1600, Output: 48, Reasoning: 27}

func scenarios() []scenario {
	return []scenario{
		{name: "success", tell: tellSuccess, last: event.RunCompleted{Outcome: "success", Class: "success", FinalMessage: "The price is **right** now.\n\n- `price.go` adds the tax\n", DurationMS: 5200,
			Usage: used.Add(used), ThreadUsage: used.Add(used), CostUSD: 0.0026, Totals: event.Totals{ModelResponses: 2, ToolCalls: 3, FailedTools: 1}}},
		{name: "denied", tell: tellDenied, last: event.RunCompleted{Outcome: "denied", Class: "denied", ExitCode: 9, Message: "2 actions were refused", Hint: "read the denials, then allow or avoid them",
			FinalMessage: "I could not.", DurationMS: 3000, Usage: used, ThreadUsage: used, Totals: event.Totals{ModelResponses: 1, ToolCalls: 1, Denials: 2}}},
		{name: "service", tell: tellService, last: event.RunCompleted{Outcome: "failed", Class: "usage_limit", ExitCode: 6, Message: "the quota is used up", Retryable: false, DurationMS: 9000,
			Totals: event.Totals{ModelRetries: 2}}},
		{name: "limit", tell: tellLimit, last: event.RunCompleted{Outcome: "limit", Class: "max_turns", ExitCode: 7, Message: "stopped after 3 responses", DurationMS: 4000, Usage: used, ThreadUsage: used,
			Totals: event.Totals{ModelResponses: 1}}},
		{name: "signal", tell: tellSignal, last: event.RunCompleted{Outcome: "interrupted", Class: "signal", ExitCode: 143, Message: "ended by SIGTERM", DurationMS: 1500, Usage: used, ThreadUsage: used}},
		{name: "review", tell: tellReview, last: event.RunCompleted{Outcome: "success", Class: "success", FinalMessage: "Two findings.", DurationMS: 3500, Usage: used, ThreadUsage: used}},
		{name: "agents", tell: tellAgents, last: event.RunCompleted{Outcome: "success", Class: "success", FinalMessage: "Done by two.", DurationMS: 3500, Usage: used, ThreadUsage: used, Totals: event.Totals{Agents: 1}}},
		{name: "early", tell: func(l *event.Log) {
			l.Emit(event.Error{Message: "requirements.toml:1:1: unknown key", Class: "policy"})
			l.Emit(event.TurnFailed{Error: event.Failure{Message: "requirements.toml:1:1: unknown key", Class: "policy"}})
		}, last: event.RunCompleted{Outcome: "policy", Class: "policy", ExitCode: 3, Message: "requirements.toml:1:1: unknown key"}},
		{name: "killed", tell: func(l *event.Log) {
			begin(l, "exec")
			ask(l, 1, used)
			run(l, "call_1", "go build ./...", "", 0)
			l.Start(event.CommandExecution{Command: "sleep 600", Status: event.InProgress})
		}, killed: true},
		{name: "hostile", tell: func(l *event.Log) { tellAll(l, hostile) }, last: poisoned(hostile)},
	}
}

func tellSuccess(l *event.Log) {
	begin(l, "exec")
	ask(l, 1, used)
	l.Complete("", event.Reasoning{Text: "First see what fails."})
	run(l, "call_1", "/bin/bash -lc 'go test ./...'", "--- FAIL: TestPrice\n    got 100, want 119\nFAIL\n", 1)
	id := l.Start(event.FileChange{Changes: []event.PathChange{{Path: "/w/shop/price.go", Kind: "update"}}, Status: event.InProgress})
	l.Complete(id, event.FileChange{Changes: []event.PathChange{{Path: "/w/shop/price.go", Kind: "update"}}, Status: event.Completed})
	l.Emit(event.ToolCompleted{Tool: "apply_patch", CallID: "call_2", ItemID: id, Status: event.Completed, DurationMS: 30})
	run(l, "call_3", "/bin/bash -lc 'go test ./...'", "ok  \tshop\t0.01s\n", 0)
	todo := l.Start(event.TodoList{Items: []event.Todo{{Text: "Repair the price", Completed: true}}})
	l.Complete(todo, event.TodoList{Items: []event.Todo{{Text: "Repair the price", Completed: true}}})
	ask(l, 2, used)
	l.Complete("", event.AgentMessage{Text: "The price is **right** now.\n\n- `price.go` adds the tax\n"})
	l.Emit(event.VerifyCompleted{Command: "go vet ./...", Round: 1, ExitCode: 1, Output: "price.go:3: unused\n", DurationMS: 300})
	l.Emit(event.VerifyCompleted{Command: "go vet ./...", Round: 2, Passed: true, DurationMS: 280})
	l.Emit(event.TurnCompleted{Usage: used.Add(used)})
	l.Emit(captured())
	l.Emit(event.TelemetryFlushed{Exported: 42})
}

func tellDenied(l *event.Log) {
	begin(l, "exec")
	ask(l, 1, used)
	l.Emit(event.PolicyDecision{Action: "command", Subject: "rm -rf /w", Decision: "forbid", Outcome: "denied", Reason: "deleting by force is forbidden", Source: "rule", Rule: `["rm", "-rf"]`, Origin: "default.rules:3", CallID: "call_1"})
	l.Complete("", event.CommandExecution{Command: "rm -rf /w", Status: event.Declined, Denial: &event.Denial{Reason: "deleting by force is forbidden", Source: "rule", Rule: `["rm", "-rf"]`, Origin: "default.rules:3"}})
	l.Emit(event.ToolCompleted{Tool: "exec_command", CallID: "call_1", ItemID: "item_0", Status: event.Declined})
	l.Emit(event.PolicyDecision{Action: "network", Subject: "exfil.example.com:443", Decision: "forbid", Outcome: "denied", Source: "requirement", Reason: "the host is not on the list"})
	l.Emit(event.HookCompleted{Event: "before_tool", Hook: "check.sh", Outcome: "failed", Message: "exit 1", DurationMS: 20})
	l.Complete("", event.AgentMessage{Text: "I could not."})
	l.Emit(event.TurnCompleted{Usage: used})
	l.Emit(event.DiffCaptured{Base: baseCommit, Digest: "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"})
}

func tellService(l *event.Log) {
	begin(l, "exec")
	for i := 1; i <= 2; i++ {
		l.Emit(event.ModelRequest{Request: 1, Attempt: i, Purpose: "turn", Model: "gpt-test", Bytes: 100})
		l.Emit(event.ModelRetried{Request: 1, Attempt: i, Max: 2, Layer: "request", Class: "overloaded", Status: 503, Message: "overloaded", DelayMS: 500})
		l.Emit(event.Error{Message: "Reconnecting... 1/2 (overloaded)"})
	}
	l.Emit(event.ModelFallback{From: "gpt-test", To: "gpt-other", Class: "overloaded", Reason: "the first is overloaded"})
	l.Emit(event.ModelRequest{Request: 1, Attempt: 3, Purpose: "turn", Model: "gpt-other", Bytes: 100})
	l.Emit(event.Error{Message: "the quota is used up", Class: "usage_limit"})
	l.Emit(event.TurnFailed{Error: event.Failure{Message: "the quota is used up", Class: "usage_limit", Hint: "wait until the quota is renewed"}, Usage: &event.Usage{}})
	l.Emit(event.DiffCaptured{Error: "git took too long"})
	l.Emit(event.TelemetryFlushed{Exported: 2, Lost: 7, Message: "logs to http://127.0.0.1:4318/v1/logs: connection refused"})
}

func tellLimit(l *event.Log) {
	begin(l, "exec")
	l.Emit(event.InstructionsLoaded{Path: "/w/shop/docs/AGENTS.md", Bytes: 32768, LostBytes: 900})
	l.Emit(event.ServerStatus{Server: "scales", Status: "failed", Message: "did not start"})
	ask(l, 1, used)
	l.Emit(event.HistoryCompacted{Trigger: "mid_turn", Method: "summary", ItemsBefore: 40, ItemsAfter: 3, BytesBefore: 90000, BytesAfter: 4000})
	l.Emit(event.LimitReached{Limit: "max_turns", Max: "3", Used: "3"})
	l.Emit(event.TurnFailed{Error: event.Failure{Message: "stopped after 3 responses", Class: "max_turns"}})
	l.Emit(event.DiffCaptured{Base: baseCommit})
}

func tellSignal(l *event.Log) {
	begin(l, "exec")
	ask(l, 1, used)
	id := l.Start(event.CommandExecution{Command: "make all", Status: event.InProgress})
	l.Complete(id, event.CommandExecution{Command: "make all", AggregatedOutput: "half", Status: event.Failed})
	l.Emit(event.ToolCompleted{Tool: "exec_command", CallID: "call_1", ItemID: id, Status: event.Failed, Message: "cancelled"})
	l.Emit(event.TurnFailed{Error: event.Failure{Message: "ended by SIGTERM", Class: "signal"}})
	l.Emit(captured())
}

func tellReview(l *event.Log) {
	begin(l, "review")
	ask(l, 1, used)
	l.Emit(event.FindingReported{Title: "Tax is added twice", Body: "`Price` adds it and so does `Total`.", Path: "price.go", StartLine: 3, EndLine: 5, Severity: "high", Confidence: 0.9})
	l.Emit(event.FindingReported{Title: "Outside", Body: "A path that leads out.", Path: "../../etc/passwd", StartLine: 0, EndLine: 0, Severity: "low", Confidence: 0.2})
	l.Emit(event.SchemaChecked{Valid: false, Round: 1, Errors: []string{"/findings: missing"}})
	l.Emit(event.SchemaChecked{Valid: true, Round: 2})
	l.Complete("", event.AgentMessage{Text: "Two findings."})
	l.Emit(event.TurnCompleted{Usage: used})
	l.Emit(event.DiffCaptured{Base: baseCommit})
}

func tellAgents(l *event.Log) {
	begin(l, "exec")
	inner := func(e event.Event) json.RawMessage {
		b, _ := json.Marshal(event.Record{Seq: 1, Time: time.Date(2026, 1, 31, 10, 0, 1, 0, time.UTC), Event: e})
		return b
	}
	for _, e := range []event.Event{
		event.RunStarted{Mode: "agent", Model: "gpt-test"},
		event.ItemCompleted{Item: event.Item{ID: "item_0", Details: event.CommandExecution{Command: "curl example.com", Status: event.Declined, Denial: &event.Denial{Reason: "no network", Source: "sandbox"}}}},
		event.PolicyDecision{Action: "command", Subject: "curl example.com", Outcome: "denied", ItemID: "item_0", Source: "sandbox"},
		event.ToolCompleted{Tool: "exec_command", CallID: "c", ItemID: "item_1", Status: event.Failed, DurationMS: 10},
		event.RunCompleted{Outcome: "success", Usage: used},
	} {
		l.Emit(event.AgentEvent{AgentID: "agent-1", Record: inner(e)})
	}
	l.Complete("", event.AgentMessage{Text: "Done by two."})
	l.Emit(event.TurnCompleted{Usage: used})
}

func captured() event.DiffCaptured {
	return event.DiffCaptured{Base: baseCommit, Head: strings.Repeat("cd", 20), Patch: goldenPatch, Digest: goldenDigest, Files: []event.FileStat{
		{Path: "price.go", Kind: "update", Added: 1, Deleted: 1}, {Path: "logo.bin", Kind: "add", Binary: true}, {Path: "bin/run.sh", OldPath: "run.sh", Kind: "rename", Added: 1, Mode: "100755"}},
		Mail: &event.MailDetails{Author: "A Bot <bot@example.com>", Subject: "Make the tests pass"}}
}

// hostile tries to break out of every format at once.
const hostile = "</pre></script><script>alert(1)</script><img src=x onerror=alert(1)>]]>&#x3c;\n" +
	"::add-mask::x\n  ::set-output name=a::b\n##[add-path]/x ##vso[task.setvariable variable=x]y ##teamcity[x]\r::stop-commands::t\r" +
	"section_start:1:x\r\x1b[0K\x1b[31mred\x1b]0;title\x07 \x00\x08 \xff\xfe \u202edrowssap\u2066 \u2028::error::x\n" +
	"``` ```` `\n~~~\n# heading\n| a | b |\n[x](javascript:alert(1)) ![t](https://example.com/p.png) <https://example.com> www.example.com @team #1\n" +
	"$HOME ${IFS} $(id) `id` 'q' \"q\" \\\nghadelimiter_x\nEOF\n---\n+++ \ndiff --git a/x b/x\nFrom: x\nSubject: y\n{0} {{1}} [text](1)"

// poison sets every text in v to s.
func poison(v reflect.Value, s string) {
	switch v.Kind() {
	case reflect.String:
		if v.Type() == reflect.TypeFor[event.Status]() {
			s = string(event.Failed)
		}
		v.SetString(s)
	case reflect.Struct:
		for i := range v.NumField() {
			poison(v.Field(i), s)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		poison(v.Elem(), s)
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			b, _ := json.Marshal(map[string]string{"type": "text", "text": s})
			v.SetBytes(b)
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			poison(v.Index(i), s)
		}
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		val := reflect.New(v.Type().Elem()).Elem()
		poison(val, s)
		m.SetMapIndex(reflect.ValueOf(s), val)
		v.Set(m)
	case reflect.Bool:
	case reflect.Int, reflect.Int64:
		v.SetInt(3)
	}
}

func poisoned(s string) event.RunCompleted {
	var e event.RunCompleted
	poison(reflect.ValueOf(&e).Elem(), s)
	return e
}

// tellAll emits one event of every kind and one item of every type, all their
// texts being s.
func tellAll(l *event.Log, s string) {
	for _, e := range kinds {
		v := reflect.New(reflect.TypeOf(e)).Elem()
		switch e.(type) {
		case event.ItemStarted, event.ItemUpdated, event.ItemCompleted, event.RunCompleted, event.AgentEvent:
			continue
		}
		poison(v, s)
		ev := v.Interface().(event.Event)
		if d, ok := ev.(event.PolicyDecision); ok {
			d.Outcome = "denied"
			ev = d
		}
		if d, ok := ev.(event.DiffCaptured); ok {
			d.Error = ""
			ev = d
		}
		l.Emit(ev)
	}
	for _, d := range append(append([]event.ItemDetails{}, itemTypes...), event.ToolCall{}, event.ErrorItem{}, event.WebSearch{}) {
		v := reflect.New(reflect.TypeOf(d)).Elem()
		poison(v, s)
		l.Complete("", v.Interface().(event.ItemDetails))
	}
	l.Emit(event.TurnCompleted{})
}
