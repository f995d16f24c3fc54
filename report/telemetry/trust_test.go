package telemetry

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// authority makes a CA and certificates signed by it, for this test only.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (a *authority) issue(t *testing.T) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, k.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// TLS with our own authority and a client certificate, over HTTP and gRPC; an
// authority that is not the collector's is refused and counted as a loss.
func TestTLS(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	serverCert, serverKey := ca.issue(t)
	clientCert, clientKey := ca.issue(t)
	pair, err := tls.X509KeyPair(serverCert, serverKey)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	config := &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}

	web := &collector{t: t}
	server := httptest.NewUnstartedServer(web)
	server.TLS = config.Clone()
	server.StartTLS()
	defer server.Close()
	rpc, addr := startGRPC(t, credentials.NewTLS(config.Clone()))

	for _, c := range []struct {
		name, kind, url string
		col             *collector
		ca              []byte
		ok              bool
	}{
		{"http", "otlp-http", server.URL, web, ca.pem, true}, {"grpc", "otlp-grpc", addr, rpc, ca.pem, true},
		{"http, strange authority", "otlp-http", server.URL, web, stranger.pem, false}, {"grpc, strange authority", "otlp-grpc", addr, rpc, stranger.pem, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := len(c.col.logs)
			s, err := New(Options{FlushTimeout: 2 * time.Second, Logs: &Exporter{Kind: c.kind, Endpoint: c.url, TLS: TLS{CA: c.ca, ClientCert: clientCert, ClientKey: clientKey}}})
			if err != nil {
				t.Fatal(err)
			}
			f := flushed(play(t, s, tellWhole, ended))
			if c.ok != (f.Lost == 0) || c.ok != (len(c.col.logs) > before) {
				t.Errorf("%+v, %d requests", f, len(c.col.logs)-before)
			}
		})
	}
}

// Variables of the environment that the exporters read cannot send what policy
// configured elsewhere, nor add headers.
func TestEnvironmentCannotRedirect(t *testing.T) {
	thief, thiefURL := startHTTP(t)
	for _, signal := range []string{"", "_LOGS", "_TRACES", "_METRICS"} {
		for k, v := range map[string]string{"ENDPOINT": thiefURL, "HEADERS": "x-stolen=1", "COMPRESSION": "gzip", "PROTOCOL": "http/json", "TIMEOUT": "1"} {
			t.Setenv("OTEL_EXPORTER_OTLP"+signal+"_"+k, v)
		}
	}
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	t.Setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "0")
	t.Setenv("OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT", "0")
	c, url := startHTTP(t)
	s, err := New(to("otlp-http", url, "binary"))
	if err != nil {
		t.Fatal(err)
	}
	f := flushed(play(t, s, tellWhole, ended))
	if len(thief.paths) != 0 || f.Lost != 0 || len(c.paths) != 3 {
		t.Errorf("thief got %v, %+v", thief.paths, f)
	}
	for _, h := range c.heads {
		if h.Get("X-Stolen") != "" || h.Get("Content-Encoding") != "" || h.Get("User-Agent") != "nightshift" {
			t.Errorf("headers %v", h)
		}
	}
	checkLogs(t, c)
}

