package telemetry

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// spanWriter makes spans of events, with the times of the records: the run, its
// turns, and in them model requests, tool calls, refreshes and hooks.
type spanWriter struct {
	o      *Options
	c      *common
	tc     *traceContext
	tracer trace.Tracer
	extra  []attribute.KeyValue

	runCtx  context.Context
	run     trace.Span
	turnCtx context.Context
	turn    trace.Span
	model   map[int]trace.Span // open requests by number
	agents  map[string]*agentSpan
	within  *agentSpan // of the agent whose record is being handled
	failure *event.Failure
	last    time.Time
	count   int
	skipped int
}

// maxSpans bounds one trace: a run of days must not send a million spans.
const maxSpans = 5000

func newSpanWriter(o *Options, c *common, tc *traceContext, q *queue[sdktrace.ReadOnlySpan]) *spanWriter {
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = 4 << 10
	p := sdktrace.NewTracerProvider(sdktrace.WithResource(resourceOf(o, false)), sdktrace.WithSpanProcessor(spanQueue{q}),
		sdktrace.WithIDGenerator(&idSource{c: tc}), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())), sdktrace.WithRawSpanLimits(limits))
	w := &spanWriter{o: o, c: c, tc: tc, tracer: p.Tracer("nightshift", trace.WithInstrumentationVersion(o.Version)), model: map[int]trace.Span{}, agents: map[string]*agentSpan{}}
	for k, v := range o.SpanAttributes {
		w.extra = append(w.extra, attribute.String(k, v))
	}
	return w
}

// spanQueue hands ended spans to the queue.
type spanQueue struct {
	q *queue[sdktrace.ReadOnlySpan]
}

func (s spanQueue) OnStart(context.Context, sdktrace.ReadWriteSpan) {} // only ended spans are exported
func (s spanQueue) OnEnd(span sdktrace.ReadOnlySpan) {
	if span.SpanContext().IsSampled() {
		s.q.put(span)
	}
}
func (s spanQueue) Shutdown(context.Context) error   { return nil } // the sink drains the queue
func (s spanQueue) ForceFlush(context.Context) error { return nil }

// sizeOfSpan is about the encoded size of a span, in bytes.
func sizeOfSpan(s sdktrace.ReadOnlySpan) int {
	size := recordOverhead + len(s.Name()) + len(s.Status().Description)
	add := func(list []attribute.KeyValue) {
		for _, kv := range list {
			size += sizeOfAttribute(kv)
		}
	}
	add(s.Attributes())
	for _, e := range s.Events() {
		size += len(e.Name) + 16
		add(e.Attributes)
	}
	return size
}

func (c *traceContext) rootContext() trace.SpanContext {
	flags := trace.TraceFlags(0)
	if c.sampled {
		flags = trace.FlagsSampled
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: c.traceID, SpanID: c.root, TraceFlags: flags})
}

func (w *spanWriter) start(ctx context.Context, name string, kind trace.SpanKind, at time.Time, a attrs) (context.Context, trace.Span) {
	a = append(a.str("gen_ai.conversation.id", w.c.thread), w.extra...)
	return w.tracer.Start(ctx, name, trace.WithTimestamp(at), trace.WithSpanKind(kind), trace.WithAttributes(a...))
}

// whole makes a span of something whose record comes when it is over.
func (w *spanWriter) whole(name string, end time.Time, ms int64, a attrs, failed, why string) {
	if w.full() {
		return
	}
	_, s := w.start(w.parent(), name, trace.SpanKindInternal, end.Add(-time.Duration(ms)*time.Millisecond), a)
	if failed != "" {
		s.SetAttributes(attribute.String("error.type", failed))
		s.SetStatus(codes.Error, why)
	}
	s.End(trace.WithTimestamp(end))
}

func (w *spanWriter) full() bool {
	if w.count >= maxSpans {
		w.skipped++
		return true
	}
	w.count++
	return false
}

func (w *spanWriter) parent() context.Context {
	switch {
	case w.within != nil:
		return w.within.ctx
	case w.turnCtx != nil:
		return w.turnCtx
	case w.runCtx != nil:
		return w.runCtx
	}
	return w.open(event.RunStarted{}, w.last)
}

// open starts the run's span, under the parent from outside if there is one.
func (w *spanWriter) open(e event.RunStarted, at time.Time) context.Context {
	ctx := context.Background()
	if w.tc.parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, w.tc.parent)
	}
	w.runCtx, w.run = w.start(ctx, "invoke_agent nightshift", trace.SpanKindInternal, at, attrs{}.
		str("gen_ai.operation.name", "invoke_agent").str("gen_ai.agent.name", "nightshift").str("gen_ai.provider.name", e.Provider).
		str("gen_ai.request.model", e.Model).str("nightshift.mode", e.Mode).str("nightshift.sandbox", e.Sandbox).
		str("nightshift.network", e.Network).str("nightshift.policy_digest", e.PolicyDigest))
	return w.runCtx
}

