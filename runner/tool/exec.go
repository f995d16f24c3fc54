package tool

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/policy/rules"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/patch"
	"github.com/nightshift-ci/nightshift/sandbox"
)

//go:embed exec_command.md
var execDescription string

// What the description says, and what it says where policy wants something else.
const (
	loginDefault = "Default true; false uses -c."
	loginRefused = "Not allowed here: leave it out, and -c is used."
	// What it says of the output where nothing else is configured.
	budgetDefault = "Default and maximum 10000."
)

const (
	yieldDefault = 10_000 // milliseconds
	yieldLeast   = 250
	yieldMost    = 30_000
)

// terminal is the size of the terminal a tty command sees.
var terminal = sandbox.Winsize{Rows: 24, Cols: 80}

const escalate = "require_escalated"

// maxReason bounds how much of the model's reason is logged with a decision, in
// bytes.
const maxReason = 500

// execArgs are the arguments of exec_command.
type execArgs struct {
	Cmd         string   `json:"cmd"`
	Workdir     string   `json:"workdir"`
	Shell       string   `json:"shell"`
	Login       *bool    `json:"login"`
	TTY         bool     `json:"tty"`
	Yield       *float64 `json:"yield_time_ms"`
	MaxTokens   *float64 `json:"max_output_tokens"`
	Permissions string   `json:"sandbox_permissions"`
	Reason      string   `json:"justification"`
	PrefixRule  []string `json:"prefix_rule"`
}

func execShape() shape {
	return shape{kind: object, fields: []field{
		{"cmd", shape{kind: text}, true}, {"workdir", shape{kind: text}, false}, {"shell", shape{kind: text}, false},
		{"login", shape{kind: boolean}, false}, {"tty", shape{kind: boolean}, false}, {"yield_time_ms", shape{kind: number}, false},
		{"max_output_tokens", shape{kind: number}, false},
		{"sandbox_permissions", shape{kind: text, words: []string{"use_default", escalate}}, false},
		{"justification", shape{kind: text}, false},
		{"prefix_rule", shape{kind: list, elem: &shape{kind: text}}, false},
	}}
}

// execTool is exec_command.
type execTool struct{ set *Set }

func (t *execTool) Name() string   { return "exec_command" }
func (t *execTool) Parallel() bool { return true }

// Announces says that a call tells when its item stands.
func (t *execTool) Announces() {}

func (t *execTool) Spec() json.RawMessage {
	description := execDescription
	if t.set.deps.NoLogin {
		description = strings.Replace(description, loginDefault, loginRefused, 1)
	}
	description = t.set.budgeted(description)
	s := execShape()
	if t.set.deps.NoTerminals {
		s.fields = slices.DeleteFunc(s.fields, func(f field) bool { return f.name == "tty" })
		before, rest, _ := strings.Cut(description, "## tty\n")
		_, after, _ := strings.Cut(rest, "\n## ")
		description = before + "## " + after
	}
	return functionSpec(t.Name(), description, s)
}

// budgeted is a description that tells how much output a call returns.
func (s *Set) budgeted(description string) string {
	if most := s.deps.MaxTokens; most != maxTokens {
		return strings.Replace(description, budgetDefault, fmt.Sprintf("Default %d, maximum %d.", min(most, maxTokens), most), 1)
	}
	return description
}

// command is a call made definite.
type command struct {
	execArgs
	argv    []string
	dir     string
	display string
}

func (t *execTool) command(a execArgs) command {
	c := command{execArgs: a, dir: t.set.absolute(a.Workdir)}
	c.TTY = c.TTY && !t.set.deps.NoTerminals
	if c.Shell = installed(c.Shell); c.Shell == "" {
		c.Shell = t.set.deps.Shell // models ask for shells that other machines have
	}
	if c.Login == nil && t.set.deps.NoLogin {
		c.Login = new(bool)
	}
	c.argv = []string{c.Shell, "-lc", c.Cmd}
	if !c.login() {
		c.argv[1] = "-c"
	}
	c.display = displayCommand(c.argv)
	return c
}

