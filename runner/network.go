package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

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
	stop := ServeEgress(r.Policy, r.box.ProxyListener(), r.egressDecided)
	r.onEnd(func(ctx context.Context) { r.logError("the egress proxy", stop(ctx)) })
}

// ServeEgress serves connections of commands that come in at listener, as the
// policy decides. log gets what became of each, from any goroutine. stop
// ends it and waits for connections to be closed, no longer than its context.
func ServeEgress(p *policy.Policy, listener net.Listener, log func(egress.Outcome)) (stop func(context.Context) error) {
	network := p.Config().Sandbox.Network
	decide := func(host string, port int, method string) egress.Decision { return decideHost(p, host, port, method) }
	denies := func(addr netip.Addr, _ int, method string) (egress.Decision, bool) {
		d, denied := p.AddressDenied(addr, ruleMethod(method))
		return egress.Decision{Reason: d.Reason, Rule: d.Rule, Origin: d.Origin}, denied
	}
	proxy := egress.New(egress.Options{Decide: decide, Denies: denies, Log: log, Limited: network.Mode == "limited", AllowLocal: network.AllowLocal})
	served := make(chan error, 1)
	go func() { served <- proxy.Serve(listener) }()
	return func(ctx context.Context) error {
		return errors.Join(listenerClosed(listener.Close()), proxy.Close(ctx), listenerClosed(<-served))
	}
}

func decideHost(p *policy.Policy, host string, port int, method string) egress.Decision {
	d := p.Host(host, port, ruleMethod(method))
	out := egress.Decision{Allowed: d.Allowed, Reason: d.Reason, Rule: d.Rule, Origin: d.Origin}
	if pattern, err := egress.ParsePattern(d.Rule); err == nil {
		out.PortNamed = pattern.PortNamed() && pattern.Match(host, port)
	}
	return out
}

// ruleMethod is policy's word for a method: rules allow protocols, and SOCKS
// could carry any.
func ruleMethod(method string) string {
	if method == egress.SOCKS5 {
		return ""
	}
	return method
}

// listenerClosed drops the error that closing a listener causes by itself.
func listenerClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// egressDecided records what became of one connection, or of several of the
// same kind: after the first ten the proxy tells only their number.
func (r *run) egressDecided(o egress.Outcome) {
	e := event.PolicyDecision{Action: "network", Subject: fmt.Sprintf("%s:%d", o.Host, o.Port), Decision: "allow", Outcome: "allowed",
		Reason: o.Reason, Source: "network", Rule: o.Rule, Origin: o.Origin}
	if !o.Allowed {
		e.Decision, e.Outcome = "forbidden", policy.Denied
		r.denied.Add(int64(o.Since))
		r.refusals.add(e.Subject + ": " + o.Reason)
	} else if o.Error != "" {
		e.Reason = o.Error
	}
	if o.Since > 1 {
		e.Reason = strings.TrimSpace(fmt.Sprintf("%s (%d times, %d in all)", e.Reason, o.Since, o.Count))
	}
	r.log.Emit(e)
}

// refusals collects what the proxy refused until a command's output tells it.
// Programs show little of it: curl says "403" and nothing else.
type refusals struct {
	mu    sync.Mutex
	lines []string // each once
}

// maxRefusals bounds what one output tells.
const maxRefusals = 10

func (f *refusals) add(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.lines) < maxRefusals && !slices.Contains(f.lines, line) {
		f.lines = append(f.lines, line)
	}
}

// take returns what came since the last time.
func (f *refusals) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	lines := f.lines
	f.lines = nil
	return lines
}

// tellRefusals adds to a tool's answer which connections were refused while it
// ran. Of commands that run side by side the first to end reports
// them.
func (r *run) tellRefusals(output json.RawMessage) json.RawMessage {
	lines := r.refusals.take()
	var text string
	if len(lines) == 0 || json.Unmarshal(output, &text) != nil {
		return output
	}
	for _, l := range lines {
		text = strings.TrimSuffix(text, "\n") + "\nThe network proxy refused a connection to " + l + "\n"
	}
	return quote(text)
}
