package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// exchange is one connection of a client, and what becomes of it.
type exchange struct {
	p      *Proxy
	client net.Conn
	began  time.Time
	limit  *io.LimitedReader // under in: bounds the header
	in     *bufio.Reader
	out    Outcome
	told   bool

	mu       sync.Mutex
	upstream net.Conn    // guarded by mu
	aborted  bool        // guarded by mu
	idle     *time.Timer // ends the exchange; set before anything is copied
	bytes    atomic.Int64
}

// report tells the outcome, once.
func (x *exchange) report() {
	if !x.told {
		x.told = true
		x.p.tally.add(x.out)
	}
}

// refuse reports a refusal. The reason is a clause.
func (x *exchange) refuse(reason string) {
	x.out.Allowed, x.out.Reason = false, reason
	x.report()
}

// fail reports an allowed connection that did not work.
func (x *exchange) fail(err error) {
	x.out.Error = plainError(err)
	x.report()
}

// words say to the client what happened.
func (x *exchange) words() string {
	what := "nightshift egress"
	if x.out.Host != "" {
		what += ": " + x.out.Host
		if x.out.Port != 0 {
			what += fmt.Sprintf(":%d", x.out.Port)
		}
	}
	if x.out.Allowed {
		return what + " failed: " + x.out.Error
	}
	return what + " refused: " + x.out.Reason
}

// admit decides about the target. Refusals are reported.
func (x *exchange) admit(host string, port, usual int) bool {
	name, err := Host(host)
	if x.out.Host, x.out.Port = name, port; err != nil {
		x.out.Host = printable(host, 80)
		x.refuse(err.Error())
		return false
	}
	if port < 1 || port > 65535 { // SOCKS sends any number
		x.refuse(fmt.Sprintf("%d is no port", port))
		return false
	}
	tunnel := x.out.Method == Connect || x.out.Method == SOCKS5
	d := x.p.o.Decide(name, port, x.out.Method)
	x.out.Decision = d
	switch {
	case !d.Allowed:
		if d.Reason == "" {
			d.Reason = "it is not allowed"
		}
		x.refuse(d.Reason)
		return false
	case port != usual && !d.PortNamed:
		x.refuse(fmt.Sprintf("only port %d is open, unless the rule names another (%s:%d)", usual, name, port))
		return false
	case x.p.o.Limited && tunnel:
		x.refuse("the network is in limited mode, and what a tunnel carries cannot be seen")
		return false
	}
	return true
}

// connect dials the target. Refusals and failures are reported.
func (x *exchange) connect(ctx context.Context) (net.Conn, error) {
	// Dialling has its own bound; the client may wait for it.
	x.deadline(x.p.o.DialTime + x.p.o.HeaderTime)
	conn, err := x.p.dial(ctx, x.out.Host, x.out.Port, x.out.Method)
	if err != nil {
		var refused *refusedError
		if errors.As(err, &refused) {
			x.out.Addr = refused.addr
			if refused.by.Rule != "" {
				x.out.Rule, x.out.Origin = refused.by.Rule, refused.by.Origin
			}
			x.refuse(refused.Error())
		} else {
			x.fail(err)
		}
		return nil, err
	}
	x.out.Addr = conn.RemoteAddr().String()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.aborted {
		err := errors.Join(net.ErrClosed, conn.Close())
		x.fail(err)
		return nil, err
	}
	x.upstream = conn
	return conn, nil
}

// abort ends the exchange from outside.
func (x *exchange) abort() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.aborted = true
	x.client.Close() // the other side learns it by that
	if x.upstream != nil {
		x.upstream.Close()
	}
}

// end lets go of what the exchange holds besides the client's connection.
func (x *exchange) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.idle != nil {
		x.idle.Stop()
	}
	if x.upstream != nil {
		x.upstream.Close() // all that was to be sent has been
	}
}

func (x *exchange) deadline(d time.Duration) {
	_ = x.client.SetDeadline(time.Now().Add(d)) // fails only on a closed connection, as the next read does
}

// write sends a short answer. A client that is gone cannot be told anything.
func (x *exchange) write(b []byte) {
	_, _ = x.client.Write(b)
}

// Closing a connection with unread data discards the answer on its way: what
// the client still sends is read for a moment.
const (
	lingerTime  = time.Second
	lingerBytes = 1 << 20
)

func (x *exchange) linger() {
	if c, ok := x.client.(interface{ CloseWrite() error }); !ok || c.CloseWrite() != nil {
		return
	}
	x.deadline(lingerTime)
	_, _ = io.CopyN(io.Discard, x.client, lingerBytes)
}

// start begins the copying phase: deadlines give way to the idle timer and the
// count of bytes.
func (x *exchange) start() {
	x.limit.N = x.p.o.Bytes
	_ = x.client.SetDeadline(time.Time{}) // a closed connection fails later
	x.idle = time.AfterFunc(x.p.o.IdleTime, x.abort)
}

// metered counts what is read from a connection.
type metered struct {
	io.Reader
	x *exchange
}

var errBytes = errors.New("the connection carried more than it may")

func (m metered) Read(b []byte) (int, error) {
	n, err := m.Reader.Read(b)
	if n > 0 {
		m.x.idle.Reset(m.x.p.o.IdleTime)
		if m.x.bytes.Add(int64(n)) > m.x.p.o.Bytes {
			return 0, errBytes
		}
	}
	return n, err
}

// plainError is the cause of a network error without the addresses around it.
func plainError(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	var sys *os.SyscallError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "there is no such host"
	case errors.As(err, &dns):
		return "the name cannot be resolved: " + printable(dns.Err, 120)
	case errors.As(err, &sys):
		return sys.Err.Error()
	case errors.As(err, &op) && op.Timeout():
		return "the host does not answer in time"
	case errors.As(err, &op):
		return printable(op.Err.Error(), 200)
	}
	return printable(err.Error(), 200)
}

// printable is text from outside, fit for a status line and a log.
func printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), most)]
}
