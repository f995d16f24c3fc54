package telemetry

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	colmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// ConfigError is an [otel] setting that cannot work.
type ConfigError struct {
	Key string // otel.exporter, …
	Why string
	Fix string
}

func (e *ConfigError) Error() string { return "otel." + e.Key + ": " + e.Why }

// Hint says what to do.
func (e *ConfigError) Hint() string { return e.Fix }

// outcome is what became of one export. The exporters' errors are texts; what
// decides about another try is read off the answer itself.
type outcome struct {
	answered bool // the collector took the request
	err      error
	again    bool // worth another try
	large    bool // the request was too large; a smaller one may be taken
	refused  bool // nobody answered
	after    time.Duration
	rejected int64 // items of an accepted request that the collector dropped
	message  string
}

// transport carries one signal: over HTTP it is the RoundTripper below the
// official exporter, over gRPC the connection and its interceptor. The address,
// headers and TLS are ours alone, so that OTEL_EXPORTER_OTLP_* variables, which
// the exporters read, cannot redirect what policy configured.
type transport struct {
	signal  string // logs, traces, metrics
	kind    string
	url     *url.URL
	json    bool
	headers map[string]string
	rt      *http.Transport
	conn    *grpc.ClientConn
	last    outcome // of the request that is being made; one at a time
}

func newTransport(key, signal string, e *Exporter, o *Options) (*transport, error) {
	fail := func(fix, format string, args ...any) (*transport, error) {
		return nil, &ConfigError{Key: key, Why: fmt.Sprintf(format, args...), Fix: fix}
	}
	t := &transport{signal: signal, kind: e.Kind, headers: map[string]string{}}
	for name, value := range e.Headers {
		v, missing := expand(value, o.LookupEnv)
		if missing != "" {
			return fail("set the variable, or write the value", "the header %s names the variable %s, which is not set", name, missing)
		}
		if !validHeader(name, v) {
			return fail("", "the header %q is not a valid HTTP header", name)
		}
		t.headers[strings.ToLower(name)] = v
	}
	config, err := e.TLS.config()
	if err != nil {
		return fail("the file must hold PEM blocks", "%v", err)
	}
	endpoint := e.Endpoint
	if e.Kind == "otlp-grpc" && !strings.Contains(endpoint, "://") {
		endpoint = "https://" + endpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fail("write http://host:port or https://host:port", "the endpoint %q is not an address", e.Endpoint)
	}
	t.url = u
	switch e.Kind {
	case "otlp-http":
		switch e.Protocol {
		case "", "binary":
		case "json":
			t.json = true
		default:
			return fail("protocols are binary and json", "there is no protocol %q", e.Protocol)
		}
		if u.Path == "" || u.Path == "/" {
			u.Path = "/v1/" + signal
		}
		t.rt = &http.Transport{TLSClientConfig: config, Proxy: o.Proxy, ForceAttemptHTTP2: true, MaxIdleConns: 1,
			IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 5 * time.Second, ResponseHeaderTimeout: sendTimeout, MaxResponseHeaderBytes: 64 << 10}
	case "otlp-grpc":
		if err := t.dial(config); err != nil {
			return fail("", "%v", err)
		}
	default:
		return fail("exporters are otlp-http, otlp-grpc and none", "there is no exporter %q", e.Kind)
	}
	return t, nil
}

