package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
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

// allowed is a list of values that every file allows.
type allowed struct {
	values  []string
	lists   [][]string // of each file
	origins []string
	at      *node // where the list was last cut
}

func (a *allowed) has(v string) bool { return a == nil || slices.Contains(a.values, v) }

func (a *allowed) origin() string { return strings.Join(a.origins, " and ") }

// serverList is the mcp_servers table of one file.
type serverList struct {
	at         *node
	identities map[string]*node // nil: the name alone
}

// networkLimit is experimental_network of one file.
type networkLimit struct {
	at           *node
	off          *node // enabled = false
	proxy        *node // enabled = true
	allow        []*node
	hasAllow     bool
	deny         []*node
	review       []*node
	sockets      map[string]bool
	socketsAt    *node
	local        *node // allow_local_binding = false
	injectsAt    *node
	originAllow  string
	originReview string
}

// loadRequirements reads the system's file, the older fields of the managed
// configuration, and the files named by flags.
func (ld *loader) loadRequirements() *requirements {
	q := &requirements{pins: map[string]*node{}, features: map[string]*node{}, defaults: map[string]*node{}, maxima: map[string]*node{}, profileBy: map[string]*node{}}
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

func (ld *loader) violated(at *node, key, message, hint string) {
	ld.fail(problem{at: at, key: key, message: message, hint: hint}.err(KindPolicy))
}

func (ld *loader) readRequirements(path string, named bool) *layer {
	data, err := ld.src.Files.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !named:
		return nil
	case err != nil:
		ld.fail(&Error{File: path, Message: "requirements cannot be read: " + reason(err), HintText: "no run starts while its requirements are unknown", Kind: KindPolicy})
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
		l.root = l.root.without(splitDotted(p.key)...)
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
		ld.notice("unused_requirement", fmt.Sprintf("%s: known, but without effect in an unattended run: %s", l.path, strings.Join(unique(names), ", ")), l.path, "", "")
	}
	q.layers = append(q.layers, l)
	root := l.root

	ld.list(&q.approvals, root.get("allowed_approval_policies"), "allowed_approval_policies", approvalList, true)
	ld.list(&q.reviewers, root.get("allowed_approvals_reviewers"), "allowed_approvals_reviewers", stringsOf, true)
	ld.list(&q.webSearch, root.get("allowed_web_search_modes"), "allowed_web_search_modes", stringsOf, false)
	ld.list(&q.logins, root.get("allowed_login_methods"), "allowed_login_methods", stringsOf, true)
	ld.list(&q.workspaces, root.get("allowed_chatgpt_workspaces"), "allowed_chatgpt_workspaces", stringsOf, true)
	ld.list(&q.degrade, root.get("sandbox", "allowed_degrade"), "sandbox.allowed_degrade", stringsOf, false)
	ld.list(&q.profiles, root.get("allowed_permission_profiles"), "allowed_permission_profiles", trueKeys, false)
	ld.sandboxModes(q, l)

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
	if o := root.get("otel"); o != nil {
		ld.pinLeaves(q.pins, "otel", o)
	}
	if m := root.get("model_providers"); m != nil {
		ld.pinLeaves(q.pins, "model_providers", m)
	}
	for name, path := range map[string][]string{"model": {"models", "new_thread", "model"}, "model_reasoning_effort": {"models", "new_thread", "model_reasoning_effort"}} {
		if v := root.get(path...); v != nil && q.defaults[name] == nil {
			q.defaults[name] = v
		}
	}
	if v := root.get("allow_login_shell"); v != nil && !v.yes && q.noLogin == nil {
		q.noLogin = v
	}
	if v := root.get("allow_managed_hooks_only"); v != nil && v.yes && q.managedHooks == nil {
		q.managedHooks = v
	}
	if v := root.get("sandbox", "allow_unsandboxed_servers"); v != nil && !v.yes && q.serversInside == nil {
		q.serversInside = v
	}
	if v := root.get("enforce_residency"); v != nil {
		q.residency = v
	}
	if v := root.get("additional_developer_instructions"); v != nil {
		q.advice = append(q.advice, v)
	}
	ld.grants(q, root, granting)
	ld.serverList(q, root.get("mcp_servers"))
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
			if m := magnitude(v); m > 0 && (q.maxima[table+"."+name] == nil || m < magnitude(q.maxima[table+"."+name])) {
				q.maxima[table+"."+name] = v
			}
		}
	}
	if n := root.get("experimental_network"); n != nil {
		q.networks = append(q.networks, networkLimitOf(n))
	}
	if h := root.get("hooks"); h != nil {
		q.hooks = append(q.hooks, h)
	}
	ld.requireProfiles(q, root, granting)
	ld.requirementRules(q, root.get("rules"))
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
		ld.notice("requirement_ignored", place(v)+"default_permissions has no effect: only "+filepath.Join(ld.src.SystemDir, "requirements.toml")+" can choose a default", v.origin(), "use allowed_permission_profiles to restrict", "")
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
				ld.notice("requirement_ignored", place(v)+"rules.allow_unsandboxed = true has no effect: only "+filepath.Join(ld.src.SystemDir, "requirements.toml")+" can grant it", v.origin(), "", "")
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
		ld.violated(v, name, fmt.Sprintf("%s: [%s] here and [%s] at %s have nothing in common", name, strings.Join(now, ", "), strings.Join((*a).values, ", "), (*a).origin()),
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
		ld.violated(v, "allowed_sandbox_modes", `allowed_sandbox_modes must include "read-only"`, `add "read-only": it is what every other mode falls back to`)
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
	if old := pins[name]; old != nil && old.String() != v.String() {
		ld.violated(v, name, fmt.Sprintf("%s must be %s here and %s at %s", name, v, old, old.origin()), "two requirement files contradict each other; an administrator must change one")
		return
	}
	if pins[name] == nil {
		pins[name] = v
	}
}

