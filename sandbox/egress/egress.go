// Package egress is the door through which confined commands reach the network:
// a proxy in the runner that serves the connections they make to an address in
// their own network namespace.
//
//	p := egress.New(egress.Options{Decide: decide, Log: log})
//	go p.Serve(box.ProxyListener())
//	defer p.Close(ctx)
//
// It speaks HTTP (CONNECT, and forwarding of plain requests) and SOCKS5
// (CONNECT) on one port. It decides nothing: [Options.Decide] is asked about a
// name and a port. What it holds by itself, whatever the answer:
//
//   - Only names are connected to. A literal address is refused however it is
//     written.
//   - A name is resolved once, and the address that is really dialled is
//     checked: loopback, private, link-local, metadata and other special
//     addresses, and those of this machine, are refused, so that no name can be
//     bound to them afterwards.
//   - Tunnels lead to port 443 and plain requests to port 80, unless the rule
//     names the port.
//   - On port 443 the client must speak TLS and ask for the name it was allowed
//     to connect to; so must TLS on any other port.
//   - A plain request goes to the host of its URL, whatever its Host header
//     says; one request a connection.
//   - Everything is bounded, see [Bounds].
//
// What it does not see: the inside of TLS. Behind an allowed name another
// service of the same provider can answer (domain fronting), an encrypted
// ClientHello can ask for another name, and data can hide in allowed requests.
// For the same reason [Options.Limited] refuses tunnels: inside one, a POST
// looks like a GET.
package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Methods that are not HTTP methods.
const (
	Connect = "CONNECT"
	SOCKS5  = "SOCKS5"
)

// Decision is what policy says of one host and port.
type Decision struct {
	Allowed bool
	// PortNamed tells that the rule names the port. Without it a tunnel may only
	// lead to port 443 and a plain request to port 80.
	PortNamed bool
	Reason    string // clause, when refused: "it is not in allowed_domains"
	Rule      string // the pattern that decided
	Origin    string // file:line of the rule
}

// Outcome is what became of one connection.
type Outcome struct {
	Decision
	Method string // CONNECT, SOCKS5, GET, …; "" if the request could not be read
	Host   string // canonical name, or what was asked for if that is not a host name
	Port   int
	Addr   string // address that was dialled, if any
	// Error says why an allowed connection failed.
	Error string
	// Count is how often the same has come up so far, Since how often since it
	// was last reported. The first ten are reported one by one, later ones when
	// their number has doubled, and at the end.
	Count, Since int
}

// Options are the rules of a Proxy.
type Options struct {
	// Decide is asked about every connection with a valid name: lower case,
	// without a trailing dot. It may be called concurrently. Nil refuses all.
	Decide func(host string, port int, method string) Decision
	// Denies is asked about the address that a name leads to, right before it is
	// dialled: a list of denied hosts may hold addresses. It may be called
	// concurrently. Nil denies none.
	Denies func(addr netip.Addr, port int, method string) (Decision, bool)
	// Log gets every connection, refused or not; never concurrently.
	Log func(Outcome)
	// Limited allows plain GET, HEAD and OPTIONS requests without a body, and no
	// tunnel.
	Limited bool
	// AllowLocal lets names lead to loopback and private addresses, and to the
	// public ones that this machine has.
	AllowLocal bool
	// Resolver resolves names (nil: the system's).
	Resolver *net.Resolver
	Bounds
}

// Bounds are limits; a zero field is its default.
type Bounds struct {
	Connections int           // at the same time; more wait. 256
	HeaderBytes int64         // request line and header. 64 KiB
	HeaderTime  time.Duration // until the request, and the ClientHello, is complete. 10 s
	DialTime    time.Duration // name resolution and connect. 15 s
	IdleTime    time.Duration // without a byte in either direction. 5 min
	LifeTime    time.Duration // of a connection. 2 h
	Bytes       int64         // through one connection, both directions. 16 GiB
}

func (b Bounds) withDefaults() Bounds {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	if b.Connections == 0 {
		b.Connections = 256
	}
	if b.HeaderBytes == 0 {
		b.HeaderBytes = 64 << 10
	}
	if b.Bytes == 0 {
		b.Bytes = 16 << 30
	}
	set(&b.HeaderTime, 10*time.Second)
	set(&b.DialTime, 15*time.Second)
	set(&b.IdleTime, 5*time.Minute)
	set(&b.LifeTime, 2*time.Hour)
	return b
}

