package policy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestHost(t *testing.T) {
	net := "[permissions.network]\nenabled = true\nallowed_domains = [\"a.example\", \"*.sub.example\", \"**.both.example\", \"10.1.2.3\"]\ndenied_domains = [\"bad.sub.example\"]\n"
	for _, c := range []struct {
		name, config, rules, requirements string
		allow, deny                       []string // "host" or "METHOD host"
	}{
		{"off", "", "", "", nil, []string{"a.example"}},
		{"list", net, "", "", []string{"a.example", "A.Example.", "x.sub.example", "y.x.sub.example", "both.example", "x.both.example", "10.1.2.3", "POST a.example", "SOCKS a.example"},
			[]string{"b.example", "sub.example", "bad.sub.example", "aa.example", "a.example.evil", "notboth.example", "10.1.2.4", "1.2.3.4", "", "a b"}},
		{"any", "[permissions.network]\nenabled = true\nallowed_domains = [\"*\"]\ndenied_domains = [\"**.bad.example\"]", "", "", []string{"a.example"}, []string{"bad.example", "x.bad.example", "10.0.0.1", "169.254.169.254", "::1"}},
		{"limited", strings.Replace(net, "enabled", "mode = \"limited\"\nenabled", 1), "", "", []string{"GET a.example", "HEAD a.example", "OPTIONS a.example", "get a.example"}, []string{"POST a.example", "CONNECT a.example", "SOCKS a.example"}},
		{"rules", net, "network_rule(host=\"a.example\", protocol=\"http\", decision=\"deny\", justification=\"no\")\nnetwork_rule(host=\"r.example\", protocol=\"https\", decision=\"allow\")\nnetwork_rule(host=\"p.example\", protocol=\"https\", decision=\"prompt\")", "",
			[]string{"CONNECT r.example", "x.sub.example"}, []string{"a.example", "GET a.example", "GET r.example", "p.example"}},
		{"requirements", net, "", "[experimental_network]\nallowed_domains = [\"**.sub.example\", \"b.example\"]\n", []string{"x.sub.example"}, []string{"a.example", "b.example", "both.example"}},
		{"review", net, "", "[experimental_network]\nreview_domains = [\"a.example\"]\n", []string{"x.sub.example"}, []string{"a.example"}},
		{"host network", "sandbox_mode = \"workspace-write\"\n[sandbox_workspace_write]\nnetwork_access = true", "", "", []string{"a.example", "10.0.0.1"}, nil},
		{"host network with a denial", "sandbox_mode = \"workspace-write\"\n[sandbox_workspace_write]\nnetwork_access = true", "network_rule(host=\"a.example\", protocol=\"https\", decision=\"forbidden\")", "", []string{"b.example"}, []string{"a.example"}},
		{"profile", "default_permissions = \"p\"\n[permissions.p]\nextends = \":workspace\"\n[permissions.p.network]\nenabled = true\n[permissions.p.network.domains]\n\"a.example\" = \"allow\"\n", "", "", []string{"a.example"}, []string{"b.example"}},
		{"network_proxy blocks all", "sandbox_mode = \"workspace-write\"\n[sandbox_workspace_write]\nnetwork_access = true\n[features]\nnetwork_proxy = true", "", "", nil, []string{"a.example"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := load(t, map[string]string{"home/config.toml": c.config, "home/rules/n.rules": c.rules, "etc/requirements.toml": c.requirements})
			ask := func(subject string) HostDecision {
				method, host, two := strings.Cut(subject, " ")
				if !two {
					method, host = "CONNECT", subject
				}
				if method == "SOCKS" {
					method = ""
				}
				return p.Host(host, 443, method)
			}
			for _, s := range c.allow {
				if d := ask(s); !d.Allowed {
					t.Errorf("%q is refused: %s", s, d.Reason)
				}
			}
			for _, s := range c.deny {
				if d := ask(s); d.Allowed || d.Reason == "" {
					t.Errorf("%q is allowed, or refused without a reason: %+v", s, d)
				}
			}
		})
	}
	p := load(t, map[string]string{"home/config.toml": net})
	if d := p.Host("bad.sub.example", 443, "CONNECT"); d.Origin != "/home/u/.codex/config.toml:4" || d.Rule != "bad.sub.example" {
		t.Errorf("where it was denied: %+v", d)
	}
}

