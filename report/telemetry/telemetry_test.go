package telemetry

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/nightshift-ci/nightshift/runner/event"
)

func hexToBase64(s string) string {
	b, _ := hex.DecodeString(s)
	return base64.StdEncoding.EncodeToString(b)
}

// all three signals to one endpoint.
func to(kind, endpoint, protocol string) Options {
	e := func(path string) *Exporter {
		return &Exporter{Kind: kind, Endpoint: endpoint + path, Protocol: protocol, Headers: map[string]string{"x-key": "${KEY}"}}
	}
	o := Options{Logs: e("/v1/logs"), Traces: e("/v1/traces"), Metrics: e("/v1/metrics"), Version: "1.2.3", Environment: "ci", Host: "h1", Originator: "codex_exec",
		LookupEnv: func(n string) (string, bool) { return "sesame", n == "KEY" }}
	if kind == "otlp-grpc" {
		o.Logs.Endpoint, o.Traces.Endpoint, o.Metrics.Endpoint = endpoint, endpoint, endpoint
	}
	return o
}

const secretPrompt, secretOutput, secretCommand, secretAnswer = "PRIVATE-PROMPT", "PRIVATE-OUTPUT", "PRIVATE-COMMAND", "PRIVATE-ANSWER"

// tell plays a run with everything in it that must not leave.
func tell(l *event.Log) {
	l.Emit(event.RunStarted{Version: "1.2.3", Mode: "exec", ThreadID: "thread-1", Model: "gpt-test", Provider: "mock", Sandbox: "read-only", Approval: "never", Network: "off", Prompt: secretPrompt})
	l.Emit(event.SandboxEnforced{Mode: "read-only", Level: "degraded", Guarantees: []event.GuaranteeStatus{{Name: "writes_confined", Held: true}, {Name: "net_confined"}}})
	l.Emit(event.CredentialSelected{Source: "env CODEX_API_KEY", Mode: "apikey", Account: "person@example.com"})
	l.Emit(event.AuthRefreshed{Reason: "proactive_expiry", Outcome: "refreshed", DurationMS: 5})
	l.Emit(event.TurnStarted{})
	l.Emit(event.ModelRequest{Request: 1, Attempt: 1, Model: "gpt-test", Purpose: "turn", Bytes: 100})
	l.Emit(event.ModelRetried{Request: 1, Attempt: 1, Class: "overloaded", Status: 503, Message: "busy"})
	l.Emit(event.ModelRequest{Request: 1, Attempt: 2, Model: "gpt-test", Purpose: "turn", Bytes: 100})
	l.Emit(event.ModelResponse{Request: 1, Model: "gpt-test", ResponseID: "resp_1", Status: "completed", Usage: event.Usage{Input: 700, CachedInput: 100, Output: 9, Reasoning: 3}, FirstEventMS: 20, DurationMS: 40})
	id := l.Start(event.CommandExecution{Command: secretCommand, Status: event.InProgress})
	l.Emit(event.PolicyDecision{Action: "command", Subject: secretCommand, Decision: "none", Outcome: "sandboxed", CallID: "call_1", ItemID: id, Source: "sandbox"})
	code := 1
	l.Complete(id, event.CommandExecution{Command: secretCommand, AggregatedOutput: secretOutput, ExitCode: &code, Status: event.Failed})
	l.Emit(event.ToolCompleted{Tool: "exec_command", CallID: "call_1", ItemID: id, Status: event.Failed, DurationMS: 12, ExitCode: &code, OutBytes: 14, SeenBytes: 14})
	l.Emit(event.PolicyDecision{Action: "command", Subject: "rm -rf " + secretCommand, Decision: "forbidden", Outcome: "denied", Source: "rule", Rule: `["rm","-rf"]`, Origin: "default.rules:3", CallID: "call_2", Reason: "not " + secretCommand})
	l.Emit(event.HookCompleted{Event: "after_tool", Hook: "x.sh", Outcome: "completed", DurationMS: 3})
	l.Complete("", event.AgentMessage{Text: secretAnswer})
}

var ended = event.RunCompleted{Outcome: "success", Class: "success", FinalMessage: secretAnswer, DurationMS: 100, Usage: event.Usage{Input: 700, Output: 9}, Totals: event.Totals{Denials: 1, ModelRetries: 1, ToolCalls: 1, FailedTools: 1}}

