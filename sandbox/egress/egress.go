// Package egress is the door through which confined commands reach the network.
package egress

import (
	"context"
	"net"
)

// Decision is what policy says of one host and port.
type Decision struct {
	Allowed bool
	// PortNamed: the rule names this port, so that it is allowed besides 443
	// for tunnels and 80 for plain HTTP.
	PortNamed bool
	Reason    string // sentence, when refused
	Rule      string // the pattern that decided
	Origin    string // file:line of the rule
}

// Outcome is what became of one connection.
type Outcome struct {
	Decision
	Method string // CONNECT, SOCKS5, GET, …
	Host   string
	Port   int
	Addr   string // address dialled, if any
	Error  string // why an allowed connection failed
	Count  int    // how often the same was seen so far
}

// Options are the rules of a Proxy.
type Options struct {
	Decide     func(host string, port int, method string) Decision
	Log        func(Outcome)
	Limited    bool // only GET, HEAD and OPTIONS over plain HTTP
	AllowLocal bool // names may resolve to loopback and private addresses
	Resolver   *net.Resolver
}

// Proxy serves connections.
type Proxy struct{ o Options }

// New returns a proxy.
func New(o Options) *Proxy { return &Proxy{o: o} }

// Serve accepts connections until the listener or the proxy is closed.
func (p *Proxy) Serve(l net.Listener) error { return net.ErrClosed }

// Close ends every connection and waits, at most until ctx ends.
func (p *Proxy) Close(ctx context.Context) error { return nil }

// ProxyEnv are the variables that send a command's clients to the proxy.
func ProxyEnv(addr string) []string { return nil }

// Pattern is one host pattern.
type Pattern struct{ text string }

// ParsePattern reads "host", "*.host", "**.host" or "*", with an optional ":port".
func ParsePattern(s string) (Pattern, error) { return Pattern{s}, nil }

// Match tells whether host matches.
func (p Pattern) Match(host string, port int) bool { return false }

// Rules are allow and deny lists.
type Rules struct{ allow, deny []Pattern }

// NewRules parses both lists.
func NewRules(allow, deny []string) (*Rules, error) { return &Rules{}, nil }

// Decide applies the rules: a deny wins.
func (r *Rules) Decide(host string, port int, method string) Decision { return Decision{} }
