package policy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nightshift-ci/nightshift/policy/rules"
)

// builder turns the merged layers and the requirements into one Config.
type builder struct {
	*loader
	q    *requirements
	root *node // merged, requirements applied
	cfg  Config
	// protect and profileDeny come from the permission profile in force.
	protect []string
	profile *profile
	// networks are the lists of requirements; a host must pass each.
	networks []networkLimit
	rules    *rules.Set
	// headerVariables are variables that telemetry headers hold.
	headerVariables []string
}

// build decides every value. Later steps rely on the order: pins first, then the
// sandbox mode, then what depends on it.
func (b *builder) build() {
	b.root = b.merged(b.layers)
	b.managedOverrides()
	b.applyDefaults()
	b.applyPins()
	b.applyMaxima()
	b.selectProfile()
	b.sandboxMode()
	b.webSearch()
	b.switches()
	b.model()
	b.instructions()
	b.sandbox()
	b.network()
	b.environment()
	b.mcp()
	b.hooks()
	b.otel()
	b.limits()
	b.auth()
	b.agents()
	b.approval()
}

func (b *builder) str(path ...string) string {
	if v := b.root.get(path...); v != nil {
		return v.text
	}
	return ""
}

func (b *builder) boolean(fallback bool, path ...string) bool {
	if v := b.root.get(path...); v != nil && v.kind == kBool {
		return v.yes
	}
	return fallback
}

func (b *builder) integer(fallback int64, path ...string) int64 {
	if v := b.root.get(path...); v != nil && v.kind == kInteger {
		return v.number
	}
	return fallback
}

func (b *builder) list(path ...string) []string { return stringsOf(b.root.get(path...)) }

func (b *builder) strmap(path ...string) map[string]string {
	v := b.root.get(path...)
	if v == nil || v.kind != kTable {
		return nil
	}
	out := make(map[string]string, len(v.fields))
	for k, f := range v.fields {
		out[k] = f.text
	}
	return out
}

func (b *builder) duration(v *node) time.Duration {
	if v == nil {
		return 0
	}
	d, err := durationOf(v)
	if err != nil {
		b.wrong(v, "", err.Error(), "") // check has seen it before
	}
	return d
}

// seconds reads a number of seconds, fractions allowed.
func seconds(v *node, fallback time.Duration) time.Duration {
	switch {
	case v == nil:
		return fallback
	case v.kind == kFloat:
		return time.Duration(min(v.float, longest.Seconds()) * float64(time.Second))
	}
	return time.Duration(min(v.number, int64(longest/time.Second))) * time.Second
}

// longest is the time that a larger number means: no job lives to see its end,
// and a Duration holds it and what is added to it.
const longest = 100 * 365 * 24 * time.Hour

// resolve makes a path of a layer absolute: relative ones belong to the folder
// of the file, flags to the working folder.
func (ld *loader) resolve(path string, l *layer) string {
	path = ld.expandHome(path)
	if !filepath.IsAbs(path) {
		path = filepath.Join(l.dir(ld.src.Cwd), path)
	}
	return filepath.Clean(path)
}

func (b *builder) paths(path ...string) []string {
	v := b.root.get(path...)
	if v == nil {
		return nil
	}
	var out []string
	for _, i := range v.items {
		out = append(out, b.resolve(i.text, i.layer))
	}
	return out
}

// managedOverrides tells of -c values that the managed file replaces.
func (b *builder) managedOverrides() {
	var managed *layer
	for _, l := range b.layers {
		if l.name == "managed" {
			managed = l
		}
	}
	if managed == nil {
		return
	}
	for _, l := range b.layers {
		if l.name != "session-flags" {
			continue
		}
		for _, s := range l.found.found {
			if v := managed.root.get(s.path...); v != nil && v.kind != kTable && !v.equal(s.at) {
				b.notice(Notice{Class: "managed_override", Origin: v.origin(),
					Message: fmt.Sprintf("%s has no effect: %s sets %s", s.at.origin(), v.origin(), dotted(s.path))})
			}
		}
	}
}

func (b *builder) applyDefaults() {
	for _, name := range sortedKeys(b.q.defaults) {
		if name == "default_permissions" && b.root.get("sandbox_mode") != nil {
			continue // the mode was chosen
		}
		if b.root.get(name) == nil {
			b.root = b.root.with(b.q.defaults[name], name)
		}
	}
}

// explicitly is the flag that sets a key, nil if none does.
func (b *builder) explicitly(path ...string) *node {
	for _, l := range slices.Backward(b.layers) {
		if l.explicit && l.used {
			if v := l.root.get(path...); v != nil {
				return v
			}
		}
	}
	return nil
}

