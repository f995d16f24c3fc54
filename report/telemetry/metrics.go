package telemetry

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/nightshift-ci/nightshift/runner/event"
)

const (
	// metricsEvery is how often metrics are exported while a run goes on: the
	// SDKs' usual period. A short run exports once, at its end.
	metricsEvery = time.Minute
	// maxWaiting bounds the exports that are kept while the collector takes none.
	maxWaiting = 16
)

// metricWriter counts, and exports with delta temporality: now and then by a
// goroutine that starts with the first record, and at the end by drain, which
// joins it.
type metricWriter struct {
	o        *Options
	c        *common
	t        *transport
	reader   *sdkmetric.ManualReader
	exporter sdkmetric.Exporter
	err      error // of making an instrument: a bug, reported with the delivery
	meter    metric.Meter
	counters map[string]metric.Int64Counter
	times    map[string]metric.Float64Histogram

	mode     string
	turnAt   time.Time
	turn     event.Usage
	turnUsed bool
	tools    int64
	first    bool
	done     bool

	every   time.Duration
	quit    chan struct{} // nil until the first record
	stop    context.CancelFunc
	ended   chan struct{}
	waiting []*metricdata.ResourceMetrics // collected, not delivered; the goroutine's, then drain's
	total   result
}

// durationBounds are those of the reference, in milliseconds.
var durationBounds = [...]float64{0, 5, 10, 25, 50, 75, 100, 250, 500, 750, 1000, 1250, 1500, 2000, 2500, 3000, 4000, 5000, 7500, 10000, 15000, 20000, 30000, 60000, 120000}

// tokenBounds are those of the GenAI conventions.
var tokenBounds = [...]float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}

func newMetricWriter(o *Options, c *common, t *transport) (*metricWriter, error) {
	reader := sdkmetric.NewManualReader(sdkmetric.WithTemporalitySelector(func(sdkmetric.InstrumentKind) metricdata.Temporality { return metricdata.DeltaTemporality }))
	p := sdkmetric.NewMeterProvider(sdkmetric.WithResource(resourceOf(o, false)), sdkmetric.WithReader(reader), sdkmetric.WithExemplarFilter(exemplar.AlwaysOffFilter))
	return &metricWriter{o: o, c: c, t: t, reader: reader, meter: p.Meter("nightshift", metric.WithInstrumentationVersion(o.Version)),
		counters: map[string]metric.Int64Counter{}, times: map[string]metric.Float64Histogram{}, first: true, every: metricsEvery}, nil
}

func (w *metricWriter) tags(extra []attribute.KeyValue) metric.MeasurementOption {
	a := attrs(extra).str("app.version", w.o.Version).str("model", w.c.model).str("originator", w.o.Originator).str("session_source", w.mode).str("auth_mode", w.c.auth)
	return metric.WithAttributeSet(attribute.NewSet(a...))
}

func (w *metricWriter) count(name string, n int64, extra ...attribute.KeyValue) {
	c, ok := w.counters[name]
	if !ok {
		var err error
		if c, err = w.meter.Int64Counter(name); err != nil {
			w.err = err
		}
		w.counters[name] = c
	}
	if c != nil {
		c.Add(context.Background(), n, w.tags(extra))
	}
}

func (w *metricWriter) observe(name, unit string, bounds []float64, v float64, extra ...attribute.KeyValue) {
	h, ok := w.times[name]
	if !ok {
		var err error
		if h, err = w.meter.Float64Histogram(name, metric.WithUnit(unit), metric.WithExplicitBucketBoundaries(bounds...)); err != nil {
			w.err = err
		}
		w.times[name] = h
	}
	if h != nil {
		h.Record(context.Background(), v, w.tags(extra))
	}
}

func (w *metricWriter) took(name string, ms int64, extra ...attribute.KeyValue) {
	w.observe(name, "ms", durationBounds[:], float64(ms), extra...)
}