// installed is the path of a shell of this machine, or "". Another program is no
// shell: what it would make of the text is not what the rules read in it.
func installed(shell string) string {
	if !slices.Contains([]string{"bash", "sh", "zsh", "dash"}, filepath.Base(shell)) {
		return ""
	}
	places := []string{shell}
	if !strings.Contains(shell, "/") {
		places = []string{"/bin/" + shell, "/usr/bin/" + shell, "/usr/local/bin/" + shell}
	}
	for _, p := range places {
		if fi, err := os.Stat(p); err == nil && filepath.IsAbs(p) && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return p
		}
	}
	return ""
}

func (c command) login() bool { return c.Login == nil || *c.Login }

func (s *Set) absolute(dir string) string {
	if dir == "" {
		return s.deps.Workdir
	}
	if filepath.IsAbs(dir) {
		return filepath.Clean(dir)
	}
	return filepath.Join(s.deps.Workdir, dir)
}

// Call runs a command, or applies the patch that the command consists of.
func (t *execTool) Call(ctx context.Context, c Call) (Result, error) {
	s, began := t.set, t.set.deps.Now()
	var a execArgs
	if err := decodeArgs(c.Arguments, execShape(), &a); err != nil {
		return s.failed(c, began, err.Error()), nil
	}
	cmd := t.command(a)
	if dir, text, ok := patch.FromShell(cmd.Cmd); ok {
		if dir != "" && !filepath.IsAbs(dir) {
			dir = filepath.Join(cmd.dir, dir)
		} else if dir == "" {
			dir = cmd.dir
		}
		return s.applyPatch(ctx, c, began, patchInput{text: text, dir: dir, shell: true})
	}
	if strings.ContainsRune(cmd.Cmd+cmd.dir+cmd.Shell, 0) {
		return t.unstartable(c, began, cmd)
	}
	if strings.HasPrefix(strings.TrimSpace(cmd.Cmd), "*** Begin Patch") {
		d := event.Denial{Source: "danger", Reason: "a patch is not a shell script: its first line would run a file of the workspace"}
		return t.decline(c, began, cmd, "forbidden", d, "this is a patch, not a shell script; send it with the apply_patch tool"), nil
	}
	v := t.verdict(cmd)
	if v.Outcome != policy.Sandboxed && v.Outcome != policy.Unsandboxed {
		return t.decline(c, began, cmd, v.Level.String(), denialOf(v), refusalText(cmd, v)), nil
	}
	s.gate.RLock()
	defer s.gate.RUnlock()
	return t.run(ctx, c, began, cmd, v)
}

func (t *execTool) verdict(cmd command) policy.Verdict {
	if cmd.Permissions == escalate {
		v := t.set.deps.Policy.Escalation(cmd.Cmd, cmd.Shell, cmd.login())
		if cmd.Reason != "" {
			v.Reason = strings.TrimPrefix(v.Reason+"; ", "; ") + "the model's reason was: " + firstBytes(t.set.deps.Mask.Mask(cmd.Reason), maxReason)
		}
		return v
	}
	return t.set.deps.Policy.Shell(cmd.Cmd, cmd.Shell, cmd.login())
}

// run starts an allowed command and waits for its first answer.
func (t *execTool) run(ctx context.Context, c Call, began time.Time, cmd command, v policy.Verdict) (Result, error) {
	s := t.set
	if s.sessions.full() {
		d := event.Denial{Source: "limit", Rule: "sessions", Reason: fmt.Sprintf("%d commands are running already", maxSessions)}
		return t.decline(c, began, cmd, "forbidden", d, "exec_command failed: "+d.Reason+"; wait for one with write_stdin, or end one with \"\\u0003\""), nil
	}
	box, err := s.deps.Box(ctx)
	if err != nil {
		return Result{}, err
	}
	id := s.deps.Log.Start(event.CommandExecution{Command: cmd.display, Status: event.InProgress})
	s.deps.Log.Emit(decisionOn(cmd, v, id, c.ID))
	Begun(ctx)
	env := s.deps.Env(c.ID)
	run := sandbox.Command{Argv: LoginPath(cmd.argv, env), Dir: cmd.dir, Env: env, Unsandboxed: v.Outcome == policy.Unsandboxed, Limits: s.deps.Limits}
	if cmd.TTY {
		run.TTY = &terminal
	}
	started := s.deps.Now()
	p, err := s.sessions.start(ctx, id, cmd.display, box, run)
	if err != nil {
		return t.notStarted(c, began, id, cmd, err)
	}
	p.wait(ctx, between(cmd.Yield, yieldDefault, yieldLeast, yieldMost))
	return s.finish(c, began, s.answer(c, p, s.deps.Now().Sub(started), cmd.MaxTokens)), nil
}

