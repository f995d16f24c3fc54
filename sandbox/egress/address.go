package egress

import (
	"context"
	"fmt"
	"net"
	"net/netip"
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

// refusedError is a name that leads where it must not.
type refusedError struct{ addr, what string }

func (e *refusedError) Error() string {
	return fmt.Sprintf("it resolves to %s, %s", e.addr, e.what)
}

// dial resolves host and connects to it. Each address is checked when it is
// about to be dialled, so it does not matter what another lookup would say.
func (p *Proxy) dial(ctx context.Context, host string, port int) (net.Conn, error) {
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
			if what := whyNot(at.Addr(), p.o.AllowLocal); what != "" {
				mu.Lock()
				defer mu.Unlock()
				refused = &refusedError{at.Addr().String(), what}
				return refused
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