func (w *metricWriter) handle(r event.Record) {
	if w.quit == nil {
		w.begin()
	}
	switch e := r.Event.(type) {
	case event.RunStarted:
		w.mode = e.Mode
		w.count("codex.process.start", 1)
		w.count("codex.thread.started", 1, attribute.Bool("is_git", e.Git != nil))
	case event.TurnStarted:
		w.turnAt, w.turn, w.tools, w.first = r.Time, event.Usage{}, 0, true
		w.count("codex.conversation.turn.count", 1)
	case event.TurnCompleted:
		w.endTurn(r.Time)
	case event.TurnFailed:
		w.endTurn(r.Time)
		w.count("nightshift.turn.failed", 1, attribute.String("error.type", word(e.Error.Class)))
	case event.ModelResponse:
		w.response(e)
	case event.ModelRetried:
		status := attribute.String("status", strconv.Itoa(e.Status))
		w.count("codex.api_request", 1, status, attribute.String("success", "false"))
		w.count("nightshift.model.retry", 1, attribute.String("error.type", word(e.Class)))
	case event.ToolCompleted:
		w.tools++
		ok := attribute.String("success", strconv.FormatBool(e.Status == event.Completed))
		tool := attribute.String("tool", clip(e.Tool, 100))
		sandbox := attribute.String("sandbox", w.c.sandbox)
		w.count("codex.tool.call", 1, tool, ok, sandbox)
		w.took("codex.tool.call.duration_ms", e.DurationMS, tool, ok, sandbox)
	case event.PolicyDecision:
		if e.Outcome == "denied" {
			w.count("nightshift.denial", 1, attribute.String("action", e.Action), attribute.String("source", e.Source))
		}
	case event.AuthRefreshed:
		w.count("nightshift.auth.refresh", 1, attribute.String("outcome", e.Outcome), attribute.String("reason", e.Reason))
	case event.CredentialSelected:
		w.count("codex.auth.selection", 1, attribute.String("mode", e.Mode))
	case event.HookCompleted:
		w.count("nightshift.hook", 1, attribute.String("outcome", e.Outcome))
	case event.HistoryCompacted:
		w.count("nightshift.compaction", 1, attribute.String("method", e.Method))
	case event.LimitReached:
		w.count("nightshift.limit", 1, attribute.String("limit", e.Limit))
	case event.RunCompleted:
		w.completed(r, e)
	}
}

func (w *metricWriter) response(e event.ModelResponse) {
	w.turn = w.turn.Add(e.Usage)
	w.turnUsed = true
	ok := []attribute.KeyValue{attribute.String("status", "200"), attribute.String("success", "true")}
	w.count("codex.api_request", 1, ok...)
	w.took("codex.api_request.duration_ms", e.DurationMS, ok...)
	kind := []attribute.KeyValue{attribute.String("kind", "response."+e.Status), attribute.String("success", strconv.FormatBool(e.Status == "completed"))}
	w.count("codex.sse_event", 1, kind...)
	w.took("codex.sse_event.duration_ms", e.DurationMS, kind...)
	if w.first {
		w.first = false
		w.took("codex.turn.ttft.duration_ms", e.FirstEventMS)
	}
	gen := func(extra ...attribute.KeyValue) []attribute.KeyValue {
		return append(extra, attribute.String("gen_ai.operation.name", "chat"), attribute.String("gen_ai.provider.name", w.c.provider),
			attribute.String("gen_ai.request.model", e.Model))
	}
	w.observe("gen_ai.client.token.usage", "{token}", tokenBounds[:], float64(e.Usage.Input), gen(attribute.String("gen_ai.token.type", "input"))...)
	w.observe("gen_ai.client.token.usage", "{token}", tokenBounds[:], float64(e.Usage.Output), gen(attribute.String("gen_ai.token.type", "output"))...)
	w.observe("gen_ai.client.operation.duration", "s", []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92},
		float64(e.DurationMS)/1000, gen()...)
}

func (w *metricWriter) endTurn(at time.Time) {
	if w.turnAt.IsZero() {
		return
	}
	w.took("codex.turn.e2e_duration_ms", max(0, at.Sub(w.turnAt)).Milliseconds())
	w.observe("codex.turn.tool.call", "", []float64{0, 1, 2, 4, 8, 16, 32, 64, 128}, float64(w.tools))
	w.tokens()
	w.turnAt = time.Time{}
}

// tokens records what the turn used, by kind.
func (w *metricWriter) tokens() {
	if !w.turnUsed {
		return
	}
	w.turnUsed = false
	u := w.turn
	for _, kv := range []struct {
		kind string
		n    int64
	}{{"total", u.Total()}, {"input", u.Input}, {"cached_input", u.CachedInput}, {"output", u.Output}, {"reasoning_output", u.Reasoning}} {
		w.observe("codex.turn.token_usage", "", tokenBounds[:], float64(kv.n), attribute.String("token_type", kv.kind))
	}
}

