package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// gates are the events at which a hook can refuse something; there a failing
// hook blocks unless it says otherwise.
var gates = []string{"PreToolUse", "PermissionRequest", "UserPromptSubmit"}

// switches fills Features.
func (b *builder) switches() {
	b.cfg.Features = map[string]bool{}
	table := b.root.get("features")
	if table == nil {
		return
	}
	for _, name := range table.keys {
		if _, known := featureName(name); known {
			b.cfg.Features[name] = featureOn(table.fields[name])
		}
	}
}

// feature is the value of a feature, or its default where nobody set it.
func (b *builder) feature(name string, byDefault bool) bool {
	if on, set := b.cfg.Features[name]; set {
		return on
	}
	return byDefault
}

// hooks collects the hooks of all layers. They add up: a higher layer cannot
// take away a lower one's.
func (b *builder) hooks() {
	on := b.feature("hooks", true)
	for _, table := range b.q.hooks {
		b.hookTable(table, true)
	}
	dropped := 0
	for _, l := range b.layers {
		managed := l.name == "system" || l.name == "managed"
		if l.name == "project" || !managed && (!on || b.q.managedHooks != nil) {
			if t := l.root.get("hooks"); t != nil && l.name != "project" {
				dropped++
			}
			continue
		}
		if t := l.root.get("hooks"); t != nil {
			b.hookTable(t, managed)
		}
	}
	if !b.src.IgnoreUser {
		dropped += b.hookFile(filepath.Join(b.src.Home, "hooks.json"), on && b.q.managedHooks == nil)
	}
	if dropped == 0 {
		return
	}
	if b.q.managedHooks != nil {
		b.notice(Notice{Class: "hooks_off", Origin: b.q.managedHooks.origin(),
			Message: fmt.Sprintf("only managed hooks run (set by %s)", b.q.managedHooks.origin())})
		return
	}
	b.notice(Notice{Class: "hooks_off", Message: "hooks are off: the feature hooks is disabled", Origin: b.root.get("features", "hooks").origin()})
}

func (b *builder) hookTable(table *node, managed bool) {
	for _, event := range table.keys {
		groups := table.fields[event]
		if !slices.Contains(hookEvents[:], event) || groups.kind != kArray {
			continue
		}
		for _, group := range groups.items {
			matcher := ""
			if m := group.get("matcher"); m != nil {
				matcher = m.text
			}
			for _, h := range itemsOf(group.get("hooks")) {
				b.hook(event, matcher, group, h, managed)
			}
		}
	}
}

// HookTimeout is how long a hook may take that names no time: as long as in the
// reference, since a Stop hook may run all tests.
const HookTimeout = 10 * time.Minute

// hook adds one hook. A gate that could not work is an error, since a hook that
// never runs lets everything through.
func (b *builder) hook(event, matcher string, group, v *node, managed bool) {
	k := KindUsage
	if v.layer != nil && (v.layer.name == "requirements" || v.layer.name == "managed") {
		k = KindPolicy
	}
	bad := func(at *node, format string, args ...any) {
		b.fail(problem{at: at, key: "hooks." + event, message: "hooks." + event + ": " + fmt.Sprintf(format, args...)}.err(k))
	}
	match, err := HookMatcher(matcher)
	if err != nil {
		bad(group, "matcher %q is not a regular expression", matcher)
		return
	}
	b.blindMatcher(event, matcher, match, group)
	if t := v.get("type"); t != nil && t.text != "command" {
		bad(v, "type %q cannot run unattended; only command can", t.text)
		return
	}
	command := v.get("command")
	if command == nil || strings.TrimSpace(command.text) == "" {
		bad(v, "has no command")
		return
	}
	h := Hook{
		Event:   event,
		Matcher: matcher,
		Command: command.text,
		Timeout: seconds(v.get("timeout"), HookTimeout),
		OnError: "continue",
		Managed: managed,
		Origin:  v.origin(),
	}
	if slices.Contains(gates, event) {
		h.OnError = "block"
	}
	if e := v.get("on_error"); e != nil {
		h.OnError = e.text
	}
	if h.Timeout <= 0 {
		h.Timeout = HookTimeout
	}
	b.cfg.Hooks = append(b.cfg.Hooks, h)
}

// blindMatcher tells of a matcher that means commands and never sees one: hooks
// know them by another name than the model does, so the hook would not run, and
// nothing would say so.
func (b *builder) blindMatcher(event, matcher string, match func(tool string) bool, group *node) {
	if event != "PreToolUse" && event != "PostToolUse" && event != "PermissionRequest" || match("Bash") {
		return
	}
	for _, name := range []string{"exec_command", "shell", "shell_command", "local_shell", "bash"} {
		if match(name) {
			b.notice(Notice{Class: "hook_matcher", Origin: group.origin(), Hint: "write Bash; patches are apply_patch, and tools of servers are mcp__SERVER__TOOL",
				Message: fmt.Sprintf("%sthe matcher %q of hooks.%s never sees a command: for hooks its tool is Bash", place(group), matcher, event)})
			return
		}
	}
}

