package egress

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// special are the addresses that are not public hosts. The first that fits
// counts. Where local is set, Options.AllowLocal allows them.
var special = []struct {
	prefix netip.Prefix
	local  bool
	what   string
}{
	{netip.MustParsePrefix("127.0.0.0/8"), true, "a loopback address"},
	{netip.MustParsePrefix("::1/128"), true, "a loopback address"},
	{netip.MustParsePrefix("169.254.0.0/16"), false, "a link-local address, as cloud metadata has"},
	{netip.MustParsePrefix("168.63.129.16/32"), false, "a metadata address"},
	{netip.MustParsePrefix("fd00:ec2::/32"), false, "a metadata address"},
	{netip.MustParsePrefix("fd20:ce::/32"), false, "a metadata address"},
	{netip.MustParsePrefix("fd00:42::42/128"), false, "a metadata address"},
	{netip.MustParsePrefix("10.0.0.0/8"), true, "a private address"},
	{netip.MustParsePrefix("172.16.0.0/12"), true, "a private address"},
	{netip.MustParsePrefix("192.168.0.0/16"), true, "a private address"},
	{netip.MustParsePrefix("fc00::/7"), true, "a private address"},
	{netip.MustParsePrefix("100.64.0.0/10"), false, "a shared address"},
	{netip.MustParsePrefix("0.0.0.0/8"), false, "an unspecified address"},
	{netip.MustParsePrefix("192.0.0.0/24"), false, "a reserved address"},
	{netip.MustParsePrefix("192.88.99.0/24"), false, "a relay address"},
	{netip.MustParsePrefix("198.18.0.0/15"), false, "a benchmarking address"},
	{netip.MustParsePrefix("224.0.0.0/3"), false, "a multicast or reserved address"},
	{netip.MustParsePrefix("0.0.0.0/0"), true, ""},
	{netip.MustParsePrefix("2001::/23"), false, "a reserved address"},
	{netip.MustParsePrefix("2002::/16"), false, "an address that embeds another"},
	{netip.MustParsePrefix("2000::/3"), true, ""},
	{netip.MustParsePrefix("fe80::/10"), false, "a link-local address"},
	{netip.MustParsePrefix("64:ff9b::/32"), false, "an address that embeds another"},
	{netip.MustParsePrefix("::/0"), false, "no public address"},
}

// whyNot tells what forbids connecting to a, "" if nothing does.
func whyNot(a netip.Addr, allowLocal bool) string {
	if a.Zone() != "" {
		return "a link-local address"
	}
	a = a.Unmap()
	for _, s := range special {
		if s.prefix.Contains(a) {
			if s.local && allowLocal {
				return ""
			}
			return s.what
		}
	}
	return "no address"
}

// ownAddresses are the addresses that the machine has on its networks. A public
// one is as good as loopback to reach a service that listens on all of them. What
// is put on the loopback device does not count: special has what belongs there,
// and test rigs put a whole internet on it.
func ownAddresses() ([]netip.Addr, error) {
	devices, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	own := addresses(list)
	for _, d := range devices {
		if d.Flags&net.FlagLoopback == 0 {
			continue
		}
		list, err := d.Addrs()
		if err != nil {
			return nil, err
		}
		at := addresses(list)
		own = slices.DeleteFunc(own, func(a netip.Addr) bool { return slices.Contains(at, a) })
	}
	return own, nil
}

func addresses(list []net.Addr) (out []netip.Addr) {
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				out = append(out, addr.Unmap())
			}
		}
	}
	return out
}

// refusedError is a name that leads where it must not.
type refusedError struct {
	addr, what string
	by         Decision // of Options.Denies, if that refused it
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("it resolves to %s, %s", e.addr, e.what)
}

// mayDial checks an address that is about to be dialled.
func (p *Proxy) mayDial(a netip.Addr, port int, method string) *refusedError {
	what := whyNot(a, p.o.AllowLocal)
	a = a.Unmap()
	if what == "" && !p.o.AllowLocal {
		if own, err := p.own(); err != nil {
			what = "which may be an address of this machine: its addresses cannot be listed"
		} else if slices.Contains(own, a) {
			what = "an address of this machine"
		}
	}
	if what != "" {
		return &refusedError{addr: a.String(), what: what}
	}
	if p.o.Denies != nil {
		if d, denied := p.o.Denies(a, port, method); denied {
			return &refusedError{a.String(), "and " + d.Reason, d}
		}
	}
	return nil
}

// dial resolves host and connects to it. Each address is checked when it is
// about to be dialled, so it does not matter what another lookup would say.
func (p *Proxy) dial(ctx context.Context, host string, port int, method string) (net.Conn, error) {
	var mu sync.Mutex
	var refused *refusedError
	d := net.Dialer{
		Timeout:  p.o.DialTime,
		Resolver: p.o.Resolver,
		ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil || !strings.HasPrefix(network, "tcp") {
				return fmt.Errorf("%s %s is not an address that can be dialled", network, address)
			}
			if e := p.mayDial(at.Addr(), port, method); e != nil {
				mu.Lock()
				defer mu.Unlock()
				refused = e
				return e
			}
			return nil
		},
	}
	name := host
	if strings.Contains(name, ".") {
		name += "." // the search list of the system is not for us
	}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(name, strconv.Itoa(port)))
	mu.Lock()
	defer mu.Unlock()
	if err != nil && refused != nil {
		return nil, refused
	}
	return conn, err
}
