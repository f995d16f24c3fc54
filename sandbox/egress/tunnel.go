package egress

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// tunnel copies in both directions once the client's first bytes are accepted.
func (x *exchange) tunnel(upstream net.Conn) {
	var head []byte
	if x.out.Port == 443 {
		// Nothing flows before the client has named the host.
		x.limit.N = maxHello
		x.deadline(x.p.o.HeaderTime)
		var ok bool
		if head, ok = x.inspect(); !ok {
			return
		}
		x.report()
	}
	x.start()
	var wg sync.WaitGroup
	wg.Go(func() { x.copy(x.client, metered{upstream, x}) })
	// On other ports the server may speak first, and the client whatever it
	// likes; but where it is TLS, the name must be the one that was allowed.
	ok := true
	if head == nil {
		if first, err := x.in.Peek(1); err == nil && first[0] == recordHandshake {
			head, ok = x.inspect()
		}
	}
	x.report()
	if ok {
		_, err := upstream.Write(head)
		ok = err == nil
	}
	if ok {
		x.copy(upstream, metered{x.in, x})
	} else {
		x.abort()
	}
	wg.Wait()
}

// copy moves bytes until their end, and passes the end on. An error ends both
// directions.
func (x *exchange) copy(to net.Conn, from io.Reader) {
	if _, err := io.Copy(onlyWriter{to}, from); err != nil {
		x.abort()
		return
	}
	if c, ok := to.(interface{ CloseWrite() error }); !ok || c.CloseWrite() != nil {
		x.abort()
	}
}

// onlyWriter hides ReadFrom, which would bypass the meter.
type onlyWriter struct{ io.Writer }

const (
	recordHandshake = 22
	// maxHello bounds a ClientHello; big ones (post-quantum keys, tickets) have
	// a few KiB.
	maxHello = 64 << 10
)

// alertUnrecognizedName is the TLS alert that says so, fatal: clients print it.
var alertUnrecognizedName = []byte{21, 3, 1, 0, 2, 2, 112}

// inspect reads the ClientHello and compares the name in it. It returns what
// was read, to be sent on; refusals are reported and answered.
func (x *exchange) inspect() (read []byte, ok bool) {
	name, read, err := readHello(x.in)
	switch {
	case err == nil && strings.EqualFold(name, x.out.Host):
		return read, true
	case err == nil && name == "":
		x.refuse("the TLS client does not say which server it wants (SNI)")
	case err == nil:
		x.refuse(fmt.Sprintf("the TLS client asks for another server, %s (SNI)", printable(name, 80)))
	case len(read) == 0:
		// The client went away, or kept silent until the deadline.
		x.out.Error = "the client sent nothing"
		x.report()
		return nil, false
	default:
		x.refuse("the client does not speak TLS, which port 443 is for")
	}
	x.deadline(lingerTime)
	x.write(alertUnrecognizedName)
	x.linger()
	return nil, false
}

var errHello = errors.New("the ClientHello was read")

// readHello reads a ClientHello with the parser of crypto/tls, in as many
// records as it comes, and gives everything it read.
func readHello(r io.Reader) (name string, read []byte, err error) {
	conn := &helloConn{r: r}
	err = tls.Server(conn, &tls.Config{
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			name = h.ServerName
			return nil, errHello
		},
	}).Handshake()
	if errors.Is(err, errHello) {
		err = nil
	} else if err == nil {
		err = errors.New("no ClientHello") // cannot be: the callback ends the handshake
	}
	return name, conn.read, err
}

// helloConn records what is read and swallows what is written.
type helloConn struct {
	r    io.Reader
	read []byte
}

func (c *helloConn) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.read = append(c.read, b[:n]...)
	return n, err
}

func (c *helloConn) Write(b []byte) (int, error)      { return len(b), nil }
func (c *helloConn) Close() error                     { return nil }
func (c *helloConn) LocalAddr() net.Addr              { return nil }
func (c *helloConn) RemoteAddr() net.Addr             { return nil }
func (c *helloConn) SetDeadline(time.Time) error      { return nil }
func (c *helloConn) SetReadDeadline(time.Time) error  { return nil }
func (c *helloConn) SetWriteDeadline(time.Time) error { return nil }
