package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Layer is one source of values, lowest first in [Policy.Layers].
type Layer struct {
	Name string `json:"layer"`          // system, user, profile, project, session-flags, managed, flags, requirements
	Path string `json:"path,omitempty"` // "" for flags
	Used bool   `json:"used"`
	Why  string `json:"why,omitempty"` // why it is not used
}

// Layers lists every source that was found, lowest first, requirements last.
func (p *Policy) Layers() []Layer {
	out := []Layer{}
	for _, l := range slices.Concat(p.layers, p.needs.layers) {
		out = append(out, Layer{Name: l.name, Path: l.path, Used: l.used, Why: l.why})
	}
	return out
}

// Explanation is where a value comes from.
type Explanation struct {
	Key        string       `json:"key"`
	Known      bool         `json:"known"`
	Use        string       `json:"use,omitempty"` // used, unused
	Type       string       `json:"type,omitempty"`
	Doc        string       `json:"doc,omitempty"`
	Value      any          `json:"value"`
	Default    any          `json:"default,omitempty"`
	Origin     string       `json:"origin"` // file:line, flag or "default"
	Layers     []LayerValue `json:"layers,omitempty"`
	Constraint []Constraint `json:"constraints,omitempty"`
	Suggestion string       `json:"suggestion,omitempty"`
}

// LayerValue is the value of a key in one layer.
type LayerValue struct {
	Layer   string `json:"layer"`
	Origin  string `json:"origin"`
	Value   any    `json:"value"`
	Winner  bool   `json:"winner"`
	Ignored string `json:"ignored,omitempty"` // why the layer may not set it
}

// Constraint is a requirement that bounds a key.
type Constraint struct {
	Requirement string `json:"requirement"`
	Value       any    `json:"value"`
	Origin      string `json:"origin"`
}

// Keys lists the keys that have a value, sorted.
func (p *Policy) Keys() []string { return sortedKeys(p.origins) }

// Explain says what the value of a key is, where it comes from, what every layer
// says, and which requirements bound it.
func (p *Policy) Explain(name string) Explanation {
	e := Explanation{Key: name, Origin: "default"}
	path, err := keyPath(name)
	if err != nil {
		return e
	}
	s := configSchema()
	for i, part := range path {
		next := s.find(part)
		if next == nil {
			e.Suggestion = suggestKey(part, path[:i+1], s)
			return e
		}
		s = next
	}
	e.Known, e.Use = true, "used"
	if s.key != nil {
		e.Type, e.Doc, e.Default = s.key.typ, s.key.doc, s.key.def
		if s.key.unused {
			e.Use = "unused"
		}
	}
	value := p.root.get(path...)
	e.Value = e.Default
	if value != nil {
		e.Value, e.Origin = masked(path, value.value()), value.origin()
	}
	if action := map[string]string{"shell_environment_policy.exclude": "exclude", "shell_environment_policy.include_only": "include"}[name]; action != "" {
		if list := environmentList(p.root, action); list != nil {
			e.Value, e.Origin = list, p.root.get("shell_environment_policy", "filters", list[0]).origin()
		}
	}
	e.Value = p.decided(name, e.Value)
	e.Layers = p.layerValues(path, e.Origin)
	e.Constraint = p.constraints(name, path)
	return e
}

// decided replaces values that depend on more than their own key.
func (p *Policy) decided(name string, value any) any {
	switch name {
	case "sandbox_mode":
		return p.config.SandboxMode
	case "web_search":
		return p.config.WebSearch
	case "approval_policy":
		return p.config.ApprovalPolicy
	case "allow_login_shell":
		return p.config.AllowLoginShell
	case "sandbox_workspace_write.network_access":
		return p.config.Sandbox.NetworkAccess
	case "model":
		return p.config.Model
	}
	return value
}

// maskedText stands for a value that may be secret.
const maskedText = "(hidden)"

// masked hides values that are or may be secret.
func masked(path []string, v any) any {
	last := path[len(path)-1]
	if strings.Contains(last, "token") && !strings.Contains(last, "limit") && last != "max_tokens" || slices.Contains(path, "http_headers") ||
		slices.Contains(path, "headers") ||
		slices.Contains(path, "env") ||
		slices.Contains(path, "set") {
		if _, isTable := v.(map[string]any); !isTable {
			return maskedText
		}
	}
	if t, ok := v.(map[string]any); ok {
		out := make(map[string]any, len(t))
		for k, inner := range t {
			out[k] = masked(append(slices.Clone(path), k), inner)
		}
		return out
	}
	return v
}