// unstartable answers a command that no system call can take.
func (t *execTool) unstartable(c Call, began time.Time, cmd command) (Result, error) {
	cmd.display = "<command included NUL byte>"
	id := t.set.deps.Log.Start(event.CommandExecution{Command: cmd.display, Status: event.InProgress})
	return t.notStarted(c, began, id, cmd, &sandbox.StartError{Program: cmd.Shell, Reason: "nul byte found in provided data"})
}

// notStarted closes the item of a command that could not begin. Only what is
// the command's own fault is an answer; a sandbox that fails ends the turn.
func (t *execTool) notStarted(c Call, began time.Time, id string, cmd command, err error) (Result, error) {
	s, code := t.set, -1
	var start *sandbox.StartError
	why := err.Error()
	if errors.As(err, &start) {
		why = systemReason(start)
	}
	why = "Failed to create unified exec process: " + why
	s.deps.Log.Complete(id, event.CommandExecution{Command: cmd.display, AggregatedOutput: why, ExitCode: &code, Status: event.Failed})
	said := startFailure(why)
	if more := startAdvice(start, cmd); more != "" {
		said += "\n" + more
	}
	r := s.finish(c, began, Result{Output: quoted(said),
		Status: event.Failed, ItemID: id, ExitCode: &code, Message: why})
	if start == nil {
		return r, fmt.Errorf("starting %s: %w", cmd.display, err)
	}
	return r, nil
}

// startAdvice says what the system's few words mean for the next call: they tell
// neither a missing folder from a missing program, nor how long is too long.
func startAdvice(e *sandbox.StartError, cmd command) string {
	switch {
	case e == nil || e.Err == nil:
		return ""
	case errors.Is(e.Err, syscall.E2BIG):
		return fmt.Sprintf("The command has %d bytes: %s. Write long text with apply_patch, or append it in parts with several commands.", len(cmd.Cmd), e.Reason)
	case e.Step == "chdir":
		return cmd.dir + ": " + e.Reason + "."
	}
	return e.Program + ": " + e.Reason + "."
}

// systemReason is the system's own text where there is one.
func systemReason(e *sandbox.StartError) string {
	var no syscall.Errno
	if errors.As(e.Err, &no) {
		return patch.SystemText(no)
	}
	return e.Reason
}

// between is the wait that the model asked for, within its bounds.
func between(asked *float64, normal, least, most float64) time.Duration {
	ms := normal
	if asked != nil {
		ms = *asked
	}
	return time.Duration(math.Min(math.Max(ms, least), most)) * time.Millisecond
}

// answer tells the model what a session wrote since the last answer.
func (s *Set) answer(c Call, p *session, took time.Duration, max *float64) Result {
	over, exit, status := p.result()
	out := p.drain()
	clean := func(s string) string { return s }
	if p.tty {
		clean = func(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }
	}
	limit := min(s.deps.MaxTokens, maxTokens)
	if max != nil {
		limit = int64(math.Min(*max, float64(s.deps.MaxTokens)))
	}
	r := Result{Status: status, ItemID: p.itemID, OutBytes: out.total}
	state := ""
	if over {
		code := exit.Code
		r.ExitCode, r.Resources = &code, resourcesOf(exit)
		state = fmt.Sprintf("Process exited with code %d", code)
		s.sessions.drop(p)
		if exit.Killed != "" {
			r.Message = "ended by the limit on " + exit.Killed
		}
		s.noteDenial(c, p, &r)
	} else {
		r.Running = true
		state = fmt.Sprintf("Process running with session ID %d", s.sessions.keep(p))
		r.Message = "still running"
	}
	r.Output = quoted(fmt.Sprintf("Chunk ID: %06x\nWall time: %.4f seconds\n%s\nOriginal token count: %d\nOutput:\n%s",
		rand.IntN(1<<24), took.Seconds(), state, tokens(out.total), out.shorten(int(limit), clean)))
	return r
}

