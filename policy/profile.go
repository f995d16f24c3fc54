package policy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// profile is a permission profile in terms that the sandbox can enforce.
type profile struct {
	name    string
	origin  string
	at      *node
	mode    string
	write   []string // absolute roots; the workspace if "" is in it
	protect []string // names that stay read-only in every root
	deny    []*node  // patterns; see denyPatterns
	// relative holds deny patterns below each workspace root.
	relative []*node
	roots    []string // further workspace roots
	noTmp    bool
	network  []*node // network tables, the base's first
}

// builtinProfile is the profile that a sandbox mode stands for.
func builtinProfile(mode string) string {
	switch mode {
	case "workspace-write":
		return ":workspace"
	case "danger-full-access":
		return ":danger-full-access"
	}
	return ":read-only"
}

// selectProfile finds the permission profile in force. sandbox_mode, from
// whatever layer, goes before default_permissions.
func (b *builder) selectProfile() {
	for _, name := range sortedKeys(b.q.profileBy) {
		b.root = b.root.with(b.q.profileBy[name], "permissions", name)
	}
	at := b.root.get("default_permissions")
	if at == nil {
		b.unchosenProfiles()
		return
	}
	if mode := b.root.get("sandbox_mode"); mode != nil {
		b.notice(Notice{Class: "permissions_unused", Origin: at.origin(),
			Message: fmt.Sprintf("%sdefault_permissions = %q has no effect: sandbox_mode is set at %s", place(at), at.text, mode.origin()),
			Hint:    "use one of the two"})
		return
	}
	p := &profile{name: at.text, origin: at.origin(), at: at}
	if !b.q.profiles.has(at.text) {
		b.violated(at, "default_permissions",
			fmt.Sprintf("permission profile %q is not allowed by requirements: allowed_permission_profiles is [%s] (set by %s)", at.text, strings.Join(b.q.profiles.values, ", "), b.q.profiles.origin()),
			"")
		return
	}
	if b.fillProfile(p, at.text, at, nil) {
		if p.mode == "" {
			p.mode = "read-only"
		}
		b.profile = p
	}
}

// unchosenProfiles refuses profiles of which none is in force, where no mode is
// chosen either: whoever wrote them relies on them.
func (b *builder) unchosenProfiles() {
	table := b.root.get("permissions")
	if len(b.errs) > 0 || table == nil || b.root.get("sandbox_mode") != nil || len(b.q.profileBy) > 0 {
		return
	}
	for _, name := range table.keys {
		if own := table.fields[name]; own.kind == kTable && name != "network" && name != "filesystem" { // of requirements and of older files
			b.wrong(own, "permissions", fmt.Sprintf("permission profile %q is defined, and default_permissions does not choose one", name), "set default_permissions, or sandbox_mode")
			return
		}
	}
}

func (b *builder) badProfile(at *node, format string, args ...any) bool {
	b.fail(problem{at: at, key: "permissions", message: fmt.Sprintf(format, args...),
		hint: `extend ":workspace" or ":read-only", list what must not be read as "deny", and leave the rest`}.err(kindAt(at)))
	return false
}

// fillProfile adds a profile and those it extends; false after a mistake.
func (b *builder) fillProfile(p *profile, name string, at *node, seen []string) bool {
	switch name {
	case ":read-only":
		return true
	case ":workspace":
		p.mode, p.write = "workspace-write", append(p.write, "")
		return true
	case ":danger-full-access":
		if len(seen) > 0 {
			return b.badProfile(at, "permission profile %q cannot extend :danger-full-access", seen[len(seen)-1])
		}
		p.mode = "danger-full-access"
		return true
	}
	if slices.Contains(seen, name) {
		return b.badProfile(at, "permission profiles extend each other: %s", strings.Join(append(seen, name), " → "))
	}
	table := b.root.get("permissions", name)
	if table == nil || table.kind != kTable {
		hint := []string{":read-only", ":workspace", ":danger-full-access"}
		if t := b.root.get("permissions"); t != nil {
			hint = append(hint, t.keys...)
		}
		message := fmt.Sprintf("permission profile %q is not defined", name)
		if near := nearest(name, hint); near != "" {
			message += fmt.Sprintf("; did you mean %q?", near)
		}
		return b.badProfile(at, "%s", message)
	}
	if p.at == nil || len(seen) == 0 {
		p.at = table
	}
	base := table.get("extends")
	if base != nil && !b.fillProfile(p, base.text, base, append(seen, name)) {
		return false
	}
	if w := table.get("workspace_roots"); w != nil {
		for _, path := range w.keys {
			if w.fields[path].yes {
				p.roots = append(p.roots, b.resolve(path, w.fields[path].layer))
			}
		}
	}
	if n := table.get("network"); n != nil {
		p.network = append(p.network, n)
	}
	return b.filesystem(p, name, table, base != nil)
}

