//go:build linux

package sandbox

import (
	"net"
	"sync"
)

// proxyListener accepts what commands send to the proxy's address inside their
// network namespace. It outlives the namespace: when an init is replaced, the
// connections of the new one come out of the same listener.
type proxyListener struct {
	addr net.Addr

	mu      sync.Mutex
	now     net.Listener
	changed chan struct{} // closed when now changes
	closed  bool
}

func newProxyListener(l net.Listener) *proxyListener {
	return &proxyListener{addr: l.Addr(), now: l, changed: make(chan struct{})}
}

// Accept waits for a connection; it fails with net.ErrClosed after Close.
func (p *proxyListener) Accept() (net.Conn, error) {
	for {
		p.mu.Lock()
		now, changed, closed := p.now, p.changed, p.closed
		p.mu.Unlock()
		if closed {
			return nil, net.ErrClosed
		}
		c, err := now.Accept()
		if err == nil {
			return c, nil
		}
		p.mu.Lock()
		same := now == p.now && !p.closed
		p.mu.Unlock()
		if same {
			<-changed // the init is gone: wait for the next one or the end
		}
	}
}

// replace goes on with another listener.
func (p *proxyListener) replace(l net.Listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l == nil || p.closed {
		return
	}
	p.now = l
	close(p.changed)
	p.changed = make(chan struct{})
}

// Close ends Accept; the listener itself is closed with the init.
func (p *proxyListener) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	close(p.changed)
	if err := p.now.Close(); err != nil && !isClosed(err) {
		return err
	}
	return nil
}

// Addr is the address as commands see it.
func (p *proxyListener) Addr() net.Addr { return p.addr }
