package telemetry

import (
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// traceContext is the place of the run in a trace.
type traceContext struct {
	parent  trace.SpanContext // from outside; invalid when there is none
	traceID trace.TraceID
	root    trace.SpanID // of the run's span, known before it is opened
	sampled bool
	state   trace.TraceState
	own     bool // spans are exported, so children belong to ours
}

func newTraceContext(parent, state string, own bool) traceContext {
	c := traceContext{own: own, sampled: true}
	if p, ok := parseTraceParent(parent); ok {
		if ts, err := trace.ParseTraceState(state); err == nil {
			c.state = ts
		}
		c.parent = p.WithTraceState(c.state)
		c.traceID, c.sampled = p.TraceID(), p.IsSampled()
	} else {
		randomID(c.traceID[:])
	}
	randomID(c.root[:])
	return c
}

// ValidTraceParent tells whether s is a W3C traceparent that may be passed on.
func ValidTraceParent(s string) bool { _, ok := parseTraceParent(s); return ok }

// parseTraceParent reads version-traceid-spanid-flags in lower case hex.
// Versions after 00 may have more fields; ff is not a version.
func parseTraceParent(s string) (trace.SpanContext, bool) {
	parts := strings.Split(strings.TrimSpace(s), "-")
	if len(parts) < 4 || len(parts[0]) != 2 || len(parts[1]) != 32 || len(parts[2]) != 16 || len(parts[3]) != 2 {
		return trace.SpanContext{}, false
	}
	if s != strings.ToLower(s) || parts[0] == "ff" || parts[0] == "00" && len(parts) != 4 {
		return trace.SpanContext{}, false
	}
	var fields [4][]byte
	for i, p := range parts[:4] {
		b, err := hex.DecodeString(p)
		if err != nil {
			return trace.SpanContext{}, false
		}
		fields[i] = b
	}
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID(fields[1]), SpanID: trace.SpanID(fields[2]),
		TraceFlags: trace.TraceFlags(fields[3][0]) & trace.FlagsSampled, Remote: true})
	return sc, sc.IsValid()
}

// header is the traceparent for everything the run calls.
func (c *traceContext) header() string {
	span := c.root
	if !c.own {
		if !c.parent.IsValid() {
			return ""
		}
		span = c.parent.SpanID()
	}
	flags := "00"
	if c.sampled {
		flags = "01"
	}
	return "00-" + c.traceID.String() + "-" + span.String() + "-" + flags
}

// NewIDs and NewSpanID make the ids of spans: the first is the run's, which was
// promised before it was opened.
type idSource struct {
	c     *traceContext
	given bool
}

func (s *idSource) NewIDs(context.Context) (trace.TraceID, trace.SpanID) {
	return s.c.traceID, s.NewSpanID(context.Background(), s.c.traceID)
}

func (s *idSource) NewSpanID(context.Context, trace.TraceID) trace.SpanID {
	if !s.given {
		s.given = true
		return s.c.root
	}
	var id trace.SpanID
	randomID(id[:])
	return id
}

func randomID(b []byte) {
	_, _ = crand.Read(b) // never fails
	b[0] |= 1            // an id of zeros is none
}