func (p *Policy) layerValues(path []string, winner string) []LayerValue {
	var out []LayerValue
	for _, l := range p.layers {
		if why, dropped := l.dropped[dotted(path)]; dropped {
			for _, s := range l.found.found {
				if slices.Equal(s.path, path) {
					out = append(out, LayerValue{Layer: l.name, Origin: s.at.origin(), Value: masked(path, s.at.value()), Ignored: why})
				}
			}
			continue
		}
		if v := l.root.get(path...); v != nil {
			out = append(out, LayerValue{Layer: l.name, Origin: v.origin(), Value: masked(path, v.value()), Winner: v.origin() == winner})
		}
	}
	return out
}

// constraints lists the requirements that bound a key.
func (p *Policy) constraints(name string, path []string) []Constraint {
	q := p.needs
	var out []Constraint
	list := func(a *allowed, requirement string) {
		if a != nil {
			out = append(out, Constraint{requirement, a.values, a.origin()})
		}
	}
	switch name {
	case "sandbox_mode":
		list(q.sandbox, "allowed_sandbox_modes")
		list(q.profiles, "allowed_permission_profiles")
	case "web_search":
		list(q.webSearch, "allowed_web_search_modes")
	case "approval_policy":
		list(q.approvals, "allowed_approval_policies")
	case "default_permissions":
		list(q.profiles, "allowed_permission_profiles")
	case "forced_login_method":
		list(q.logins, "allowed_login_methods")
	case "sandbox.degrade":
		list(q.degrade, "sandbox.allowed_degrade")
	case "sandbox_workspace_write.network_access", "permissions.network.enabled", "permissions.network.allowed_domains", "permissions.network.denied_domains":
		for _, n := range q.networks {
			out = append(out, Constraint{"experimental_network", n.at.value(), n.at.origin()})
		}
	case "allow_login_shell":
		if q.noLogin != nil {
			out = append(out, Constraint{"allow_login_shell", false, q.noLogin.origin()})
		}
	}
	if pin := q.pins[name]; pin != nil {
		out = append(out, Constraint{name, pin.value(), pin.origin()})
	}
	if len(path) == 2 && path[0] == "features" {
		if pin := q.features[path[1]]; pin != nil {
			out = append(out, Constraint{name, pin.value(), pin.origin()})
		}
	}
	if most := q.maxima[name]; most != nil {
		out = append(out, Constraint{name + " at most", most.value(), most.origin()})
	}
	if path[0] == "mcp_servers" {
		for _, s := range q.servers {
			out = append(out, Constraint{"mcp_servers", sortedKeys(s.identities), s.at.origin()})
		}
	}
	return out
}

// String is an explanation for people.
func (e Explanation) String() string {
	var b strings.Builder
	if !e.Known {
		fmt.Fprintf(&b, "%s: no such key\n", e.Key)
		if e.Suggestion != "" {
			fmt.Fprintf(&b, "  %s\n", e.Suggestion)
		}
		return b.String()
	}
	fmt.Fprintf(&b, "%s = %s\n  from %s\n", e.Key, show(e.Value), e.Origin)
	if e.Doc != "" {
		fmt.Fprintf(&b, "  %s\n", e.Doc)
	}
	if e.Use == "unused" {
		b.WriteString("  known, but without effect in an unattended run\n")
	}
	for _, l := range e.Layers {
		mark := " "
		if l.Winner {
			mark = "*"
		}
		fmt.Fprintf(&b, "  %s %-14s %s  (%s)", mark, l.Layer, show(l.Value), l.Origin)
		if l.Ignored != "" {
			fmt.Fprintf(&b, " ignored: %s", l.Ignored)
		}
		b.WriteByte('\n')
	}
	for _, c := range e.Constraint {
		fmt.Fprintf(&b, "  requirement %s = %s  (%s)\n", c.Requirement, show(c.Value), c.Origin)
	}
	return b.String()
}

func show(v any) string {
	switch x := v.(type) {
	case nil:
		return "(not set)"
	case string:
		return fmt.Sprintf("%q", x)
	case []string:
		return "[" + strings.Join(x, ", ") + "]"
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
