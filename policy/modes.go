package policy

import (
	"fmt"
	"slices"
	"strings"
)

// sandboxMode decides the mode of the sandbox.
func (b *builder) sandboxMode() {
	asked := b.root.get("sandbox_mode")
	mode := "read-only"
	origin := "default"
	switch {
	case asked != nil:
		mode, origin = asked.text, asked.origin()
	case b.profile != nil:
		mode, origin = b.profile.mode, b.profile.origin
	case b.trust.trusted:
		mode, origin = "workspace-write", b.trust.at.origin()
	}
	for _, l := range b.layers {
		if !l.explicit {
			continue
		}
		if v := l.root.get("sandbox_mode"); v != nil && !b.modeAllowed(v.text) {
			b.refuseMode(v, v.text)
			mode, asked = "read-only", nil
		}
	}
	if !b.modeAllowed(mode) {
		at := asked
		if at == nil {
			at = b.root.get("default_permissions")
		}
		if mode == "danger-full-access" || b.byFlag(at) {
			b.refuseMode(at, mode)
		} else {
			limit := b.modeOrigin(mode)
			b.notice(Notice{Class: "requirement_fallback", Origin: limit,
				Message: fmt.Sprintf("sandbox mode %q of %s is not allowed by requirements; the run is read-only (set by %s)", mode, origin, limit),
				Wire:    b.sandboxWire(mode)})
		}
		mode = "read-only"
		if b.profile != nil {
			// What the profile denies stays denied.
			b.profile.mode, b.profile.write = mode, nil
		}
	}
	b.cfg.SandboxMode = mode
	switch {
	case mode == b.str("sandbox_mode"):
	case asked != nil:
		b.root = b.root.with(b.q.sandbox.instead(mode, asked), "sandbox_mode")
	case mode == "read-only":
	case b.profile != nil:
		b.decided("sandbox_mode", mode, b.profile.at)
	default:
		b.decided("sandbox_mode", mode, b.trust.at)
	}
}

// strictest is the most restrictive value that every file lists, if it is not
// above what was asked for; else the fallback. It looks at each file's own list,
// so that a further file can only make the answer stricter.
func (a *allowed) strictest(order []string, asked, fallback string) string {
	least := slices.Index(order, asked)
	for _, list := range a.lists {
		for _, v := range list {
			least = min(least, slices.Index(order, v))
		}
	}
	if least < 0 || !a.has(order[least]) {
		return fallback
	}
	return order[least]
}

// modeAllowed asks both lists that can forbid a mode.
func (b *builder) modeAllowed(mode string) bool {
	if !b.q.sandbox.has(mode) {
		return false
	}
	if b.profile != nil && b.root.get("sandbox_mode") == nil {
		return b.q.profiles.has(b.profile.name)
	}
	return mode == "read-only" || b.q.profiles.has(builtinProfile(mode))
}

func (b *builder) modeOrigin(mode string) string {
	if !b.q.sandbox.has(mode) {
		return b.q.sandbox.origin()
	}
	return b.q.profiles.origin()
}

// decided records a value that follows from another key.
func (b *builder) decided(key, text string, from *node) {
	b.root = b.root.with(&node{kind: kString, text: text, layer: from.layer, line: from.line, column: from.column}, key)
}

// instead is a value from the list that replaces another.
func (a *allowed) instead(text string, old *node) *node {
	at := old
	if a != nil {
		at = a.at
	}
	return &node{kind: kString, text: text, layer: at.layer, line: at.line, column: at.column}
}

func (b *builder) refuseMode(at *node, mode string) {
	if at == nil {
		at = newTable(nil)
	}
	list, name := b.q.sandbox, "allowed_sandbox_modes"
	if list.has(mode) {
		list, name = b.q.profiles, "allowed_permission_profiles"
	}
	b.violated(at, "sandbox_mode",
		fmt.Sprintf("sandbox mode %q is not allowed by requirements: %s is [%s] (set by %s)", mode, name, strings.Join(list.values, ", "), list.origin()),
		"choose one of the allowed modes, or leave the mode out")
}

// wireWords are the names the reference uses in its warnings.
var wireWords = map[string]string{
	"read-only":          "ReadOnly",
	"workspace-write":    "WorkspaceWrite",
	"danger-full-access": "DangerFullAccess",
	"external-sandbox":   "ExternalSandbox",
	"disabled":           "Disabled",
	"cached":             "Cached",
	"indexed":            "Indexed",
	"live":               "Live",
}

func wireSet(values []string) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = wireWords[v]
	}
	return "[" + strings.Join(words, ", ") + "]"
}

func (b *builder) sandboxWire(mode string) string {
	if b.q.sandbox.has(mode) {
		return ""
	}
	return fmt.Sprintf("Configured value for `permission_profile` is disallowed by requirements; falling back to required value Managed{read-only}. "+
		"Details: invalid value for `sandbox_mode`: `%s` is not in the allowed set %s (set by %s)",
		wireWords[mode], wireSet(b.q.sandbox.values), b.q.sandbox.at.layer.path)
}

// webSearch decides the mode of the hosted search.
func (b *builder) webSearch() {
	mode := "cached"
	if b.cfg.SandboxMode == "danger-full-access" {
		mode = "live"
	}
	at := b.root.get("web_search")
	if t := b.root.get("tools", "web_search"); at == nil && t != nil && t.kind == kBool {
		at = &node{kind: kString, text: map[bool]string{true: "live", false: "disabled"}[t.yes], layer: t.layer, line: t.line, column: t.column}
	}
	if f := b.root.get("features", "web_search_request"); at == nil && f != nil && featureOn(f) {
		at = &node{kind: kString, text: "live", layer: f.layer, line: f.line, column: f.column}
	}
	if at != nil {
		mode = at.text
	}
	b.cfg.WebSearch = mode
	limit := b.q.webSearch
	if limit == nil || mode == "disabled" || limit.has(mode) {
		return
	}
	if at != nil && b.byFlag(at) {
		b.violated(at, "web_search",
			fmt.Sprintf("web_search = %q is not allowed by requirements: allowed_web_search_modes is [%s] (set by %s)", mode, strings.Join(limit.values, ", "), limit.origin()),
			"remove the flag")
		return
	}
	fallback := limit.strictest(ranks["web_search"], mode, "disabled")
	allowedSet := limit.values
	if !slices.Contains(allowedSet, "disabled") {
		allowedSet = append([]string{"disabled"}, allowedSet...)
	}
	wire := fmt.Sprintf("Configured value for `web_search_mode` is disallowed by requirements; falling back to required value %s. "+
		"Details: invalid value for `web_search_mode`: `%s` is not in the allowed set %s (set by %s)",
		wireWords[fallback], wireWords[mode], wireSet(allowedSet), limit.at.layer.path)
	from := "the default"
	if at != nil {
		from = at.origin()
	}
	b.notice(Notice{Class: "requirement_fallback", Origin: limit.origin(),
		Message: fmt.Sprintf("web_search = %q of %s is not allowed by requirements; %q holds (set by %s)", mode, from, fallback, limit.origin()),
		Wire:    wire})
	b.cfg.WebSearch = fallback
	b.root = b.root.with(limit.instead(fallback, limit.at), "web_search")
}
