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
	b.model()
	b.instructions()
	b.sandbox()
	b.network()
	b.environment()
	b.switches()
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
		b.fail(problem{at: v, message: err.Error()}.err(KindUsage)) // check has seen it before
	}
	return d
}

// seconds reads a number of seconds, fractions allowed.
func seconds(v *node, fallback time.Duration) time.Duration {
	switch {
	case v == nil:
		return fallback
	case v.kind == kFloat:
		return time.Duration(v.float * float64(time.Second))
	}
	return time.Duration(v.number) * time.Second
}

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
			if v := managed.root.get(s.path...); v != nil && v.kind != kTable && v.String() != s.at.String() {
				b.notice("managed_override", fmt.Sprintf("%s has no effect: %s sets %s", s.at.origin(), v.origin(), dotted(s.path)), v.origin(), "", "")
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

// applyPins puts fixed values in force. A flag that asks for another one is an
// error; a file's value is replaced, and said so.
func (b *builder) applyPins() {
	for _, name := range sortedKeys(b.q.pins) {
		if strings.HasPrefix(name, "rules.") {
			continue
		}
		want, path := b.q.pins[name], splitDotted(name)
		if flag := b.explicitly(path...); flag != nil && flag.String() != want.String() {
			b.violated(flag, name, fmt.Sprintf("%s is not allowed by requirements, which fix it to %s (set by %s)", name, want, want.origin()), "remove the flag")
		}
		if now := b.root.get(path...); now != nil && now.String() != want.String() {
			b.notice("requirement_override", fmt.Sprintf("%s%s is %s by requirements instead of %s (set by %s)", place(now), name, want, now, want.origin()), want.origin(), "", "")
		}
		b.root = b.root.with(want, path...)
	}
	for _, name := range sortedKeys(b.q.features) {
		want := b.q.features[name]
		if name == "network_proxy" && !want.yes || name == "web_search_request" && want.yes {
			// A requirement takes away; these would open the network.
			b.notice("requirement_ignored", fmt.Sprintf("%sfeature %s = %t has no effect: requirements do not loosen", place(want), name, want.yes), want.origin(), "", "")
			continue
		}
		if now := b.root.get("features", name); now != nil && featureOn(now) != want.yes {
			b.notice("requirement_override", fmt.Sprintf("%sfeature %s stays %t by requirements (set by %s)", place(now), name, want.yes, want.origin()), want.origin(), "", "")
		}
		b.root = b.root.with(want, "features", name)
	}
}

// numericLimits are keys of the configuration that requirements bound from
// above.
func numericLimits() []string {
	return []string{"limits.max_turns", "limits.max_tool_calls", "limits.max_wall_time", "limits.max_idle_time", "limits.max_tokens", "limits.max_cost_usd", "limits.max_repeated_failures",
		"limits.verify_rounds", "limits.stop_hook_rounds", "sandbox.memory", "sandbox.processes", "sandbox.cpu", "sandbox.file_size"}
}

func (b *builder) applyMaxima() {
	for _, name := range numericLimits() {
		most := b.q.maxima[name]
		if most == nil {
			continue
		}
		path := strings.Split(name, ".")
		if flag := b.explicitly(path...); flag != nil && (magnitude(flag) == 0 || magnitude(flag) > magnitude(most)) {
			b.violated(flag, name, fmt.Sprintf("%s = %s is above the %s that requirements allow (set by %s)", name, flag, most, most.origin()), "lower the flag")
			continue
		}
		now := b.root.get(path...)
		switch {
		case now == nil:
			b.root = b.root.with(most, path...)
		case magnitude(now) == 0 || magnitude(now) > magnitude(most):
			b.notice("requirement_fallback", fmt.Sprintf("%s%s = %s is above the %s that requirements allow; %s holds (set by %s)", place(now), name, now, most, most, most.origin()), most.origin(), "", "")
			b.root = b.root.with(most, path...)
		}
	}
}

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
		if mode == "danger-full-access" {
			at := asked
			if at == nil {
				at = b.root.get("default_permissions")
			}
			b.refuseMode(at, mode)
		} else {
			limit := b.modeOrigin(mode)
			b.notice("requirement_fallback", fmt.Sprintf("sandbox mode %q of %s is not allowed by requirements; the run is read-only (set by %s)", mode, origin, limit), limit, "", b.sandboxWire(mode))
		}
		mode = "read-only"
		b.profile = nil
	}
	b.cfg.SandboxMode = mode
	if mode != b.str("sandbox_mode") && asked != nil {
		b.root = b.root.with(b.q.sandbox.instead(mode, asked), "sandbox_mode")
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

// instead is a value that the list has put in the place of another.
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
	b.violated(at, "sandbox_mode", fmt.Sprintf("sandbox mode %q is not allowed by requirements: %s is [%s] (set by %s)", mode, name, strings.Join(list.values, ", "), list.origin()),
		"choose one of the allowed modes, or leave the mode out")
}