// byFlag tells whether a value comes from the command line.
func (b *builder) byFlag(v *node) bool { return v != nil && v.layer != nil && v.layer.explicit }

// applyPins sets the values that requirements fix. A flag that asks for another
// one is an error; a file's value is replaced, with a notice.
func (b *builder) applyPins() {
	for _, name := range sortedKeys(b.q.pins) {
		if strings.HasPrefix(name, "rules.") {
			continue
		}
		want, path := b.q.pins[name], splitDotted(name)
		if flag := b.explicitly(path...); flag != nil && !flag.equal(want) {
			b.violated(flag, name,
				fmt.Sprintf("%s is not allowed by requirements, which fix it to %s (set by %s)", name, shown(path, want), want.origin()),
				"remove the flag")
		}
		if now := b.root.get(path...); now != nil && !now.equal(want) {
			b.notice(Notice{Class: "requirement_override", Origin: want.origin(),
				Message: fmt.Sprintf("%s%s is %s by requirements instead of %s (set by %s)", place(now), name, shown(path, want), shown(path, now), want.origin())})
		}
		b.root = b.root.with(want, path...)
	}
	for _, name := range sortedKeys(b.q.features) {
		want := b.q.features[name]
		if name == "network_proxy" && !want.yes || name == "web_search_request" && want.yes {
			// A requirement takes away; these would open the network.
			b.notice(Notice{Class: "requirement_ignored", Origin: want.origin(),
				Message: fmt.Sprintf("%sfeature %s = %t has no effect: requirements do not loosen", place(want), name, want.yes)})
			continue
		}
		if now := b.root.get("features", name); now != nil && featureOn(now) != want.yes {
			b.notice(Notice{Class: "requirement_override", Origin: want.origin(),
				Message: fmt.Sprintf("%sfeature %s stays %t by requirements (set by %s)", place(now), name, want.yes, want.origin())})
		}
		b.root = b.root.with(want, "features", name)
	}
}

// numericLimits are keys of the configuration that requirements bound from
// above.
func numericLimits() []string {
	return []string{
		"limits.max_turns", "limits.max_tool_calls", "limits.max_wall_time", "limits.max_idle_time", "limits.max_tokens",
		"limits.max_cost_usd", "limits.max_repeated_failures", "limits.verify_rounds", "limits.stop_hook_rounds",
		"sandbox.memory", "sandbox.processes", "sandbox.cpu", "sandbox.file_size",
	}
}

// unbounded tells whether n stands for no bound at all. Zero rounds are a bound.
func unbounded(key string, n *node) bool {
	return magnitude(n) == 0 && slices.Contains(numericLimits(), key) && !strings.HasSuffix(key, "_rounds")
}

func (b *builder) applyMaxima() {
	for _, name := range numericLimits() {
		most := b.q.maxima[name]
		if most == nil {
			continue
		}
		path := strings.Split(name, ".")
		if flag := b.explicitly(path...); flag != nil && (unbounded(name, flag) || magnitude(flag) > magnitude(most)) {
			b.violated(flag, name,
				fmt.Sprintf("%s = %s is above the %s that requirements allow (set by %s)", name, flag, most, most.origin()),
				"lower the flag")
			continue
		}
		now := b.root.get(path...)
		switch {
		case now == nil:
			b.root = b.root.with(most, path...)
		case unbounded(name, now) || magnitude(now) > magnitude(most):
			b.notice(Notice{Class: "requirement_fallback", Origin: most.origin(),
				Message: fmt.Sprintf("%s%s = %s is above the %s that requirements allow; %s holds (set by %s)", place(now), name, now, most, most, most.origin())})
			b.root = b.root.with(most, path...)
		}
	}
}

