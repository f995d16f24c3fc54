package telemetry

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// A collector that does not work changes nothing but the count of losses, and
// does not hold the exit longer than the bound.
func TestBadCollectors(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := closed.Addr().String()
	closed.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	slow, slowURL := startHTTP(t)
	slow.answer = func(w http.ResponseWriter, r *http.Request) bool {
		select {
		case <-r.Context().Done():
		case <-time.After(10 * time.Second):
		}
		return true
	}
	refusing, refusingURL := startHTTP(t)
	refusing.answer = func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "no", http.StatusUnauthorized)
		return true
	}
	busy, busyURL := startHTTP(t)
	busy.answer = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	moved, movedURL := startHTTP(t)
	moved.answer = func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, "http://"+dead+"/steal", http.StatusTemporaryRedirect)
		return true
	}
	garbage, garbageURL := startHTTP(t)
	garbage.answer = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write([]byte(strings.Repeat("\xff", 1<<20)))
		return true
	}
	for _, c := range []struct {
		name, kind, url string
		lost            bool
	}{
		{"dead", "otlp-http", "http://" + dead, true}, {"dead gRPC", "otlp-grpc", "http://" + dead, true}, {"silent", "otlp-http", "http://" + silent.Addr().String(), true},
		{"silent gRPC", "otlp-grpc", "http://" + silent.Addr().String(), true}, {"slow", "otlp-http", slowURL, true}, {"refusing", "otlp-http", refusingURL, true},
		{"busy", "otlp-http", busyURL, true}, {"moved", "otlp-http", movedURL, true}, {"no host", "otlp-http", "http://collector.invalid:4318", true},
		{"HTTP where gRPC was meant", "otlp-grpc", refusingURL, true}, {"garbage with 200", "otlp-http", garbageURL, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := to(c.kind, c.url, "binary")
			o.FlushTimeout = 700 * time.Millisecond
			s, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			records := play(t, s, tellWhole, ended)
			if took := time.Since(began); took > 10*o.FlushTimeout {
				t.Errorf("the exit was held for %s", took)
			}
			f := flushed(records)
			if f == nil || (f.Lost > 0) != c.lost || c.lost && (f.Exported != 0 || f.Message == "") {
				t.Errorf("telemetry.flushed is %+v", f)
			}
			if last, ok := records[len(records)-1].Event.(event.RunCompleted); !ok || last.ExitCode != 0 {
				t.Errorf("the run became %+v", last)
			}
		})
	}
}

// A collector that is busy for a moment gets everything.
func TestRetriesInsideTheBound(t *testing.T) {
	c, url := startHTTP(t)
	var n atomic.Int32
	c.answer = func(w http.ResponseWriter, _ *http.Request) bool {
		if n.Add(1) <= 3 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		return false
	}
	s, err := New(to("otlp-http", url, "json"))
	if err != nil {
		t.Fatal(err)
	}
	records := play(t, s, tellWhole, ended)
	if f := flushed(records); f == nil || f.Lost != 0 || len(c.logs) != 1 || len(c.traces) != 1 || len(c.metrics) != 1 {
		t.Errorf("%+v, %d %d %d requests", f, len(c.logs), len(c.traces), len(c.metrics))
	}
}

// More than the queue can hold is counted, not waited for; a queue that fills
// up is sent while the run goes on.
func TestManyEvents(t *testing.T) {
	c, url := startHTTP(t)
	o := Options{Logs: &Exporter{Kind: "otlp-http", Endpoint: url}}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	const n = 3000
	records := play(t, s, func(l *event.Log) {
		for range n {
			l.Emit(event.Notice{Class: "x", Message: "y"})
		}
	}, event.RunCompleted{})
	f := flushed(records)
	if f == nil || f.Exported+f.Lost != n+1 || int64(len(c.records())) != f.Exported || f.Lost != 0 {
		t.Errorf("%+v, %d arrived", f, len(c.records()))
	}
	if c.paths[0] != "/v1/logs" {
		t.Errorf("a base address became %s", c.paths[0])
	}
}