// Proxy serves connections. Its methods may be called concurrently.
type Proxy struct {
	o     Options
	ctx   context.Context
	stop  context.CancelFunc
	slots chan struct{}
	wg    sync.WaitGroup
	tally tally
	own   func() ([]netip.Addr, error) // ownAddresses, but in tests

	mu     sync.Mutex
	closed bool                   // guarded by mu
	open   map[io.Closer]struct{} // guarded by mu; listeners and connections
}

// New returns a proxy. It must be closed.
func New(o Options) *Proxy {
	o.Bounds = o.Bounds.withDefaults()
	if o.Decide == nil {
		o.Decide = func(string, int, string) Decision {
			return Decision{Reason: "no host is allowed"}
		}
	}
	p := &Proxy{o: o, slots: make(chan struct{}, o.Connections), open: map[io.Closer]struct{}{}, own: ownAddresses}
	p.tally.log = o.Log
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// Serve accepts connections until l or the proxy is closed, which is not an error.
func (p *Proxy) Serve(l net.Listener) error {
	if !p.enter(l) {
		return errors.Join(l.Close(), errors.New("egress: the proxy is closed"))
	}
	defer p.leave(l)
	pause := 5 * time.Millisecond
	for {
		select {
		case p.slots <- struct{}{}:
		case <-p.ctx.Done():
			return nil
		}
		conn, err := l.Accept()
		if err != nil {
			<-p.slots
			if p.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			// Out of descriptors, or a connection that was gone at once.
			select {
			case <-time.After(pause):
			case <-p.ctx.Done():
				return nil
			}
			pause = min(2*pause, time.Second)
			continue
		}
		pause = 5 * time.Millisecond
		if !p.enter(conn) {
			return conn.Close()
		}
		go func() {
			defer func() { <-p.slots }()
			defer p.leave(conn)
			p.handle(conn)
		}()
	}
}

// enter registers what Close has to close; it fails after that.
func (p *Proxy) enter(c io.Closer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.open[c] = struct{}{}
	p.wg.Add(1)
	return true
}

func (p *Proxy) leave(c io.Closer) {
	c.Close() // the other side has what it gets, or is gone
	p.mu.Lock()
	delete(p.open, c)
	p.mu.Unlock()
	p.wg.Done()
}

// Close closes the listeners, ends every connection and waits until all is
// done, at most until ctx ends. It is idempotent.
func (p *Proxy) Close(ctx context.Context) error {
	p.stop()
	p.mu.Lock()
	p.closed = true
	for c := range p.open {
		c.Close() // leave would do it later
	}
	p.mu.Unlock()
	done := make(chan struct{})
	go func() {
		p.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		p.tally.finish()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("egress: connections are still being closed: %w", context.Cause(ctx))
	}
}

// handle serves one connection.
func (p *Proxy) handle(conn net.Conn) {
	x := &exchange{p: p, client: conn, began: time.Now()}
	ctx, cancel := context.WithTimeout(p.ctx, p.o.LifeTime)
	defer cancel()
	// What Close or the life time ends must not sit in a read.
	defer context.AfterFunc(ctx, x.abort)()
	defer x.end()
	defer func() {
		// A flaw here must not take the run down; it must not be silent either.
		if r := recover(); r != nil {
			x.abort()
			x.out.Allowed, x.out.Error = false, fmt.Sprintf("internal error: %v", r)
			x.report()
		}
	}()
	x.limit = &io.LimitedReader{R: conn, N: p.o.HeaderBytes}
	x.in = bufio.NewReader(x.limit)
	if err := conn.SetDeadline(time.Now().Add(p.o.HeaderTime)); err != nil {
		return
	}
	first, err := x.in.Peek(1)
	if err != nil {
		return // nobody said anything
	}
	switch {
	case first[0] == 5:
		x.socks(ctx)
	case first[0] == 4:
		x.out.Method = "SOCKS4"
		x.refuse("only SOCKS5 is spoken here")
		x.write([]byte{0, 0x5b, 0, 0, 0, 0, 0, 0})
		x.linger()
	default:
		x.http(ctx)
	}
}
