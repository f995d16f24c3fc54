package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// verdictHeader marks the proxy's own answers: "refused" or "failed".
const verdictHeader = "X-Nightshift-Egress"

// http serves one HTTP request.
func (x *exchange) http(ctx context.Context) {
	req, err := http.ReadRequest(x.in)
	if err != nil {
		x.malformed(err)
		return
	}
	x.out.Method = req.Method
	if req.Method == Connect {
		x.connectMethod(ctx, req)
		return
	}
	x.forward(ctx, req)
}

func (x *exchange) malformed(err error) {
	switch {
	case x.limit.N <= 0:
		x.refuse(fmt.Sprintf("the request header has more than %d bytes", x.p.o.HeaderBytes))
		x.answer(http.StatusRequestHeaderFieldsTooLarge)
	case errors.Is(err, os.ErrDeadlineExceeded), time.Since(x.began) >= x.p.o.HeaderTime:
		// (The parser takes half a line at the deadline for a malformed one.)
		x.refuse("the request was not complete in time")
		x.answer(http.StatusRequestTimeout)
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		// The client went away before it asked for anything.
	default:
		x.refuse("this is not a request to an HTTP proxy: " + printable(err.Error(), 80))
		x.answer(http.StatusBadRequest)
	}
}

// connectMethod serves CONNECT.
func (x *exchange) connectMethod(ctx context.Context, req *http.Request) {
	host, port, err := hostPort(req.RequestURI)
	if err != nil {
		x.out.Host = printable(req.RequestURI, 80)
		x.refuse(err.Error())
		x.answer(http.StatusBadRequest)
		return
	}
	if !x.admit(host, port, 443) {
		x.answer(http.StatusForbidden)
		return
	}
	upstream, err := x.connect(ctx)
	if err != nil {
		x.answerFailure()
		return
	}
	if _, err := io.WriteString(x.client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		x.fail(err)
		return
	}
	x.tunnel(upstream)
}

// forward serves a plain request with an absolute URL.
func (x *exchange) forward(ctx context.Context, req *http.Request) {
	u := req.URL
	port := 80
	var err error
	if p := u.Port(); p != "" {
		port, err = parsePort(p)
	}
	switch {
	case err != nil:
	case u.Scheme == "":
		err = errors.New("this is a proxy: a request to it names the whole URL")
	case u.Scheme == "https":
		err = errors.New("https goes through a tunnel (CONNECT)")
	case u.Scheme != "http":
		err = fmt.Errorf("%s is not spoken here", printable(u.Scheme, 20))
	}
	if err != nil {
		x.out.Host = printable(u.Host, 80)
		x.refuse(err.Error())
		x.answer(http.StatusBadRequest)
		return
	}
	if !x.admit(u.Hostname(), port, 80) || !x.harmless(req) {
		x.answer(http.StatusForbidden)
		return
	}
	upstream, err := x.connect(ctx)
	if err != nil {
		x.answerFailure()
		return
	}
	x.start()
	x.exchangePlain(ctx, req, upstream)
}

// harmless holds limited mode.
func (x *exchange) harmless(req *http.Request) bool {
	if !x.p.o.Limited {
		return true
	}
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
	default:
		x.refuse("the network is in limited mode, which allows GET, HEAD and OPTIONS but not " + printable(req.Method, 20))
		return false
	}
	if req.ContentLength != 0 {
		x.refuse("the network is in limited mode, which allows no request with a body")
		return false
	}
	for name := range req.Header {
		if overridesMethod(name) {
			x.refuse("the network is in limited mode, and " + printable(name, 40) + " would make another request of it")
			return false
		}
	}
	return true
}

// overridesMethod tells whether servers take the method of a request from a
// field of this name. Many read an underscore as a dash.
func overridesMethod(name string) bool {
	switch strings.ToLower(strings.ReplaceAll(name, "_", "-")) {
	case "x-http-method-override", "x-http-method", "x-method-override":
		return true
	}
	return false
}

// exchangePlain sends the request on and the response back.
func (x *exchange) exchangePlain(ctx context.Context, req *http.Request, upstream net.Conn) {
	// One transport, one connection, one request: nothing is shared.
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return meteredConn{upstream, metered{upstream, x}}, nil
		},
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: x.p.o.HeaderBytes,
	}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(x.onward(ctx, req))
	if err != nil {
		x.fail(err)
		x.answerFailure()
		return
	}
	defer resp.Body.Close() // read to its end or given up
	x.report()
	dropHopByHop(resp.Header)
	resp.Close = true
	if !req.ProtoAtLeast(1, 1) {
		resp.TransferEncoding = nil // ends with the connection
	}
	if err := resp.Write(x.client); err == nil {
		x.linger()
	}
}

// meteredConn is a connection whose reads are counted.
type meteredConn struct {
	net.Conn
	metered
}

func (c meteredConn) Read(b []byte) (int, error) { return c.metered.Read(b) }

// onward makes the request that leaves: to the host of the URL, without what
// was meant for the proxy.
func (x *exchange) onward(ctx context.Context, req *http.Request) *http.Request {
	host := x.out.Host
	if x.out.Port != 80 {
		host = fmt.Sprintf("%s:%d", host, x.out.Port)
	}
	u := *req.URL
	u.Host, u.User, u.Fragment = host, nil, ""
	out := (&http.Request{
		Method: req.Method, URL: &u, Host: host, Header: req.Header.Clone(), Body: req.Body, ContentLength: req.ContentLength,
		TransferEncoding: req.TransferEncoding, ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	dropHopByHop(out.Header)
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // none, rather than Go's
	}
	if req.ContentLength == 0 {
		out.Body = nil
	} else {
		body := io.Reader(metered{req.Body, x})
		if strings.EqualFold(out.Header.Get("Expect"), "100-continue") {
			body = &continued{Reader: body, x: x}
		}
		out.Body = io.NopCloser(body)
	}
	out.Header.Del("Expect")
	return out
}

// continued asks a client that waits for it to send the body, when it is first
// wanted.
type continued struct {
	io.Reader
	x    *exchange
	done bool
}

func (c *continued) Read(b []byte) (int, error) {
	if !c.done {
		c.done = true
		c.x.write([]byte("HTTP/1.1 100 Continue\r\n\r\n"))
	}
	return c.Reader.Read(b)
}

// dropHopByHop removes the fields that are about one connection only.
func dropHopByHop(h http.Header) {
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings"} {
		h.Del(name)
	}
}

// answerFailure answers after a dial or a request that failed.
func (x *exchange) answerFailure() {
	if !x.out.Allowed {
		x.answer(http.StatusForbidden)
		return
	}
	x.answer(http.StatusBadGateway)
}

// answer is the proxy's own response. Clients show the status line of a failed
// CONNECT and not its body, so the words stand in both.
func (x *exchange) answer(status int) {
	verdict := "refused"
	if x.out.Allowed {
		verdict = "failed"
	}
	words := printable(x.words(), 400)
	x.deadline(lingerTime)
	w := bufio.NewWriter(x.client)
	fmt.Fprintf(w, "HTTP/1.1 %d %s\r\n%s: %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nDate: %s\r\nConnection: close\r\n\r\n",
		status, words, verdictHeader, verdict, len(words)+1, time.Now().UTC().Format(http.TimeFormat))
	if x.out.Method != http.MethodHead {
		fmt.Fprintf(w, "%s\n", words)
	}
	if w.Flush() == nil {
		x.linger()
	}
}
