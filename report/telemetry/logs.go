package telemetry

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/trace"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// logWriter makes log records of events. Numbers are texts, as the reference
// has them.
type logWriter struct {
	o      *Options
	c      *common
	tc     *traceContext
	logger log.Logger
	items  map[string]toolText // of items whose tool.completed has not come
	order  []string
	tools  int
	first  bool // the first response of the turn has not come

}

// toolText is what a tool was given and gave, kept only if it may be exported.
type toolText struct{ arguments, output string }

const maxToolTexts = 64

func newLogWriter(o *Options, c *common, tc *traceContext, q *queue[sdklog.Record]) *logWriter {
	p := sdklog.NewLoggerProvider(sdklog.WithResource(resourceOf(o, true)), sdklog.WithProcessor(logQueue{q}),
		sdklog.WithAttributeCountLimit(-1), sdklog.WithAttributeValueLengthLimit(-1))
	return &logWriter{o: o, c: c, tc: tc, logger: p.Logger("nightshift", log.WithInstrumentationVersion(o.Version)), items: map[string]toolText{}}
}

// logQueue hands finished records to the queue.
type logQueue struct{ q *queue[sdklog.Record] }

func (l logQueue) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }
func (l logQueue) OnEmit(_ context.Context, r *sdklog.Record) error       { l.q.put(r.Clone()); return nil }
func (l logQueue) Shutdown(context.Context) error                         { return nil } // the sink drains the queue
func (l logQueue) ForceFlush(context.Context) error                       { return nil }

// recordOverhead is about what a record takes beside its attributes: times, ids,
// its share of the encoding.
const recordOverhead = 128

// sizeOfAttribute is about the encoded size of an attribute: ours are texts and
// numbers.
func sizeOfAttribute(kv attribute.KeyValue) int { return len(kv.Key) + len(kv.Value.AsString()) + 16 }

// sizeOfRecord is about the encoded size of a record, in bytes.
func sizeOfRecord(r sdklog.Record) int {
	size := recordOverhead
	r.WalkAttributes(func(kv attribute.KeyValue) bool {
		size += sizeOfAttribute(kv)
		return true
	})
	return size
}

const redacted = "[REDACTED]"

// text is s where it may leave the machine, else its mark.
func text(s string, allowed bool, max int) string {
	if !allowed {
		return redacted
	}
	return clip(s, max)
}

func clip(s string, max int) string {
	if len(s) <= max {
		return s
	}
	return strings.ToValidUTF8(s[:max], "") + fmt.Sprintf("… [%d bytes omitted]", len(s)-max)
}

const maxErrorText = 1000

// attrs builds a list of attributes; empty texts are left out.
type attrs []attribute.KeyValue

func (a attrs) str(k, v string) attrs {
	if v == "" {
		return a
	}
	return append(a, attribute.String(k, v))
}

func (a attrs) num(k string, n int64) attrs {
	return append(a, attribute.String(k, strconv.FormatInt(n, 10)))
}
func (a attrs) yes(k string, b bool) attrs {
	return append(a, attribute.String(k, strconv.FormatBool(b)))
}
func (a attrs) int(k string, n int64) attrs     { return append(a, attribute.Int64(k, n)) }
func (a attrs) float(k string, f float64) attrs { return append(a, attribute.Float64(k, f)) }

func (w *logWriter) emit(r event.Record, name string, level log.Severity, agent string, a attrs) {
	var rec log.Record
	rec.SetEventName(name)
	rec.SetTimestamp(r.Time)
	rec.SetObservedTimestamp(r.Time)
	rec.SetSeverity(level)
	rec.SetSeverityText(level.String())
	a = a.str("event.name", name).str("event.timestamp", r.Time.UTC().Format(time.RFC3339Nano)).
		str("conversation.id", w.c.thread).str("app.version", w.o.Version).str("originator", w.o.Originator).
		str("terminal.type", "none").str("model", w.c.model).str("slug", w.c.model).str("auth_mode", w.c.auth).str("agent_name", agent)
	rec.AddAttributes(a...)
	ctx := context.Background()
	if w.tc.own {
		ctx = trace.ContextWithSpanContext(ctx, w.tc.rootContext())
	} else if w.tc.parent.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, w.tc.parent)
	}
	w.logger.Emit(ctx, rec)
}

