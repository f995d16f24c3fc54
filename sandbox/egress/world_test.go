package egress

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/nightshift-ci/nightshift/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Init(map[string]sandbox.HelperFunc{"client": client})
	goleak.VerifyTestMain(m)
}

// fakeDNS answers each lookup of a name with its next list of addresses; the
// last one stays.
type fakeDNS struct {
	conn net.PacketConn
	mu   sync.Mutex
	zone map[string][][]string
	seen map[string]int // lookups of A records
}

func newDNS(t *testing.T, zone map[string][][]string) *fakeDNS {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &fakeDNS{conn: conn, zone: zone, seen: map[string]int{}}
	var wg sync.WaitGroup
	wg.Go(d.serve)
	t.Cleanup(func() { conn.Close(); wg.Wait() })
	return d
}

func (d *fakeDNS) serve() {
	buf := make([]byte, 1500)
	for {
		n, from, err := d.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
		m.Answers = d.answers(q)
		if m.Answers == nil {
			m.RCode = dnsmessage.RCodeNameError
		}
		if b, err := m.Pack(); err == nil {
			d.conn.WriteTo(b, from)
		}
	}
}

func (d *fakeDNS) answers(q dnsmessage.Question) []dnsmessage.Resource {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := strings.TrimSuffix(q.Name.String(), ".")
	lists, ok := d.zone[name]
	if !ok {
		return nil
	}
	at := min(d.seen[name], len(lists)-1)
	if q.Type == dnsmessage.TypeA {
		d.seen[name]++
	}
	out := []dnsmessage.Resource{}
	for _, s := range lists[at] {
		a := netip.MustParseAddr(s)
		h := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, Type: q.Type}
		if a.Is4() && q.Type == dnsmessage.TypeA {
			out = append(out, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		}
		if a.Is6() && q.Type == dnsmessage.TypeAAAA {
			out = append(out, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return out
}

func (d *fakeDNS) lookups(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen[name]
}

func (d *fakeDNS) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", d.conn.LocalAddr().String())
	}}
}

// rules are lists of hosts that may and that must not be reached.
type rules struct{ allow, deny []listed }

// listed is a pattern as it was written.
type listed struct {
	Pattern
	text string
}

// newRules parses both lists; all mistakes are in the error.
func newRules(allow, deny []string) (*rules, error) {
	r := &rules{}
	var errs []error
	for _, list := range []struct {
		from []string
		to   *[]listed
	}{{allow, &r.allow}, {deny, &r.deny}} {
		for _, s := range list.from {
			p, err := ParsePattern(s)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			*list.to = append(*list.to, listed{p, s})
		}
	}
	return r, errors.Join(errs...)
}

// decide is for [Options.Decide]: a deny wins over an allow, and what is in
// neither list is refused.
func (r *rules) decide(host string, port int, _ string) Decision {
	for _, p := range r.deny {
		if p.Match(host, port) {
			return Decision{Rule: p.text, Reason: "it is in the list of denied hosts (" + p.text + ")"}
		}
	}
	d := Decision{Reason: "it is not in the list of allowed hosts"}
	for _, p := range r.allow {
		if p.Match(host, port) && (!d.Allowed || p.PortNamed()) {
			d = Decision{Allowed: true, Rule: p.text, PortNamed: p.PortNamed()}
		}
	}
	return d
}

// world is a proxy with names that lead to this machine.
type world struct {
	t     *testing.T
	proxy *Proxy
	addr  string
	mu    sync.Mutex
	log   []Outcome
}

func newWorld(t *testing.T, o Options, allow ...string) *world {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newWorldOn(t, l, o, allow...)
}

// newWorldOn serves a listener that is there already.
func newWorldOn(t *testing.T, l net.Listener, o Options, allow ...string) *world {
	t.Helper()
	w := &world{t: t}
	if o.Decide == nil {
		list, err := newRules(allow, []string{"denied.test"})
		if err != nil {
			t.Fatal(err)
		}
		o.Decide = list.decide
	}
	if o.Resolver == nil {
		zone := map[string][][]string{"six.test": {{"::1"}}, "gone.test": {{}}, "meta.test": {{"169.254.169.254"}}}
		for _, n := range []string{"ok.test", "other.test", "denied.test", "www.ok.test"} {
			zone[n] = [][]string{{"127.0.0.1"}}
		}
		o.Resolver = newDNS(t, zone).resolver()
	}
	o.Log = func(out Outcome) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.log = append(w.log, out)
	}
	w.proxy = New(o)
	w.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- w.proxy.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := w.proxy.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return w
}

// outcomes waits until n connections were reported.
func (w *world) outcomes(n int) []Outcome {
	w.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		log := slices.Clone(w.log)
		w.mu.Unlock()
		if len(log) >= n || time.Now().After(end) {
			if len(log) != n {
				w.t.Fatalf("%d outcomes, want %d: %+v", len(log), n, log)
			}
			return log
		}
	}
}

// raw sends bytes on a fresh connection and returns all that comes back.
func (w *world) raw(text string) string {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		w.t.Fatal(err)
	}
	c.(*net.TCPConn).CloseWrite()
	b, _ := io.ReadAll(c)
	return string(b)
}

func (w *world) client(tlsConfig *tls.Config) *http.Client {
	proxy := &url.URL{Scheme: "http", Host: w.addr}
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: tlsConfig, DisableKeepAlives: true}}
}

func port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// certificate makes a certificate for names and a pool that trusts it.
func certificate(t testing.TB, names ...string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// secure starts an HTTPS server for names.
func secure(t *testing.T, names ...string) (addr string, pool *x509.CertPool) {
	t.Helper()
	cert, pool := certificate(t, names...)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "secure %s %s %d", r.Host, r.TLS.ServerName, len(body))
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), pool
}
