package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Change is one difference between two requirement files.
type Change struct {
	Key    string `json:"key"`
	Before any    `json:"before"`
	After  any    `json:"after"`
	// Effect is tighter, looser or different.
	Effect string `json:"effect"`
}

// Compare lists what differs between two requirement files. Both must be free
// of mistakes; see [Lint].
func Compare(pathA string, a []byte, pathB string, b []byte) ([]Change, error) {
	before, err := flatRequirements(pathA, a)
	if err != nil {
		return nil, err
	}
	after, err := flatRequirements(pathB, b)
	if err != nil {
		return nil, err
	}
	keys := sortedKeys(before)
	for _, k := range sortedKeys(after) {
		if before[k] == nil {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	var out []Change
	for _, k := range keys {
		x, y := before[k], after[k]
		if x != nil && y != nil && plain(x) == plain(y) {
			continue
		}
		out = append(out, Change{Key: k, Before: x.value(), After: y.value(), Effect: effect(k, x, y)})
	}
	return out, nil
}

func plain(n *node) string {
	if n.kind == kArray {
		list := stringsOf(n)
		if len(list) == len(n.items) {
			slices.Sort(list)
			return strings.Join(list, "\x00")
		}
	}
	data, err := json.Marshal(n.value())
	if err != nil {
		return n.String()
	}
	return string(data)
}

func flatRequirements(path string, data []byte) (map[string]*node, error) {
	if errs := Lint("requirements", path, data); len(errs) > 0 {
		return nil, &Errors{List: errs}
	}
	l := &layer{name: "requirements", path: path, used: true}
	root, bad := parseTOML(l, data, KindPolicy)
	if bad != nil {
		return nil, bad
	}
	out := map[string]*node{}
	var walk func(prefix []string, n *node)
	walk = func(prefix []string, n *node) {
		key := dotted(prefix)
		switch {
		case key == "rules.prefix_rules":
			for _, item := range n.items {
				out["rules.prefix_rules "+ruleText(item)] = &node{kind: kString, text: decisionText(item)}
			}
		case n.kind == kTable && len(n.keys) > 0 && key != "mcp_servers":
			for _, k := range n.keys {
				walk(append(slices.Clone(prefix), k), n.fields[k])
			}
		case key == "mcp_servers":
			// The list itself restricts, even when empty.
			names := &node{kind: kArray}
			for _, k := range n.keys {
				names.items = append(names.items, &node{kind: kString, text: k})
				if id := n.fields[k].get("identity"); id != nil {
					out["mcp_servers."+dotted([]string{k})+".identity"] = id
				}
			}
			out["mcp_servers"] = names
		default:
			out[key] = n
		}
	}
	for _, k := range root.keys {
		walk([]string{k}, root.fields[k])
	}
	return out, nil
}

// ruleText is a prefix rule's pattern on one line.
func ruleText(item *node) string {
	var words []string
	for _, p := range itemsOf(item.get("pattern")) {
		if t := p.get("token"); t != nil {
			words = append(words, t.text)
		} else {
			words = append(words, "{"+strings.Join(stringsOf(p.get("any_of")), ",")+"}")
		}
	}
	return strings.Join(words, " ")
}

func decisionText(item *node) string {
	if d := item.get("decision"); d != nil {
		return d.text
	}
	return ""
}

// denials are requirements that take something away by being longer.
var denials = []string{
	"permissions.filesystem.deny_read", "sandbox.deny_read", "sandbox.require", "experimental_network.denied_domains",
	"experimental_network.review_domains",
}

// grants are requirements that give something.
var grants = []string{"rules.allow_unsandboxed", "sandbox.may_drop", "default_permissions"}

// effect tells whether a change allows more or less.
func effect(key string, before, after *node) string {
	give := slices.Contains(grants, key)
	switch {
	case before == nil && after == nil:
		return "different"
	case before == nil:
		if give || after.kind == kBool && !strings.Contains(key, "only") && after.yes {
			return map[bool]string{true: "looser", false: "different"}[give]
		}
		return "tighter"
	case after == nil:
		if give {
			return "tighter"
		}
		return "looser"
	case strings.HasPrefix(key, "rules.prefix_rules "):
		return map[bool]string{true: "tighter", false: "looser"}[after.text == "forbidden"]
	case before.kind == kArray && after.kind == kArray:
		return listEffect(stringsOf(before), stringsOf(after), slices.Contains(denials, key))
	case slices.Contains(numericLimits(), key):
		return map[bool]string{true: "tighter", false: "looser"}[magnitude(after) < magnitude(before)]
	case before.kind == kBool && after.kind == kBool && (strings.HasPrefix(key, "allow") || give || strings.Contains(key, ".allow")) && !strings.Contains(key, "only"):
		return map[bool]string{true: "looser", false: "tighter"}[after.yes]
	case before.kind == kBool && after.kind == kBool && strings.Contains(key, "only"):
		return map[bool]string{true: "tighter", false: "looser"}[after.yes]
	}
	return "different"
}

func listEffect(before, after []string, denies bool) string {
	lost := slices.ContainsFunc(before, func(s string) bool { return !slices.Contains(after, s) })
	gained := slices.ContainsFunc(after, func(s string) bool { return !slices.Contains(before, s) })
	switch {
	case lost && gained:
		return "different"
	case lost != denies:
		return "tighter"
	}
	return "looser"
}

// Difference is one value that two policies decide differently.
type Difference struct {
	Key    string `json:"key"`
	Before any    `json:"before"`
	After  any    `json:"after"`
}

// Differences compares the effective values of two policies.
func Differences(a, b *Policy) []Difference {
	x, y := flatConfig(a), flatConfig(b)
	keys := sortedKeys(x)
	for _, k := range sortedKeys(y) {
		if _, both := x[k]; !both {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	var out []Difference
	for _, k := range keys {
		if fmt.Sprint(x[k]) != fmt.Sprint(y[k]) {
			out = append(out, Difference{k, x[k], y[k]})
		}
	}
	return out
}

// flatConfig is a policy's values by key, decided ones included.
func flatConfig(p *Policy) map[string]any {
	out := map[string]any{}
	for _, k := range p.Keys() {
		out[k] = p.Explain(k).Value
	}
	for _, k := range []string{"sandbox_mode", "web_search", "allow_login_shell", "sandbox_workspace_write.network_access"} {
		out[k] = p.Explain(k).Value
	}
	for name, s := range p.config.MCPServers {
		out["mcp_servers."+name+".enabled"] = s.Enabled
	}
	out["network of commands"] = p.networkMode()
	return out
}