const (
	info = log.SeverityInfo
	warn = log.SeverityWarn
	bad  = log.SeverityError
)

func (w *logWriter) handle(r event.Record, agent string) {
	switch e := r.Event.(type) {
	case event.RunStarted:
		w.emit(r, "codex.conversation_starts", info, agent, attrs{}.str("provider_name", e.Provider).str("reasoning_effort", e.Effort).
			str("approval_policy", e.Approval).str("sandbox_policy", e.Sandbox).str("network", e.Network).str("mode", e.Mode).
			str("policy_digest", e.PolicyDigest).str("parent_conversation.id", e.ParentID))
		w.emit(r, "codex.user_prompt", info, agent, attrs{}.num("prompt_length", int64(len(e.Prompt))).str("prompt", text(e.Prompt, w.o.LogUserPrompt, 64<<10)))
	case event.SandboxEnforced:
		w.sandbox(r, e, agent)
	case event.CredentialSelected:
		w.emit(r, "nightshift.auth_selected", info, agent, attrs{}.str("auth.source", e.Source))
	case event.AuthRefreshed:
		level := info
		if e.Outcome == "failed" {
			level = bad
		}
		w.emit(r, "codex.auth_recovery", level, agent, attrs{}.str("auth.mode", "managed").str("auth.step", step(e.Outcome)).str("auth.outcome", authOutcome(e.Outcome)).
			str("auth.recovery_reason", e.Reason).yes("auth.state_changed", e.Outcome != "failed").str("auth.error_code", e.Class).
			str("auth.persisted", e.Persisted).num("duration_ms", e.DurationMS))
	case event.TurnStarted:
		w.first = true
	case event.TurnCompleted:
		w.emit(r, "nightshift.turn_completed", info, agent, nil)
	case event.TurnFailed:
		w.emit(r, "nightshift.turn_failed", bad, agent, attrs{}.str("error.type", e.Error.Class).str("error.message", clip(e.Error.Message, maxErrorText)).yes("retryable", e.Error.Retryable))
	case event.RunCompleted:
		w.completed(r, e, agent)
	case event.ItemStarted:
		w.remember(agent, e.Item)
	case event.ItemCompleted:
		w.remember(agent, e.Item)
		if m, ok := e.Item.Details.(event.AgentMessage); ok && w.o.LogAgentResponses {
			w.emit(r, "codex.agent_response", info, agent, attrs{}.str("response", clip(m.Text, 64<<10)))
		}
	default:
		w.handleModel(r, agent)
	}
}

func step(outcome string) string {
	if outcome == "reloaded" {
		return "reload"
	}
	return "refresh_token"
}

func authOutcome(outcome string) string {
	if outcome == "failed" {
		return "recovery_failed"
	}
	return "recovery_succeeded"
}

func (w *logWriter) handleModel(r event.Record, agent string) {
	switch e := r.Event.(type) {
	case event.ModelResponse:
		w.emit(r, "codex.api_request", info, agent, attrs{}.num("duration_ms", e.DurationMS).num("http.response.status_code", 200).
			str("endpoint", "/responses").str("auth.request_id", e.ServiceID).yes("success", true))
		w.emit(r, "codex.sse_event", info, agent, attrs{}.str("event.kind", "response."+e.Status).num("duration_ms", e.DurationMS).
			num("input_token_count", e.Usage.Input).num("output_token_count", e.Usage.Output).num("cached_token_count", e.Usage.CachedInput).
			num("cache_write_token_count", e.Usage.CacheWriteInput).num("reasoning_token_count", e.Usage.Reasoning).num("tool_token_count", e.Usage.Total()))
		if w.first {
			w.first = false
			w.emit(r, "codex.turn_ttft", info, agent, attrs{}.num("duration_ms", e.FirstEventMS))
		}
	case event.ModelRetried:
		a := attrs{}.num("attempt", int64(e.Attempt)).str("endpoint", "/responses").str("error.type", e.Class).
			str("error.message", clip(e.Message, maxErrorText)).str("retry.layer", e.Layer).num("retry.delay_ms", e.DelayMS).yes("success", false)
		if e.Status != 0 {
			a = a.num("http.response.status_code", int64(e.Status))
		}
		w.emit(r, "codex.api_request", warn, agent, a)
	case event.ModelFallback:
		w.emit(r, "nightshift.model_fallback", warn, agent, attrs{}.str("from", e.From).str("to", e.To).str("error.type", e.Class))
	case event.HistoryCompacted:
		w.emit(r, "nightshift.history_compacted", info, agent, attrs{}.str("trigger", e.Trigger).str("method", e.Method).
			num("bytes_before", int64(e.BytesBefore)).num("bytes_after", int64(e.BytesAfter)))
	case event.PolicyDecision:
		w.decision(r, e, agent)
	case event.ToolCompleted:
		w.tool(r, e, agent)
	default:
		w.handleRest(r, agent)
	}
}

