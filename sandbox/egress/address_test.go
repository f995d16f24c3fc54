package egress

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// A name that leads to a public address of this machine would reach what listens
// on all of its addresses.
func TestOwnAddresses(t *testing.T) {
	dns := newDNS(t, map[string][][]string{
		"four.test": {{"198.51.100.10"}}, "six.test": {{"2001:db8::7"}}, "mapped.test": {{"::ffff:198.51.100.10"}},
	})
	own := []netip.Addr{netip.MustParseAddr("198.51.100.10"), netip.MustParseAddr("2001:db8::7")}
	w := newWorld(t, Options{Resolver: dns.resolver()}, "*")
	w.proxy.own = func() ([]netip.Addr, error) { return own, nil }
	for _, name := range []string{"four.test", "six.test", "mapped.test"} {
		if got := w.raw("CONNECT " + name + ":443 HTTP/1.1\r\n\r\n"); !strings.Contains(got, " 403 ") || !strings.Contains(got, "an address of this machine") {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, o := range w.outcomes(3) {
		if o.Allowed || o.Addr == "" {
			t.Errorf("%+v", o)
		}
	}
}

func TestMayDialOwn(t *testing.T) {
	at := netip.MustParseAddr("198.51.100.10")
	for _, c := range []struct {
		name string
		own  func() ([]netip.Addr, error)
		want [2]bool // refused, refused with AllowLocal
	}{
		{"own", func() ([]netip.Addr, error) { return []netip.Addr{at}, nil }, [2]bool{true, false}},
		{"another's", func() ([]netip.Addr, error) { return []netip.Addr{at.Next()}, nil }, [2]bool{}},
		{"unknown", func() ([]netip.Addr, error) { return nil, errors.New("no list") }, [2]bool{true, false}},
	} {
		for i, local := range []bool{false, true} {
			p := &Proxy{o: Options{AllowLocal: local}, own: c.own}
			if got := p.mayDial(at, 443, Connect) != nil; got != c.want[i] {
				t.Errorf("%s, local %v: refused %v", c.name, local, got)
			}
		}
	}
	list, err := ownAddresses()
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(list, netip.Addr.IsLoopback) {
		t.Errorf("loopback is among %v", list)
	}
}

// A list of denied hosts may hold an address: a name is no way around it.
func TestDeniedAddress(t *testing.T) {
	dns := newDNS(t, map[string][][]string{"a.test": {{"127.0.0.1"}}, "b.test": {{"::ffff:127.0.0.1"}}})
	var asked []netip.Addr
	w := newWorld(t, Options{Resolver: dns.resolver(), AllowLocal: true, Denies: func(a netip.Addr, port int, method string) (Decision, bool) {
		asked = append(asked, a)
		return Decision{Reason: "it is on a list", Rule: "127.0.0.1", Origin: "here:1"}, port == 443 && method == Connect
	}}, "*")
	for _, name := range []string{"a.test", "b.test"} {
		if got := w.raw("CONNECT " + name + ":443 HTTP/1.1\r\n\r\n"); !strings.Contains(got, "403 nightshift egress: "+name+":443 refused: it resolves to 127.0.0.1, and it is on a list") {
			t.Errorf("%q", got)
		}
	}
	for _, o := range w.outcomes(2) {
		if o.Allowed || o.Rule != "127.0.0.1" || o.Origin != "here:1" || o.Addr != "127.0.0.1" {
			t.Errorf("%+v", o)
		}
	}
	for _, a := range asked {
		if a != netip.MustParseAddr("127.0.0.1") {
			t.Errorf("asked about %v", a)
		}
	}
}
