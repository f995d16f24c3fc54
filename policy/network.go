package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nightshift-ci/nightshift/policy/rules"
)

// network decides how commands reach the network and with which lists.
func (b *builder) network() {
	s := &b.cfg.Sandbox
	n := NetworkPolicy{Mode: "full"}
	host := b.cfg.SandboxMode == "workspace-write" && b.profile == nil && b.boolean(false, "sandbox_workspace_write", "network_access")
	feature := b.root.get("features", "network_proxy")
	proxy := feature != nil && featureOn(feature)
	tables := []*node{b.root.get("permissions", "network")}
	if proxy && feature.kind == kTable {
		tables = append(tables, feature)
	}
	if b.profile != nil {
		tables = append(tables, b.profile.network...)
	}
	for _, t := range tables {
		b.networkTable(&n, t, t == feature)
	}
	for _, h := range b.src.Flags.NetworkAllow {
		if message := badDomain(h); message != "" {
			b.usage("", "--allow-domain", fmt.Sprintf("--allow-domain %q %s", h, message), "write name, *.name, **.name or *")
			continue
		}
		n.Enabled, n.AllowedDomains = true, append(n.AllowedDomains, strings.ToLower(h))
		b.flagCeiling(h)
	}
	b.requirementNetwork(&n, &host)
	restricted := len(n.AllowedDomains)+len(n.DeniedDomains) > 0 || len(b.networks) > 0 && b.limitsHosts() || b.restrictingRule() != nil
	switch {
	case b.cfg.SandboxMode == "danger-full-access":
		b.unconfined(n)
		n = NetworkPolicy{Mode: n.Mode}
	case host && (restricted || proxy):
		// Only the proxy can keep host lists.
		if len(n.AllowedDomains) == 0 && !proxy {
			n.AllowedDomains = []string{"*"}
		}
		n.Enabled, host = true, false
		b.notice(Notice{Class: "network_proxied", Message: "network_access goes through the proxy, which alone can keep the lists of hosts"})
	}
	if n.Enabled && len(n.AllowedDomains) == 0 && b.allowRule() == nil {
		b.notice(Notice{Class: "network_empty",
			Message: "network is enabled, but no host is allowed: commands reach nothing",
			Hint:    "list hosts as permissions.network.allowed_domains"})
	}
	if !n.Enabled && !host && b.cfg.SandboxMode != "danger-full-access" {
		if r := b.allowRule(); r != nil {
			b.notice(Notice{Class: "rule_without_effect", Origin: r.Origin,
				Message: fmt.Sprintf("%s: network_rule allows %s, but the network of commands is off", r.Origin, r.Host),
				Hint:    "enable permissions.network"})
		}
	}
	b.addressNotices(n)
	n.AllowedDomains, n.DeniedDomains, n.UnixSockets = unique(n.AllowedDomains), unique(n.DeniedDomains), unique(n.UnixSockets)
	s.NetworkAccess, s.Network = host, n
}

// addressNotices tells of addresses on the list of allowed hosts, where they do
// nothing: only names can be connected to.
func (b *builder) addressNotices(n NetworkPolicy) {
	for _, host := range n.AllowedDomains {
		if _, err := netip.ParseAddr(normalDomain(host)); err != nil || !n.Enabled {
			continue
		}
		b.notice(Notice{Class: "address_not_allowed", Origin: b.domainOrigins()[host],
			Message: host + " is on the list of allowed hosts without effect: an address is not connected to, whatever the list says",
			Hint:    "allow a name that leads to it; for one of a private network also set permissions.network.allow_local_binding"})
	}
}

// networkTable adds one table of network settings.
func (b *builder) networkTable(n *NetworkPolicy, t *node, feature bool) {
	if t == nil || t.kind != kTable {
		return
	}
	if e := t.get("enabled"); e != nil && !feature {
		n.Enabled = e.yes
	}
	if m := t.get("mode"); m != nil && m.kind == kString {
		n.Mode = m.text
	}
	if l := t.get("allow_local_binding"); l != nil {
		n.AllowLocal = l.yes
	}
	domain := func(at *node, host string, allow bool) {
		if message := badDomain(host); message != "" {
			b.wrong(at, "permissions.network",
				fmt.Sprintf("host pattern %q %s", host, message),
				"write name, *.name, **.name or *, with :port where only that one is meant")
			return
		}
		if allow {
			n.AllowedDomains = append(n.AllowedDomains, allowedDomain(host))
			return
		}
		n.DeniedDomains = append(n.DeniedDomains, normalDomain(host))
	}
	if d := t.get("domains"); d != nil && d.kind == kTable {
		for _, host := range d.keys {
			domain(d.fields[host], host, d.fields[host].text == "allow")
		}
	}
	for _, i := range itemsOf(t.get("allowed_domains")) {
		domain(i, i.text, true)
	}
	for _, i := range itemsOf(t.get("denied_domains")) {
		domain(i, i.text, false)
	}
	if u := t.get("unix_sockets"); u != nil && u.kind == kTable {
		for _, path := range u.keys {
			if u.fields[path].text == "allow" {
				n.UnixSockets = append(n.UnixSockets, b.resolve(path, u.fields[path].layer))
			}
		}
	}
	if u := t.get("allow_unix_sockets"); u != nil {
		for _, i := range u.items {
			n.UnixSockets = append(n.UnixSockets, b.resolve(i.text, i.layer))
		}
	}
}