// limits fills [limits], [prices] and verify.
func (b *builder) limits() {
	n := func(key string, fallback int64) int64 { return b.integer(fallback, "limits", key) }
	b.cfg.Limits = Limits{
		MaxTurns: int(n("max_turns", 0)), MaxToolCalls: int(n("max_tool_calls", 0)), MaxTokens: n("max_tokens", 0),
		MaxWallTime: b.duration(b.root.get("limits", "max_wall_time")), MaxIdleTime: b.duration(b.root.get("limits", "max_idle_time")),
		MaxCostUSD: magnitude(b.root.get("limits", "max_cost_usd")), MaxRepeatedFailures: int(n("max_repeated_failures", 0)),
		NoFinalAnswer: b.boolean(false, "limits", "no_final_answer"),
		VerifyRounds:  int(n("verify_rounds", 3)), StopHookRounds: int(n("stop_hook_rounds", 3)),
	}
	b.cfg.Verify = b.list("verify")
	if slices.ContainsFunc(b.cfg.Verify, func(cmd string) bool { return strings.TrimSpace(cmd) == "" }) {
		b.wrong(b.root.get("verify"), "verify", "a command of verify is empty, and would always pass", "is it a variable that is not set?")
	}
	b.cfg.Prices = Prices{Date: b.str("prices", "date")}
	if models := b.root.get("prices", "models"); models != nil {
		b.cfg.Prices.Models = map[string]ModelPrice{}
		for _, name := range models.keys {
			m := models.fields[name]
			p := ModelPrice{Input: magnitude(m.get("input")), Output: magnitude(m.get("output")), CachedInput: magnitude(m.get("input"))}
			if cached := m.get("cached_input"); cached != nil {
				p.CachedInput = magnitude(cached)
			}
			b.cfg.Prices.Models[name] = p
		}
	}
	if b.cfg.Limits.MaxCostUSD > 0 {
		// A fallback without a price would be free of charge.
		for _, model := range append([]string{b.cfg.Model}, b.cfg.ModelFallback...) {
			b.priced(model)
		}
	}
}

// priced demands a price for a model that may be paid for under a limit.
func (b *builder) priced(model string) {
	if _, ok := b.cfg.Prices.Models[model]; ok {
		return
	}
	at := b.root.get("limits", "max_cost_usd")
	b.fail(problem{
		at:      at,
		key:     "limits.max_cost_usd",
		message: fmt.Sprintf("limits.max_cost_usd cannot be kept: there is no price for model %q", model),
		hint:    fmt.Sprintf("add [prices.models.%s] with input, cached_input and output", strconv.Quote(model)),
	}.err(kindAt(at)))
}

// auth fills what limits and stores credentials.
func (b *builder) auth() {
	a := &b.cfg.Auth
	a.ForcedLoginMethod = b.str("forced_login_method")
	a.ForcedWorkspaces = b.list("forced_chatgpt_workspace_id")
	if b.q.logins != nil {
		a.AllowedMethods = b.q.logins.values
		if at := b.root.get("forced_login_method"); at != nil && !b.q.logins.has(at.text) {
			b.violated(at, "forced_login_method",
				fmt.Sprintf("forced_login_method = %q is not allowed by requirements: allowed_login_methods is [%s] (set by %s)", at.text, strings.Join(b.q.logins.values, ", "), b.q.logins.origin()),
				"")
		}
	}
	if b.q.workspaces != nil {
		a.AllowedWorkspaces = b.q.workspaces.values
	}
	a.Store = "file"
	if s := b.root.get("cli_auth_credentials_store"); s != nil && s.text != "file" && s.text != "auto" {
		b.fail(problem{at: s, key: "cli_auth_credentials_store",
			message: fmt.Sprintf("cli_auth_credentials_store = %q is not supported: an unattended machine has no keyring", s.text),
			hint:    `use "file"`}.err(kindAt(s)))
	}
	a.Writeback = b.str("auth", "writeback")
	a.ReadOnlyOK = b.boolean(false, "auth", "read_only_ok")
	a.BaseURL = b.str("chatgpt_base_url")
}

// approval says what becomes of approval_policy: nothing, since nobody answers.
func (b *builder) approval() {
	b.cfg.ApprovalPolicy = "never"
	if a := b.q.approvals; a != nil && !a.has("never") {
		b.notice(Notice{Class: "approval_granular", Origin: a.origin(),
			Message: fmt.Sprintf("requirements let some actions be asked about; in this unattended run each of them is denied (set by %s)", a.origin())})
	}
	if r := b.q.reviewers; b.src.Flags.ApproveForMe && !r.has("auto_review") {
		words := map[string]string{"user": "User", "auto_review": "AutoReview", "guardian_subagent": "AutoReview"}
		var set []string
		for _, v := range r.values {
			set = append(set, words[v])
		}
		b.notice(Notice{Class: "requirement_fallback", Origin: r.origin(),
			Message: fmt.Sprintf("an automatic reviewer is not allowed by requirements (set by %s)", r.origin()),
			Wire:    fmt.Sprintf("Configured value for `approvals_reviewer` is disallowed by requirements; falling back to required value %s. Details: invalid value for `approvals_reviewer`: `AutoReview` is not in the allowed set [%s] (set by %s)", set[0], strings.Join(set, ", "), r.at.layer.path)})
	}
	at := b.root.get("approval_policy")
	if at == nil || approvalOf(at) == "never" {
		return
	}
	b.notice(Notice{Class: "approval_never", Origin: at.origin(),
		Message: fmt.Sprintf("%sapproval_policy %s has no effect: an unattended run never asks; what would be asked is denied", place(at), at)})
}