func play(t testing.TB, s *Sink, tell func(*event.Log), last event.RunCompleted) (records []event.Record) {
	t.Helper()
	log := event.NewLog(nil, nil, s, keep{&records})
	tell(log)
	if err := log.Finish(context.WithoutCancel(t.Context()), last); err != nil {
		t.Fatal(err)
	}
	return records
}

type keep struct{ to *[]event.Record }

func (k keep) Handle(r event.Record) error { *k.to = append(*k.to, r); return nil }
func (k keep) Close(context.Context) error { return nil }

func flushed(records []event.Record) *event.TelemetryFlushed {
	for _, r := range records {
		if f, ok := r.Event.(event.TelemetryFlushed); ok {
			return &f
		}
	}
	return nil
}

func tellWhole(l *event.Log) { tell(l); l.Emit(event.TurnCompleted{}) }

// The same run arrives whole over every protocol, in one request per signal,
// and nothing private is in it.
func TestSignalsOverEveryProtocol(t *testing.T) {
	for _, p := range []struct{ name, kind, protocol string }{{"http protobuf", "otlp-http", "binary"}, {"http json", "otlp-http", "json"}, {"grpc", "otlp-grpc", ""}} {
		t.Run(p.name, func(t *testing.T) {
			var c *collector
			var url string
			if p.kind == "otlp-grpc" {
				var addr string
				c, addr = startGRPC(t, nil)
				url = "http://" + addr
			} else {
				c, url = startHTTP(t)
			}
			o := to(p.kind, url, p.protocol)
			s, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			records := play(t, s, tellWhole, ended)
			if len(c.logs) != 1 || len(c.traces) != 1 || len(c.metrics) != 1 {
				t.Fatalf("%d, %d, %d requests, want one each", len(c.logs), len(c.traces), len(c.metrics))
			}
			checkLogs(t, c)
			checkSpans(t, c, s)
			checkMetrics(t, c)
			for _, h := range c.heads {
				if h.Get("X-Key") != "sesame" {
					t.Errorf("headers %v", h)
				}
			}
			f := flushed(records)
			if f == nil || f.Exported < 20 {
				t.Fatalf("telemetry.flushed is %+v", f)
			}
			if want := int64(2); p.kind == "otlp-grpc" && (f.Lost != want || !strings.Contains(f.Message, "two too many")) {
				t.Errorf("the collector rejected %d points, the log says %+v", want, f)
			} else if p.kind != "otlp-grpc" && f.Lost != 0 {
				t.Errorf("nothing was lost, the log says %+v", f)
			}
			everything := c.raw.String()
			for _, m := range c.logs {
				everything += m.String()
			}
			for _, m := range c.traces {
				everything += m.String()
			}
			for _, m := range c.metrics {
				everything += m.String()
			}
			for _, private := range []string{secretPrompt, secretOutput, secretCommand, secretAnswer, "person@example.com"} {
				if strings.Contains(everything, private) {
					t.Errorf("%s was exported", private)
				}
			}
		})
	}
}