// flagCeiling: a host that a flag opens must be one that requirements allow.
func (b *builder) flagCeiling(host string) {
	for _, limit := range b.q.networks {
		if limit.hasAllow && !slices.ContainsFunc(limit.allow, func(a *node) bool {
			return allowsDomain(a.text, strings.TrimLeft(normalDomain(host), "*."), domainPort(host))
		}) {
			b.violated(newTable(&layer{flag: "--allow-domain"}), "--allow-domain",
				fmt.Sprintf("--allow-domain %s is not allowed by requirements (set by %s)", host, limit.originAllow),
				"")
		}
	}
}

// requirementNetwork applies experimental_network of every requirement file.
func (b *builder) requirementNetwork(n *NetworkPolicy, host *bool) {
	b.networks = b.q.networks
	for _, limit := range b.q.networks {
		wants := n.Enabled || *host
		switch {
		case limit.off != nil && wants:
			for _, path := range [][]string{{"sandbox_workspace_write", "network_access"}, {"permissions", "network", "enabled"}} {
				if flag := b.explicitly(path...); flag != nil && flag.yes {
					b.violated(flag, strings.Join(path, "."),
						fmt.Sprintf("network is not allowed by requirements (set by %s)", limit.off.origin()),
						"remove the flag")
				}
			}
			if len(b.src.Flags.NetworkAllow) > 0 {
				b.violated(newTable(&layer{flag: "--allow-domain"}), "--allow-domain",
					fmt.Sprintf("network is not allowed by requirements (set by %s)", limit.off.origin()),
					"")
			}
			b.notice(Notice{Class: "requirement_fallback", Origin: limit.off.origin(),
				Message: fmt.Sprintf("network is not allowed by requirements; it is off (set by %s)", limit.off.origin())})
			n.Enabled, *host = false, false
		case limit.injectsAt != nil && wants:
			b.violated(limit.injectsAt, "experimental_network.header_injections",
				"header_injections cannot be enforced: connections are not intercepted",
				"run without network, or remove the requirement")
		}
		if limit.local != nil && n.AllowLocal {
			n.AllowLocal = false
			b.notice(Notice{Class: "requirement_fallback", Origin: limit.local.origin(),
				Message: fmt.Sprintf("allow_local_binding is not allowed by requirements (set by %s)", limit.local.origin())})
		}
		if limit.sockets != nil {
			n.UnixSockets = slices.DeleteFunc(n.UnixSockets, func(path string) bool {
				if limit.sockets[path] {
					return false
				}
				b.notice(Notice{Class: "requirement_fallback", Origin: limit.socketsAt.origin(),
					Message: fmt.Sprintf("unix socket %s is not allowed by requirements (set by %s)", path, limit.socketsAt.origin())})
				return true
			})
		}
		for _, d := range limit.deny {
			n.DeniedDomains = append(n.DeniedDomains, normalDomain(d.text))
		}
	}
}

// limitsHosts tells whether a requirement concerns single hosts or the proxy.
func (b *builder) limitsHosts() bool {
	return slices.ContainsFunc(b.networks, func(l networkLimit) bool {
		return l.proxy != nil || l.hasAllow || len(l.deny)+len(l.review) > 0
	})
}

// unconfined: under full access nothing about the network can be kept.
func (b *builder) unconfined(n NetworkPolicy) {
	for _, l := range b.networks {
		if l.off != nil || l.proxy != nil || l.hasAllow || len(l.deny)+len(l.review) > 0 || l.injectsAt != nil {
			b.violated(l.at, "experimental_network",
				fmt.Sprintf("network requirements cannot be enforced under danger-full-access (set by %s)", l.at.origin()),
				"use another sandbox mode")
		}
	}
	if r := b.restrictingRule(); r != nil {
		b.fail(&Error{Key: "network_rule", Kind: KindPolicy,
			Message:  fmt.Sprintf("%s: network_rule on %s cannot be enforced under danger-full-access", r.Origin, r.Host),
			HintText: "use another sandbox mode, or remove the rule"})
	}
	if len(n.AllowedDomains)+len(n.DeniedDomains) > 0 {
		b.notice(Notice{Class: "network_unconfined",
			Message: "permissions.network has no effect under danger-full-access: commands have the host's network"})
	}
}

