package model

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// Bounds on what a server may make us hold. A real response is a few hundred
// kilobytes; these are only met by something that is broken or hostile.
const (
	maxEventBytes      = 32 << 20  // one event of the stream
	defaultMaxResponse = 128 << 20 // Options.MaxResponseBytes
	maxItemBytes       = 64 << 20  // the items kept of one response
	maxItems           = 10_000    // their number
	maxErrorBody       = 64 << 10  // the part of an error's body that is read
	maxHeaderBytes     = 1 << 20   // response headers
)

// Bounds on connecting.
const (
	dialTimeout = 15 * time.Second
	tlsTimeout  = 15 * time.Second
	// drainTimeout is how long a finished stream may take to end so that its
	// connection can be used again; the end mostly comes in the same packet.
	drainTimeout = 20 * time.Millisecond
)

// httpClient is the client's own, or a copy of the given one: never does either
// follow a redirect. A POST must not become a GET, and a credential must not go
// where the configuration did not send it.
func httpClient(o Options) *http.Client {
	var h http.Client
	if o.HTTP != nil {
		h = *o.HTTP
	} else {
		h.Transport = &http.Transport{
			Proxy:                  o.Proxy,
			DialContext:            (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout:    tlsTimeout,
			MaxResponseHeaderBytes: maxHeaderBytes,
			IdleConnTimeout:        90 * time.Second,
			MaxIdleConnsPerHost:    8,
			ForceAttemptHTTP2:      true,
		}
	}
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	h.Timeout = 0 // it would cut long streams; the watchdog bounds them
	return &h
}

// transportFailure classifies an error of sending the request or of waiting for
// the headers.
func transportFailure(err error) *failure {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // url.Error repeats the address, with its query
	}
	var (
		cert      *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		dns       *net.DNSError
		op        *net.OpError
	)
	switch {
	case errors.As(err, &cert), errors.As(err, &authority), errors.As(err, &host), errors.As(err, &invalid),
		errors.As(err, &record), errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error"):
		// The last two are how crypto/tls wraps alerts.
		return fail(ClassTLS, "Connection failed: "+err.Error()).because(err)
	case errors.As(err, &dns), errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"):
		return fail(ClassNetwork, "Connection failed: "+err.Error()).because(err).both().notReached()
	}
	return fail(ClassNetwork, textSending).because(err).hinting("%s", excerpt(err.Error(), 500)).both().notReached()
}

// streamBody is the body of a stream with its bounds. It also makes every line
// end a line feed, since openai-go's decoder knows no lone carriage return, and
// drops a byte order mark.
type streamBody struct {
	rc    io.ReadCloser
	most  int64 // bytes the response may have
	total int64 // bytes of the response
	event int64 // bytes since the last event; the decoder reads ahead, so about
	err   error // why reading stopped

	started bool
	cr      bool // the last byte was a carriage return
	closed  atomic.Bool
}

var (
	errEventTooLarge    = errors.New("an event is too large")
	errResponseTooLarge = errors.New("the response is too large")
)

// Read implements io.Reader.
func (b *streamBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	for {
		n, err := b.rc.Read(p)
		b.total += int64(n)
		b.event += int64(n)
		switch {
		case b.total > b.most:
			err = errResponseTooLarge
		case b.event > maxEventBytes:
			err = errEventTooLarge
		}
		b.err = err
		n = b.lines(p[:n])
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// lines rewrites p in place and returns the new length.
func (b *streamBody) lines(p []byte) int {
	out := 0
	if !b.started && len(p) > 0 {
		b.started = true
		if len(p) >= 3 && p[0] == 0xef && p[1] == 0xbb && p[2] == 0xbf {
			p = append(p[:0], p[3:]...)
		}
	}
	for _, c := range p {
		if c == '\n' && b.cr {
			b.cr = false
			continue
		}
		b.cr = c == '\r'
		if b.cr {
			c = '\n'
		}
		p[out] = c
		out++
	}
	return out
}

// Close implements io.Closer; it may be called more than once.
func (b *streamBody) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	return b.rc.Close()
}
