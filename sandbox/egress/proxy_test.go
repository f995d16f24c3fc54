package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestConnectTLS(t *testing.T) {
	addr, pool := secure(t, "ok.test", "other.test")
	p := port(addr)
	w := newWorld(t, Options{AllowLocal: true}, "**.ok.test:"+p)
	big := bytes.Repeat([]byte("x"), 3<<20)
	resp, err := w.client(&tls.Config{RootCAs: pool}).Post("https://OK.test:"+p+"/", "text/plain", bytes.NewReader(big))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if want := fmt.Sprintf("secure OK.test:%s OK.test %d", p, len(big)); string(body) != want {
		t.Errorf("%s, want %s", body, want)
	}
	out := w.outcomes(1)[0]
	if !out.Allowed || out.Method != Connect || out.Host != "ok.test" || out.Addr != addr || out.Rule != "**.ok.test:"+p || out.Error != "" || out.Count != 1 {
		t.Errorf("%+v", out)
	}
	// The client asks for another name inside the tunnel.
	_, err = w.client(&tls.Config{RootCAs: pool, ServerName: "other.test"}).Get("https://ok.test:" + p + "/")
	if err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		t.Errorf("another name: %v", err)
	}
	if out := w.outcomes(2)[1]; out.Allowed || !strings.Contains(out.Reason, "other.test (SNI)") {
		t.Errorf("%+v", out)
	}
	// … or for none: a literal address is not a server name.
	_, err = w.client(&tls.Config{InsecureSkipVerify: true, ServerName: "127.0.0.1"}).Get("https://ok.test:" + p + "/")
	if out := w.outcomes(3)[2]; err == nil || out.Allowed || !strings.Contains(out.Reason, "does not say") {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestConnectRefusals(t *testing.T) {
	w := newWorld(t, Options{}, "ok.test", "meta.test", "gone.test", "six.test", "nowhere.test", "ok.test:1")
	cases := []struct{ target, status, words string }{
		{"denied.test:443", "403", "it is in the list of denied hosts (denied.test)"},
		{"evil.test:443", "403", "evil.test:443 refused: it is not in the list of allowed hosts"},
		{"ok.test:8080", "403", "only port 443 is open"},
		{"ok.test:443", "403", "it resolves to 127.0.0.1, a loopback address"},
		{"OK.TEST.:443", "403", "it resolves to 127.0.0.1, a loopback address"},
		{"ok.test:1", "403", "it resolves to 127.0.0.1, a loopback address"},
		{"six.test:443", "403", "it resolves to ::1, a loopback address"},
		{"meta.test:443", "403", "it resolves to 169.254.169.254, a link-local address"},
		{"gone.test:443", "502", "there is no such host"},
		{"nowhere.test:443", "502", "there is no such host"},
		{"127.0.0.1:443", "403", "it is an address"},
		{"169.254.169.254:443", "403", "it is an address"},
		{"2130706433:443", "403", "it is an address"},
		{"0x7f.1:443", "403", "it is an address"},
		{"[::1]:443", "403", "it is an address"},
		{"[::ffff:169.254.169.254]:443", "403", "it is an address"},
		{"ok.test", "400", "there is no port"},
		{"ok.test:0", "400", "is not a port"},
		{"ok.test:443x", "400", "invalid port"},
		{"ok.test:99999", "400", "is not a port"},
		{"user@ok.test:443", "403", "not a valid host name"},
		{"ok.test@evil.test:443", "403", "not a valid host name"},
		{"b\xc3\xbccher.test:443", "403", "xn--"},
		{":443", "403", "no host name"},
	}
	for i, c := range cases {
		got := w.raw("CONNECT " + c.target + " HTTP/1.1\r\nHost: ok.test:443\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(got)), &http.Request{Method: "GET"})
		if err != nil {
			t.Errorf("%s: %q: %v", c.target, got, err)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		verdict := map[bool]string{true: "failed", false: "refused"}[c.status == "502"]
		if !strings.HasPrefix(resp.Status, c.status) || !strings.Contains(resp.Status, c.words) || !strings.Contains(string(body), c.words) || resp.Header.Get(verdictHeader) != verdict {
			t.Errorf("%s: %q", c.target, got)
		}
		out := w.outcomes(i + 1)[i]
		if out.Allowed != (c.status == "502") || out.Reason+out.Error == "" {
			t.Errorf("%s: %+v", c.target, out)
		}
	}
}

func TestNoRules(t *testing.T) {
	p := New(Options{})
	if d := p.o.Decide("ok.test", 443, Connect); d.Allowed || d.Reason == "" {
		t.Errorf("%+v", d)
	}
	if err := p.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// The addresses a name has at the first lookup are the only ones that matter,
// and what is dialled is checked, not what was looked up.
func TestMixedAddresses(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "reached") }))
	defer s.Close()
	p := port(s.Listener.Addr().String())
	dns := newDNS(t, map[string][][]string{"mixed.test": {{"169.254.169.254", "127.0.0.1"}}, "later.test": {{"127.0.0.1"}, {"169.254.169.254"}}})
	w := newWorld(t, Options{AllowLocal: true, Resolver: dns.resolver()}, "mixed.test:"+p, "later.test:"+p)
	for i, name := range []string{"mixed.test", "later.test", "later.test"} {
		resp, err := w.client(nil).Get("http://" + name + ":" + p)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		out := w.outcomes(i + 1)[i]
		if want := i < 2; out.Allowed != want || (resp.StatusCode == 200) != want || want && out.Addr != "127.0.0.1:"+p || !want && out.Addr != "169.254.169.254" {
			t.Errorf("%s: %+v, %s", name, out, resp.Status)
		}
	}
	if n := dns.lookups("later.test"); n != 2 {
		t.Errorf("%d lookups for two connections", n)
	}
}

