package telemetry

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// count sums the points of a counter over all requests that were taken.
func (c *collector) count(name string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var n int64
	for _, m := range c.metrics {
		for _, r := range m.ResourceMetrics {
			for _, s := range r.ScopeMetrics {
				for _, x := range s.Metrics {
					for _, p := range x.GetSum().GetDataPoints() {
						if x.Name == name {
							n += p.GetAsInt()
						}
					}
				}
			}
		}
	}
	return n
}

// TestMetricsOfLongRuns: a run that goes on exports now and then; what the
// collector did not take at first comes later, and nothing counts twice.
func TestMetricsOfLongRuns(t *testing.T) {
	c, url := startHTTP(t)
	var refused atomic.Int64
	c.answer = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "metrics") || refused.Add(1) > 2 {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	o := to("otlp-http", url, "binary")
	o.Logs, o.Traces = nil, nil
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	s.metrics.every = 5 * time.Millisecond
	const denials = 40
	records := play(t, s, func(l *event.Log) {
		for range denials {
			l.Emit(event.PolicyDecision{Action: "command", Outcome: "denied", Source: "rule"})
			time.Sleep(time.Millisecond)
		}
		for end := time.Now().Add(20 * time.Second); c.count("nightshift.denial") == 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if c.count("nightshift.denial") == 0 {
			t.Error("nothing was exported before the end")
		}
	}, event.RunCompleted{})
	if n := c.count("nightshift.denial"); n != denials {
		t.Errorf("%d denials arrived, want %d", n, denials)
	}
	if f := flushed(records); f == nil || f.Lost != 0 || f.Message != "" || f.Exported == 0 {
		t.Errorf("flushed: %+v", f)
	}
}

// TestMetricsNobodyTakes: what waits for a dead collector is bounded and counted.
func TestMetricsNobodyTakes(t *testing.T) {
	o := to("otlp-http", "http://127.0.0.1:1", "binary")
	o.Logs, o.Traces = nil, nil
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	const exports = maxWaiting + 5
	for range exports {
		s.metrics.count("x", 1)
		s.metrics.send(t.Context(), false)
	}
	if n := len(s.metrics.waiting); n != maxWaiting {
		t.Errorf("%d exports wait", n)
	}
	events := s.Flush(context.Background())
	if f := events[0].(event.TelemetryFlushed); f.Lost != exports || f.Exported != 0 || f.Message == "" {
		t.Errorf("%+v", f)
	}
}
