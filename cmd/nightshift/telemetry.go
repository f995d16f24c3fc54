package main

import (
	"os"
	"path/filepath"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/report/telemetry"
)

// attachTelemetry adds the exporters that [otel] names. A setting that cannot
// work is a mistake in the configuration and ends the run before it starts; a collector
// that does not answer is none.
func (s *session) attachTelemetry() error {
	cfg := s.policy.Config().OTel
	parent, state := s.rt.getenv("TRACEPARENT"), s.rt.getenv("TRACESTATE")
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	o := telemetry.Options{
		Environment: cfg.Environment, Version: version, Host: host, Originator: s.rt.originator(), SpanAttributes: s.masked(cfg.SpanAttributes),
		// What is exported with every record does not pass the log, which masks.
		ResourceAttributes: s.mask.Mask(s.rt.getenv("OTEL_RESOURCE_ATTRIBUTES")), ServiceName: s.mask.Mask(s.rt.getenv("OTEL_SERVICE_NAME")),
		TraceParent: parent, TraceState: state,
		LogUserPrompt: cfg.LogUserPrompt, LogAgentResponses: cfg.LogAgentResponses, LogToolOutput: cfg.LogToolOutput,
		ToolResultBytes: cfg.ToolResultMaxBytes, FlushTimeout: cfg.FlushTimeout,
		LookupEnv: s.rt.lookupEnv, Proxy: s.rt.proxy(),
	}
	for _, one := range []struct {
		key  string
		from policy.Exporter
		to   **telemetry.Exporter
	}{{"exporter", cfg.Logs, &o.Logs}, {"trace_exporter", cfg.Traces, &o.Traces}, {"metrics_exporter", cfg.Metrics, &o.Metrics}} {
		if one.from.Kind == "" || one.from.Kind == "none" {
			continue
		}
		e := &telemetry.Exporter{Kind: one.from.Kind, Endpoint: one.from.Endpoint, Protocol: one.from.Protocol, Headers: one.from.Headers}
		if err := s.readTLS(e, one.key, one.from); err != nil {
			return err
		}
		*one.to = e
	}
	sink, err := telemetry.New(o)
	if err != nil {
		return usageError("%w", err)
	}
	if sink == nil {
		if telemetry.ValidTraceParent(parent) {
			s.sinks.trace = parent
		}
		return nil
	}
	s.sinks.trace = sink.TraceParent()
	s.log.Attach(sink)
	return nil
}

// masked are attributes without the secrets that are known when the run starts.
func (s *session) masked(attributes map[string]string) map[string]string {
	out := make(map[string]string, len(attributes))
	for k, v := range attributes {
		out[k] = s.mask.Mask(v)
	}
	return out
}

// readTLS reads the certificate files of one exporter; relative paths are those
// of CODEX_HOME, where the configuration lies.
func (s *session) readTLS(e *telemetry.Exporter, key string, from policy.Exporter) error {
	for _, f := range []struct {
		path string
		to   *[]byte
	}{{from.CACertificate, &e.TLS.CA}, {from.ClientCertificate, &e.TLS.ClientCert}, {from.ClientKey, &e.TLS.ClientKey}} {
		if f.path == "" {
			continue
		}
		path := f.path
		if !filepath.IsAbs(path) {
			path = filepath.Join(s.home, path)
		}
		data, err := s.rt.readInput(path, maxConfig)
		if err != nil {
			return usageError("otel.%s: %v", key, err)
		}
		*f.to = data
	}
	return nil
}