func TestTraceContext(t *testing.T) {
	const outside = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"
	for _, c := range []struct {
		name, parent, state string
		spans               bool
		prefix, suffix      string
	}{
		{"sampled", outside + "01", "a=b,c=d", true, "00-0af7651916cd43dd8448eb211c80319c-", "-01"},
		{"not sampled", outside + "00", "", false, "00-0af7651916cd43dd8448eb211c80319c-", "-00"},
		{"none", "", "", true, "00-", "-01"},
		{"bad", "00-0-0-01", "a=b", true, "00-", "-01"},
		{"all zeros", "00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01", "", true, "00-", "-01"},
		{"later version", "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", "", true, "00-0af7651916cd43dd8448eb211c80319c-", "-01"},
	} {
		t.Run(c.name, func(t *testing.T) {
			col, url := startHTTP(t)
			o := to("otlp-http", url, "json")
			o.TraceParent, o.TraceState = c.parent, c.state
			s, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			got := s.TraceParent()
			if !ValidTraceParent(got) || !strings.HasPrefix(got, c.prefix) || !strings.HasSuffix(got, c.suffix) || got == c.parent {
				t.Errorf("TraceParent is %s", got)
			}
			if c.name == "sampled" && s.TraceState() != "a=b,c=d" {
				t.Errorf("TraceState is %q", s.TraceState())
			}
			play(t, s, tellWhole, ended)
			if (len(col.spans()) > 0) != c.spans {
				t.Errorf("%d spans", len(col.spans()))
			}
			for _, sp := range col.spans() {
				if sp.Name == "invoke_agent nightshift" {
					want := ""
					if c.name == "sampled" || c.name == "later version" {
						want = "b7ad6b7169203331"
					}
					if hex.EncodeToString(sp.ParentSpanId) != want {
						t.Errorf("parent %x, want %q", sp.ParentSpanId, want)
					}
				}
			}
		})
	}
	s, err := New(Options{Logs: &Exporter{Kind: "otlp-http", Endpoint: "http://127.0.0.1:1"}, TraceParent: outside + "01"})
	if err != nil {
		t.Fatal(err)
	}
	if s.TraceParent() != outside+"01" {
		t.Errorf("without a trace exporter the context from outside is passed on, not %s", s.TraceParent())
	}
}

