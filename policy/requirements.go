package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nightshift-ci/nightshift/policy/rules"
)

// requirements is what all requirement files together demand. Adding a file
// never widens it: lists are cut to what every file allows, denials and rules
// add up, limits take the smallest, and switches that grant something need the
// system's own file and no objection.
type requirements struct {
	layers []*layer

	approvals  *allowed
	reviewers  *allowed
	sandbox    *allowed
	webSearch  *allowed
	logins     *allowed
	workspaces *allowed
	profiles   *allowed
	degrade    *allowed

	pins     map[string]*node // key of config.toml to its only value
	features map[string]*node
	defaults map[string]*node // used where nothing is set

	noLogin       *node // allow_login_shell = false
	managedHooks  *node // allow_managed_hooks_only = true
	serversInside *node // sandbox.allow_unsandboxed_servers = false
	unsandboxed   *node // rules.allow_unsandboxed = true, granted
	mayDrop       []string
	residency     *node

	servers   []serverList
	denyRead  []*node
	require   []*node
	maxima    map[string]*node // limits.* and sandbox numbers
	networks  []networkLimit
	hooks     []*node // hooks tables
	profileBy map[string]*node
	advice    []*node // additional_developer_instructions
	rules     []*rules.File
}

// serverList is the mcp_servers table of one file.
type serverList struct {
	at         *node
	identities map[string]*node // nil: the name alone
}

// loadRequirements reads the system's file, the older fields of the managed
// configuration, and the files named by flags.
func (ld *loader) loadRequirements() *requirements {
	q := &requirements{
		pins:      map[string]*node{},
		features:  map[string]*node{},
		defaults:  map[string]*node{},
		maxima:    map[string]*node{},
		profileBy: map[string]*node{},
	}
	system := filepath.Join(ld.src.SystemDir, "requirements.toml")
	if l := ld.readRequirements(system, false); l != nil {
		ld.require(q, l, true)
	}
	for _, l := range ld.layers {
		if l.name == "managed" {
			ld.requireManaged(q, l)
		}
	}
	for _, path := range ld.src.Requirements {
		if l := ld.readRequirements(path, true); l != nil {
			ld.require(q, l, false)
		}
	}
	ld.consistent(q)
	return q
}

// violated is a requirement that is broken or cannot be kept, at the value that
// breaks it.
func (ld *loader) violated(at *node, key, message, hint string) {
	ld.fail(problem{at: at, key: key, message: message, hint: hint}.err(KindPolicy))
}

func (ld *loader) readRequirements(path string, named bool) *layer {
	data, err := ld.src.Files.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !named:
		return nil
	case err != nil:
		ld.fail(&Error{File: path, Kind: KindPolicy,
			Message:  "requirements cannot be read: " + reason(err),
			HintText: "no run starts while its requirements are unknown"})
		return nil
	}
	l := &layer{name: "requirements", path: path, used: true}
	root, bad := parseTOML(l, data, KindPolicy)
	if bad != nil {
		ld.fail(bad)
		return nil
	}
	l.root = root
	return l
}

// require merges one requirements file. granting is set for the system's own
// file, which alone may grant what is otherwise refused.
func (ld *loader) require(q *requirements, l *layer, granting bool) {
	l.found = check(l.root, requirementSchema())
	for _, p := range l.found.wrong {
		ld.fail(p.err(KindPolicy))
		ld.remove(l, p)
	}
	for _, p := range l.found.unknown {
		if p.hint == "" {
			p.hint = "unknown requirements stop the run because a misspelt limit is no limit"
		}
		p.message = strings.Replace(p.message, "unknown key", "unknown requirement", 1)
		ld.fail(p.err(KindPolicy))
	}
	if len(l.found.unused) > 0 {
		var names []string
		for _, p := range l.found.unused {
			names = append(names, p.key)
		}
		ld.notice(Notice{Class: "unused_requirement", Origin: l.path,
			Message: fmt.Sprintf("%s: known, but without effect in an unattended run: %s", l.path, strings.Join(unique(names), ", "))})
	}
	q.layers = append(q.layers, l)
	root := l.root

	ld.requireLists(q, l)
	ld.requirePins(q, root)
	ld.requireSwitches(q, root)
	ld.grants(q, root, granting)
	ld.serverList(q, root.get("mcp_servers"))
	ld.bound(q, root)
	if n := root.get("experimental_network"); n != nil {
		q.networks = append(q.networks, networkLimitOf(n))
	}
	if h := root.get("hooks"); h != nil {
		q.hooks = append(q.hooks, h)
	}
	ld.requireProfiles(q, root, granting)
	ld.requirementRules(q, root.get("rules"))
}