// upstream records what it gets.
func plainUpstream(t *testing.T) (p string, requests func() []string) {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		var h bytes.Buffer
		r.Header.Write(&h)
		seen = append(seen, fmt.Sprintf("%s %s host=%s body=%d err=%v close=%v\n%s", r.Method, r.URL.RequestURI(), r.Host, len(body), err, r.Close, h.String()))
		mu.Unlock()
		w.Header().Set("X-Up", "yes")
		w.Header().Set("Keep-Alive", "timeout=5")
		switch r.URL.Path {
		case "/cut":
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "short")
		case "/chunks":
			io.WriteString(w, "one")
			w.(http.Flusher).Flush()
			io.WriteString(w, "two")
		default:
			fmt.Fprintf(w, "plain %s", r.Method)
		}
	}))
	t.Cleanup(s.Close)
	return port(s.Listener.Addr().String()), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

func TestPlainHTTP(t *testing.T) {
	p, requests := plainUpstream(t)
	w := newWorld(t, Options{AllowLocal: true}, "ok.test:"+p, "www.ok.test")
	get := func(text string) string { return w.raw(strings.ReplaceAll(text, "\n", "\r\n")) }

	got := get("GET http://user:pw@OK.test.:" + p + "/a%2Fb?c=d HTTP/1.1\nHost: evil.test\nX-A: 1\nConnection: X-B, close\nX-B: 2\nProxy-Authorization: Basic x\nUpgrade: websocket\nTe: trailers\n\nGET http://ok.test:" + p + "/second HTTP/1.1\nHost: x\n\n")
	if !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\n") || !strings.HasSuffix(got, "\r\n\r\nplain GET") || !strings.Contains(got, "X-Up: yes") || strings.Contains(got, "Keep-Alive") || !strings.Contains(got, "Connection: close") {
		t.Errorf("%q", got)
	}
	if r := requests(); len(r) != 1 || r[0] != "GET /a%2Fb?c=d host=ok.test:"+p+" body=0 err=<nil> close=true\nConnection: close\r\nX-A: 1\r\n" {
		t.Errorf("%q", r)
	}
	if out := w.outcomes(1)[0]; !out.Allowed || out.Method != "GET" || out.Host != "ok.test" || out.Error != "" {
		t.Errorf("%+v", out)
	}
	if got := get("POST http://ok.test:" + p + "/ HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n3\nabc\n2\nde\n0\n\n"); !strings.HasSuffix(got, "plain POST") {
		t.Errorf("%q", got)
	}
	if got := get("POST http://ok.test:" + p + "/ HTTP/1.1\nHost: x\nContent-Length: 4\nExpect: 100-continue\n\nabcd"); !strings.HasPrefix(got, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200") {
		t.Errorf("%q", got)
	}
	if got := get("GET http://ok.test:" + p + "/chunks HTTP/1.1\nHost: x\n\n"); !strings.HasSuffix(strings.ReplaceAll(got, "\r\n3\r\n", ""), "two\r\n0\r\n\r\n") {
		t.Errorf("%q", got)
	}
	if got := get("GET http://ok.test:" + p + "/chunks HTTP/1.0\n\n"); !strings.HasSuffix(got, "\r\n\r\nonetwo") {
		t.Errorf("%q", got)
	}
	if got := get("HEAD http://ok.test:" + p + "/ HTTP/1.1\nHost: x\n\n"); !strings.HasPrefix(got, "HTTP/1.1 200") || !strings.HasSuffix(got, "\r\n\r\n") {
		t.Errorf("%q", got)
	}
	if got := get("GET http://ok.test:" + p + "/cut HTTP/1.1\nHost: x\n\n"); !strings.Contains(got, "Content-Length: 100") || !strings.HasSuffix(got, "short") {
		t.Errorf("a cut response must look cut: %q", got)
	}
	if r := requests(); len(r) != 7 || !strings.HasPrefix(r[1], "POST / host=ok.test:"+p+" body=5") || !strings.HasPrefix(r[2], "POST / host=ok.test:"+p+" body=4") {
		t.Errorf("%q", r)
	}
	before := len(w.outcomes(7))
	for i, c := range []struct{ request, status, words string }{
		{"GET / HTTP/1.1\nHost: ok.test\n\n", "400", "names the whole URL"},
		{"GET https://ok.test/ HTTP/1.1\nHost: x\n\n", "400", "tunnel"},
		{"GET ftp://ok.test/ HTTP/1.1\nHost: x\n\n", "400", "ftp is not spoken"},
		{"GET http://ok.test/ HTTP/1.1\nHost: x\n\n", "403", "not in the list"},
		{"GET http://www.ok.test:8080/ HTTP/1.1\nHost: x\n\n", "403", "only port 80"},
		{"GET http://www.ok.test:443/ HTTP/1.1\nHost: x\n\n", "403", "only port 80"},
		{"GET http://127.0.0.1:" + p + "/ HTTP/1.1\nHost: ok.test\n\n", "403", "it is an address"},
		{"GET http://[::1]/ HTTP/1.1\nHost: ok.test\n\n", "403", "it is an address"},
		{"GET http:///x HTTP/1.1\nHost: ok.test\n\n", "403", "no host name"},
		{"GET http://ok.test:0/ HTTP/1.1\nHost: x\n\n", "400", "not a port"},
		{"PRI * HTTP/2.0\n\nSM\n\n", "400", "proxy"},
		{"\x16\x03\x01 hello\n\n", "400", "not a request to an HTTP proxy"},
	} {
		if got := get(c.request); !strings.HasPrefix(got, "HTTP/1.1 "+c.status+" ") || !strings.Contains(got, c.words) || !strings.Contains(got, verdictHeader+": refused\r\n") {
			t.Errorf("%q: %q", c.request, got)
		}
		if out := w.outcomes(before + i + 1)[before+i]; out.Allowed || out.Reason == "" {
			t.Errorf("%q: %+v", c.request, out)
		}
	}
	if r := requests(); len(r) != 7 {
		t.Errorf("a refused request got through: %q", r[7:])
	}
}