func (w *spanWriter) handle(r event.Record) {
	w.last = r.Time
	switch e := r.Event.(type) {
	case event.RunStarted:
		if w.run == nil {
			w.open(e, r.Time)
		}
	case event.TurnStarted:
		w.endTurn(r.Time, "interrupted", "")
		parent := w.parent()
		w.turnCtx, w.turn = w.start(parent, "turn", trace.SpanKindInternal, r.Time, nil)
	case event.TurnCompleted:
		w.endTurn(r.Time, "", "")
	case event.TurnFailed:
		w.failure = &e.Error
		w.endTurn(r.Time, word(e.Error.Class), clip(e.Error.Message, maxErrorText))
	case event.ModelRequest, event.ModelResponse, event.ModelRetried:
		w.modelSpan(r)
	case event.ToolCompleted:
		a := attrs{}.str("gen_ai.operation.name", "execute_tool").str("gen_ai.tool.name", e.Tool).str("gen_ai.tool.call.id", e.CallID).
			int("nightshift.output_bytes", e.OutBytes).str("nightshift.status", string(e.Status))
		if e.ExitCode != nil {
			a = a.int("process.exit.code", int64(*e.ExitCode))
		}
		failed := ""
		if e.Status != event.Completed {
			failed = string(e.Status)
		}
		w.whole("execute_tool "+e.Tool, r.Time, e.DurationMS, a, failed, "")
	case event.AuthRefreshed:
		failed := ""
		if e.Outcome == "failed" {
			failed = word(e.Class)
		}
		w.whole("refresh login", r.Time, e.DurationMS, attrs{}.str("nightshift.reason", e.Reason).str("nightshift.outcome", e.Outcome), failed, "")
	case event.HookCompleted:
		failed := ""
		if e.Outcome != "completed" && e.Outcome != "skipped" {
			failed = e.Outcome
		}
		w.whole("hook "+e.Event, r.Time, e.DurationMS, attrs{}.str("nightshift.outcome", e.Outcome), failed, "")
	case event.VerifyCompleted:
		failed := ""
		if !e.Passed {
			failed = "verify_failed"
		}
		w.whole("verify", r.Time, e.DurationMS, attrs{}.int("process.exit.code", int64(e.ExitCode)).int("nightshift.round", int64(e.Round)), failed, "")
	case event.PolicyDecision:
		if e.Outcome == "denied" {
			w.mark(r.Time, "denied", attrs{}.str("action", e.Action).str("source", e.Source).str("rule.origin", e.Origin))
		}
	case event.LimitReached:
		w.mark(r.Time, "limit", attrs{}.str("limit", e.Limit).str("max", e.Max).str("used", e.Used))
	case event.ModelFallback:
		w.mark(r.Time, "model_fallback", attrs{}.str("from", e.From).str("to", e.To).str("error.type", e.Class))
	case event.RunCompleted:
		w.completed(r, e)
	}
}

// mark adds a span event to what is going on.
func (w *spanWriter) mark(at time.Time, name string, a attrs) {
	span := w.turn
	if w.within != nil {
		span = w.within.span
	}
	if span == nil {
		w.parent()
		span = w.run
	}
	span.AddEvent(name, trace.WithTimestamp(at), trace.WithAttributes(a...))
}

func (w *spanWriter) modelSpan(r event.Record) {
	switch e := r.Event.(type) {
	case event.ModelRequest:
		if w.full() {
			return
		}
		_, w.model[e.Request] = w.start(w.parent(), "chat "+e.Model, trace.SpanKindClient, r.Time, attrs{}.str("gen_ai.operation.name", "chat").
			str("gen_ai.provider.name", w.c.provider).str("gen_ai.request.model", e.Model).int("nightshift.attempt", int64(e.Attempt)).
			str("nightshift.purpose", e.Purpose).int("http.request.body.size", int64(e.Bytes)))
	case event.ModelRetried:
		if s := w.take(e.Request); s != nil {
			a := attrs{}.str("error.type", e.Class)
			if e.Status != 0 {
				a = a.int("http.response.status_code", int64(e.Status))
			}
			s.SetAttributes(a...)
			s.SetStatus(codes.Error, clip(e.Message, maxErrorText))
			s.End(trace.WithTimestamp(r.Time))
		}
	case event.ModelResponse:
		s := w.take(e.Request)
		if s == nil {
			if w.full() {
				return
			}
			_, s = w.start(w.parent(), "chat "+e.Model, trace.SpanKindClient, r.Time.Add(-time.Duration(e.DurationMS)*time.Millisecond), attrs{}.str("gen_ai.operation.name", "chat"))
		}
		u := e.Usage
		s.SetAttributes(attrs{}.str("gen_ai.response.model", e.Model).str("gen_ai.response.id", e.ResponseID).
			int("gen_ai.usage.input_tokens", u.Input).int("gen_ai.usage.output_tokens", u.Output).
			int("gen_ai.usage.cache_read.input_tokens", u.CachedInput).int("codex.usage.reasoning_output_tokens", u.Reasoning).
			int("codex.usage.total_tokens", u.Total()).float("gen_ai.response.time_to_first_chunk", float64(e.FirstEventMS)/1000)...)
		if e.Status != "completed" {
			s.SetStatus(codes.Error, e.Status)
		}
		s.End(trace.WithTimestamp(r.Time))
	}
}

