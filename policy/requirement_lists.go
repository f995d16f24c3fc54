package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// allowed is a list of values that every file allows.
type allowed struct {
	values  []string
	lists   [][]string // of each file
	origins []string
	at      *node // where the list was last cut
}

func (a *allowed) has(v string) bool { return a == nil || slices.Contains(a.values, v) }

func (a *allowed) origin() string { return strings.Join(a.origins, " and ") }

// list cuts an allowed list to what another file allows too.
func (ld *loader) list(a **allowed, v *node, name string, values func(*node) []string, mustHold bool) {
	if v == nil {
		return
	}
	now := values(v)
	if len(now) == 0 && mustHold {
		message := fmt.Sprintf("%q is empty: nothing would be allowed", name)
		if name == "allowed_login_methods" {
			message = "allowed_login_methods is empty: no login may be used"
		}
		ld.violated(v, name, message, "list what may be used, or remove the requirement")
		return
	}
	if *a == nil {
		*a = &allowed{values: now, lists: [][]string{now}, origins: []string{v.origin()}, at: v}
		return
	}
	both := slices.DeleteFunc(slices.Clone((*a).values), func(x string) bool { return !slices.Contains(now, x) })
	if len(both) == 0 && mustHold {
		ld.violated(v, name,
			fmt.Sprintf("%s: [%s] here and [%s] at %s have nothing in common", name, strings.Join(now, ", "), strings.Join((*a).values, ", "), (*a).origin()),
			"two requirement files contradict each other; an administrator must change one")
		return
	}
	*a = &allowed{values: both, lists: append(slices.Clone((*a).lists), now), origins: append(slices.Clone((*a).origins), v.origin()), at: v}
}

func approvalList(v *node) []string {
	var out []string
	for _, i := range v.items {
		out = append(out, approvalOf(i))
	}
	return out
}

func trueKeys(v *node) []string {
	var out []string
	for _, name := range v.keys {
		if v.fields[name].yes {
			out = append(out, name)
		}
	}
	return out
}

// sandboxModes merges the sandbox modes of one file; an entry for this host
// replaces the file's own list first.
func (ld *loader) sandboxModes(q *requirements, l *layer) {
	v := l.root.get("allowed_sandbox_modes")
	if remote := l.root.get("remote_sandbox_config"); remote != nil {
		for _, entry := range remote.items {
			modes := entry.get("allowed_sandbox_modes")
			patterns := entry.get("hostname_patterns")
			if modes == nil || patterns == nil || len(patterns.items) == 0 {
				ld.violated(entry, "remote_sandbox_config", "an entry of remote_sandbox_config needs hostname_patterns and allowed_sandbox_modes", "")
				continue
			}
			if !slices.Contains(stringsOf(modes), "read-only") {
				ld.violated(modes, "remote_sandbox_config", `allowed_sandbox_modes must include "read-only"`, "")
			}
			if slices.ContainsFunc(stringsOf(patterns), func(p string) bool { return hostMatches(p, ld.src.Hostname) }) {
				v = modes
				break
			}
		}
	}
	if v == nil {
		return
	}
	if !slices.Contains(stringsOf(v), "read-only") {
		ld.violated(v, "allowed_sandbox_modes",
			`allowed_sandbox_modes must include "read-only"`,
			`add "read-only": it is what every other mode falls back to`)
		return
	}
	ld.list(&q.sandbox, v, "allowed_sandbox_modes", stringsOf, true)
}

func hostMatches(pattern, host string) bool {
	ok, err := path.Match(strings.ToLower(pattern), strings.ToLower(host))
	return err == nil && ok
}

// pin fixes a value; two files that fix different ones contradict each other.
func (ld *loader) pin(pins map[string]*node, name string, v *node) {
	if v == nil {
		return
	}
	if old := pins[name]; old != nil && !old.equal(v) {
		ld.violated(v, name,
			fmt.Sprintf("%s must be %s here and %s at %s", name, shown(splitDotted(name), v), shown(splitDotted(name), old), old.origin()),
			"two requirement files contradict each other; an administrator must change one")
		return
	}
	if pins[name] == nil {
		pins[name] = v
	}
}

// pinLeaves fixes every value of a table. An exporter is one value: half of one
// and half of another would send to nowhere.
func (ld *loader) pinLeaves(pins map[string]*node, prefix string, v *node) {
	if v.kind != kTable || strings.HasPrefix(prefix, "otel.") && strings.HasSuffix(prefix, "exporter") {
		ld.pin(pins, prefix, v)
		return
	}
	for _, name := range v.keys {
		ld.pinLeaves(pins, prefix+"."+dotted([]string{name}), v.fields[name])
	}
}

func (ld *loader) pinFeature(q *requirements, name string, v *node) {
	canonical, known := featureName(name)
	if !known {
		p := problem{at: v, key: "features." + name, message: fmt.Sprintf("unknown feature %q in requirements", name)}
		if near := nearest(name, featureNames()); near != "" {
			p.hint = fmt.Sprintf("did you mean %q?", near)
		}
		if ld.src.Strict {
			ld.fail(p.err(KindPolicy))
			return
		}
		ld.notice(Notice{Class: "unknown_feature", Origin: v.origin(),
			Message: place(v) + p.message + "; it is ignored",
			Hint:    p.hint,
			Wire:    fmt.Sprintf("Ignoring unknown `features` requirement `%s` from %s", name, v.layer.path)})
		return
	}
	ld.pin(q.features, canonical, v)
}
