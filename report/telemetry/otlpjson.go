package telemetry

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"

	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	colmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// toJSON turns an OTLP request from protobuf into OTLP/JSON, which is the JSON
// mapping of protobuf with two differences: ids are hexadecimal instead of
// base64, and enums are numbers.
func (t *transport) toJSON(body []byte) ([]byte, error) {
	var msg proto.Message
	switch t.signal {
	case "logs":
		msg = &collogs.ExportLogsServiceRequest{}
	case "traces":
		msg = &coltrace.ExportTraceServiceRequest{}
	default:
		msg = &colmetrics.ExportMetricsServiceRequest{}
	}
	if err := proto.Unmarshal(body, msg); err != nil {
		return nil, fmt.Errorf("encode %s as JSON: %w", t.signal, err)
	}
	switch m := msg.(type) {
	case *collogs.ExportLogsServiceRequest:
		for _, r := range m.ResourceLogs {
			for _, s := range r.ScopeLogs {
				for _, l := range s.LogRecords {
					l.TraceId, l.SpanId = hexID(l.TraceId), hexID(l.SpanId)
				}
			}
		}
	case *coltrace.ExportTraceServiceRequest:
		for _, r := range m.ResourceSpans {
			for _, s := range r.ScopeSpans {
				for _, p := range s.Spans {
					p.TraceId, p.SpanId, p.ParentSpanId = hexID(p.TraceId), hexID(p.SpanId), hexID(p.ParentSpanId)
					for _, l := range p.Links {
						l.TraceId, l.SpanId = hexID(l.TraceId), hexID(l.SpanId)
					}
				}
			}
		}
	}
	return protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(msg)
}

// hexID returns the bytes whose base64 text is the hexadecimal text of id: ids
// of 8 and 16 bytes have 16 and 32 digits, which base64 reads without padding.
func hexID(id []byte) []byte {
	b, err := base64.StdEncoding.DecodeString(hex.EncodeToString(id))
	if err != nil {
		return nil // not a valid length: OTLP has no such id
	}
	return b
}
