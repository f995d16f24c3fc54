package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// layer is one source of values.
type layer struct {
	name string // system, user, profile, project, session-flags, managed, flags, requirements
	path string // file; "" for flags
	// flag is how the user wrote the value; origin of its nodes.
	flag string
	root *node
	// explicit layers are flags: a requirement that refuses their value is an
	// error.
	explicit bool
	used     bool
	why      string // why it is not used
	// dropped are settings a project file may not make, with the reason.
	dropped map[string]string
	found   *findings
}

// dir is the base of relative paths in the layer.
func (l *layer) dir(cwd string) string {
	if l == nil || l.path == "" {
		return cwd
	}
	return filepath.Dir(l.path)
}

// wireName is how the reference names the layer in its warnings.
func (l *layer) wireName() string {
	switch l.name {
	case "session-flags":
		return l.name
	case "profile":
		return "user (" + l.path + ")"
	}
	return l.name + " (" + l.path + ")"
}

// loader collects layers, mistakes and notices.
type loader struct {
	src     Sources
	layers  []*layer // lowest first, without requirements
	errs    []*Error
	notices []Notice
	trust   trust
	// removed are the keys of values with a mistake, which left their layer.
	removed []string
}

func (ld *loader) fail(e *Error) { ld.errs = append(ld.errs, e) }

func (ld *loader) usage(file, key, message, hint string) {
	ld.fail(&Error{File: file, Key: key, Message: message, HintText: hint, Kind: KindUsage})
}

// wrong is a mistake of the configuration at a value.
func (ld *loader) wrong(at *node, key, message, hint string) {
	ld.fail(problem{at: at, key: key, message: message, hint: hint}.err(KindUsage))
}

func (ld *loader) notice(n Notice) { ld.notices = append(ld.notices, n) }

// readLayer reads and parses one file; nil if it does not exist or is broken.
func (ld *loader) readLayer(name, path string, k ErrorKind) *layer {
	data, err := ld.src.Files.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	l := &layer{name: name, path: path, used: true}
	if err != nil {
		ld.fail(&Error{File: path, Message: "cannot be read: " + reason(err), HintText: "remove the file or make it readable", Kind: k})
		return nil
	}
	root, bad := parseTOML(l, data, k)
	if bad != nil {
		ld.fail(bad)
		return nil
	}
	l.root = root
	return l
}

// reason is an error without the path it repeats.
func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// load reads every layer but project ones, which need trust, and flags.
func (ld *loader) load() {
	if l := ld.readLayer("system", filepath.Join(ld.src.SystemDir, "config.toml"), KindUsage); l != nil {
		ld.add(l)
	}
	if !ld.src.IgnoreUser {
		if l := ld.readLayer("user", filepath.Join(ld.src.Home, "config.toml"), KindUsage); l != nil {
			ld.add(l)
		}
	}
	if ld.src.Profile != "" {
		ld.profile(ld.src.Profile)
	}
	project := len(ld.layers) // project layers come here
	ld.session()
	if l := ld.readLayer("managed", filepath.Join(ld.src.SystemDir, "managed_config.toml"), KindPolicy); l != nil {
		ld.add(l)
	}
	ld.decideTrust()
	ld.layers = slices.Insert(ld.layers, project, ld.projectLayers(ld.merged(ld.layers[:project]))...)
	if l := ld.flagLayer(); l != nil {
		ld.add(l)
	}
	ld.report()
}

// remove takes a value with a mistake out of its layer, so that later steps see
// sound values only. Of a list with a mistake nothing stays.
func (ld *loader) remove(l *layer, p problem) {
	path := splitDotted(p.key)
	l.root = l.root.without(path...)
	ld.removed = append(ld.removed, dotted(path))
}

// wasWrong tells whether a value is missing only because it had a mistake: that
// was reported, so its absence is no second one.
func (ld *loader) wasWrong(path ...string) bool { return slices.Contains(ld.removed, dotted(path)) }

// add checks a layer's keys and appends it.
func (ld *loader) add(l *layer) {
	ld.check(l)
	ld.layers = append(ld.layers, l)
}