func (w *logWriter) handleRest(r event.Record, agent string) {
	switch e := r.Event.(type) {
	case event.HookCompleted:
		level := info
		if e.Outcome == "failed" || e.Outcome == "timeout" || e.Outcome == "blocked" {
			level = warn
		}
		w.emit(r, "nightshift.hook_completed", level, agent, attrs{}.str("hook.event", e.Event).str("outcome", e.Outcome).str("origin", e.Origin).num("duration_ms", e.DurationMS))
	case event.VerifyCompleted:
		level := info
		if !e.Passed {
			level = warn
		}
		w.emit(r, "nightshift.verify_completed", level, agent, attrs{}.str("command", text(e.Command, w.o.LogToolOutput, w.o.ToolResultBytes)).
			str("output", text(e.Output, w.o.LogToolOutput, w.o.ToolResultBytes)).
			num("round", int64(e.Round)).num("exit_code", int64(e.ExitCode)).yes("success", e.Passed).num("duration_ms", e.DurationMS))
	case event.SchemaChecked:
		w.emit(r, "nightshift.schema_checked", info, agent, attrs{}.yes("success", e.Valid).num("round", int64(e.Round)))
	case event.FindingReported:
		w.emit(r, "nightshift.review_finding", info, agent, attrs{}.str("severity", e.Severity).float("confidence", e.Confidence).str("title", text(e.Title, w.o.LogAgentResponses, 1000)))
	case event.LimitReached:
		w.emit(r, "nightshift.limit_reached", bad, agent, attrs{}.str("limit", e.Limit).str("max", e.Max).str("used", e.Used))
	case event.ServerStatus:
		level := info
		if e.Status == "failed" || e.Status == "died" {
			level = warn
		}
		w.emit(r, "nightshift.mcp_server", level, agent, attrs{}.str("mcp_server", e.Server).str("status", e.Status).num("tools", int64(len(e.Tools))).
			str("error.message", clip(e.Message, maxErrorText)).num("duration_ms", e.DurationMS))
	case event.InstructionsLoaded:
		if e.LostBytes > 0 {
			w.emit(r, "nightshift.instructions_truncated", warn, agent, attrs{}.num("bytes", int64(e.Bytes)).num("lost_bytes", int64(e.LostBytes)))
		}
	case event.Notice:
		w.emit(r, "nightshift.notice", warn, agent, attrs{}.str("class", e.Class).str("message", clip(e.Message, maxErrorText)))
	case event.DiffCaptured:
		var added, deleted int64
		for _, f := range e.Files {
			added, deleted = added+int64(f.Added), deleted+int64(f.Deleted)
		}
		w.emit(r, "nightshift.diff_captured", info, agent, attrs{}.num("files", int64(len(e.Files))).num("added", added).num("deleted", deleted).
			str("digest", e.Digest).str("error.message", clip(e.Error, maxErrorText)))
	}
}

func (w *logWriter) sandbox(r event.Record, e event.SandboxEnforced, agent string) {
	var held, missing []string
	for _, g := range e.Guarantees {
		if g.Held {
			held = append(held, g.Name)
		} else {
			missing = append(missing, g.Name)
		}
	}
	level := info
	if len(missing) > 0 {
		level = warn
	}
	w.emit(r, "nightshift.sandbox_enforced", level, agent, attrs{}.str("mode", e.Mode).str("level", e.Level).num("landlock_abi", int64(e.LandlockABI)).
		str("guarantees.held", strings.Join(held, ",")).str("guarantees.missing", strings.Join(missing, ",")))
}