func (w *spanWriter) take(request int) trace.Span {
	s := w.model[request]
	delete(w.model, request)
	return s
}

// agentSpan is one turn of a sub-agent.
type agentSpan struct {
	ctx  context.Context
	span trace.Span
}

// maxAgentSpans bounds the agents that are open at once.
const maxAgentSpans = 256

// agent handles the record of a sub-agent: its requests and tool calls are
// below its own span, which is below the span of the agent or turn that started
// it.
func (w *spanWriter) agent(r event.Record, parent, id string) {
	w.last = r.Time
	w.within = w.agents[parent] // nil: the run itself
	defer func() { w.within = nil }()
	switch e := r.Event.(type) {
	case event.RunStarted:
		if w.agents[id] != nil || len(w.agents) >= maxAgentSpans || w.full() {
			return
		}
		a := &agentSpan{}
		a.ctx, a.span = w.start(w.parent(), "invoke_agent sub-agent", trace.SpanKindInternal, r.Time, attrs{}.
			str("gen_ai.operation.name", "invoke_agent").str("gen_ai.agent.id", id).str("gen_ai.request.model", e.Model))
		w.agents[id] = a
		return
	case event.RunCompleted:
		if a := w.agents[id]; a != nil {
			a.span.SetAttributes(attrs{}.str("nightshift.outcome", e.Outcome).int("gen_ai.usage.input_tokens", e.Usage.Input).
				int("gen_ai.usage.output_tokens", e.Usage.Output)...)
			failed := ""
			if e.ExitCode != 0 {
				failed = word(e.Class)
			}
			w.endAgent(id, r.Time, failed, e.Message)
		}
		return
	case event.TurnFailed:
		return // its end tells it
	}
	if a := w.agents[id]; a != nil {
		w.within = a
	}
	w.handle(r)
}

func (w *spanWriter) endAgent(id string, at time.Time, failed, why string) {
	a := w.agents[id]
	delete(w.agents, id)
	if failed != "" {
		a.span.SetAttributes(attribute.String("error.type", failed))
		a.span.SetStatus(codes.Error, clip(why, maxErrorText))
	}
	a.span.End(trace.WithTimestamp(at))
}

// endTurn closes the turn and the requests that are still open in it.
func (w *spanWriter) endTurn(at time.Time, failed, why string) {
	for _, id := range slices.Sorted(maps.Keys(w.agents)) {
		w.endAgent(id, at, "interrupted", "the turn ended before the agent")
	}
	open := make([]int, 0, len(w.model))
	for n := range w.model {
		open = append(open, n)
	}
	slices.Sort(open)
	for _, n := range open {
		s := w.take(n)
		s.SetAttributes(attribute.String("error.type", word(failed)))
		s.SetStatus(codes.Error, "no response")
		s.End(trace.WithTimestamp(at))
	}
	if w.turn == nil {
		return
	}
	if failed != "" {
		w.turn.SetAttributes(attribute.String("error.type", failed))
		w.turn.SetStatus(codes.Error, why)
	}
	w.turn.End(trace.WithTimestamp(at))
	w.turn, w.turnCtx = nil, nil
}

func word(class string) string {
	if class == "" {
		return "_OTHER"
	}
	return class
}

func (w *spanWriter) completed(r event.Record, e event.RunCompleted) {
	w.endTurn(r.Time, word(e.Class), "the run ended inside the turn")
	w.parent()
	w.run.SetAttributes(attrs{}.str("nightshift.outcome", e.Outcome).int("process.exit.code", int64(e.ExitCode)).
		int("gen_ai.usage.input_tokens", e.Usage.Input).int("gen_ai.usage.output_tokens", e.Usage.Output).
		int("nightshift.denials", int64(e.Totals.Denials)).int("nightshift.failed_tools", int64(e.Totals.FailedTools)).
		int("nightshift.retries", int64(e.Totals.ModelRetries))...)
	if e.ExitCode != 0 {
		w.run.SetAttributes(attribute.String("error.type", word(e.Class)))
		w.run.SetStatus(codes.Error, clip(e.Message, maxErrorText))
	}
	w.finish(r.Time)
}

// end closes what is open, when the log is flushed before its last record.
func (w *spanWriter) end() {
	if w.run == nil {
		return
	}
	class := "interrupted"
	if w.failure != nil {
		class = word(w.failure.Class)
	}
	w.endTurn(w.last, class, "the run ended inside the turn")
	if w.failure != nil {
		w.run.SetAttributes(attribute.String("error.type", class))
		w.run.SetStatus(codes.Error, clip(w.failure.Message, maxErrorText))
	}
	w.finish(w.last)
}

func (w *spanWriter) finish(at time.Time) {
	if w.skipped > 0 {
		w.run.AddEvent("spans left out", trace.WithTimestamp(at), trace.WithAttributes(attribute.String("count", fmt.Sprint(w.skipped))))
	}
	w.run.End(trace.WithTimestamp(at)) // a second End does nothing
	if w.tc.own {
		w.runCtx = trace.ContextWithSpanContext(context.Background(), w.run.SpanContext())
	}
}