// check finds the mistakes of one layer. Wrong values are errors and are removed.
func (ld *loader) check(l *layer) {
	l.root = canonical(l.root)
	l.found = check(l.root, configSchema())
	k := KindUsage
	for _, p := range l.found.wrong {
		if l.name == "managed" {
			k = KindPolicy
		}
		ld.fail(p.err(k))
		ld.remove(l, p)
	}
	for i, p := range l.found.unknown {
		event, isHook := strings.CutPrefix(p.key, "hooks.")
		if !isHook || strings.Contains(event, ".") || strings.Contains(event, "[") {
			continue
		}
		// A hook that never runs is a gate left open.
		p.message = fmt.Sprintf("unknown hook event %q", event)
		if p.hint == "" {
			p.hint = "events are " + strings.Join(hookEvents[:], ", ")
		}
		ld.fail(p.err(KindUsage))
		l.found.unknown[i].at = nil
	}
	l.found.unknown = slices.DeleteFunc(l.found.unknown, func(p problem) bool { return p.at == nil })
	ld.checkFeatures(l)
	if env := l.root.get("shell_environment_policy"); env.get("filters") != nil && (env.get("exclude") != nil || env.get("include_only") != nil) {
		ld.wrong(env.get("filters"), "shell_environment_policy.filters",
			"filters and the lists exclude or include_only cannot stand in the same file",
			`write the lists as filters: "NAME_*" = "exclude"`)
	}
	if p := l.root.get("profile"); p != nil {
		ld.wrong(p, "profile",
			"the key profile is no longer supported",
			fmt.Sprintf("use --profile %s and put the values into %s", p.text, filepath.Join(ld.src.Home, p.text+".config.toml")))
	}
	if a := l.root.get("approval_policy"); a != nil && a.kind == kString && a.text == "untrusted" && l.name != "managed" {
		ld.wrong(a, "approval_policy", `approval_policy = "untrusted" is no longer supported`, "remove the setting; an unattended run never asks")
	}
}

// splitDotted is the path of a dotted key without array indexes, as far as it
// is plain.
func splitDotted(key string) []string {
	parts, err := keyPath(key)
	if err != nil {
		return []string{key}
	}
	for i, p := range parts {
		if at := strings.IndexByte(p, '['); at > 0 && strings.HasSuffix(p, "]") {
			return append(parts[:i:i], p[:at])
		}
	}
	return parts
}

func (ld *loader) checkFeatures(l *layer) {
	table := l.root.get("features")
	if table == nil || table.kind != kTable {
		return
	}
	for _, name := range table.keys {
		if _, known := featureName(name); known {
			continue
		}
		v := table.fields[name]
		p := problem{at: v, key: "features." + name, message: fmt.Sprintf("unknown feature %q", name)}
		if near := nearest(name, featureNames()); near != "" {
			p.hint = fmt.Sprintf("did you mean %q?", near)
		}
		byFlag := strings.HasPrefix(v.origin(), "--enable") || strings.HasPrefix(v.origin(), "--disable")
		if ld.src.Strict || byFlag {
			ld.fail(p.err(KindUsage))
			continue
		}
		ld.notice(Notice{Class: "unknown_feature", Message: place(v) + p.message + "; it is ignored", Origin: v.origin(), Hint: p.hint})
	}
}

// place is "file:line:column: " for a value from a file, "flag: " for others.
func place(n *node) string {
	if n.layer != nil && n.layer.path != "" && n.line > 0 {
		return fmt.Sprintf("%s:%d:%d: ", n.layer.path, n.line, n.column)
	}
	return n.origin() + ": "
}

// canonical gives renamed keys their present name. The present name wins where
// both stand.
func canonical(root *node) *node {
	move := func(from string, to ...string) {
		if v := root.get(from); v != nil {
			if root = root.without(from); root.get(to...) == nil {
				root = root.with(v, to...)
			}
		}
	}
	move("experimental_instructions_file", "model_instructions_file")
	move("tools_view_image", "tools", "view_image")
	move("tools_web_search", "tools", "web_search")
	table := root.get("features")
	if table == nil || table.kind != kTable {
		return root
	}
	for _, name := range table.keys {
		if now, isAlias := featureAliases[name]; isAlias {
			v := table.fields[name]
			if root = root.without("features", name); root.get("features", now) == nil {
				root = root.with(v, "features", now)
			}
		}
	}
	return root
}