// HookMatcher makes the test of a hook's matcher, as the reference does: words
// joined by | are compared whole, anything else is a regular expression that may
// match any part; "" and "*" match everything. The error is that of the expression.
func HookMatcher(pattern string) (func(tool string) bool, error) {
	if pattern == "" || pattern == "*" {
		return func(string) bool { return true }, nil
	}
	if !strings.ContainsFunc(pattern, func(r rune) bool { return !inWords(r) }) {
		words := strings.Split(pattern, "|")
		return func(tool string) bool { return slices.Contains(words, tool) }, nil
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	return re.MatchString, nil
}

// inWords tells whether r may stand in a list of words.
func inWords(r rune) bool {
	return r == '_' || r == '|' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z'
}

// hookFile reads hooks.json; it returns 1 if there is one and hooks are off.
func (b *builder) hookFile(path string, on bool) int {
	data, err := b.src.Files.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	fail := func(message string) int {
		b.fail(&Error{File: path, Kind: KindUsage,
			Message:  message,
			HintText: `write {"hooks": {"<Event>": [{"matcher": "…", "hooks": [{"type": "command", "command": "…"}]}]}}`})
		return 0
	}
	if err != nil {
		return fail("cannot be read: " + reason(err))
	}
	if !on {
		return 1
	}
	l := &layer{name: "user", path: path, used: true}
	var content struct {
		Hooks map[string]any `json:"hooks"`
	}
	if err := json.Unmarshal(data, &content); err != nil {
		return fail("is not valid: " + err.Error())
	}
	table := jsonNode(l, map[string]any{"hooks": anyMap(content.Hooks)})
	f := check(table, configSchema())
	for _, p := range f.wrong {
		b.fail(p.err(KindUsage))
	}
	for _, p := range f.unknown {
		event := strings.TrimPrefix(p.key, "hooks.")
		if !strings.ContainsAny(event, ".[") {
			p.message = fmt.Sprintf("unknown hook event %q", event)
			b.fail(p.err(KindUsage))
			continue
		}
		b.notice(Notice{Class: "unknown_key", Message: place(p.at) + p.message + "; it is ignored", Origin: p.at.origin(), Hint: p.hint})
	}
	if len(f.wrong) == 0 {
		b.hookTable(table.get("hooks"), false)
	}
	return 0
}

func anyMap(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

// jsonNode turns decoded JSON into a tree.
func jsonNode(l *layer, v any) *node {
	n := &node{layer: l}
	switch x := v.(type) {
	case map[string]any:
		n.kind, n.fields = kTable, map[string]*node{}
		for _, k := range sortedKeys(x) {
			if x[k] != nil {
				n.set(k, jsonNode(l, x[k]))
			}
		}
	case []any:
		n.kind = kArray
		for _, i := range x {
			n.items = append(n.items, jsonNode(l, i))
		}
	case string:
		n.kind, n.text = kString, x
	case bool:
		n.kind, n.yes = kBool, x
	case float64:
		n.kind, n.float, n.text = kFloat, x, strconv.FormatFloat(x, 'g', -1, 64)
		if x == float64(int64(x)) {
			n.kind, n.number = kInteger, int64(x)
		}
	}
	return n
}

// environment fills the environment policy.
func (b *builder) environment() {
	e := EnvironmentPolicy{
		Inherit:               b.str("shell_environment_policy", "inherit"),
		IgnoreDefaultExcludes: b.boolean(false, "shell_environment_policy", "ignore_default_excludes"),
		Exclude:               environmentList(b.root, "exclude"),
		IncludeOnly:           environmentList(b.root, "include"),
		Set:                   b.strmap("shell_environment_policy", "set"),
	}
	if e.Inherit == "" {
		e.Inherit = "all"
	}
	for _, pattern := range slices.Concat(e.Exclude, e.IncludeOnly) {
		if _, err := filepath.Match(pattern, ""); err != nil {
			at := b.root.get("shell_environment_policy", "filters", pattern)
			b.wrong(at, "shell_environment_policy", fmt.Sprintf("%q is not a valid pattern", pattern), "")
		}
	}
	slices.Sort(e.Exclude)
	slices.Sort(e.IncludeOnly)
	b.cfg.Environment = e
	b.cfg.AllowLoginShell = b.boolean(true, "allow_login_shell") && b.q.noLogin == nil
	if flag := b.explicitly("allow_login_shell"); flag != nil && flag.yes && b.q.noLogin != nil {
		b.violated(flag, "allow_login_shell",
			fmt.Sprintf("allow_login_shell is not allowed by requirements (set by %s)", b.q.noLogin.origin()),
			"remove the flag")
	}
	b.cfg.Notify = b.list("notify")
	for _, s := range itemsOf(b.root.get("skills", "config")) {
		if on := s.get("enabled"); on == nil || on.yes {
			continue
		}
		if n := s.get("name"); n != nil {
			b.cfg.Skills.Disabled = append(b.cfg.Skills.Disabled, n.text)
		} else if p := s.get("path"); p != nil {
			b.cfg.Skills.Disabled = append(b.cfg.Skills.Disabled, b.resolve(p.text, p.layer))
		}
	}
}
