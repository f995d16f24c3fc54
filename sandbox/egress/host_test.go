package egress

import (
	"net/netip"
	"strings"
	"testing"
)

func TestHost(t *testing.T) {
	for in, want := range map[string]string{
		"example.com": "example.com", "EXAMPLE.com.": "example.com", "a_b-c.x1": "a_b-c.x1", "localhost": "localhost",
		"xn--bcher-kva.example": "xn--bcher-kva.example", "1.2.3.4.example": "1.2.3.4.example", "0xg.com": "0xg.com", "3com": "3com",
		"a.0x": "error", "": "error", ".": "error", "..": "error", "example.com..": "error", ".example.com": "error", "a..b": "error",
		"127.0.0.1": "error", "127.1": "error", "2130706433": "error", "0x7f.1": "error", "0x7f000001": "error", "017700000001": "error",
		"1.2.3.4.": "error", "1.2.3": "error", "::1": "error", "[::1]": "error", "::ffff:127.0.0.1": "error", "fe80::1%eth0": "error",
		"example.com.127": "error", "a.0xfF": "error", "bücher.example": "error", "a b": "error", "a\x00.com": "error", "a/b": "error",
		"user@example.com": "error", "example.com:80": "error", "*.example.com": "error", "%65xample.com": "error", "a\n": "error",
		"①.com": "error", "example。com": "error",
		strings.Repeat("a", 64) + ".com": "error", strings.Repeat("a.", 127) + "com": "error", strings.Repeat("a", 63) + ".com": strings.Repeat("a", 63) + ".com",
	} {
		got, err := Host(in)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("Host(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestPattern(t *testing.T) {
	for _, c := range []struct {
		pattern string
		yes, no string // "host" or "host:port", separated by blanks
	}{
		{"example.com", "example.com example.com:8080", "www.example.com xexample.com example.com.evil.test com example"},
		{"Example.COM.", "example.com", "www.example.com"},
		{"*.example.com", "www.example.com a.b.example.com", "example.com xexample.com wwwexample.com"},
		{"**.example.com", "example.com www.example.com a.b.example.com", "xexample.com example.com.evil.test"},
		{"*", "example.com localhost", ""},
		{"*:8443", "example.com:8443", "example.com"},
		{"example.com:8443", "example.com:8443", "example.com example.com:443 www.example.com:8443"},
		{"**.example.com:22", "git.example.com:22 example.com:22", "git.example.com"},
	} {
		p, err := ParsePattern(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		for list, want := range map[string]bool{c.yes: true, c.no: false} {
			for _, target := range strings.Fields(list) {
				host, port := target, 443
				if h, n, err := hostPort(target); err == nil {
					host, port = h, n
				}
				if p.Match(host, port) != want {
					t.Errorf("%s matches %s: %v", c.pattern, target, !want)
				}
			}
		}
	}
	for _, bad := range []string{"", ".", "https://example.com", "10.0.0.0/8", "127.0.0.1", "::1", "[::1]:80", "a.*.com", "*example.com", "example.*",
		"**", "*.*", "*.", "**.", "*.127.0.0.1", "example.com:0", "example.com:x", "example.com:65536", "example.com:+1", "bücher.example", "a b", "***.a"} {
		if p, err := ParsePattern(bad); err == nil {
			t.Errorf("%q was taken: %+v", bad, p)
		}
	}
	if (Pattern{}).Match("example.com", 443) || (Pattern{}).Match("", 0) {
		t.Error("the zero Pattern matches")
	}
}

func TestRules(t *testing.T) {
	r, err := newRules([]string{"**.example.com", "git.example.com:22", "*.evil.test"}, []string{"secret.example.com", "**.evil.test"})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		"example.com:443": "**.example.com", "git.example.com:22": "git.example.com:22!", "git.example.com:443": "**.example.com",
		"secret.example.com:443": "", "x.evil.test:443": "", "other.test:443": "",
	} {
		host, port, _ := hostPort(target)
		d := r.decide(host, port, Connect)
		got := d.Rule
		if d.PortNamed {
			got += "!"
		}
		if !d.Allowed {
			got = ""
			if d.Reason == "" {
				t.Errorf("%s: no reason", target)
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
	if _, err := newRules([]string{"a b", "ok.test"}, []string{"1.2.3.4"}); err == nil || !strings.Contains(err.Error(), "a b") || !strings.Contains(err.Error(), "1.2.3.4") {
		t.Errorf("not all mistakes: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	for list, want := range map[string][2]bool{ // allowed, allowed with AllowLocal
		"93.184.216.34 8.8.8.8 2606:4700::1111 ::ffff:8.8.8.8 198.51.100.10 2a00::1":                                                           {true, true},
		"127.0.0.1 127.9.9.9 ::1 ::ffff:127.0.0.1 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 fc00::1 fdab::1 ::ffff:10.1.2.3":              {false, true},
		"169.254.169.254 ::ffff:169.254.169.254 169.254.170.2 168.63.129.16 100.100.100.200 100.64.0.1 192.0.0.192 fd00:ec2::254 fd20:ce::254": {},
		"0.0.0.0 0.1.2.3 255.255.255.255 240.0.0.1 224.0.0.1 198.18.0.1 198.19.255.255 192.88.99.1 :: ::2 ::127.0.0.1":                         {},
		"64:ff9b::7f00:1 64:ff9b:1::1 2002:7f00:1:: 2001::1 2001:0:53aa::1 fec0::1 fe80::1 ff02::1 100::1 5f00::1 4000::1 ::ffff:0:127.0.0.1":  {},
		"fe80::1%lo 8::8": {},
	} {
		for _, s := range strings.Fields(list) {
			a := netip.MustParseAddr(s)
			if got := [2]bool{whyNot(a, false) == "", whyNot(a, true) == ""}; got != want {
				t.Errorf("%s: %v (%s), want %v", s, got, whyNot(a, false), want)
			}
		}
	}
}

// Whatever is written as a host: what is taken is a name, stays the same when
// taken again, and no name is also an address.
func FuzzHost(f *testing.F) {
	for _, s := range []string{"example.com", "EXAMPLE.com.", "127.0.0.1", "0x7f.1", "::1", "a..b", "xn--a", "1.2.3.4.5", "0", "017700000001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, err := Host(s)
		if err != nil {
			if name != "" {
				t.Fatalf("%q: an error and %q", s, name)
			}
			return
		}
		if again, err := Host(name); err != nil || again != name {
			t.Fatalf("%q, then %q, %v", name, again, err)
		}
		if again, err := Host(name + "."); err != nil || again != name {
			t.Fatalf("%q with a dot: %q, %v", name, again, err)
		}
		if name != strings.ToLower(name) || strings.HasSuffix(name, ".") || strings.ContainsAny(name, "/:@ %\\[]*?#") {
			t.Fatalf("%q", name)
		}
		if _, err := netip.ParseAddr(name); err == nil {
			t.Fatalf("%q is an address", name)
		}
		if last := name[strings.LastIndexByte(name, '.')+1:]; strings.Trim(last, "0123456789") == "" {
			t.Fatalf("%q may be read as an address", name)
		}
	})
}

// A pattern matches what it says and nothing that only looks like it.
func FuzzPattern(f *testing.F) {
	for _, s := range [][2]string{{"example.com", "example.com"}, {"*.example.com", "a.example.com"}, {"**.x.test:22", "x.test"}, {"*", "a"}, {"*.a:1", "b.a"}} {
		f.Add(s[0], s[1], uint16(22))
	}
	f.Fuzz(func(t *testing.T, pattern, host string, port uint16) {
		p, err := ParsePattern(pattern)
		if err != nil {
			if p.Match(host, int(port)) {
				t.Fatalf("%q is an error and matches", pattern)
			}
			return
		}
		host, err = Host(host)
		if err != nil {
			return
		}
		got := p.Match(host, int(port))
		// The same, said in another way.
		text, named, hasPort := strings.Cut(strings.ToLower(pattern), ":")
		text = strings.TrimSuffix(text, ".")
		base := strings.TrimPrefix(strings.TrimPrefix(text, "**."), "*.")
		inside := len(host) > len(base) && host[len(host)-len(base):] == base && host[len(host)-len(base)-1] == '.'
		want := text == "*" || strings.HasPrefix(text, "*.") && inside || strings.HasPrefix(text, "**.") && (inside || host == base) || !strings.HasPrefix(text, "*") && host == base
		if n, err := parsePort(named); hasPort && (err != nil || n != int(port)) {
			want = false
		}
		if got != want {
			t.Fatalf("%q matches %q:%d: %v", pattern, host, port, got)
		}
	})
}
