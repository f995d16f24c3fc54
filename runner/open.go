package runner

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/mcp"
	"github.com/nightshift-ci/nightshift/runner/model"
	"github.com/nightshift-ci/nightshift/runner/rollout"
	"github.com/nightshift-ci/nightshift/runner/skill"
	"github.com/nightshift-ci/nightshift/runner/workspace"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// runState is what a run finds out while it opens, and what it must remember from
// one request to the next.
type runState struct {
	base      []model.Item // context messages; a compaction begins with them again
	lastInput int64        // tokens of the last response
	broken    []model.Item // what the last attempt had finished before it failed
	fallbacks []string
	gates     gates
	shell     string
	facts     workspace.Facts
	dir       *workspace.Dir
	servers   *mcp.Set
	saveError bool
	// noEndpoint: the provider's compaction endpoint was tried and did not help.
	noEndpoint bool
	// compactFrom is the size below which the history is not compacted again: it
	// did not get smaller the last time.
	compactFrom int
	// noBaseline: the user was told that the changes of this run cannot be found out.
	noBaseline bool
	review     *review
	agents     *agents
	skills     []skill.Skill
	warnings   []string // of the start, shown as items
}

// opened is a sandbox that was made beside other start-up work.
type opened struct {
	box *sandbox.Sandbox
	err error
}

// open does everything before the first request: the sandbox, the workspace,
// the tools and the first messages. Whatever cannot be had ends the run here.
func (r *run) open(ctx context.Context) error {
	facts, err := workspace.Find(r.Workdir)
	if err != nil {
		return err
	}
	r.state.facts = facts
	r.state.shell = r.shell()
	r.state.fallbacks = append([]string(nil), r.cfg.ModelFallback...)
	r.log.Emit(r.startedEvent())
	for _, n := range r.Notices {
		r.log.Emit(n)
	}

	conf, err := Confine(ConfineOptions{Policy: r.Policy, Workdir: r.Workdir, Facts: facts, Home: r.Home,
		UserHome: r.UserHome, Private: r.Private, Outputs: r.Outputs, LookupEnv: r.lookupEnv})
	if err != nil {
		return err
	}
	r.confined(conf)
	r.openSide(conf)
	boxes := make(chan opened, 1)
	go func() {
		box, err := r.Early.Open(ctx, conf.Spec)
		boxes <- opened{box, err}
	}()
	var contextErr error
	bug := guarded(func() error {
		r.log.Emit(r.Credential)
		r.openWorkspace(conf)
		contextErr = r.firstMessages(ctx, conf)
		return nil
	})
	o := <-boxes
	r.box = o.box
	if err := firstError(bug, o.err); err != nil {
		return err
	}
	if r.state.dir != nil {
		r.state.dir.Share(r.box)
	}
	if contextErr != nil {
		return contextErr
	}
	report := r.box.Report()
	r.log.Emit(conf.Event(report))
	for _, note := range report.Notes { // what commands will stumble over
		r.log.Emit(event.Notice{Class: "sandbox", Message: note})
	}
	r.startEgress(conf)
	if err := r.openTools(ctx, conf); err != nil {
		return err
	}
	r.log.Emit(event.ThreadStarted{ThreadID: r.Thread.ID})
	r.warn()
	if err := r.beginTurn(ctx); err != nil {
		return err
	}
	r.log.Emit(event.TurnStarted{})
	return nil
}

func (r *run) startedEvent() event.RunStarted {
	return event.RunStarted{Version: r.Version, Mode: r.Mode, ThreadID: r.Thread.ID, ParentID: r.Thread.ParentID,
		Model: r.cfg.Model, Provider: r.cfg.ModelProvider, Effort: r.cfg.ReasoningEffort, Workdir: r.Workdir,
		Sandbox: r.cfg.SandboxMode, Approval: r.cfg.ApprovalPolicy, Network: r.network(), Prompt: r.Prompt,
		Requester: r.Requester, Job: r.Job, Task: r.Task, PolicyDigest: r.Policy.Digest(), Origins: r.Policy.Origins(),
		Git: r.state.facts.State(), Prices: priceTable(r.cfg.Prices)}
}