// wireWords are the names the reference uses in its warnings.
var wireWords = map[string]string{"read-only": "ReadOnly", "workspace-write": "WorkspaceWrite", "danger-full-access": "DangerFullAccess", "external-sandbox": "ExternalSandbox",
	"disabled": "Disabled", "cached": "Cached", "indexed": "Indexed", "live": "Live"}

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
	return fmt.Sprintf("Configured value for `permission_profile` is disallowed by requirements; falling back to required value Managed{read-only}. Details: invalid value for `sandbox_mode`: `%s` is not in the allowed set %s (set by %s)",
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
	if flag := b.explicitly("web_search"); flag != nil && flag.text == mode {
		b.violated(flag, "web_search", fmt.Sprintf("web_search = %q is not allowed by requirements: allowed_web_search_modes is [%s] (set by %s)", mode, strings.Join(limit.values, ", "), limit.origin()), "remove the flag")
		return
	}
	fallback := limit.strictest(ranks["web_search"], mode, "disabled")
	allowedSet := limit.values
	if !slices.Contains(allowedSet, "disabled") {
		allowedSet = append([]string{"disabled"}, allowedSet...)
	}
	wire := fmt.Sprintf("Configured value for `web_search_mode` is disallowed by requirements; falling back to required value %s. Details: invalid value for `web_search_mode`: `%s` is not in the allowed set %s (set by %s)",
		wireWords[fallback], wireWords[mode], wireSet(allowedSet), limit.at.layer.path)
	from := "the default"
	if at != nil {
		from = at.origin()
	}
	b.notice("requirement_fallback", fmt.Sprintf("web_search = %q of %s is not allowed by requirements; %q holds (set by %s)", mode, from, fallback, limit.origin()), limit.origin(), "", wire)
	b.cfg.WebSearch = fallback
	b.root = b.root.with(limit.instead(fallback, limit.at), "web_search")
}

// model fills what concerns the model and its provider.
func (b *builder) model() {
	c := &b.cfg
	c.Model = b.str("model")
	if c.Model == "" {
		c.Model = "gpt-5.5"
	}
	c.ReviewModel = b.str("review_model")
	c.ReasoningEffort = b.str("model_reasoning_effort")
	c.ReasoningSummary = b.str("model_reasoning_summary")
	c.Verbosity = b.str("model_verbosity")
	c.ContextWindow = b.integer(0, "model_context_window")
	c.CompactLimit = b.integer(0, "model_auto_compact_token_limit")
	c.ModelFallback = b.list("model_fallback")
	c.ModelProvider = b.str("model_provider")
	if c.ModelProvider == "" {
		c.ModelProvider = "openai"
	}
	if b.q.residency != nil {
		c.Residency = b.q.residency.text
	}
	b.provider()
}

func (b *builder) provider() {
	c, name := &b.cfg, b.cfg.ModelProvider
	table := b.root.get("model_providers", name)
	p := Provider{Name: name, WireAPI: "responses", RequestMaxRetries: 4, StreamMaxRetries: 5, StreamIdleTimeout: 5 * time.Minute}
	switch {
	case name == "openai":
		p.BuiltIn, p.Name, p.RequiresOpenAIAuth = true, "OpenAI", true
		p.BaseURL = b.str("openai_base_url")
		if table != nil {
			b.notice("unused_key", place(table)+"model_providers.openai is ignored: the name is built in", table.origin(), "use openai_base_url, or another name", "")
		}
	case table == nil:
		at := b.root.get("model_provider")
		known := []string{"openai"}
		if t := b.root.get("model_providers"); t != nil {
			known = append(known, t.keys...)
		}
		hint := "define [model_providers." + name + "]"
		if near := nearest(name, known); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		b.fail(problem{at: at, key: "model_provider", message: fmt.Sprintf("model_provider %q is not defined", name), hint: hint}.err(KindUsage))
	default:
		b.providerTable(&p, name, table)
	}
	c.Provider = p
}