func TestLimited(t *testing.T) {
	p, requests := plainUpstream(t)
	w := newWorld(t, Options{AllowLocal: true, Limited: true}, "ok.test:"+p)
	for _, c := range []struct {
		request string
		ok      bool
	}{
		{"GET http://ok.test:%s/ HTTP/1.1\r\nHost: x\r\n\r\n", true},
		{"HEAD http://ok.test:%s/ HTTP/1.1\r\nHost: x\r\n\r\n", true},
		{"OPTIONS http://ok.test:%s/ HTTP/1.1\r\nHost: x\r\n\r\n", true},
		{"POST http://ok.test:%s/ HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", false},
		{"get http://ok.test:%s/ HTTP/1.1\r\nHost: x\r\n\r\n", false},
		{"DELETE http://ok.test:%s/ HTTP/1.1\r\nHost: x\r\n\r\n", false},
		{"GET http://ok.test:%s/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na", false},
		{"GET http://ok.test:%s/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", false},
		{"GET http://ok.test:%s/ HTTP/1.1\r\nHost: x\r\nX-HTTP-Method-Override: DELETE\r\n\r\n", false},
		{"GET http://ok.test:%s/ HTTP/1.1\r\nHost: x\r\nx_http_method: POST\r\n\r\n", false},
		{"OPTIONS http://ok.test:%s/ HTTP/1.1\r\nHost: x\r\nX-Method-Override: PUT\r\n\r\n", false},
		{"CONNECT ok.test:%s HTTP/1.1\r\n\r\n", false},
	} {
		request := fmt.Sprintf(c.request, p)
		if got := w.raw(request); strings.HasPrefix(got, "HTTP/1.1 200") != c.ok || !c.ok && !strings.Contains(got, "limited mode") {
			t.Errorf("%q: %q", request, got)
		}
	}
	if got := w.raw(socksRequest("ok.test", p)); got != "\x05\x00\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00" {
		t.Errorf("SOCKS: %q", got)
	}
	if r := requests(); len(r) != 3 {
		t.Errorf("%q", r)
	}
}