func (r *run) network() string {
	switch {
	case r.cfg.SandboxMode == string(sandbox.FullAccess) || r.cfg.Sandbox.NetworkAccess && !r.cfg.Sandbox.Network.Enabled:
		return "on"
	case r.cfg.Sandbox.Network.Enabled:
		return "allowlist"
	}
	return "off"
}

func priceTable(p policy.Prices) *event.PriceTable {
	if len(p.Models) == 0 {
		return nil
	}
	t := &event.PriceTable{Date: p.Date, Models: map[string]event.Price{}}
	for name, m := range p.Models {
		t.Models[name] = event.Price(m)
	}
	return t
}

func (r *run) lookupEnv(name string) (string, bool) {
	for i := len(r.Environ) - 1; i >= 0; i-- {
		e := r.Environ[i]
		if len(e) > len(name) && e[:len(name)] == name && e[len(name)] == '=' {
			return e[len(name)+1:], true
		}
	}
	return "", false
}

// shell is the user's shell where it is one that reads -lc, else bash or sh.
func (r *run) shell() string {
	s, _ := r.lookupEnv("SHELL")
	switch filepath.Base(s) {
	case "bash", "zsh", "sh", "dash", "ksh":
		if filepath.IsAbs(s) && exists(s) {
			return s
		}
	}
	for _, s := range []string{"/bin/bash", "/usr/bin/bash"} {
		if exists(s) {
			return s
		}
	}
	return "/bin/sh"
}

// openSide makes the folder in which git keeps what it finds out about the
// workspace, inside the run's own sandbox: one more sandbox would cost as much as
// all commands of a short run. Where commands could reach it, git gets its own.
func (r *run) openSide(conf *Confinement) {
	dir := sandbox.RealPath(r.baselineFolder())
	if conf.Spec.Mode == sandbox.FullAccess || !r.keepsBaseline() ||
		slices.ContainsFunc(slices.Concat(conf.Spec.Write, conf.Spec.Deny), func(d string) bool { return sandbox.Within(dir, sandbox.RealPath(d)) }) {
		return
	}
	if os.MkdirAll(dir, 0o700) == nil { // otherwise whoever needs it tells
		conf.Spec.Side = dir
	}
}

func (r *run) baselineFolder() string { return filepath.Join(r.Private, "baseline") }

// keepsBaseline tells whether the run reports what it changed. It does if commands
// may change something, unless it is a sub-agent: its parent's diff has its changes.
func (r *run) keepsBaseline() bool {
	return r.Mode != "agent" && (r.cfg.SandboxMode != string(sandbox.ReadOnly) || r.cfg.Sandbox.AllowUnsandboxed)
}

// openWorkspace prepares the baseline; it is taken once the first request is on
// its way, and only where something may change.
func (r *run) openWorkspace(conf *Confinement) {
	if !r.keepsBaseline() {
		return
	}
	r.state.dir = workspace.Open(workspace.Options{Facts: r.state.facts, Private: r.baselineFolder(),
		Spec: conf.Spec, Own: r.Outputs, Env: conf.GitEnv(r.Environ)})
}

// beforeFirstTool runs once a response has begun: from here on the workspace
// may change, so its state is taken now, beside the model's thinking.
func (r *run) beforeFirstTool(ctx context.Context) {
	if r.state.dir != nil {
		r.state.dir.Start(ctx)
	}
}

// workspaceReady waits for the baseline. Where there is none the run goes on, and
// the diff says why it cannot tell what changed.
func (r *run) workspaceReady(ctx context.Context) error {
	if r.state.dir == nil {
		return nil
	}
	if err := r.state.dir.Ready(ctx); err != nil && context.Cause(ctx) == nil && !r.state.noBaseline {
		r.state.noBaseline = true
		r.notice("no_baseline", "the state of the workspace before the run could not be taken, so its changes cannot be told: "+err.Error(), "")
	}
	return context.Cause(ctx)
}