// restrictingRule is the first network rule that forbids or prompts.
func (b *builder) restrictingRule() *rules.NetworkRule {
	for i, r := range b.rules.Network() {
		if r.Level > rules.Allow {
			return &b.rules.Network()[i]
		}
	}
	return nil
}

func (b *builder) allowRule() *rules.NetworkRule {
	for i, r := range b.rules.Network() {
		if r.Level == rules.Allow {
			return &b.rules.Network()[i]
		}
	}
	return nil
}

// badDomain is what is wrong with a host pattern, "" if nothing is.
func badDomain(pattern string) string {
	host, port := cutPort(strings.TrimSpace(pattern))
	n, err := strconv.Atoi(port)
	badPort := port != "" && (err != nil || n < 1 || n > 65535)
	if host == "*" && !badPort {
		return ""
	}
	host = strings.TrimPrefix(strings.TrimPrefix(host, "**."), "*.")
	if strings.Contains(host, "*") {
		return "has a wildcard that is not a whole first label"
	}
	if _, err := rules.NormalHost(host); err != nil {
		return "is not a host name or address"
	}
	if badPort {
		return "has a bad port"
	}
	return ""
}

// cutPort splits a pattern and its ":port", which it returns without the colon. A
// bare IPv6 address has colons but no port.
func cutPort(pattern string) (host, port string) {
	i := strings.LastIndexByte(pattern, ':')
	if i < 0 || strings.Trim(pattern[i+1:], "0123456789") != "" || strings.Count(pattern, ":") > 1 && !strings.HasSuffix(pattern[:i], "]") {
		return pattern, ""
	}
	return pattern[:i], pattern[i+1:]
}

// domainPort is the port of a pattern, 0 for any.
func domainPort(pattern string) int {
	_, port := cutPort(strings.TrimSpace(pattern))
	n, err := strconv.Atoi(port)
	if err != nil {
		return 0
	}
	return n
}