// profile adds the profile's layer: NAME.config.toml, or the older table.
func (ld *loader) profile(name string) {
	if name != filepath.Base(name) || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\\\x00") {
		ld.usage("", "--profile", fmt.Sprintf("--profile %q is not a plain name", name), "a profile is NAME.config.toml in "+ld.src.Home)
		return
	}
	path := filepath.Join(ld.src.Home, name+".config.toml")
	before := len(ld.errs)
	l := ld.readLayer("profile", path, KindUsage)
	table := ld.merged(ld.layers).get("profiles", name)
	switch {
	case l == nil && len(ld.errs) > before:
		return
	case l != nil && table != nil:
		ld.wrong(table, "profiles."+name,
			fmt.Sprintf("profile %q is defined twice: here and in %s", name, path),
			"keep the file and remove the table")
	case l != nil:
		if nested := l.root.get("profiles"); nested != nil {
			ld.wrong(nested, "profiles", "a profile cannot hold profiles", "")
		}
		ld.add(l)
	case table != nil && table.kind == kTable:
		ld.add(&layer{name: "profile", path: table.layer.path, used: true, root: table})
	default:
		ld.usage("", "--profile",
			fmt.Sprintf("profile %q does not exist: there is neither %s nor a table [profiles.%s]", name, path, name),
			"check the name, or create the file")
	}
}

// session makes one layer of -c, --enable and --disable, later ones winning.
func (ld *loader) session() {
	if len(ld.src.Overrides) == 0 {
		return
	}
	l := &layer{name: "session-flags", used: true, explicit: true}
	l.root = newTable(l)
	for _, o := range ld.src.Overrides {
		path, err := keyPath(o.Key)
		if err != nil {
			ld.usage("", o.Key, o.label()+": "+err.Error(), "write -c key=value; quote parts that hold a dot")
			continue
		}
		one := &layer{name: l.name, flag: o.label(), explicit: true}
		v := parseValue(one, o.Value)
		for i := 1; i < len(path); i++ {
			if at := l.root.get(path[:i]...); at != nil && at.kind != kTable {
				// A later flag replaces what an earlier one set.
				l.root = l.root.without(path[:i]...)
			}
		}
		l.root = l.root.with(v, path...)
	}
	ld.add(l)
}

// report turns unknown and unused keys of all layers into notices or errors.
func (ld *loader) report() {
	var unknown []problem
	for _, l := range ld.layers {
		if l.found == nil {
			continue
		}
		unknown = append(unknown, l.found.unknown...)
		if len(l.found.unused) > 0 {
			var names []string
			for _, p := range l.found.unused {
				names = append(names, p.key)
			}
			slices.Sort(names)
			first := l.found.unused[0].at
			ld.notice(Notice{Class: "unused_key", Origin: first.origin(),
				Message: fmt.Sprintf("%s: known, but without effect in an unattended run: %s", source(l), strings.Join(slices.Compact(names), ", "))})
		}
	}
	if ld.src.Strict {
		for _, p := range unknown {
			ld.fail(p.err(KindUsage))
		}
		return
	}
	wire := unknownWire(unknown)
	for _, p := range unknown {
		ld.notice(Notice{Class: "unknown_key", Message: place(p.at) + p.message + "; it is ignored", Origin: p.at.origin(), Hint: p.hint, Wire: wire})
		wire = ""
	}
}

// unknownWire is the reference's sentence on ignored settings.
func unknownWire(unknown []problem) string {
	if len(unknown) == 0 {
		return ""
	}
	noun := "setting"
	if len(unknown) > 1 {
		noun = "settings"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Codex is ignoring %d unrecognized configuration %s. Check for typos or deprecated settings.", len(unknown), noun)
	// By file, lowest first, and by name in each.
	var layers []string
	lines := map[string][]string{}
	for _, p := range unknown {
		name := p.at.layer.wireName()
		if lines[name] == nil {
			layers = append(layers, name)
		}
		lines[name] = append(lines[name], fmt.Sprintf("\n  %s: `%s` is ignored.", name, p.key))
	}
	for _, name := range layers {
		slices.Sort(lines[name])
		b.WriteString(strings.Join(lines[name], ""))
	}
	return b.String()
}

// source names a layer for people.
func source(l *layer) string {
	if l.path == "" {
		return "command line"
	}
	return l.path
}

// merged lays the layers over each other, lowest first.
func (ld *loader) merged(layers []*layer) *node {
	root := newTable(nil)
	for _, l := range layers {
		if l.used {
			root = merge(root, mergeEnvironment(root, l.root))
		}
	}
	return root
}