func (b *builder) providerTable(p *Provider, name string, table *node) {
	at := []string{"model_providers", name}
	get := func(key string) string { return b.str(append(at, key)...) }
	if n := get("name"); n != "" {
		p.Name = n
	}
	p.BaseURL, p.EnvKey, p.EnvKeyInstructions, p.BearerToken = get("base_url"), get("env_key"), get("env_key_instructions"), get("experimental_bearer_token")
	p.RequiresOpenAIAuth = b.boolean(false, append(at, "requires_openai_auth")...)
	p.HTTPHeaders, p.EnvHTTPHeaders, p.QueryParams = b.strmap(append(at, "http_headers")...), b.strmap(append(at, "env_http_headers")...), b.strmap(append(at, "query_params")...)
	p.RequestMaxRetries = int(min(100, b.integer(4, append(at, "request_max_retries")...)))
	p.StreamMaxRetries = int(min(100, b.integer(5, append(at, "stream_max_retries")...)))
	p.StreamIdleTimeout = time.Duration(min(b.integer(300_000, append(at, "stream_idle_timeout_ms")...), 24*3600*1000)) * time.Millisecond
	p.RetryBudget = b.duration(table.get("retry_budget"))
	if p.BaseURL == "" {
		b.fail(problem{at: table, key: "model_providers." + name, message: fmt.Sprintf("model_providers.%s has no base_url", name)}.err(KindUsage))
	}
	for _, key := range []string{"auth", "aws"} {
		if v := table.get(key); v != nil {
			b.fail(problem{at: v, key: "model_providers." + name + "." + key, message: fmt.Sprintf("model_providers.%s.%s is not supported: requests would go out without a credential", name, key), hint: "use env_key"}.err(KindUsage))
		}
	}
}

// instructions reads the prompt files.
func (b *builder) instructions() {
	c := &b.cfg
	c.Instructions = b.str("instructions")
	if f := b.root.get("model_instructions_file"); f != nil {
		c.Instructions = b.text(f, "model_instructions_file")
	}
	c.DeveloperInstructions = b.str("developer_instructions")
	for _, v := range b.q.advice {
		if c.DeveloperInstructions != "" {
			c.DeveloperInstructions += "\n\n"
		}
		c.DeveloperInstructions += v.text
	}
	c.CompactPrompt = b.str("compact_prompt")
	if f := b.root.get("experimental_compact_prompt_file"); f != nil && c.CompactPrompt == "" {
		c.CompactPrompt = b.text(f, "experimental_compact_prompt_file")
	}
	c.ProjectDocMaxBytes = int(b.integer(32768, "project_doc_max_bytes"))
	c.ProjectDocFallbacks = b.list("project_doc_fallback_filenames")
	c.ProjectRootMarkers = []string{".git"}
	if m := b.root.get("project_root_markers"); m != nil {
		c.ProjectRootMarkers = stringsOf(m)
	}
	c.ProjectTrusted, c.TrustEntry, c.ProjectRoot = b.trust.trusted, b.trust.entry, b.trust.root
	c.UpdatePlan = b.boolean(false, "tools", "update_plan", "enabled")
	c.ViewImage = b.boolean(true, "tools", "view_image")
}

// text is the content of a file that a key names.
func (b *builder) text(v *node, key string) string {
	path := b.resolve(v.text, v.layer)
	data, err := b.src.Files.ReadFile(path)
	if err != nil {
		b.fail(problem{at: v, key: key, message: fmt.Sprintf("%s: cannot read %s: %s", key, path, reason(err))}.err(KindUsage))
		return ""
	}
	text := strings.TrimSpace(string(data))
	if text == "" {
		b.fail(problem{at: v, key: key, message: fmt.Sprintf("%s: %s is empty", key, path)}.err(KindUsage))
	}
	return text
}