func checkLogs(t *testing.T, c *collector) {
	t.Helper()
	byName := map[string]map[string]string{}
	for _, r := range c.records() {
		v := values(r.Attributes)
		if r.EventName != v["event.name"] || v["conversation.id"] != "thread-1" && r.EventName != "nightshift.run_completed" || len(r.TraceId) != 16 {
			t.Errorf("record %v", r)
		}
		byName[r.EventName] = v
	}
	for name, want := range map[string]map[string]string{
		"codex.conversation_starts":   {"provider_name": "mock", "sandbox_policy": "read-only", "approval_policy": "never", "model": "gpt-test"},
		"codex.user_prompt":           {"prompt": "[REDACTED]", "prompt_length": "14"},
		"codex.api_request":           {"duration_ms": "40", "http.response.status_code": "200"},
		"codex.sse_event":             {"event.kind": "response.completed", "input_token_count": "700", "cached_token_count": "100", "output_token_count": "9", "reasoning_token_count": "3"},
		"codex.turn_ttft":             {"duration_ms": "20"},
		"codex.tool_decision":         {"decision": "denied", "source": "rule", "rule.origin": "default.rules:3", "subject": "[REDACTED]", "call_id": "call_2"},
		"codex.tool_result":           {"tool_name": "exec_command", "success": "false", "exit_code": "1", "output": "[REDACTED]", "arguments": "[REDACTED]"},
		"codex.auth_recovery":         {"auth.outcome": "recovery_succeeded", "auth.recovery_reason": "proactive_expiry"},
		"nightshift.sandbox_enforced": {"level": "degraded", "guarantees.missing": "net_confined"},
		"nightshift.run_completed":    {"outcome": "success", "exit_code": "0", "denials": "1", "auth_mode": "apikey"},
	} {
		got, ok := byName[name]
		if !ok {
			t.Errorf("no record %s", name)
			continue
		}
		for k, v := range want {
			if got[k] != v {
				t.Errorf("%s: %s is %q, want %q", name, k, got[k], v)
			}
		}
	}
	res := values(c.logs[0].ResourceLogs[0].Resource.Attributes)
	for k, v := range map[string]string{"service.name": "nightshift", "service.version": "1.2.3", "env": "ci", "host.name": "h1"} {
		if res[k] != v {
			t.Errorf("resource %s is %q, want %q", k, res[k], v)
		}
	}
}

func checkSpans(t *testing.T, c *collector, s *Sink) {
	t.Helper()
	spans := map[string]*trace.Span{}
	names := map[string]int{}
	for _, sp := range c.spans() {
		spans[hex.EncodeToString(sp.SpanId)] = sp
		names[sp.Name]++
		if sp.EndTimeUnixNano < sp.StartTimeUnixNano {
			t.Errorf("%s ends before it starts", sp.Name)
		}
	}
	for name, n := range map[string]int{"invoke_agent nightshift": 1, "turn": 1, "chat gpt-test": 2, "execute_tool exec_command": 1, "refresh login": 1, "hook after_tool": 1} {
		if names[name] != n {
			t.Errorf("%d spans %q, want %d (all: %v)", names[name], name, n, names)
		}
	}
	parts := strings.Split(s.TraceParent(), "-")
	parent := func(sp *trace.Span) *trace.Span { return spans[hex.EncodeToString(sp.ParentSpanId)] }
	for _, sp := range spans {
		if hex.EncodeToString(sp.TraceId) != parts[1] {
			t.Errorf("%s is in another trace", sp.Name)
		}
		switch p := parent(sp); sp.Name {
		case "invoke_agent nightshift":
			if hex.EncodeToString(sp.SpanId) != parts[2] {
				t.Error("TraceParent names another span than the run's")
			}
			if values(sp.Attributes)["nightshift.outcome"] != "success" {
				t.Errorf("the run's span: %v", sp.Attributes)
			}
		case "turn", "refresh login":
			if p == nil || p.Name != "invoke_agent nightshift" {
				t.Errorf("the parent of %s is %v", sp.Name, p)
			}
		default:
			if p == nil || p.Name != "turn" {
				t.Errorf("the parent of %s is %v", sp.Name, p)
			}
		}
		if sp.Name == "execute_tool exec_command" && sp.Status.GetCode() != trace.Status_STATUS_CODE_ERROR {
			t.Error("a failed tool has no error status")
		}
	}
}

func checkMetrics(t *testing.T, c *collector) {
	t.Helper()
	all := c.series()
	for _, name := range []string{"codex.api_request", "codex.api_request.duration_ms", "codex.tool.call", "codex.tool.call.duration_ms", "codex.turn.e2e_duration_ms",
		"codex.turn.ttft.duration_ms", "codex.turn.tool.call", "codex.turn.token_usage", "codex.conversation.turn.count", "codex.process.start", "codex.thread.started",
		"codex.auth.selection", "gen_ai.client.token.usage", "gen_ai.client.operation.duration", "nightshift.denial", "nightshift.run", "nightshift.model.retry"} {
		m := all[name]
		if m == nil {
			t.Errorf("no metric %s", name)
			continue
		}
		switch d := m.Data.(type) {
		case *metrics.Metric_Sum:
			if d.Sum.AggregationTemporality != metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_DELTA || !d.Sum.IsMonotonic {
				t.Errorf("%s: %v", name, d.Sum.AggregationTemporality)
			}
		case *metrics.Metric_Histogram:
			if d.Histogram.AggregationTemporality != metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_DELTA {
				t.Errorf("%s: %v", name, d.Histogram.AggregationTemporality)
			}
		}
	}
	tokens := map[string]float64{}
	for _, p := range all["codex.turn.token_usage"].GetHistogram().GetDataPoints() {
		tokens[values(p.Attributes)["token_type"]] = p.GetSum()
	}
	if tokens["input"] != 700 || tokens["output"] != 9 || tokens["cached_input"] != 100 || tokens["total"] != 709 {
		t.Errorf("token usage %v", tokens)
	}
}