// filesystem translates the access entries of a profile. What the sandbox cannot
// keep is an error: a confinement that is only written down protects nobody.
func (b *builder) filesystem(p *profile, name string, table *node, based bool) bool {
	fs := table.get("filesystem")
	if fs == nil {
		return true
	}
	if root := fs.get(":root"); !based && (root == nil || root.text != "read") {
		return b.badProfile(fs, "permission profile %q confines reading to a list of paths, which the sandbox cannot do", name)
	}
	for _, path := range fs.keys {
		v := fs.fields[path]
		if path == "glob_scan_max_depth" {
			continue
		}
		if v.kind == kTable {
			for _, sub := range v.keys {
				if !b.access(p, name, path, sub, v.fields[sub]) {
					return false
				}
			}
			continue
		}
		if !b.access(p, name, path, ".", v) {
			return false
		}
	}
	return true
}

// access translates one entry.
func (b *builder) access(p *profile, name, path, sub string, v *node) bool {
	word := v.text
	if word == "none" {
		word = "deny"
	}
	if v.kind != kString || !slices.Contains([]string{"read", "write", "deny"}, word) {
		return b.badProfile(v, `permission profile %q: access must be "read", "write" or "deny", not %s`, name, v)
	}
	if sub != "." && (filepath.IsAbs(sub) || slices.Contains(strings.Split(sub, "/"), "..") || sub == "") {
		return b.badProfile(v, "permission profile %q: subpath %q must stay below its path", name, sub)
	}
	glob := strings.ContainsAny(path+sub, "*?[")
	if glob && word != "deny" {
		return b.badProfile(v, "permission profile %q: patterns can only be denied", name)
	}
	switch path {
	case ":root", ":minimal":
		if word == "read" && sub == "." {
			return true
		}
		return b.badProfile(v, "permission profile %q: %q = %q cannot be kept", name, path, word)
	case ":tmpdir", ":slash_tmp":
		// Commands have a /tmp of their own, which is writable unless denied.
		p.noTmp = p.noTmp || word != "write"
		return true
	case ":workspace_roots":
		return b.workspaceAccess(p, name, sub, word, v)
	}
	if strings.HasPrefix(path, ":") {
		return b.badProfile(v, "permission profile %q: unknown special path %q", name, path)
	}
	abs := b.resolve(path, v.layer)
	if sub != "." {
		abs = filepath.Join(abs, sub)
	}
	switch word {
	case "write":
		p.mode, p.write = "workspace-write", append(p.write, abs)
	case "deny":
		p.deny = append(p.deny, &node{kind: kString, text: abs, layer: v.layer, line: v.line, column: v.column})
	case "read":
		if slices.ContainsFunc(p.write, func(w string) bool { return w != "" && within(abs, w) }) {
			return b.badProfile(v, "permission profile %q: %s cannot be read-only inside a writable folder", name, abs)
		}
	}
	return true
}

func (b *builder) workspaceAccess(p *profile, name, sub, word string, v *node) bool {
	switch {
	case word == "deny":
		p.relative = append(p.relative, &node{kind: kString, text: sub, layer: v.layer, line: v.line, column: v.column})
	case sub == "." && word == "write":
		p.mode, p.write = "workspace-write", append(p.write, "")
	case sub == ".":
		p.write = slices.DeleteFunc(p.write, func(w string) bool { return w == "" })
		if len(p.write) == 0 {
			p.mode = "read-only"
		}
	case word == "write":
		p.mode, p.write = "workspace-write", append(p.write, filepath.Join(b.src.Cwd, sub))
	case strings.Contains(strings.Trim(sub, "/"), "/"):
		return b.badProfile(v, "permission profile %q: %q cannot be read-only inside the workspace; only a name at its top can", name, sub)
	default:
		p.protect = append(p.protect, strings.Trim(sub, "/"))
	}
	return true
}