func (c TLS) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(c.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, errors.New("the CA file holds no certificate")
		}
	}
	if len(c.ClientCert) > 0 || len(c.ClientKey) > 0 {
		pair, err := tls.X509KeyPair(c.ClientCert, c.ClientKey)
		if err != nil {
			return nil, fmt.Errorf("the client certificate and its key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// expand resolves ${NAME}; missing is the first name without a value.
func expand(s string, lookup func(string) (string, bool)) (value, missing string) {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "${")
		b.WriteString(before)
		if !ok {
			return b.String(), ""
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			b.WriteString("${" + rest)
			return b.String(), ""
		}
		var v string
		found := false
		if lookup != nil {
			v, found = lookup(name)
		}
		if !found {
			return "", name
		}
		b.WriteString(v)
		s = after
	}
}

func validHeader(name, value string) bool {
	if name == "" || strings.ContainsAny(value, "\r\n\x00") {
		return false
	}
	for _, r := range name {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune("()<>@,;:\\\"/[]?={}", r) {
			return false
		}
	}
	return true
}

// attempt makes one export, and at the end of a run more: while the collector
// says "later", until ctx ends; when nobody answers, a few times.
func (t *transport) attempt(ctx context.Context, last bool, export func(context.Context) error) outcome {
	wait := retryFirst
	for try := 1; ; try++ {
		t.last = outcome{}
		err := export(ctx)
		o := t.last
		if err == nil || o.answered { // the exporters call a partial success an error
			return o
		}
		if o.err == nil { // it never reached the wire, or its context ended there
			o.err = fmt.Errorf("%s to %s: %w", t.signal, t.url.Redacted(), err)
			o.again = ctx.Err() != nil
		}
		if !o.again || o.large || !last || o.refused && try >= refusedTries {
			return o
		}
		pause := time.NewTimer(max(wait, o.after))
		select {
		case <-ctx.Done():
			pause.Stop()
			return o
		case <-pause.C:
		}
		wait = min(2*wait, retryMost)
	}
}

func (t *transport) close() {
	if t.rt != nil {
		t.rt.CloseIdleConnections()
	}
	if t.conn != nil {
		_ = t.conn.Close()
	}
}

// RoundTrip sends the body of an exporter's request to our address, as JSON if
// that is configured, and notes what the collector answered. The exporter gets
// an answer without a body: it would print a partial success to stderr.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	_ = req.Body.Close()
	if err != nil {
		return nil, err
	}
	kind := "application/x-protobuf"
	if t.json {
		kind = "application/json"
		if body, err = t.toJSON(body); err != nil {
			return nil, err
		}
	}
	out, err := http.NewRequestWithContext(req.Context(), http.MethodPost, t.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	out.Header.Set("User-Agent", "nightshift")
	if u := t.url.User; u != nil { // a transport, unlike a client, does not send it
		password, _ := u.Password()
		out.SetBasicAuth(u.Username(), password)
	}
	for k, v := range t.headers {
		out.Header.Set(k, v)
	}
	out.Header.Set("Content-Type", kind)
	resp, err := t.rt.RoundTrip(out)
	if err != nil {
		t.last = outcome{err: fmt.Errorf("%s to %s: %w", t.signal, t.url.Redacted(), err), again: true, refused: req.Context().Err() == nil}
		return nil, err
	}
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	_ = resp.Body.Close()
	t.note(resp, answer)
	resp.Body, resp.ContentLength = http.NoBody, 0
	resp.Header = http.Header{}
	return resp, nil
}

func (t *transport) note(resp *http.Response, answer []byte) {
	code := resp.StatusCode
	if code >= 200 && code < 300 {
		t.last = t.partial(resp.Header.Get("Content-Type"), answer)
		return
	}
	t.last = outcome{err: fmt.Errorf("%s to %s: HTTP %d", t.signal, t.url.Redacted(), code),
		large: code == http.StatusRequestEntityTooLarge,
		again: code == 429 || code == 502 || code == 503 || code == 504, after: retryAfter(resp.Header.Get("Retry-After"))}
}

func retryAfter(v string) time.Duration {
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(min(n, 3600)) * time.Second
}

// partial reads how much of an accepted request the collector dropped.
func (t *transport) partial(kind string, answer []byte) outcome {
	msg := t.newResponse()
	var err error
	if strings.HasPrefix(kind, "application/json") {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(answer, msg)
	} else {
		err = proto.Unmarshal(answer, msg)
	}
	if err != nil { // a collector that answers 2xx with something else took it
		return outcome{answered: true}
	}
	return partialOf(msg)
}

func (t *transport) newResponse() proto.Message {
	switch t.signal {
	case "logs":
		return &collogs.ExportLogsServiceResponse{}
	case "traces":
		return &coltrace.ExportTraceServiceResponse{}
	}
	return &colmetrics.ExportMetricsServiceResponse{}
}

func partialOf(msg any) outcome {
	var n int64
	var text string
	switch m := msg.(type) {
	case *collogs.ExportLogsServiceResponse:
		n, text = m.GetPartialSuccess().GetRejectedLogRecords(), m.GetPartialSuccess().GetErrorMessage()
	case *coltrace.ExportTraceServiceResponse:
		n, text = m.GetPartialSuccess().GetRejectedSpans(), m.GetPartialSuccess().GetErrorMessage()
	case *colmetrics.ExportMetricsServiceResponse:
		n, text = m.GetPartialSuccess().GetRejectedDataPoints(), m.GetPartialSuccess().GetErrorMessage()
	}
	if len(text) > 500 {
		text = text[:500]
	}
	return outcome{answered: true, rejected: max(n, 0), message: "the collector rejected records: " + strings.ToValidUTF8(text, "")}
}