// allowedDomain is the form of a pattern that allows: with its port, which is
// then the only one. What denies holds for every port of the host.
func allowedDomain(pattern string) string {
	host := normalDomain(pattern)
	port := domainPort(pattern)
	switch {
	case port == 0:
		return host
	case strings.Contains(host, ":"):
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(port)
}

// allowsDomain tells whether a pattern that allows is for host and port; 0 is any
// port.
func allowsDomain(pattern, host string, port int) bool {
	want := domainPort(pattern)
	return (want == 0 || want == port) && domainMatches(pattern, host)
}

// normalDomain is the form in which patterns are compared: without the port.
func normalDomain(pattern string) string {
	pattern, _ = cutPort(strings.TrimSpace(pattern))
	prefix := ""
	for _, p := range []string{"**.", "*."} {
		if rest, ok := strings.CutPrefix(pattern, p); ok {
			prefix, pattern = p, rest
			break
		}
	}
	if host, err := rules.NormalHost(pattern); err == nil {
		return prefix + host
	}
	return prefix + strings.ToLower(pattern)
}

// domainMatches: name is exact, *.name what is below it, **.name both, * any
// name. Addresses only match themselves.
func domainMatches(pattern, host string) bool {
	pattern = normalDomain(pattern)
	_, err := netip.ParseAddr(host)
	address := err == nil
	switch {
	case pattern == "*":
		return !address
	case pattern == host:
		return true
	case address:
		return false
	}
	if rest, ok := strings.CutPrefix(pattern, "**."); ok {
		return host == rest || strings.HasSuffix(host, "."+rest)
	}
	if rest, ok := strings.CutPrefix(pattern, "*."); ok {
		return strings.HasSuffix(host, "."+rest)
	}
	return false
}

// HostDecision is the answer for one connection.
type HostDecision struct {
	Allowed bool
	Reason  string // sentence, when refused
	Rule    string // the pattern that decided
	Origin  string // its file:line, if known
}

// Host decides on a connection of a command to name:port. method is the HTTP
// method, CONNECT for a tunnel, "" for SOCKS. A name that resolves to a private
// address is the proxy's to refuse; see NetworkPolicy.AllowLocal.
func (p *Policy) Host(name string, port int, method string) HostDecision {
	host, err := rules.NormalHost(name)
	if err != nil {
		return HostDecision{Reason: fmt.Sprintf("%q is not a host name", name)}
	}
	where := host + ":" + strconv.Itoa(port)
	n := p.config.Sandbox.Network
	deny := func(reason, rule, origin string) HostDecision {
		return HostDecision{Reason: reason, Rule: rule, Origin: origin}
	}
	ruling := p.hostRule(host, method)
	if d, denied := ruled(host, ruling); denied {
		return d
	}
	if p.networkMode() == "host" {
		return HostDecision{Allowed: true, Rule: "host network"}
	}
	if !n.Enabled {
		return deny("the network of commands is off", "sandbox_workspace_write.network_access", p.origins["sandbox_workspace_write.network_access"])
	}
	if d, denied := p.listed(host); denied {
		return d
	}
	for _, l := range p.networks {
		if l.hasAllow && !slices.ContainsFunc(l.allow, func(a *node) bool { return allowsDomain(a.text, host, port) }) {
			return deny(where+" is not a host that requirements allow", "experimental_network", l.originAllow)
		}
	}
	if n.Mode == "limited" && !slices.Contains([]string{"GET", "HEAD", "OPTIONS"}, strings.ToUpper(method)) {
		what := method
		if what == "" {
			what = "SOCKS"
		}
		return deny(fmt.Sprintf("the network is limited to GET, HEAD and OPTIONS over plain HTTP; %s to %s is refused", what, where),
			"permissions.network.mode", p.origins["permissions.network.mode"])
	}
	if ruling != nil {
		return HostDecision{Allowed: true, Rule: ruling.Host, Origin: ruling.Origin}
	}
	// A pattern that names the port goes first: it opens ports that the others do not.
	for _, named := range []bool{true, false} {
		for _, a := range n.AllowedDomains {
			if allowsDomain(a, host, port) && (domainPort(a) != 0) == named {
				return HostDecision{Allowed: true, Rule: a, Origin: p.domainOrigin(a)}
			}
		}
	}
	return deny(host+" is not on the list of allowed hosts", "permissions.network.allowed_domains", p.origins["permissions.network.allowed_domains"])
}

// AddressDenied decides on the address that an allowed name leads to. It is only
// refused where a rule or a list of denied hosts holds the address itself: a name
// must not be a way around that.
func (p *Policy) AddressDenied(addr netip.Addr, method string) (HostDecision, bool) {
	host := addr.Unmap().String()
	if d, denied := ruled(host, p.hostRule(host, method)); denied {
		return d, true
	}
	return p.listed(host)
}

// ruled is what a network rule that does not allow says.
func ruled(host string, r *rules.NetworkRule) (d HostDecision, denied bool) {
	if r == nil || r.Level <= rules.Allow {
		return HostDecision{}, false
	}
	reason := fmt.Sprintf("a network rule forbids %s", host)
	if r.Level == rules.Prompt {
		reason = fmt.Sprintf("a network rule asks for approval of %s, and nobody can be asked", host)
	}
	if r.Justification != "" {
		reason += ": " + r.Justification
	}
	return HostDecision{Reason: reason, Rule: r.Host, Origin: r.Origin}, true
}

// listed tells whether a host is on a list of hosts that are denied or need a
// review.
func (p *Policy) listed(host string) (d HostDecision, denied bool) {
	for _, d := range p.config.Sandbox.Network.DeniedDomains {
		if domainMatches(d, host) {
			return HostDecision{Reason: host + " is on the list of denied hosts", Rule: d, Origin: p.domainOrigin(d)}, true
		}
	}
	for _, l := range p.networks {
		for _, r := range l.review {
			if domainMatches(r.text, host) {
				return HostDecision{Reason: host + " needs a review, and nobody can be asked", Rule: r.text, Origin: r.origin()}, true
			}
		}
	}
	return HostDecision{}, false
}

// hostRule is the strictest network rule on a host for the way it is reached.
func (p *Policy) hostRule(host, method string) *rules.NetworkRule {
	var best *rules.NetworkRule
	list := p.rules.Network()
	for i, r := range list {
		if r.Host != host {
			continue
		}
		// A denial holds for every protocol: the same host over another one is the
		// same host. An allowance is only for its own.
		if r.Level == rules.Allow && (r.Layer == rules.Project || !protocolFits(r.Protocol, method)) {
			continue
		}
		if best == nil || r.Level > best.Level {
			best = &list[i]
		}
	}
	return best
}

func protocolFits(protocol, method string) bool {
	switch method {
	case "":
		return protocol == "socks5_tcp"
	case "CONNECT":
		return protocol == "https"
	}
	return protocol == "http"
}

func (p *Policy) domainOrigin(pattern string) string { return p.domains[pattern] }
