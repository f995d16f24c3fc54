package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	"github.com/nightshift-ci/nightshift/policy/rules"
)

// origins walks the effective values. Keys without effect are left out.
func (b *builder) origins() map[string]string {
	out := map[string]string{}
	for _, s := range check(b.root, configSchema()).found {
		if s.key.unused || s.at.kind == kTable && s.key.typ != "strmap" && s.key.typ != "feature" {
			continue
		}
		if s.path[0] == "projects" || s.path[0] == "profiles" {
			continue
		}
		out[dotted(s.path)] = s.at.origin()
	}
	return out
}

// domainOrigins maps host patterns to where they were written.
func (b *builder) domainOrigins() map[string]string {
	out := map[string]string{}
	put := func(host string, at *node) {
		for _, form := range []string{allowedDomain(host), normalDomain(host)} {
			if out[form] == "" {
				out[form] = at.origin()
			}
		}
	}
	for _, l := range b.networks {
		for _, d := range l.deny {
			put(d.text, d)
		}
	}
	tables := []*node{b.root.get("permissions", "network"), b.root.get("features", "network_proxy")}
	if b.profile != nil {
		tables = append(tables, b.profile.network...)
	}
	for _, t := range tables {
		if d := t.get("domains"); d != nil && d.kind == kTable {
			for _, host := range d.keys {
				put(host, d.fields[host])
			}
		}
		for _, key := range []string{"allowed_domains", "denied_domains"} {
			for _, i := range itemsOf(t.get(key)) {
				put(i.text, i)
			}
		}
	}
	for _, host := range b.src.Flags.NetworkAllow {
		if host = allowedDomain(host); out[host] == "" {
			out[host] = "--allow-domain"
		}
	}
	return out
}

// digest hashes what a policy permits: the configuration without secrets and
// without places on this machine, the rules, and the lists of requirements.
func digest(c *Config, q *requirements, set *rules.Set) string {
	view := *c
	view.ProjectRoot = ""
	view.Provider.BearerToken = present(c.Provider.BearerToken)
	view.Provider.HTTPHeaders = names(c.Provider.HTTPHeaders)
	view.MCPServers = map[string]MCPServer{}
	for name, s := range c.MCPServers {
		s.Origin, s.DisabledBy = "", present(s.DisabledBy)
		s.Env, s.HTTPHeaders = names(s.Env), names(s.HTTPHeaders)
		view.MCPServers[name] = s
	}
	view.Hooks = slices.Clone(c.Hooks)
	for i := range view.Hooks {
		view.Hooks[i].Origin = ""
	}
	view.Environment.Set = names(c.Environment.Set)
	for _, e := range []*Exporter{&view.OTel.Logs, &view.OTel.Traces, &view.OTel.Metrics} {
		e.Headers = names(e.Headers)
	}
	type rule struct {
		Pattern       [][]string
		Level         string
		Justification string
		Layer         rules.Layer
	}
	var list []rule
	for _, r := range set.Rules() {
		list = append(list, rule{r.Pattern, r.Level.String(), r.Justification, r.Layer})
	}
	var hosts []rules.NetworkRule
	for _, n := range set.Network() {
		n.Origin = ""
		hosts = append(hosts, n)
	}
	var ceilings [][]string
	for _, n := range q.networks {
		if n.hasAllow {
			ceilings = append(ceilings, textsOf(n.allow))
		}
		ceilings = append(ceilings, textsOf(n.review))
	}
	data, err := json.Marshal([]any{view, list, hosts, ceilings, set.Executables()})
	if err != nil {
		// Config is plain data; a field that cannot be encoded is a bug of ours.
		panic("policy: digest: " + err.Error())
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func textsOf(list []*node) []string {
	var out []string
	for _, n := range list {
		out = append(out, n.text)
	}
	return out
}

func present(secret string) string {
	if secret == "" {
		return ""
	}
	return "set"
}

// names keeps the keys of a map whose values may be secret.
func names(m map[string]string) map[string]string {
	out := maps.Clone(m)
	for k := range out {
		out[k] = "set"
	}
	return out
}