func (w *metricWriter) completed(r event.Record, e event.RunCompleted) {
	w.endTurn(r.Time)
	tags := []attribute.KeyValue{attribute.String("outcome", e.Outcome), attribute.String("class", e.Class), attribute.String("exit_code", strconv.Itoa(e.ExitCode))}
	w.count("nightshift.run", 1, tags...)
	w.took("nightshift.run.duration_ms", e.DurationMS, tags...)
	if e.CostUSD > 0 {
		w.observe("nightshift.run.cost", "USD", []float64{0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 50, 100}, e.CostUSD, tags...)
	}
}

// begin starts the exports of a run that goes on.
func (w *metricWriter) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	w.quit, w.ended, w.stop = make(chan struct{}), make(chan struct{}), cancel
	go func() {
		defer close(w.ended)
		tick := time.NewTicker(w.every)
		defer tick.Stop()
		for {
			select {
			case <-w.quit:
				return
			case <-tick.C:
			}
			one, cancel := context.WithTimeout(ctx, sendTimeout)
			w.send(one, false)
			cancel()
		}
	}()
}

// drain exports what is left, once.
func (w *metricWriter) drain(ctx context.Context) result {
	if w.done {
		return result{}
	}
	w.done = true
	if w.quit != nil {
		close(w.quit)
		select { // a request on its way may still arrive: cutting it would count twice
		case <-w.ended:
		case <-ctx.Done():
		}
		w.stop()
		<-w.ended
	}
	w.tokens() // of a turn that never ended
	w.send(ctx, true)
	for _, rm := range w.waiting {
		w.total.lost += points(rm)
	}
	w.waiting = nil
	switch {
	case w.total.lost == 0 && w.err != nil:
		w.total.message = w.err.Error()
	case w.total.lost == 0:
		w.total.message = "" // what failed at first was delivered later
	}
	return w.total
}

// send collects what was counted since the last time, and exports what waits.
func (w *metricWriter) send(ctx context.Context, last bool) {
	rm := &metricdata.ResourceMetrics{}
	if err := w.reader.Collect(context.WithoutCancel(ctx), rm); err != nil {
		w.total.message = "collect metrics: " + err.Error()
		return
	}
	if points(rm) > 0 {
		w.waiting = append(w.waiting, rm)
	}
	if len(w.waiting) > maxWaiting {
		w.total.lost += points(w.waiting[0])
		w.waiting = w.waiting[1:]
	}
	for len(w.waiting) > 0 && w.export(ctx, w.waiting[0], last) {
		w.waiting = w.waiting[1:]
	}
}

// export tells whether rm is done with: taken, or refused for good.
func (w *metricWriter) export(ctx context.Context, rm *metricdata.ResourceMetrics, last bool) bool {
	if w.exporter == nil {
		e, err := w.t.metricExporter(ctx)
		if err != nil {
			w.total.message = err.Error()
			return false
		}
		w.exporter = e
	}
	n := points(rm)
	o := w.t.attempt(ctx, last, func(ctx context.Context) error { return w.exporter.Export(ctx, rm) })
	switch {
	case o.err != nil && o.again:
		w.total.message = o.err.Error()
		return false
	case o.err != nil:
		w.total.lost += n
		w.total.message = o.err.Error()
		return true
	case o.rejected > 0:
		w.total.message = o.message
	}
	rejected := min(o.rejected, n)
	w.total.exported += n - rejected
	w.total.lost += rejected
	return true
}

// points counts data points, the unit in which collectors refuse metrics.
func points(rm *metricdata.ResourceMetrics) int64 {
	var n int64
	for _, s := range rm.ScopeMetrics {
		for _, m := range s.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				n += int64(len(d.DataPoints))
			case metricdata.Histogram[float64]:
				n += int64(len(d.DataPoints))
			}
		}
	}
	return n
}

func (w *metricWriter) close() {
	if w.quit != nil && !w.done {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		w.drain(ctx)
	}
	if w.exporter != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = w.exporter.Shutdown(ctx)
	}
	w.t.close()
}
