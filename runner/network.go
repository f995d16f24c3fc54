package runner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/sandbox"
	"github.com/nightshift-ci/nightshift/sandbox/egress"
)

// startEgress serves the connections that commands make to the proxy inside
// their network namespace. Each decision is an event.
func (r *run) startEgress(conf *Confinement) {
	if conf.Spec.Net.Mode != sandbox.NetProxy {
		return
	}
	net := r.cfg.Sandbox.Network
	proxy := egress.New(egress.Options{Decide: r.decideHost, Log: r.egressDecided, Limited: net.Mode == "limited", AllowLocal: net.AllowLocal})
	served := make(chan error, 1)
	listener := r.box.ProxyListener()
	go func() { served <- proxy.Serve(listener) }()
	r.onEnd(func(ctx context.Context) {
		r.logError("the egress proxy", errors.Join(listenerClosed(listener.Close()), proxy.Close(ctx), listenerClosed(<-served)))
	})
}

// listenerClosed drops the error that closing a listener causes by itself.
func listenerClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (r *run) decideHost(host string, port int, method string) egress.Decision {
	if method == egress.SOCKS5 {
		method = "" // policy's word: rules allow protocols, and this could carry any
	}
	d := r.Policy.Host(host, port, method)
	out := egress.Decision{Allowed: d.Allowed, Reason: d.Reason, Rule: d.Rule, Origin: d.Origin}
	if p, err := egress.ParsePattern(d.Rule); err == nil {
		out.PortNamed = p.PortNamed() && p.Match(host, port)
	}
	return out
}

// egressDecided records what became of one connection, or of several of the
// same kind: after the first ten the proxy tells only their number.
func (r *run) egressDecided(o egress.Outcome) {
	e := event.PolicyDecision{Action: "network", Subject: fmt.Sprintf("%s:%d", o.Host, o.Port), Decision: "allow", Outcome: "allowed",
		Reason: o.Reason, Source: "network", Rule: o.Rule, Origin: o.Origin}
	if !o.Allowed {
		e.Decision, e.Outcome = "forbidden", policy.Denied
		r.denied.Add(int64(o.Since))
	} else if o.Error != "" {
		e.Reason = o.Error
	}
	if o.Since > 1 {
		e.Reason = strings.TrimSpace(fmt.Sprintf("%s (%d times, %d in all)", e.Reason, o.Since, o.Count))
	}
	r.log.Emit(e)
}