// decision writes one record for every decision, refusals included. The subject
// of a command or patch is a tool argument; the subject of a network decision is a host.
func (w *logWriter) decision(r event.Record, e event.PolicyDecision, agent string) {
	level, decision := info, "approved"
	if e.Outcome == "denied" {
		level, decision = warn, "denied"
	}
	open := w.o.LogToolOutput || e.Action == "network" || e.Action == "mcp"
	w.emit(r, "codex.tool_decision", level, agent, attrs{}.str("tool_name", e.Action).str("call_id", e.CallID).str("decision", decision).
		str("outcome", e.Outcome).str("source", e.Source).str("rule", text(e.Rule, open || e.Source != "danger", 500)).str("rule.origin", e.Origin).
		str("subject", text(e.Subject, open, w.o.ToolResultBytes)).str("reason", text(e.Reason, open, maxErrorText)))
}

func (w *logWriter) remember(agent string, it event.Item) {
	if !w.o.LogToolOutput {
		return
	}
	var t toolText
	switch d := it.Details.(type) {
	case event.CommandExecution:
		t = toolText{d.Command, d.AggregatedOutput}
	case event.MCPToolCall:
		t.arguments = string(d.Arguments)
		if d.Result != nil {
			for _, c := range d.Result.Content {
				t.output += string(c)
			}
		}
	case event.FileChange:
		for _, c := range d.Changes {
			t.arguments += c.Kind + " " + c.Path + "\n"
		}
	default:
		return
	}
	key := agent + "/" + it.ID
	if _, ok := w.items[key]; !ok {
		w.order = append(w.order, key)
		if len(w.order) > maxToolTexts {
			delete(w.items, w.order[0])
			w.order = w.order[1:]
		}
	}
	w.items[key] = toolText{clip(t.arguments, w.o.ToolResultBytes), clip(t.output, w.o.ToolResultBytes)}
}

func (w *logWriter) tool(r event.Record, e event.ToolCompleted, agent string) {
	w.tools++
	level := info
	if e.Status != event.Completed {
		level = warn
	}
	t := w.items[agent+"/"+e.ItemID]
	a := attrs{}.num("tool_result_seq", int64(w.tools)).str("tool_name", e.Tool).str("call_id", e.CallID).num("duration_ms", e.DurationMS).
		yes("success", e.Status == event.Completed).str("status", string(e.Status)).num("output_length", e.OutBytes).
		yes("output_truncated", e.SeenBytes < e.OutBytes).str("arguments", text(t.arguments, w.o.LogToolOutput, w.o.ToolResultBytes)).
		str("output", text(t.output, w.o.LogToolOutput, w.o.ToolResultBytes))
	if e.ExitCode != nil {
		a = a.num("exit_code", int64(*e.ExitCode))
	}
	if e.Resources != nil {
		a = a.num("cpu_ms", e.Resources.CPUMS).num("peak_memory_bytes", e.Resources.PeakBytes)
	}
	w.emit(r, "codex.tool_result", level, agent, a)
}

func (w *logWriter) completed(r event.Record, e event.RunCompleted, agent string) {
	level := info
	if e.ExitCode != 0 {
		level = bad
	}
	w.emit(r, "nightshift.run_completed", level, agent, attrs{}.str("outcome", e.Outcome).str("error.type", e.Class).num("exit_code", int64(e.ExitCode)).
		str("error.message", clip(e.Message, maxErrorText)).num("duration_ms", e.DurationMS).yes("success", e.ExitCode == 0).
		num("input_token_count", e.Usage.Input).num("output_token_count", e.Usage.Output).num("cached_token_count", e.Usage.CachedInput).
		num("reasoning_token_count", e.Usage.Reasoning).float("cost_usd", e.CostUSD).num("tool_calls", int64(e.Totals.ToolCalls)).
		num("failed_tools", int64(e.Totals.FailedTools)).num("denials", int64(e.Totals.Denials)).num("retries", int64(e.Totals.ModelRetries)))
}
