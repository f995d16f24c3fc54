package runner

import (
	"context"
	"testing"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/sandbox/egress"
)

// What the proxy asks, as policy answers it.
func TestDecideHost(t *testing.T) {
	p := newPlace(t)
	p.write(p.home+"/rules/net.rules", `network_rule(host="plain.example.com", protocol="http", decision="allow")
network_rule(host="socks.example.com", protocol="socks5_tcp", decision="allow")
network_rule(host="bad.example.com", protocol="https", decision="deny")
`)
	p.flags.NetworkAllow = []string{"*.allowed.example.com", "bad.example.com", "ported.example.com:8443"}
	o := p.options("workspace-write")
	if d := decideHost(o.Policy, "ported.example.com", 8443, egress.Connect); !d.Allowed || !d.PortNamed {
		t.Errorf("a port that the pattern names: %+v", d)
	}
	if d := decideHost(o.Policy, "ported.example.com", 443, egress.Connect); d.Allowed {
		t.Errorf("another port: %+v", d)
	}
	for _, c := range []struct {
		host   string
		port   int
		method string
		want   bool
	}{
		{"a.allowed.example.com", 443, egress.Connect, true},
		{"a.allowed.example.com", 443, egress.SOCKS5, true},
		{"a.allowed.example.com", 80, "POST", true},
		{"allowed.example.com", 443, egress.Connect, false},
		{"plain.example.com", 80, "GET", true},
		{"plain.example.com", 443, egress.Connect, false},
		{"plain.example.com", 443, egress.SOCKS5, false},
		{"socks.example.com", 443, egress.SOCKS5, true},
		{"socks.example.com", 80, "GET", false},
		{"bad.example.com", 443, egress.Connect, false},
		{"bad.example.com", 80, "GET", false},
		{"other.example.com", 443, egress.Connect, false},
	} {
		d := decideHost(o.Policy, c.host, c.port, c.method)
		if d.Allowed != c.want || !d.Allowed && d.Reason == "" || d.PortNamed {
			t.Errorf("%s %s:%d: %+v", c.method, c.host, c.port, d)
		}
	}
}

func TestEgressDecisionsAreEvents(t *testing.T) {
	var got []event.PolicyDecision
	log := event.NewLog(nil, nil, recordSink(func(rec event.Record) {
		if d, ok := rec.Event.(event.PolicyDecision); ok {
			got = append(got, d)
		}
	}))
	r := &run{log: log}
	r.egressDecided(egress.Outcome{Decision: egress.Decision{Reason: "no", Rule: "x", Origin: "f:1"}, Method: "CONNECT", Host: "a.test", Port: 443, Count: 1, Since: 1})
	r.egressDecided(egress.Outcome{Decision: egress.Decision{Reason: "no"}, Method: "CONNECT", Host: "a.test", Port: 443, Count: 20, Since: 10})
	r.egressDecided(egress.Outcome{Decision: egress.Decision{Allowed: true, Rule: "*"}, Method: "GET", Host: "b.test", Port: 80, Error: "there is no such host", Count: 1, Since: 1})
	if len(got) != 3 || got[0].Outcome != "denied" || got[0].Subject != "a.test:443" || got[0].Origin != "f:1" || got[1].Reason != "no (10 times, 20 in all)" ||
		got[2].Outcome != "allowed" || got[2].Reason != "there is no such host" {
		t.Errorf("%+v", got)
	}
	if got := string(r.tellRefusals(quote("curl: (56) CONNECT tunnel failed, response 403\n"))); got !=
		`"curl: (56) CONNECT tunnel failed, response 403\nThe network proxy refused a connection to a.test:443: no\n"` {
		t.Errorf("%s", got)
	}
	if got := string(r.tellRefusals(quote("x"))); got != `"x"` {
		t.Errorf("told again: %s", got)
	}
	if n := r.denied.Load(); n != 11 {
		t.Errorf("%d refusals counted", n)
	}
}

type recordSink func(event.Record)

func (f recordSink) Handle(r event.Record) error { f(r); return nil }
func (f recordSink) Close(context.Context) error { return nil }