func (ld *loader) pinLeaves(pins map[string]*node, prefix string, v *node) {
	if v.kind != kTable {
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
		ld.notice("unknown_feature", place(v)+p.message+"; it is ignored", v.origin(), p.hint, fmt.Sprintf("Ignoring unknown `features` requirement `%s` from %s", name, v.layer.path))
		return
	}
	ld.pin(q.features, canonical, v)
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
				ld.violated(id, "mcp_servers."+name+".identity", "mcp_servers."+name+".identity "+message, `write identity = { command = "…" } or { url = "…" }`)
			}
		}
	}
	q.servers = append(q.servers, s)
}

func networkLimitOf(n *node) networkLimit {
	l := networkLimit{at: n, originAllow: n.origin()}
	if e := n.get("enabled"); e != nil {
		if e.yes {
			l.proxy = e
		} else {
			l.off = e
		}
	}
	if d := n.get("domains"); d != nil {
		for _, host := range d.keys {
			at := d.fields[host]
			entry := &node{kind: kString, text: host, layer: at.layer, line: at.line, column: at.column}
			if at.text == "allow" {
				l.allow = append(l.allow, entry)
			} else {
				l.deny = append(l.deny, entry)
			}
		}
		l.hasAllow = len(l.allow) > 0
	}
	if a := n.get("allowed_domains"); a != nil {
		l.allow, l.hasAllow, l.originAllow = append(l.allow, a.items...), true, a.origin()
	}
	if d := n.get("denied_domains"); d != nil {
		l.deny = append(l.deny, d.items...)
	}
	if r := n.get("review_domains"); r != nil {
		l.originReview = r.origin()
		switch r.kind {
		case kArray:
			l.review = r.items
		case kTable:
			for _, host := range r.keys {
				l.review = append(l.review, &node{kind: kString, text: host, layer: r.layer, line: r.fields[host].line})
			}
		}
	}
	if n.get("managed_allowed_domains_only") != nil && n.get("managed_allowed_domains_only").yes {
		l.hasAllow = true
	}
	if u := n.get("unix_sockets"); u != nil {
		l.socketsAt, l.sockets = u, map[string]bool{}
		for _, p := range u.keys {
			l.sockets[p] = u.fields[p].text == "allow"
		}
	}
	if u := n.get("allow_unix_sockets"); u != nil {
		if l.sockets == nil {
			l.socketsAt, l.sockets = u, map[string]bool{}
		}
		for _, p := range stringsOf(u) {
			l.sockets[p] = true
		}
	}
	if b := n.get("allow_local_binding"); b != nil && !b.yes {
		l.local = b
	}
	l.injectsAt = n.get("header_injections")
	return l
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
		ld.violated(q.approvals.at, "allowed_approval_policies", fmt.Sprintf("requirements allow only the approval policies [%s]: %s, and an unattended run has none (set by %s)", strings.Join(q.approvals.values, ", "), what, q.approvals.origin()), hint)
	}
	if q.profiles != nil {
		for _, name := range q.profiles.values {
			if !strings.HasPrefix(name, ":") && q.profileBy[name] == nil && ld.merged(ld.layers).get("permissions", name) == nil {
				ld.violated(q.profiles.at, "allowed_permission_profiles", fmt.Sprintf("allowed_permission_profiles names %q, which no file defines", name), "define [permissions."+name+"]")
			}
		}
		if d := q.defaults["default_permissions"]; d != nil && !q.profiles.has(d.text) {
			ld.violated(d, "default_permissions", fmt.Sprintf("default_permissions %q is not in allowed_permission_profiles (set by %s)", d.text, q.profiles.origin()), "")
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

// requirementRules reads [rules].
func (ld *loader) requirementRules(q *requirements, v *node) {
	if v == nil {
		return
	}
	list := v.get("prefix_rules")
	if list == nil {
		if v.get("allow_unsandboxed") == nil {
			ld.violated(v, "rules.prefix_rules", "rules needs prefix_rules", "")
		}
		return
	}
	if len(list.items) == 0 {
		ld.violated(list, "rules.prefix_rules", "rules.prefix_rules cannot be empty", "remove the table [rules], or add a rule")
		return
	}
	file := &rules.File{}
	for i, item := range list.items {
		if r, ok := ld.requirementRule(i, item); ok {
			file.Rules = append(file.Rules, r)
		}
	}
	q.rules = append(q.rules, file)
}

func (ld *loader) requirementRule(i int, v *node) (rules.Rule, bool) {
	before := len(ld.errs)
	bad := func(at *node, format string, args ...any) {
		ld.violated(at, fmt.Sprintf("rules.prefix_rules[%d]", i), fmt.Sprintf("rules.prefix_rules[%d] ", i)+fmt.Sprintf(format, args...), "")
	}
	r := rules.Rule{Origin: v.origin(), Layer: rules.Requirement}
	pattern := v.get("pattern")
	if pattern == nil || len(pattern.items) == 0 {
		bad(v, "has no pattern")
	} else {
		for p, element := range pattern.items {
			token, anyOf := element.get("token"), element.get("any_of")
			switch {
			case (token == nil) == (anyOf == nil):
				bad(element, "pattern element %d needs exactly one of token and any_of", p)
			case token != nil && token.text == "", anyOf != nil && (len(anyOf.items) == 0 || slices.Contains(stringsOf(anyOf), "")):
				bad(element, "pattern element %d is empty", p)
			case token != nil:
				r.Pattern = append(r.Pattern, []string{token.text})
			default:
				r.Pattern = append(r.Pattern, unique(stringsOf(anyOf)))
			}
		}
	}
	decision := v.get("decision")
	switch {
	case decision == nil:
		bad(v, "is missing a decision")
	case decision.text == "allow":
		bad(decision, "says allow; requirements can only prompt or forbid")
	case decision.text == "forbidden":
		r.Level = rules.Forbidden
	default:
		r.Level = rules.Prompt
	}
	if j := v.get("justification"); j != nil {
		if r.Justification = j.text; strings.TrimSpace(j.text) == "" {
			bad(j, "has a blank justification")
		}
	}
	if reviewer := v.get("reviewer"); reviewer != nil && r.Level != rules.Prompt {
		bad(reviewer, "has a reviewer, but does not prompt")
	}
	return r, len(ld.errs) == before
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