func TestFullQueueCounts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := New(Options{Logs: &Exporter{Kind: "otlp-http", Endpoint: "http://" + l.Addr().String()}, FlushTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	records := play(t, s, func(l *event.Log) {
		for range queueSize + 500 {
			l.Emit(event.Notice{Class: "x"})
		}
	}, event.RunCompleted{})
	if f := flushed(records); f == nil || f.Lost != queueSize+500+1 || f.Exported != 0 {
		t.Errorf("%+v", f)
	}
}

func TestNothingConfiguredIsNoSink(t *testing.T) {
	s, err := New(Options{TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
	if s != nil || err != nil {
		t.Errorf("%v %v", s, err)
	}
	if s.TraceParent() != "" {
		t.Error("a nil sink has no trace")
	}
}

// A run that sends nothing connects to nobody.
func TestNoConnectionBeforeTheFirstExport(t *testing.T) {
	c, url := startHTTP(t)
	s, err := New(to("otlp-http", url, "json"))
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		_ = s.Handle(event.Record{Seq: 1, Time: time.Now(), Event: event.Notice{Class: "x"}})
	}
	if len(c.paths) != 0 {
		t.Error("something was sent before the end")
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestConfigErrors(t *testing.T) {
	for name, e := range map[string]Exporter{
		"statsig": {Kind: "statsig"}, "relative": {Kind: "otlp-http", Endpoint: "/v1/logs"}, "empty": {Kind: "otlp-http"}, "scheme": {Kind: "otlp-http", Endpoint: "ftp://x"},
		"protocol": {Kind: "otlp-http", Endpoint: "http://x", Protocol: "xml"}, "variable": {Kind: "otlp-http", Endpoint: "http://x", Headers: map[string]string{"a": "${NO_SUCH}"}},
		"header value": {Kind: "otlp-http", Endpoint: "http://x", Headers: map[string]string{"a": "x\r\ny: z"}}, "header name": {Kind: "otlp-http", Endpoint: "http://x", Headers: map[string]string{"a b": "x"}},
		"CA": {Kind: "otlp-http", Endpoint: "https://x", TLS: TLS{CA: []byte("no")}}, "key pair": {Kind: "otlp-grpc", Endpoint: "x:1", TLS: TLS{ClientCert: []byte("no")}},
	} {
		s, err := New(Options{Logs: &e})
		var ce *ConfigError
		if s != nil || !errors.As(err, &ce) || ce.Key != "exporter" {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}

func TestExpand(t *testing.T) {
	look := func(n string) (string, bool) { return "v-" + n, n != "MISSING" }
	for in, want := range map[string]string{"": "", "plain": "plain", "${A}": "v-A", "Bearer ${A} ${B}!": "Bearer v-A v-B!", "$A": "$A", "${A": "${A", "a}": "a}", "${}": "v-"} {
		if got, missing := expand(in, look); got != want || missing != "" {
			t.Errorf("%q: %q %q, want %q", in, got, missing, want)
		}
	}
	if _, missing := expand("x ${MISSING}", look); missing != "MISSING" {
		t.Errorf("missing %q", missing)
	}
}

// A name and password in the address are sent as any client sends them, and a
// header that is configured goes before.
func TestCredentialsOfTheAddress(t *testing.T) {
	for _, headers := range []map[string]string{nil, {"Authorization": "Bearer configured"}} {
		c, url := startHTTP(t)
		o := to("otlp-http", strings.Replace(url, "http://", "http://name:secret%2Fword@", 1), "binary")
		o.Logs.Headers = headers
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		play(t, s, tellWhole, ended)
		want := "Basic bmFtZTpzZWNyZXQvd29yZA=="
		if headers != nil {
			want = headers["Authorization"]
		}
		found := false
		for _, h := range c.heads {
			found = found || h.Get("Authorization") == want
		}
		if !found {
			t.Errorf("no request with %q", want)
		}
	}
}
