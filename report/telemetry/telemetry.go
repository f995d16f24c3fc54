// Package telemetry exports a run as OpenTelemetry logs, traces and metrics. It
// is the only importer of OpenTelemetry.
//
// A [Sink] takes the records of a run and is made only where an exporter is
// configured. Nothing is connected before there is something to send, so a run
// does not start later because of it. A collector that is dead, slow or
// refusing changes nothing about the run: delivery ends within a bound, and
// what was lost is counted and reported in telemetry.flushed.
//
// # What is exported
//
// Names and attributes of log events and metrics are those of the reference
// ("codex.…"), so that its dashboards work; what it does not have is named
// "nightshift.…". Traces have about ten spans: the run, its turns, model
// requests, tool calls, refreshes and hooks, with the attributes of the GenAI
// semantic conventions. Failed and interrupted runs are exported like others.
//
// # What is not
//
// Prompts, tool arguments, tool output and answers stay here unless they are
// asked for one by one. E-mail addresses are never exported. Records are
// already free of secrets when they arrive.
//
// # Endpoints
//
// An HTTP endpoint with a path is used exactly as written. One without (or with
// "/" only) is a base address: /v1/logs, /v1/traces or /v1/metrics is added. A
// gRPC endpoint is https://host:port, http://host:port for plain text, or
// host:port, which means TLS.
package telemetry

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// Options say what is exported and where to. Nothing in it is read from the
// environment by this package.
type Options struct {
	// Exporters of the three signals; nil is off.
	Logs    *Exporter
	Traces  *Exporter
	Metrics *Exporter

	Environment    string // resource attribute "env"; "" is "dev"
	Version        string
	Host           string            // host.name
	Originator     string            // who started the program, as for the model service
	SpanAttributes map[string]string // added to every span

	// ResourceAttributes and ServiceName are the values of
	// OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME.
	ResourceAttributes string
	ServiceName        string

	// TraceParent and TraceState are W3C trace context from outside. A
	// TraceParent that cannot be read starts a new trace.
	TraceParent string
	TraceState  string

	LogUserPrompt     bool
	LogAgentResponses bool
	LogToolOutput     bool // tool arguments too
	ToolResultBytes   int  // cap of exported arguments and output; 0: 8 KiB

	// FlushTimeout bounds the delivery at the end of a run; 0: 5 s.
	FlushTimeout time.Duration
	// LookupEnv resolves ${NAME} in header values; nil resolves nothing.
	LookupEnv func(string) (string, bool)
	// Proxy chooses the HTTP proxy for a collector; nil uses none.
	Proxy func(*http.Request) (*url.URL, error)
}

// Exporter is one OTLP exporter.
type Exporter struct {
	Kind     string // otlp-http or otlp-grpc
	Endpoint string
	Protocol string            // binary or json, for HTTP; "" is binary
	Headers  map[string]string // values may hold ${NAME}
	TLS      TLS
}

// TLS holds PEM bytes; empty means the system's authorities and no client
// certificate.
type TLS struct {
	CA, ClientCert, ClientKey []byte
}

const defaultFlush = 5 * time.Second

// Sink exports the records it is given. It implements [event.Sink] and
// [event.Flusher].
type Sink struct {
	o       Options
	trace   traceContext
	queues  []delivery
	logs    *logWriter
	spans   *spanWriter
	metrics *metricWriter
	shared  *common

	ended    bool
	flush    sync.Once
	exported int64
	lost     int64
	message  string
}

// common is what every signal says about the run.
type common struct {
	thread, model, provider, auth string
	sandbox, approval, network    string
}

// New returns a sink, or nil when no exporter is configured. A configuration
// that cannot work (a bad address, a missing variable, a certificate that does
// not parse) is a [*ConfigError]; whether the collector answers is not checked.
func New(o Options) (*Sink, error) {
	if o.Logs == nil && o.Traces == nil && o.Metrics == nil {
		return nil, nil
	}
	if o.FlushTimeout <= 0 {
		o.FlushTimeout = defaultFlush
	}
	if o.ToolResultBytes <= 0 {
		o.ToolResultBytes = 8 << 10
	}
	s := &Sink{o: o, shared: &common{}, trace: newTraceContext(o.TraceParent, o.TraceState, o.Traces != nil)}
	if err := s.open(); err != nil {
		s.closeTransports()
		return nil, err
	}
	return s, nil
}

