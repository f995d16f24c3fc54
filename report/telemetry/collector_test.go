package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"testing"

	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	colmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlpcommon "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector is a real OTLP endpoint over loopback: HTTP in both encodings, and
// gRPC. It decodes with the official protocol definitions.
type collector struct {
	t       testing.TB
	mu      sync.Mutex
	logs    []*collogs.ExportLogsServiceRequest
	traces  []*coltrace.ExportTraceServiceRequest
	metrics []*colmetrics.ExportMetricsServiceRequest
	raw     bytes.Buffer // bodies as they came
	heads   []http.Header
	paths   []string

	// answer, if set, is asked before the request is taken.
	answer func(w http.ResponseWriter, r *http.Request) bool

	collogs.UnimplementedLogsServiceServer
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if c.answer != nil && c.answer(w, r) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(body)
	c.heads = append(c.heads, r.Header.Clone())
	c.paths = append(c.paths, r.URL.Path)
	var msg proto.Message
	switch {
	case regexp.MustCompile("logs$").MatchString(r.URL.Path):
		m := &collogs.ExportLogsServiceRequest{}
		c.logs, msg = append(c.logs, m), m
	case regexp.MustCompile("traces$").MatchString(r.URL.Path):
		m := &coltrace.ExportTraceServiceRequest{}
		c.traces, msg = append(c.traces, m), m
	case regexp.MustCompile("metrics$").MatchString(r.URL.Path):
		m := &colmetrics.ExportMetricsServiceRequest{}
		c.metrics, msg = append(c.metrics, m), m
	default:
		http.NotFound(w, r)
		return
	}
	switch kind := r.Header.Get("Content-Type"); kind {
	case "application/x-protobuf":
		err = proto.Unmarshal(body, msg)
	case "application/json":
		err = fromJSON(body, msg)
	default:
		c.t.Errorf("content type %q", kind)
	}
	if err != nil {
		c.t.Errorf("%s: %v\n%s", r.URL.Path, err, body)
	}
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	if r.Header.Get("Content-Type") == "application/json" {
		_, _ = io.WriteString(w, "{}")
	}
}

// fromJSON reads OTLP/JSON strictly: unknown fields, ids that are not hex and
// enums that are names are errors.
func fromJSON(body []byte, msg proto.Message) error {
	var doc any
	if err := json.Unmarshal(body, &doc); err != nil {
		return err
	}
	var walk func(any) error
	walk = func(v any) error {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				switch k {
				case "traceId", "spanId", "parentSpanId":
					s, _ := x.(string)
					if !regexp.MustCompile(`^([0-9a-f]{16}|[0-9a-f]{32})$`).MatchString(s) {
						return &badID{k, s}
					}
					v[k] = hexToBase64(s)
				case "kind", "severityNumber", "aggregationTemporality", "code":
					if _, isNumber := x.(float64); !isNumber {
						return &badID{k, "not a number"}
					}
				}
				if err := walk(x); err != nil {
					return err
				}
			}
		case []any:
			for _, x := range v {
				if err := walk(x); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := walk(doc); err != nil {
		return err
	}
	again, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	return protojson.Unmarshal(again, msg)
}

type badID struct{ field, value string }

func (e *badID) Error() string { return e.field + " is " + e.value }

func startHTTP(t testing.TB) (*collector, string) {
	t.Helper()
	c := &collector{t: t}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	return c, s.URL
}

// gRPC services.

func (c *collector) Export(ctx context.Context, r *collogs.ExportLogsServiceRequest) (*collogs.ExportLogsServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(ctx)
	c.logs = append(c.logs, r)
	return &collogs.ExportLogsServiceResponse{}, nil
}

type traceService struct {
	coltrace.UnimplementedTraceServiceServer
	c *collector
}

func (s traceService) Export(ctx context.Context, r *coltrace.ExportTraceServiceRequest) (*coltrace.ExportTraceServiceResponse, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.note(ctx)
	s.c.traces = append(s.c.traces, r)
	return &coltrace.ExportTraceServiceResponse{}, nil
}

type metricService struct {
	colmetrics.UnimplementedMetricsServiceServer
	c *collector
}

func (s metricService) Export(ctx context.Context, r *colmetrics.ExportMetricsServiceRequest) (*colmetrics.ExportMetricsServiceResponse, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.note(ctx)
	s.c.metrics = append(s.c.metrics, r)
	return &colmetrics.ExportMetricsServiceResponse{PartialSuccess: &colmetrics.ExportMetricsPartialSuccess{RejectedDataPoints: 2, ErrorMessage: "two too many"}}, nil
}

func (c *collector) note(ctx context.Context) {
	md, _ := metadata.FromIncomingContext(ctx)
	h := http.Header{}
	for k, v := range md {
		h[http.CanonicalHeaderKey(k)] = v
	}
	c.heads = append(c.heads, h)
}

func startGRPC(t testing.TB, creds credentials.TransportCredentials) (*collector, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{t: t}
	var opts []grpc.ServerOption
	if creds != nil {
		opts = append(opts, grpc.Creds(creds))
	}
	s := grpc.NewServer(opts...)
	collogs.RegisterLogsServiceServer(s, c)
	coltrace.RegisterTraceServiceServer(s, traceService{c: c})
	colmetrics.RegisterMetricsServiceServer(s, metricService{c: c})
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return c, l.Addr().String()
}

// What came in, flat.

func (c *collector) records() []*logs.LogRecord {
	var out []*logs.LogRecord
	for _, m := range c.logs {
		for _, r := range m.ResourceLogs {
			for _, s := range r.ScopeLogs {
				out = append(out, s.LogRecords...)
			}
		}
	}
	return out
}

func (c *collector) spans() []*trace.Span {
	var out []*trace.Span
	for _, m := range c.traces {
		for _, r := range m.ResourceSpans {
			for _, s := range r.ScopeSpans {
				out = append(out, s.Spans...)
			}
		}
	}
	return out
}

func (c *collector) series() map[string]*metrics.Metric {
	out := map[string]*metrics.Metric{}
	for _, m := range c.metrics {
		for _, r := range m.ResourceMetrics {
			for _, s := range r.ScopeMetrics {
				for _, x := range s.Metrics {
					out[x.Name] = x
				}
			}
		}
	}
	return out
}

func values(list []*otlpcommon.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range list {
		switch v := kv.Value.Value.(type) {
		case *otlpcommon.AnyValue_StringValue:
			out[kv.Key] = v.StringValue
		default:
			out[kv.Key] = kv.Value.String()
		}
	}
	return out
}