func FuzzTraceParent(f *testing.F) {
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Add("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Add("----")
	f.Fuzz(func(t *testing.T, s string) {
		sc, ok := parseTraceParent(s)
		if ok != sc.IsValid() {
			t.Errorf("%q: %v %v", s, ok, sc)
		}
		if ok && !strings.Contains(s, sc.TraceID().String()) {
			t.Errorf("%q became %v", s, sc)
		}
	})
}

func TestResource(t *testing.T) {
	for _, c := range []struct{ attributes, name, key, want string }{
		{"", "", "service.name", "nightshift"},
		{"service.name=a,team=b%20c,broken,=x", "", "service.name", "a"},
		{"service.name=a,team=b%20c", "", "team", "b c"},
		{"service.name=a", "named", "service.name", "named"},
		{"env=override", "", "env", "override"},
	} {
		set := resourceOf(&Options{ResourceAttributes: c.attributes, ServiceName: c.name}, true).Set()
		if v, _ := set.Value("service.name"); c.key == "service.name" && v.AsString() != c.want {
			t.Errorf("%+v: %s", c, v.AsString())
		}
		for _, kv := range set.ToSlice() {
			if string(kv.Key) == c.key && kv.Value.AsString() != c.want {
				t.Errorf("%+v: %s", c, kv.Value.AsString())
			}
		}
	}
}

// What a sub-agent was denied and what its tools did is exported under its name.
func TestAgents(t *testing.T) {
	c, url := startHTTP(t)
	s, err := New(to("otlp-http", url, "json"))
	if err != nil {
		t.Fatal(err)
	}
	play(t, s, func(l *event.Log) {
		l.Emit(event.RunStarted{Mode: "exec"})
		l.Emit(event.TurnStarted{})
		nested := func(id string, e event.Event) event.AgentEvent {
			raw, err := json.Marshal(event.Record{Seq: 1, Event: e})
			if err != nil {
				t.Fatal(err)
			}
			return event.AgentEvent{AgentID: id, Record: raw}
		}
		use := event.ModelResponse{Request: 7, Model: "m", Status: "completed", Usage: event.Usage{Input: 5}}
		for _, e := range []event.Event{event.RunStarted{Model: "m"}, event.ModelRequest{Request: 7, Model: "m"}, use,
			nested("agent-2", event.RunStarted{Model: "deep"}), nested("agent-2", event.ModelRequest{Request: 8, Model: "deep"}), nested("agent-2", event.RunCompleted{ExitCode: 1, Class: "x"}),
			event.RunCompleted{}} {
			l.Emit(nested("agent-1", e))
		}
		for _, e := range []event.Event{event.PolicyDecision{Action: "network", Subject: "h:1", Outcome: "denied"}, event.ToolCompleted{Tool: "exec_command", Status: event.Completed}, event.Notice{Class: "x"}} {
			raw, err := json.Marshal(event.Record{Seq: 1, Event: e})
			if err != nil {
				t.Fatal(err)
			}
			l.Emit(event.AgentEvent{AgentID: "agent-1", Record: raw})
		}
		l.Emit(event.AgentEvent{AgentID: "agent-1", Record: []byte(`"broken"`)})
	}, event.RunCompleted{})
	seen := map[string]string{}
	for _, r := range c.records() {
		seen[r.EventName] = values(r.Attributes)["agent_name"]
	}
	spans := map[string]string{} // name of each span by id
	parents := map[string]string{}
	for _, sp := range c.spans() {
		name := sp.Name
		if id := values(sp.Attributes)["gen_ai.agent.id"]; id != "" {
			name += " " + id
		}
		spans[string(sp.SpanId)] = name
		parents[name] = string(sp.ParentSpanId)
	}
	for child, parent := range map[string]string{"invoke_agent sub-agent agent-1": "turn", "invoke_agent sub-agent agent-2": "invoke_agent sub-agent agent-1",
		"chat m": "invoke_agent sub-agent agent-1", "chat deep": "invoke_agent sub-agent agent-2"} {
		if got := spans[parents[child]]; got != parent {
			t.Errorf("the span %q is below %q, want %q (%v)", child, got, parent, spans)
		}
	}
	if seen["codex.tool_decision"] != "agent-1" || seen["codex.tool_result"] != "agent-1" || c.series()["nightshift.denial"] == nil {
		t.Errorf("%v", seen)
	}
}

// What may be exported of tools and answers may be of those of a sub-agent, too.
func TestTextsOfAgents(t *testing.T) {
	c, url := startHTTP(t)
	o := to("otlp-http", url, "json")
	o.LogToolOutput, o.LogAgentResponses = true, true
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	play(t, s, func(l *event.Log) {
		for _, e := range []event.Event{
			event.ItemCompleted{Item: event.Item{ID: "item_0", Details: event.CommandExecution{Command: secretCommand, AggregatedOutput: secretOutput, Status: event.Completed}}},
			event.ToolCompleted{Tool: "exec_command", ItemID: "item_0", Status: event.Completed},
			event.ItemCompleted{Item: event.Item{ID: "item_1", Details: event.AgentMessage{Text: secretAnswer}}},
		} {
			raw, err := json.Marshal(event.Record{Seq: 1, Event: e})
			if err != nil {
				t.Fatal(err)
			}
			l.Emit(event.AgentEvent{AgentID: "agent-1", Record: raw})
		}
	}, event.RunCompleted{})
	said := map[string]string{}
	for _, r := range c.records() {
		v := values(r.Attributes)
		said[r.EventName] = strings.Join([]string{v["agent_name"], v["arguments"], v["output"], v["response"]}, "|")
	}
	if want := "agent-1|" + secretCommand + "|" + secretOutput + "|"; said["codex.tool_result"] != want {
		t.Errorf("tool_result %q, want %q", said["codex.tool_result"], want)
	}
	if want := "agent-1|||" + secretAnswer; said["codex.agent_response"] != want {
		t.Errorf("agent_response %q, want %q", said["codex.agent_response"], want)
	}
}

// Making a sink must not delay the first request of a run.
func BenchmarkNew(b *testing.B) {
	for range b.N {
		s, err := New(to("otlp-http", "http://127.0.0.1:1", "json"))
		if err != nil {
			b.Fatal(err)
		}
		s.closeTransports()
	}
}