func (s *Sink) open() error {
	o := &s.o
	if o.Logs != nil {
		t, err := newTransport("exporter", "logs", o.Logs, o)
		if err != nil {
			return err
		}
		q := newQueue(t, sizeOfRecord, func(ctx context.Context) (exporter[sdklog.Record], error) { return t.logExporter(ctx) })
		s.logs = newLogWriter(o, s.shared, &s.trace, q)
		s.queues = append(s.queues, q)
	}
	if o.Traces != nil {
		t, err := newTransport("trace_exporter", "traces", o.Traces, o)
		if err != nil {
			return err
		}
		q := newQueue(t, sizeOfSpan, func(ctx context.Context) (exporter[sdktrace.ReadOnlySpan], error) { return t.spanExporter(ctx) })
		s.spans = newSpanWriter(o, s.shared, &s.trace, q)
		s.queues = append(s.queues, q)
	}
	if o.Metrics != nil {
		t, err := newTransport("metrics_exporter", "metrics", o.Metrics, o)
		if err != nil {
			return err
		}
		m, err := newMetricWriter(o, s.shared, t)
		if err != nil {
			return err
		}
		s.metrics = m
		s.queues = append(s.queues, m)
	}
	return nil
}

// TraceParent is the W3C traceparent of the run's span, for commands, hooks,
// MCP servers and model requests; without a trace exporter it is the one that
// came from outside, or "".
func (s *Sink) TraceParent() string {
	if s == nil {
		return ""
	}
	return s.trace.header()
}

// TraceState is the tracestate that belongs to TraceParent.
func (s *Sink) TraceState() string {
	if s == nil {
		return ""
	}
	return s.trace.state.String()
}

// Handle takes one record. It never fails and never waits for a collector.
// What a sub-agent did is exported under the agent's name.
func (s *Sink) Handle(r event.Record) error {
	if s.ended { // the last record, which Ending has delivered already
		return nil
	}
	if e, ok := r.Event.(event.AgentEvent); ok {
		s.agent(r, e)
		return nil
	}
	s.shared.see(r)
	if s.spans != nil {
		s.spans.handle(r)
	}
	if s.logs != nil {
		s.logs.handle(r, "")
	}
	if s.metrics != nil {
		s.metrics.handle(r)
	}
	return nil
}

// agent takes a record of a sub-agent, or of an agent of one. Its start and end
// make a span; what it shares with its parent is not exported twice.
func (s *Sink) agent(r event.Record, e event.AgentEvent) {
	inner, parent, id, err := e.Innermost()
	if err != nil {
		return // the log has it; there is nothing to measure
	}
	if inner.Time.IsZero() {
		inner.Time = r.Time
	}
	logged, counted := true, true
	switch inner.Event.(type) {
	case event.PolicyDecision, event.ToolCompleted, event.ModelResponse, event.ModelRetried, event.ModelFallback, event.LimitReached,
		event.HookCompleted, event.HistoryCompacted:
	case event.TurnFailed, event.ItemStarted, event.ItemCompleted:
		counted = false
	case event.RunStarted, event.RunCompleted, event.ModelRequest:
		logged, counted = false, false
	default:
		return
	}
	if s.spans != nil {
		s.spans.agent(inner, parent, id)
	}
	if s.logs != nil && logged {
		s.logs.handle(inner, id)
	}
	if s.metrics != nil && counted {
		s.metrics.handle(inner)
	}
}

func (c *common) see(r event.Record) {
	switch e := r.Event.(type) {
	case event.RunStarted:
		c.thread, c.model, c.provider = e.ThreadID, e.Model, e.Provider
		c.sandbox, c.approval, c.network = e.Sandbox, e.Approval, e.Network
	case event.ThreadStarted:
		c.thread = e.ThreadID
	case event.CredentialSelected:
		c.auth = e.Mode
	case event.ModelFallback:
		c.model = e.To
	}
}

// Ending tells the outcome of the run before it is flushed, so that the last
// delivery can hold it.
func (s *Sink) Ending(r event.Record) {
	_ = s.Handle(r)
	s.ended = true
}

// Flush delivers what is queued within FlushTimeout or ctx, whichever ends
// first, and tells what was delivered and lost. It is done once.
func (s *Sink) Flush(ctx context.Context) []event.Event {
	done := false
	s.flush.Do(func() {
		done = true
		s.deliver(ctx)
	})
	if !done {
		return nil
	}
	return []event.Event{event.TelemetryFlushed{Exported: s.exported, Lost: s.lost, Message: s.message}}
}

func (s *Sink) deliver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.o.FlushTimeout)
	defer cancel()
	if s.spans != nil {
		s.spans.end()
	}
	results := make([]result, len(s.queues))
	var wg sync.WaitGroup
	for i, q := range s.queues {
		wg.Go(func() { results[i] = q.drain(ctx) })
	}
	wg.Wait() // every export honours ctx
	for _, r := range results {
		s.exported += r.exported
		s.lost += r.lost
		if s.message == "" {
			s.message = r.message
		}
	}
}

// Close delivers what Flush has not and drops the connections.
func (s *Sink) Close(ctx context.Context) error {
	s.Flush(ctx)
	s.closeTransports()
	return nil
}

func (s *Sink) closeTransports() {
	for _, q := range s.queues {
		q.close()
	}
}

var (
	_ event.Sink    = (*Sink)(nil)
	_ event.Flusher = (*Sink)(nil)
	_ event.Ender   = (*Sink)(nil)
)