// Each switch lets out what it names and nothing else.
func TestPrivateTextsOneByOne(t *testing.T) {
	for _, c := range []struct {
		name    string
		set     func(*Options)
		out, in []string
	}{
		{"prompt", func(o *Options) { o.LogUserPrompt = true }, []string{secretPrompt}, []string{secretOutput, secretCommand, secretAnswer}},
		{"answers", func(o *Options) { o.LogAgentResponses = true }, []string{secretAnswer}, []string{secretOutput, secretCommand, secretPrompt}},
		{"tools", func(o *Options) { o.LogToolOutput = true }, []string{secretOutput, secretCommand}, []string{secretPrompt, secretAnswer}},
	} {
		t.Run(c.name, func(t *testing.T) {
			col, url := startHTTP(t)
			o := to("otlp-http", url, "json")
			c.set(&o)
			s, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			play(t, s, tellWhole, ended)
			for _, want := range c.out {
				if !strings.Contains(col.raw.String(), want) {
					t.Errorf("%s is missing", want)
				}
			}
			for _, not := range c.in {
				if strings.Contains(col.raw.String(), not) {
					t.Errorf("%s was exported", not)
				}
			}
		})
	}
}

// Failed, limited and interrupted runs arrive like others, with their class.
func TestFailedRunsAreExported(t *testing.T) {
	for _, c := range []struct {
		name string
		more []event.Event
		last event.RunCompleted
	}{
		{"signal", []event.Event{event.TurnFailed{Error: event.Failure{Message: "ended by SIGTERM", Class: "signal"}}}, event.RunCompleted{Outcome: "interrupted", Class: "signal", ExitCode: 143, Message: "ended by SIGTERM"}},
		{"limit", []event.Event{event.LimitReached{Limit: "max_turns", Max: "3", Used: "3"}, event.TurnFailed{Error: event.Failure{Message: "limit", Class: "max_turns"}}}, event.RunCompleted{Outcome: "limit", Class: "max_turns", ExitCode: 7}},
		{"crash inside the turn", nil, event.RunCompleted{Outcome: "internal", Class: "internal", ExitCode: 70}},
	} {
		t.Run(c.name, func(t *testing.T) {
			col, url := startHTTP(t)
			s, err := New(to("otlp-http", url, "binary"))
			if err != nil {
				t.Fatal(err)
			}
			play(t, s, func(l *event.Log) {
				tell(l)
				l.Emit(event.ModelRequest{Request: 2, Attempt: 1, Model: "gpt-test"})
				for _, e := range c.more {
					l.Emit(e)
				}
			}, c.last)
			var run, turn *trace.Span
			for _, sp := range col.spans() {
				switch sp.Name {
				case "invoke_agent nightshift":
					run = sp
				case "turn":
					turn = sp
				}
			}
			if run == nil || turn == nil || run.Status.GetCode() != trace.Status_STATUS_CODE_ERROR || values(run.Attributes)["error.type"] != c.last.Class ||
				values(turn.Attributes)["error.type"] != c.last.Class {
				t.Errorf("run %v\nturn %v", run, turn)
			}
			last := map[string]string{}
			for _, r := range col.records() {
				if r.EventName == "nightshift.run_completed" {
					last = values(r.Attributes)
				}
			}
			if last["error.type"] != c.last.Class || last["success"] != "false" {
				t.Errorf("run_completed: %v", last)
			}
			if col.series()["nightshift.run"] == nil || col.series()["codex.turn.token_usage"] == nil {
				t.Error("metrics of a failed run are missing")
			}
		})
	}
}