func socksRequest(host, p string) string {
	var n int
	fmt.Sscan(p, &n)
	return "\x05\x01\x00" + "\x05\x01\x00\x03" + string(rune(len(host))) + host + string([]byte{byte(n >> 8), byte(n)})
}

// echo is a server that speaks first and then repeats what it hears.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				io.WriteString(c, "hello;")
				io.Copy(c, c)
				io.WriteString(c, ";bye")
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return port(l.Addr().String())
}

func TestSOCKS(t *testing.T) {
	p := echo(t)
	w := newWorld(t, Options{AllowLocal: true}, "ok.test:"+p, "other.test", "meta.test")
	const greeting, done = "\x05\x00", "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"
	if got := w.raw(socksRequest("OK.test", p) + "ping"); got != greeting+done+"hello;ping;bye" {
		t.Errorf("%q", got)
	}
	if out := w.outcomes(1)[0]; !out.Allowed || out.Method != SOCKS5 || out.Host != "ok.test" || out.Addr != "127.0.0.1:"+p {
		t.Errorf("%+v", out)
	}
	reply := func(n byte) string { return greeting + "\x05" + string(n) + "\x00\x01\x00\x00\x00\x00\x00\x00" }
	for name, c := range map[string]struct{ send, want string }{
		"denied":          {socksRequest("denied.test", p), reply(2)},
		"other port":      {socksRequest("other.test", "80"), reply(2)},
		"metadata":        {socksRequest("meta.test", "443"), reply(2)},
		"nothing there":   {socksRequest("other.test", "443"), reply(5)},
		"IPv4 address":    {"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x01\xbb", reply(2)},
		"IPv6 address":    {"\x05\x01\x00\x05\x01\x00\x04" + strings.Repeat("\x00", 15) + "\x01\x01\xbb", reply(2)},
		"text address":    {socksRequest("127.0.0.1", "443"), reply(2)},
		"no name":         {"\x05\x01\x00\x05\x01\x00\x03\x00\x01\xbb", reply(2)},
		"NUL in a name":   {socksRequest("ok.test\x00.evil.test", p), reply(2)},
		"BIND":            {"\x05\x01\x00\x05\x02\x00\x01\x7f\x00\x00\x01\x01\xbb", reply(7)},
		"UDP":             {"\x05\x01\x00\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00", reply(7)},
		"password only":   {"\x05\x01\x02", "\x05\xff"},
		"no method":       {"\x05\x00", "\x05\xff"},
		"SOCKS4":          {"\x04\x01\x01\xbb\x7f\x00\x00\x01\x00", "\x00\x5b\x00\x00\x00\x00\x00\x00"},
		"cut":             {"\x05\x01\x00\x05\x01", greeting},
		"strange version": {"\x05\x01\x00\x06\x01\x00\x03\x01a\x01\xbb", greeting},
	} {
		if got := w.raw(c.send); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestTunnelOtherProtocols(t *testing.T) {
	p := echo(t)
	w := newWorld(t, Options{AllowLocal: true}, "ok.test:"+p)
	// The server speaks first; the client waits for it.
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(c, "CONNECT ok.test:%s HTTP/1.1\r\n\r\n", p)
	r := bufio.NewReader(c)
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	r.ReadString('\n')
	hello := make([]byte, 6)
	if _, err := io.ReadFull(r, hello); err != nil || string(hello) != "hello;" {
		t.Fatalf("%q, %v", hello, err)
	}
	io.WriteString(c, "SSH-2.0-x\r\n")
	c.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(r); err != nil || string(rest) != "SSH-2.0-x\r\n;bye" {
		t.Errorf("%q, %v", rest, err)
	}
	if out := w.outcomes(1)[0]; !out.Allowed {
		t.Errorf("%+v", out)
	}
	// Data that comes with the request is not lost.
	if got := w.raw("CONNECT ok.test:" + p + " HTTP/1.1\r\n\r\nearly"); !strings.HasSuffix(got, "\r\n\r\nhello;early;bye") {
		t.Errorf("%q", got)
	}
	// Something that only begins like TLS does not pass.
	if got := w.raw("CONNECT ok.test:" + p + " HTTP/1.1\r\n\r\n\x16\x03\x01\x00\x05hello"); strings.Contains(got, "bye") {
		t.Errorf("%q", got)
	}
	if out := w.outcomes(3)[2]; out.Allowed {
		t.Errorf("%+v", out)
	}
}

func TestPanicIsContained(t *testing.T) {
	w := newWorld(t, Options{Decide: func(host string, _ int, _ string) Decision {
		if host == "boom.test" {
			panic("boom")
		}
		return Decision{Reason: "no"}
	}})
	if got := w.raw("CONNECT boom.test:443 HTTP/1.1\r\n\r\n"); got != "" {
		t.Errorf("%q", got)
	}
	if out := w.outcomes(1)[0]; out.Allowed || !strings.Contains(out.Error, "boom") {
		t.Errorf("%+v", out)
	}
	if got := w.raw("CONNECT ok.test:443 HTTP/1.1\r\n\r\n"); !strings.Contains(got, "403") {
		t.Errorf("%q", got)
	}
}

func TestTally(t *testing.T) {
	var told []Outcome
	ta := tally{log: func(o Outcome) { told = append(told, o) }}
	for range 100 {
		ta.add(Outcome{Host: "a.test"})
	}
	ta.finish()
	var counts []int
	for _, o := range told {
		counts = append(counts, o.Count)
	}
	if want := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 40, 80, 100}; !slices.Equal(counts, want) {
		t.Errorf("%v, want %v", counts, want)
	}
	for i := range 10 * maxKinds {
		ta.add(Outcome{Host: fmt.Sprintf("%d.test", i), Method: fmt.Sprint(i)})
	}
	ta.finish()
	if last := told[len(told)-1]; len(told) > maxKinds+100 || last.Host != "(others)" || last.Count < 9*maxKinds {
		t.Errorf("%d told, last %+v", len(told), last)
	}
}

func TestProxyEnv(t *testing.T) {
	env := ProxyEnv("127.0.0.1:8080")
	for _, want := range []string{"HTTPS_PROXY=http://127.0.0.1:8080", "http_proxy=http://127.0.0.1:8080", "NO_PROXY=localhost,127.0.0.1,::1"} {
		if !slices.Contains(env, want) {
			t.Errorf("no %s in %q", want, env)
		}
	}
}

// Whatever a client sends: the proxy stays up, answers within its bounds, tells
// one outcome at most and never connects to what is not allowed.
func FuzzExchange(f *testing.F) {
	for _, s := range []string{"CONNECT ok.test:443 HTTP/1.1\r\n\r\n", "GET http://ok.test/ HTTP/1.1\r\nHost: a\r\n\r\n", socksRequest("ok.test", "443"),
		"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50", "\x04\x01", "GET http://ok.test:81 HTTP/1.0\n\n", "\x16\x03\x01\x00\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		told := 0
		p := New(Options{
			Decide: func(host string, port int, method string) Decision {
				if h, err := Host(host); err != nil || h != host || port < 1 || port > 65535 || method == "" {
					t.Errorf("asked about %q:%d by %q", host, port, method)
				}
				return Decision{}
			},
			Log: func(o Outcome) {
				told++
				if o.Allowed || o.Addr != "" || strings.ContainsAny(o.Host+o.Reason, "\r\n\x1b") {
					t.Errorf("%+v", o)
				}
			},
		})
		client, server := net.Pipe()
		go func() {
			client.SetDeadline(time.Now().Add(time.Second))
			client.Write(data)
			client.SetReadDeadline(time.Now())
			client.Close()
		}()
		go io.Copy(io.Discard, client)
		p.handle(server)
		server.Close()
		if told > 1 {
			t.Errorf("%d outcomes", told)
		}
		p.Close(context.Background())
	})
}