// limits fills [limits], [prices] and verify.
func (b *builder) limits() {
	n := func(key string, fallback int64) int64 { return b.integer(fallback, "limits", key) }
	b.cfg.Limits = Limits{
		MaxTurns: int(n("max_turns", 0)), MaxToolCalls: int(n("max_tool_calls", 0)), MaxTokens: n("max_tokens", 0),
		MaxWallTime: b.duration(b.root.get("limits", "max_wall_time")), MaxIdleTime: b.duration(b.root.get("limits", "max_idle_time")),
		MaxCostUSD: magnitude(b.root.get("limits", "max_cost_usd")), MaxRepeatedFailures: int(n("max_repeated_failures", 0)),
		NoFinalAnswer: b.boolean(false, "limits", "no_final_answer"), VerifyRounds: int(n("verify_rounds", 3)), StopHookRounds: int(n("stop_hook_rounds", 3)),
	}
	b.cfg.Verify = b.list("verify")
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
		if _, priced := b.cfg.Prices.Models[b.cfg.Model]; !priced {
			at := b.root.get("limits", "max_cost_usd")
			b.fail(problem{at: at, key: "limits.max_cost_usd", message: fmt.Sprintf("limits.max_cost_usd cannot be kept: there is no price for model %q", b.cfg.Model),
				hint: fmt.Sprintf("add [prices.models.%s] with input, cached_input and output", strconv.Quote(b.cfg.Model))}.err(KindUsage))
		}
	}
}

// auth fills what limits and stores credentials.
func (b *builder) auth() {
	a := &b.cfg.Auth
	a.ForcedLoginMethod = b.str("forced_login_method")
	a.ForcedWorkspaces = b.list("forced_chatgpt_workspace_id")
	if b.q.logins != nil {
		a.AllowedMethods = b.q.logins.values
		if at := b.root.get("forced_login_method"); at != nil && !b.q.logins.has(at.text) {
			b.violated(at, "forced_login_method", fmt.Sprintf("forced_login_method = %q is not allowed by requirements: allowed_login_methods is [%s] (set by %s)", at.text, strings.Join(b.q.logins.values, ", "), b.q.logins.origin()), "")
		}
	}
	if b.q.workspaces != nil {
		a.AllowedWorkspaces = b.q.workspaces.values
	}
	a.Store = "file"
	if s := b.root.get("cli_auth_credentials_store"); s != nil && s.text != "file" && s.text != "auto" {
		k := KindUsage
		if s.layer != nil && s.layer.name == "requirements" {
			k = KindPolicy
		}
		b.fail(problem{at: s, key: "cli_auth_credentials_store", message: fmt.Sprintf("cli_auth_credentials_store = %q is not supported: an unattended machine has no keyring", s.text), hint: `use "file"`}.err(k))
	}
	a.Writeback = b.str("auth", "writeback")
	a.ReadOnlyOK = b.boolean(false, "auth", "read_only_ok")
	a.BaseURL = b.str("chatgpt_base_url")
}

// approval says what becomes of approval_policy: nothing, since nobody answers.
func (b *builder) approval() {
	b.cfg.ApprovalPolicy = "never"
	if a := b.q.approvals; a != nil && !a.has("never") {
		b.notice("approval_granular", fmt.Sprintf("requirements let some actions be asked about; in this unattended run each of them is denied (set by %s)", a.origin()), a.origin(), "", "")
	}
	if r := b.q.reviewers; b.src.Flags.ApproveForMe && !r.has("auto_review") {
		words := map[string]string{"user": "User", "auto_review": "AutoReview", "guardian_subagent": "AutoReview"}
		var set []string
		for _, v := range r.values {
			set = append(set, words[v])
		}
		b.notice("requirement_fallback", fmt.Sprintf("an automatic reviewer is not allowed by requirements (set by %s)", r.origin()), r.origin(), "",
			fmt.Sprintf("Configured value for `approvals_reviewer` is disallowed by requirements; falling back to required value %s. Details: invalid value for `approvals_reviewer`: `AutoReview` is not in the allowed set [%s] (set by %s)", set[0], strings.Join(set, ", "), r.at.layer.path))
	}
	at := b.root.get("approval_policy")
	if at == nil || approvalOf(at) == "never" {
		return
	}
	b.notice("approval_never", fmt.Sprintf("%sapproval_policy %s has no effect: an unattended run never asks; what would be asked is denied", place(at), at), at.origin(), "", "")
}