// requireLists cuts the lists of what is allowed.
func (ld *loader) requireLists(q *requirements, l *layer) {
	root := l.root
	ld.list(&q.approvals, root.get("allowed_approval_policies"), "allowed_approval_policies", approvalList, true)
	ld.list(&q.reviewers, root.get("allowed_approvals_reviewers"), "allowed_approvals_reviewers", stringsOf, true)
	ld.list(&q.webSearch, root.get("allowed_web_search_modes"), "allowed_web_search_modes", stringsOf, false)
	ld.list(&q.logins, root.get("allowed_login_methods"), "allowed_login_methods", stringsOf, true)
	ld.list(&q.workspaces, root.get("allowed_chatgpt_workspaces"), "allowed_chatgpt_workspaces", stringsOf, true)
	ld.list(&q.degrade, root.get("sandbox", "allowed_degrade"), "sandbox.allowed_degrade", stringsOf, false)
	ld.list(&q.profiles, root.get("allowed_permission_profiles"), "allowed_permission_profiles", trueKeys, false)
	ld.sandboxModes(q, l)
}

// requirePins takes the values that are fixed, and the defaults of new threads.
func (ld *loader) requirePins(q *requirements, root *node) {
	for _, name := range []string{"model_provider", "cli_auth_credentials_store", "chatgpt_base_url"} {
		ld.pin(q.pins, name, root.get(name))
	}
	for _, table := range []string{"features", "feature_requirements"} {
		if f := root.get(table); f != nil {
			for _, name := range f.keys {
				ld.pinFeature(q, name, f.fields[name])
			}
		}
	}
	for _, table := range []string{"otel", "model_providers"} {
		if t := root.get(table); t != nil {
			ld.pinLeaves(q.pins, table, t)
		}
	}
	for _, name := range []string{"model", "model_reasoning_effort", "service_tier"} {
		if v := root.get("models", "new_thread", name); v != nil && q.defaults[name] == nil {
			q.defaults[name] = v
		}
	}
}

// requireSwitches takes the switches that only take away; of several files the
// first that does is named.
func (ld *loader) requireSwitches(q *requirements, root *node) {
	first := func(to **node, says bool, path ...string) {
		if v := root.get(path...); v != nil && v.yes == says && *to == nil {
			*to = v
		}
	}
	first(&q.noLogin, false, "allow_login_shell")
	first(&q.managedHooks, true, "allow_managed_hooks_only")
	first(&q.serversInside, false, "sandbox", "allow_unsandboxed_servers")
	if v := root.get("enforce_residency"); v != nil {
		q.residency = v
	}
	if v := root.get("additional_developer_instructions"); v != nil {
		q.advice = append(q.advice, v)
	}
}

// bound takes what the sandbox must give and the largest numbers that are
// allowed; of several files the smallest number holds.
func (ld *loader) bound(q *requirements, root *node) {
	for _, d := range [][]string{{"permissions", "filesystem", "deny_read"}, {"sandbox", "deny_read"}} {
		if v := root.get(d...); v != nil {
			q.denyRead = append(q.denyRead, v)
		}
	}
	if v := root.get("sandbox", "require"); v != nil {
		q.require = append(q.require, v)
	}
	for _, table := range []string{"limits", "sandbox"} {
		t := root.get(table)
		if t == nil {
			continue
		}
		for _, name := range t.keys {
			v := t.fields[name]
			key := table + "." + name
			m := magnitude(v)
			if unbounded(key, v) {
				ld.violated(v, key, key+" is 0, which bounds nothing", "remove it, or say how much is allowed")
			}
			if slices.Contains(numericLimits(), key) && (q.maxima[key] == nil || m < magnitude(q.maxima[key])) {
				q.maxima[key] = v
			}
		}
	}
}

// requireProfiles takes permission profiles. Those of the system's own file win
// over a configuration's of the same name; others only fill gaps, since a
// further file must not give more than there was.
func (ld *loader) requireProfiles(q *requirements, root *node, granting bool) {
	if ps := root.get("permissions"); ps != nil {
		configured := ld.merged(ld.layers).get("permissions")
		for _, name := range ps.keys {
			if name == "filesystem" || q.profileBy[name] != nil || !granting && configured.get(name) != nil {
				continue
			}
			q.profileBy[name] = ps.fields[name]
		}
	}
	v := root.get("default_permissions")
	switch {
	case v == nil:
	case granting:
		q.defaults["default_permissions"] = v
	case q.defaults["default_permissions"] == nil || q.defaults["default_permissions"].text != v.text:
		ld.notice(Notice{Class: "requirement_ignored", Origin: v.origin(),
			Message: place(v) + "default_permissions has no effect: only " + filepath.Join(ld.src.SystemDir, "requirements.toml") + " can choose a default",
			Hint:    "use allowed_permission_profiles to restrict"})
	}
}

