package telemetry

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// longAnswers plays a run whose answers are longer than a collector takes in one request.
func longAnswers(l *event.Log) {
	for range 200 {
		l.Complete("", event.AgentMessage{Text: strings.Repeat("x", 60<<10)})
	}
}

const longRecords = 200 + 1 // and the end of the run

// longAnswersArrive plays them for a collector and wants all of them there.
func longAnswersArrive(t *testing.T, c *collector, to *Exporter) {
	t.Helper()
	s, err := New(Options{Logs: to, LogAgentResponses: true})
	if err != nil {
		t.Fatal(err)
	}
	if f := flushed(play(t, s, longAnswers, event.RunCompleted{})); f == nil || f.Lost != 0 || len(c.records()) != longRecords {
		t.Errorf("%+v, %d arrived", f, len(c.records()))
	}
}

// Requests stay below what collectors take: 4 MiB over gRPC unless configured.
func TestRequestsFitTheCollector(t *testing.T) {
	c, addr := startGRPC(t, nil)
	longAnswersArrive(t, c, &Exporter{Kind: "otlp-grpc", Endpoint: "http://" + addr})
}

// A collector that takes less still gets everything, in smaller requests.
func TestSmallCollector(t *testing.T) {
	c, url := startHTTP(t)
	c.answer = func(w http.ResponseWriter, r *http.Request) bool {
		if r.ContentLength > 300<<10 {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return true
		}
		return false
	}
	longAnswersArrive(t, c, &Exporter{Kind: "otlp-http", Endpoint: url})
}

// What waits for a collector that takes nothing has a bound in bytes, too.
func TestQueueIsBoundedInBytes(t *testing.T) {
	c, url := startHTTP(t)
	c.answer = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	s, err := New(Options{Logs: &Exporter{Kind: "otlp-http", Endpoint: url}, LogAgentResponses: true, FlushTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	const n = 2 * queueBytes / (60 << 10)
	kept := 0
	records := play(t, s, func(l *event.Log) {
		for range n {
			l.Complete("", event.AgentMessage{Text: strings.Repeat("x", 60<<10)})
		}
		kept = s.queues[0].(interface{ size() int }).size()
	}, event.RunCompleted{})
	if f := flushed(records); f == nil || f.Lost != n+1 || kept == 0 || kept*60<<10 > queueBytes {
		t.Errorf("%+v, %d of %d were kept", f, kept, n)
	}
}

// busyLogs has no time for the first requests and says when it will have.
type busyLogs struct {
	collogs.UnimplementedLogsServiceServer
	later   error
	refused int
	sizes   []int
}

func (b *busyLogs) Export(_ context.Context, r *collogs.ExportLogsServiceRequest) (*collogs.ExportLogsServiceResponse, error) {
	b.sizes = append(b.sizes, len(r.ResourceLogs[0].ScopeLogs[0].LogRecords))
	if b.refused++; b.refused <= 2 {
		return nil, b.later
	}
	return &collogs.ExportLogsServiceResponse{}, nil
}

// A collector that says "later" is asked again with the same request: it is not
// taken for one that wants smaller ones.
func TestCollectorWithoutTime(t *testing.T) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName("google.rpc.RetryInfo")
	if err != nil {
		t.Fatal(err)
	}
	info := kind.New()
	info.Set(kind.Descriptor().Fields().ByName("retry_delay"), protoreflect.ValueOfMessage(durationpb.New(10*time.Millisecond).ProtoReflect()))
	later, err := status.New(codes.ResourceExhausted, "later").WithDetails(protoadapt.MessageV1Of(info.Interface()))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &busyLogs{later: later.Err()}
	server := grpc.NewServer()
	collogs.RegisterLogsServiceServer(server, b)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	defer func() { server.Stop(); <-done }()
	s, err := New(Options{Logs: &Exporter{Kind: "otlp-grpc", Endpoint: "http://" + l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	f := flushed(play(t, s, func(l *event.Log) { l.Emit(event.Notice{Class: "x"}) }, event.RunCompleted{}))
	if f == nil || f.Lost != 0 || f.Exported != 2 || len(b.sizes) != 3 || b.sizes[2] != 2 {
		t.Errorf("%+v, requests of %v records", f, b.sizes)
	}
}