// An address can be on the list, but is never connected to: that is told, with
// the line it stands in.
func TestAddressesAreTold(t *testing.T) {
	p := load(t, map[string]string{"home/config.toml": "[permissions.network]\nenabled = true\n" +
		"allowed_domains = [\"a.example\", \"*\", \"10.1.2.3\", \"[2001:db8::1]:8080\"]\ndenied_domains = [\"10.9.9.9\"]\n"})
	var told []string
	for _, n := range p.Notices() {
		if n.Class == "address_not_allowed" {
			host, _, _ := strings.Cut(n.Message, " ")
			told = append(told, n.Origin+" "+host)
		}
	}
	at := "/home/u/.codex/config.toml:3 "
	if want := []string{at + "10.1.2.3", at + "[2001:db8::1]:8080"}; !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q: %+v", told, want, p.Notices())
	}
}

// A pattern with a port allows that port alone; one that denies holds for all.
func TestHostPorts(t *testing.T) {
	const config = "[permissions.network]\nenabled = true\nallowed_domains = [\"a.example:8443\", \"*.sub.example:9000\", \"free.example\", \"[2001:db8::1]:8443\", \"2001:db8::2\"]\n" +
		"denied_domains = [\"bad.sub.example:1\"]\n"
	p := load(t, map[string]string{"home/config.toml": config})
	for _, c := range []struct {
		host string
		port int
		rule string // "": refused
	}{
		{"a.example", 8443, "a.example:8443"}, {"A.Example.", 8443, "a.example:8443"}, {"a.example", 443, ""}, {"a.example", 84430, ""},
		{"x.sub.example", 9000, "*.sub.example:9000"}, {"x.sub.example", 443, ""}, {"bad.sub.example", 9000, ""},
		{"free.example", 443, "free.example"}, {"free.example", 25, "free.example"}, // which ports without a name are served is the proxy's to say
		{"2001:db8::1", 8443, "[2001:db8::1]:8443"}, {"2001:db8::1", 443, ""}, {"2001:db8::2", 443, "2001:db8::2"},
	} {
		d := p.Host(c.host, c.port, "CONNECT")
		if d.Allowed != (c.rule != "") || d.Allowed && (d.Rule != c.rule || d.Origin == "") || !d.Allowed && d.Reason == "" {
			t.Errorf("%s:%d: %+v", c.host, c.port, d)
		}
	}
	p = load(t, map[string]string{"home/config.toml": "[permissions.network]\nenabled = true\nallowed_domains = [\"*:8443\", \"a.example\"]\n",
		"etc/requirements.toml": "[experimental_network]\nallowed_domains = [\"a.example:443\", \"b.example\"]\n"})
	for _, c := range []struct {
		host string
		port int
		want bool
	}{{"a.example", 443, true}, {"a.example", 8443, false}, {"b.example", 8443, true}, {"b.example", 443, false}, {"10.0.0.1", 8443, false}} {
		if d := p.Host(c.host, c.port, "CONNECT"); d.Allowed != c.want {
			t.Errorf("%s:%d: %+v", c.host, c.port, d)
		}
	}
}

// Where several patterns fit, the one that names the port decides: without it the
// proxy keeps the port shut.
func TestHostPortNamedFirst(t *testing.T) {
	for _, list := range []string{`"a.example", "a.example:8443"`, `"a.example:8443", "a.example"`, `"*", "a.example:8443"`} {
		p := load(t, map[string]string{"home/config.toml": "[permissions.network]\nenabled = true\nallowed_domains = [" + list + "]\n"})
		if d := p.Host("a.example", 8443, "CONNECT"); !d.Allowed || d.Rule != "a.example:8443" {
			t.Errorf("[%s]: %+v", list, d)
		}
		if d := p.Host("a.example", 443, "CONNECT"); !d.Allowed || d.Rule == "a.example:8443" {
			t.Errorf("[%s], another port: %+v", list, d)
		}
	}
}