// grants handles the two switches that give rather than take.
func (ld *loader) grants(q *requirements, root *node, granting bool) {
	if v := root.get("rules", "allow_unsandboxed"); v != nil {
		switch {
		case v.yes && granting:
			q.unsandboxed = v
		case v.yes:
			if q.unsandboxed == nil {
				ld.notice(Notice{Class: "requirement_ignored", Origin: v.origin(),
					Message: place(v) + "rules.allow_unsandboxed = true has no effect: only " + filepath.Join(ld.src.SystemDir, "requirements.toml") + " can grant it"})
			}
		default:
			// An objection holds for good.
			q.unsandboxed = nil
			q.pins["rules.allow_unsandboxed"] = v
		}
	}
	if q.pins["rules.allow_unsandboxed"] != nil {
		q.unsandboxed = nil
	}
	if v := root.get("sandbox", "may_drop"); v != nil {
		if granting {
			q.mayDrop = stringsOf(v)
		} else {
			q.mayDrop = slices.DeleteFunc(q.mayDrop, func(g string) bool { return !slices.Contains(stringsOf(v), g) })
		}
	}
}

func (ld *loader) serverList(q *requirements, v *node) {
	if v == nil {
		return
	}
	s := serverList{at: v, identities: map[string]*node{}}
	for _, name := range v.keys {
		s.identities[name] = v.fields[name].get("identity")
		if id := s.identities[name]; id != nil {
			if message := badIdentity(id); message != "" {
				ld.violated(id, "mcp_servers."+name+".identity",
					"mcp_servers."+name+".identity "+message,
					`write identity = { command = "…" } or { url = "…" }`)
			}
		}
	}
	q.servers = append(q.servers, s)
}

// requireManaged reads the three fields of managed_config.toml that are
// requirements as well.
func (ld *loader) requireManaged(q *requirements, l *layer) {
	if v := l.root.get("approval_policy"); v != nil {
		ld.list(&q.approvals, v, "approval_policy", func(n *node) []string { return []string{approvalOf(n)} }, true)
	}
	if v := l.root.get("sandbox_mode"); v != nil {
		ld.list(&q.sandbox, v, "sandbox_mode", func(n *node) []string {
			if n.text == "read-only" {
				return []string{"read-only"}
			}
			return []string{"read-only", n.text}
		}, true)
	}
	if v := l.root.get("approvals_reviewer"); v != nil {
		ld.list(&q.reviewers, v, "approvals_reviewer", func(n *node) []string {
			if n.text == "user" {
				return []string{"user"}
			}
			return []string{n.text, "user"}
		}, true)
	}
}

// consistent reports what no run could satisfy.
func (ld *loader) consistent(q *requirements) {
	if q.approvals != nil && !q.approvals.has("never") && !q.approvals.has("granular") {
		hint := `add "never" to the list for machines where nobody can be asked`
		what := "actions would wait for a person"
		if !slices.ContainsFunc(q.approvals.values, func(v string) bool { return v != "untrusted" }) {
			what = "every command would wait for a person"
		}
		ld.violated(q.approvals.at, "allowed_approval_policies",
			fmt.Sprintf("requirements allow only the approval policies [%s]: %s, and an unattended run has none (set by %s)", strings.Join(q.approvals.values, ", "), what, q.approvals.origin()),
			hint)
	}
	if q.profiles != nil {
		for _, name := range q.profiles.values {
			if !strings.HasPrefix(name, ":") && q.profileBy[name] == nil && ld.merged(ld.layers).get("permissions", name) == nil {
				ld.violated(q.profiles.at, "allowed_permission_profiles",
					fmt.Sprintf("allowed_permission_profiles names %q, which no file defines", name),
					"define [permissions."+name+"]")
			}
		}
		if d := q.defaults["default_permissions"]; d != nil && !q.profiles.has(d.text) {
			ld.violated(d, "default_permissions",
				fmt.Sprintf("default_permissions %q is not in allowed_permission_profiles (set by %s)", d.text, q.profiles.origin()),
				"")
		}
	}
	for _, n := range q.networks {
		for _, host := range slices.Concat(n.allow, n.deny, n.review) {
			if message := badDomain(host.text); message != "" {
				ld.violated(host, "experimental_network", fmt.Sprintf("host pattern %q %s", host.text, message), "write name, *.name, **.name or *")
			}
		}
	}
	for _, d := range q.denyRead {
		for _, item := range d.items {
			if message := ld.badDenyPath(item.text); message != "" {
				ld.violated(item, "deny_read", fmt.Sprintf("deny_read %q %s", item.text, message), "")
			}
		}
	}
}

// stringsOf is a list of strings, or one string, as a slice.
func stringsOf(v *node) []string {
	if v == nil {
		return nil
	}
	if v.kind == kString {
		return []string{v.text}
	}
	var out []string
	for _, i := range v.items {
		if i.kind == kString {
			out = append(out, i.text)
		}
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