func resourcesOf(x sandbox.Exit) *event.Resources {
	return &event.Resources{CPUMS: x.CPU.Milliseconds(), PeakBytes: x.PeakBytes, OOMKills: x.OOMKills, Source: x.Measured, Killed: x.Killed}
}

// deniedTexts are what programs print when the sandbox stopped them.
var deniedTexts = []string{"Read-only file system", "Operation not permitted"}

// noteDenial marks a failed command whose output looks as if the sandbox had
// refused something. It is a guess from text, and said to be one.
func (s *Set) noteDenial(c Call, p *session, r *Result) {
	if r.Status != event.Failed || !p.confined {
		return
	}
	p.mu.Lock()
	seen := p.whole.text()
	p.mu.Unlock()
	for _, text := range deniedTexts {
		if !strings.Contains(seen, text) {
			continue
		}
		d := event.Denial{Source: "sandbox", Reason: fmt.Sprintf("the command failed and its output says %q: it seems to have tried what the sandbox does not allow", text)}
		r.Denied = &d
		s.deps.Log.Emit(event.PolicyDecision{Action: "command", Subject: p.command, Decision: "none", Outcome: policy.Denied,
			Reason: d.Reason, Source: d.Source, ItemID: r.ItemID, CallID: c.ID})
		return
	}
}

// decisionOn tells what policy said of a command.
func decisionOn(cmd command, v policy.Verdict, itemID, callID string) event.PolicyDecision {
	action := "command"
	if cmd.Permissions == escalate {
		action = "escalation"
	}
	return event.PolicyDecision{Action: action, Subject: cmd.display, Decision: v.Level.String(), Outcome: v.Outcome, Reason: v.Reason,
		Source: v.Source, Rule: v.Rule, Origin: v.Origin, ItemID: itemID, CallID: callID, Argv: cmd.argv, Shell: cmd.Cmd}
}

func denialOf(v policy.Verdict) event.Denial {
	d := event.Denial{Reason: v.Reason, Source: v.Source, Rule: v.Rule, Origin: v.Origin}
	if d.Reason == "" {
		d.Reason = "the policy does not allow it"
	}
	if d.Source == "" {
		d.Source = "requirement"
	}
	return d
}

// refusalText tells the model about a refused command; callers of the
// reference look for these words.
func refusalText(cmd command, v policy.Verdict) string {
	shown := "`" + cmd.display + "` rejected: "
	m := v.Strictest()
	switch {
	case v.Level == rules.Prompt:
		return startFailure(shown + "approval required by policy, but AskForApproval is set to Never")
	case cmd.Permissions == escalate && v.Source == "approval":
		return "approval policy is Never; reject command — you cannot ask for escalated permissions if the approval policy is Never"
	case v.Source == "danger":
		return startFailure(shown + "rm -f style commands are not permitted. Remove what you name without -f, or delete files with apply_patch.")
	case v.Level == rules.Forbidden && m != nil && m.Justification != "":
		return startFailure(shown + m.Justification)
	case v.Level == rules.Forbidden && m != nil:
		return startFailure(shown + "policy forbids commands starting with `" + strings.Join(m.Prefix, " ") + "`")
	}
	return startFailure(shown + denialOf(v).Reason)
}

// Decline answers a call that was refused before policy was asked.
func (t *execTool) Decline(_ context.Context, c Call, d event.Denial, text string) Result {
	began := t.set.deps.Now()
	var a execArgs
	if err := decodeArgs(c.Arguments, execShape(), &a); err != nil {
		return t.set.refused(c, began, d, text)
	}
	return t.decline(c, began, t.command(a), "forbidden", d, text)
}

// decline closes the item of a command that never ran. decision is the word of
// the rules for it.
func (t *execTool) decline(c Call, began time.Time, cmd command, decision string, d event.Denial, text string) Result {
	s := t.set
	id := s.deps.Log.Complete("", event.CommandExecution{Command: cmd.display, Status: event.Declined, Denial: &d})
	ev := decisionOn(cmd, policy.Verdict{Outcome: policy.Denied, Reason: d.Reason, Source: d.Source, Rule: d.Rule, Origin: d.Origin}, id, c.ID)
	ev.Decision = decision
	s.deps.Log.Emit(ev)
	return s.finish(c, began, Result{Output: quoted(text), Status: event.Declined, ItemID: id, Denied: &d, Message: d.Reason})
}