// An address that is denied is denied behind a name, too; any other is not
// refused for being on no list.
func TestAddressDenied(t *testing.T) {
	const open = "[permissions.network]\nenabled = true\nallowed_domains = [\"*\"]\n"
	for _, c := range []struct{ name, config, rules, requirements, rule string }{
		{"list", open + "denied_domains = [\"**.bad.example\", \"198.51.100.7\"]", "", "", "198.51.100.7"},
		{"list, mapped and with a port", open + "denied_domains = [\"[::ffff:198.51.100.7]:80\"]", "", "", "198.51.100.7"},
		{"rule", open, "network_rule(host=\"198.51.100.7\", protocol=\"http\", decision=\"deny\")", "", "198.51.100.7"},
		{"rule that asks", open, "network_rule(host=\"198.51.100.7\", protocol=\"https\", decision=\"prompt\")", "", "198.51.100.7"},
		{"requirement", open, "", "[experimental_network]\ndenied_domains = [\"198.51.100.7\"]\n", "198.51.100.7"},
		{"requirement to review", open, "", "[experimental_network]\nreview_domains = [\"198.51.100.7\"]\n", "198.51.100.7"},
		{"names only", open + "denied_domains = [\"**.bad.example\"]", "", "", ""},
		{"allowed", strings.Replace(open, "\"*\"", "\"a.example\"", 1), "network_rule(host=\"198.51.100.7\", protocol=\"https\", decision=\"allow\")", "", ""},
	} {
		p := load(t, map[string]string{"home/config.toml": c.config, "home/rules/n.rules": c.rules, "etc/requirements.toml": c.requirements})
		for _, method := range []string{"CONNECT", "", "GET"} {
			for _, addr := range []string{"198.51.100.7", "::ffff:198.51.100.7"} {
				d, denied := p.AddressDenied(netip.MustParseAddr(addr), method)
				if denied != (c.rule != "") || d.Allowed || d.Rule != c.rule || denied && d.Reason == "" {
					t.Errorf("%s, %q %s: %v %+v", c.name, method, addr, denied, d)
				}
			}
			if d, denied := p.AddressDenied(netip.MustParseAddr("198.51.100.8"), method); denied {
				t.Errorf("%s: its neighbour: %+v", c.name, d)
			}
		}
	}
}

// FuzzHost: a host that is let through is on the list, and never one that is
// denied; addresses are only let through as they are written.
func FuzzHost(f *testing.F) {
	for _, h := range []string{"a.example", "x.a.example", "A.EXAMPLE.", "10.0.0.1", "0x7f.1", "[::1]", "[::ffff:10.0.0.1]", "a.example:443", "a.example\x00", "xn--a.example", "169.254.169.254", "a.example/..", "évil.example", "%61.example"} {
		f.Add(h)
	}
	lists := "[permissions.network]\nenabled = true\nallowed_domains = [\"**.a.example\"]\ndenied_domains = [\"**.bad.a.example\"]\n"
	listed := load(f, map[string]string{"home/config.toml": lists})
	anyHost := load(f, map[string]string{"home/config.toml": strings.Replace(lists, "**.a.example\"]\nd", "*\"]\nd", 1)})
	f.Fuzz(func(t *testing.T, host string) {
		d := listed.Host(host, 443, "CONNECT")
		plain := strings.TrimSuffix(strings.ToLower(strings.TrimSpace(host)), ".")
		plain = strings.TrimSuffix(strings.TrimRight(plain, "0123456789"), ":")
		if d.Allowed && !strings.Contains(strings.ToLower(host), "a.example") {
			t.Errorf("%q is let through by %q", host, d.Rule)
		}
		if d.Allowed && (plain == "bad.a.example" || strings.HasSuffix(plain, ".bad.a.example")) {
			t.Errorf("%q is let through although it is denied", host)
		}
		if a := anyHost.Host(host, 443, "CONNECT"); a.Allowed {
			if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
				t.Errorf("the address %q is let through by *", host)
			}
		} else if d.Allowed {
			t.Errorf("%q is on a list, but * does not hold for it: %s", host, a.Reason)
		}
	})
}