// firstMessages fills the history: a new thread gets the context messages, a
// resumed one keeps what it has and gets what changed.
func (r *run) firstMessages(ctx context.Context, conf *Confinement) error {
	ins, err := r.instructions(ctx, conf)
	if err != nil {
		return err
	}
	for _, n := range ins.Notices {
		r.log.Emit(n)
		if n.Class == "instructions_truncated" {
			r.state.warnings = append(r.state.warnings, n.Message)
		}
	}
	for _, l := range ins.Loaded {
		r.log.Emit(l)
	}
	r.findSkills()
	env := r.environment(conf)
	r.state.base = r.contextMessages(ins.Text, env)
	if len(r.Thread.History) == 0 {
		r.pending(r.state.base...)
		return nil
	}
	if r.Thread.Base != "" {
		// A thread of the reference keeps its base instructions apart; ours begin it.
		r.history.add(r.state.base[0])
	}
	for _, raw := range r.Thread.History {
		r.history.add(model.Item{Raw: raw})
	}
	r.state.lastInput = r.Thread.LastTokens
	// What has changed since the thread was recorded is said again.
	if text := r.Policy.PermissionsText(); !r.cfg.NoPermissionsText && !r.said("developer", text) {
		r.pending(r.message("developer", textPart(text)))
	}
	if !r.cfg.NoEnvironmentContext && !r.said("user", env) {
		r.pending(r.message("user", textPart(env)))
	}
	return nil
}

// contextMessages are what a new thread begins with, as far as the configuration
// wants it: base instructions, those of the configuration, skills and rights, then
// the project's instructions and the environment.
func (r *run) contextMessages(instructions, env string) []model.Item {
	developer := []part{}
	if d := r.cfg.DeveloperInstructions; d != "" {
		developer = append(developer, textPart(d))
	}
	if s := skill.Listing(r.state.skills); s != "" && !r.cfg.NoSkillsListing {
		developer = append(developer, textPart(s))
	}
	if !r.cfg.NoPermissionsText {
		developer = append(developer, textPart(r.Policy.PermissionsText()))
	}
	user := []part{}
	if instructions != "" {
		user = append(user, textPart(instructions))
	}
	if !r.cfg.NoEnvironmentContext {
		user = append(user, textPart(env))
	}

	base := []model.Item{r.message("developer", textPart(r.instructionsText()))}
	if len(developer) > 0 {
		base = append(base, r.message("developer", developer...))
	}
	for _, x := range r.Extra {
		base = append(base, r.message("developer", textPart(x)))
	}
	if len(user) > 0 {
		base = append(base, r.message("user", user...))
	}
	return base
}

// said tells whether the newest message of that role that begins like text (its
// first line) is text itself.
func (r *run) said(role, text string) bool {
	mark, _, _ := strings.Cut(text, "\n")
	for i := len(r.history.items) - 1; i >= 0; i-- {
		o, err := readItem(r.history.items[i])
		if err != nil || o.Type != "message" || o.Role != role {
			continue
		}
		for _, c := range o.Content {
			if strings.HasPrefix(c.Text, mark) {
				return c.Text == text
			}
		}
	}
	return false
}

// pending adds context messages to the history and the thread.
func (r *run) pending(items ...model.Item) {
	r.history.add(items...)
	for _, it := range items {
		r.store(it)
	}
}

func (r *run) instructionsText() string {
	if r.Mode == "review" {
		return reviewText
	}
	if r.cfg.Instructions != "" {
		return r.cfg.Instructions
	}
	return basePrompt
}

// instructions collects AGENTS.md, and makes sure that what a review is about
// exists. A read-only run has no workspace.Dir, so one is made for the git calls
// that a trusted ref or a review needs.
func (r *run) instructions(ctx context.Context, conf *Confinement) (workspace.Instructions, error) {
	dir := r.state.dir
	if dir == nil {
		dir = workspace.Open(workspace.Options{Facts: r.state.facts, Private: filepath.Join(r.Private, "instructions"),
			Spec: conf.Spec, Env: conf.GitEnv(r.Environ)})
		r.onEnd(func(context.Context) { r.logError("the instructions folder", dir.Close()) })
	}
	if ref := cmp.Or(r.ReviewBase, r.ReviewCommit); ref != "" {
		if err := dir.Known(ctx, ref, r.ReviewBase != ""); err != nil {
			return workspace.Instructions{}, fmt.Errorf("review of %w", err)
		}
	}
	return dir.Instructions(ctx, workspace.InstructionsOptions{Dir: r.Workdir, Root: r.cfg.ProjectRoot, Home: r.Home,
		Fallbacks: r.cfg.ProjectDocFallbacks, MaxBytes: r.cfg.ProjectDocMaxBytes, Ref: r.InstructionsFrom,
		SkipProject: r.cfg.TrustEntry == "untrusted"})
}

func (r *run) findSkills() {
	skills, notices := skill.Find(skill.Options{SystemDir: r.SystemDir, Home: r.Home, UserHome: r.UserHome,
		ProjectRoot: r.cfg.ProjectRoot, Cwd: r.Workdir, Trusted: r.cfg.ProjectTrusted, Disabled: r.cfg.Skills.Disabled})
	r.state.skills = skills
	for _, n := range notices {
		r.log.Emit(n)
	}
}

func (r *run) environment(conf *Confinement) string {
	zone := time.Local.String()
	if tz, ok := r.lookupEnv("TZ"); ok && tz != "" {
		zone = tz
	}
	if zone == "Local" {
		zone = "Etc/UTC"
	}
	return workspace.Environment{Cwd: r.Workdir, Shell: filepath.Base(r.state.shell), Timezone: zone, Date: r.Now(),
		Mode: sandbox.Mode(r.cfg.SandboxMode), Writable: conf.Extra(), SlashTmp: !r.cfg.Sandbox.ExcludeSlashTmp,
		TmpDir: !r.cfg.Sandbox.ExcludeTmpdir, DenyRead: r.cfg.Sandbox.DenyRead, Network: r.network() != "off"}.Text()
}

// beginTurn opens the thread on disk, runs the session's first hooks and adds
// the prompt.
func (r *run) beginTurn(ctx context.Context) error {
	if r.Thread.Store != nil {
		r.stored(r.Thread.Store.Turn(rollout.TurnContext{TurnID: r.turnID, Cwd: r.Workdir, Model: r.cfg.Model,
			Effort: r.cfg.ReasoningEffort, Summary: r.cfg.ReasoningSummary, Approval: r.cfg.ApprovalPolicy,
			Sandbox: r.cfg.SandboxMode, Writable: r.cfg.Sandbox.WritableRoots, Network: r.network() != "off"}))
	}
	source := "startup"
	if r.Mode == "resume" || r.Mode == "fork" {
		source = r.Mode
	}
	if r.tools.hooked("SessionStart") {
		res := r.tools.hooks.SessionStart(ctx, source)
		if res.Ended {
			return &TurnError{Class: "hook_stopped", Message: "a SessionStart hook ended the run: " + res.Reason, Code: ExitFailed}
		}
		r.hookContext(res.Context)
	}
	r.pending(r.message("user", append(imageParts(r.Images), textPart(r.Prompt))...))
	if r.tools.hooked("UserPromptSubmit") {
		res := r.tools.hooks.Prompt(ctx, r.turnID, r.Prompt)
		if res.Blocked || res.Ended {
			return &TurnError{Class: "prompt_blocked", Message: "a hook blocked the prompt: " + res.Reason, Code: ExitGate}
		}
		r.hookContext(res.Context)
	}
	bodies, notices := skill.Mentioned(r.Prompt, r.state.skills)
	for _, n := range notices {
		r.log.Emit(n)
	}
	for _, b := range bodies {
		r.pending(r.message("user", textPart(b)))
	}
	return r.compactIfNeeded(ctx, "before_turn")
}

// hookContext adds what a hook has to tell the model.
func (r *run) hookContext(text string) {
	if text != "" {
		r.pending(r.message("developer", textPart(text)))
	}
}

// warn shows what policy had to say. Some of it is an item on the wire, as in
// the reference.
func (r *run) warn() {
	for _, n := range r.Policy.Notices() {
		r.log.Emit(event.Notice{Class: n.Class, Message: n.Message, Origin: n.Origin, Hint: n.Hint})
		if n.Wire != "" {
			// The reference says it twice; readers that count rely on it.
			r.log.Complete("", event.ErrorItem{Message: n.Wire})
			r.log.Complete("", event.ErrorItem{Message: n.Wire})
		}
	}
	for _, w := range r.state.warnings {
		r.log.Complete("", event.ErrorItem{Message: w})
	}
	if m := r.Thread.Model; m != "" && m != r.cfg.Model {
		r.log.Complete("", event.ErrorItem{Message: fmt.Sprintf("This thread was recorded with model %s and goes on with %s.", m, r.cfg.Model)})
	}
}
