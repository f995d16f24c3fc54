// Package hook runs the command hooks of a configuration around session, turn
// and tool calls, with the reference's JSON and exit codes, but failing closed
// where a hook gates something.
package hook

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// Starter starts hook processes; *sandbox.Sandbox is one.
type Starter interface {
	Start(context.Context, sandbox.Command) (*sandbox.Process, error)
}

// Options configures [New].
type Options struct {
	Hooks      []policy.Hook
	Sandbox    Starter
	Dir        string
	Env        []string
	Shell      string // "" = /bin/sh
	SessionID  string
	Transcript string // path of the rollout, "" when ephemeral
	Model      string
	Permission string // permission_mode told to hooks
	Log        *event.Log
	Timeout    time.Duration // of a hook that names none; default 60 s
}

// Result is what all hooks of one event say together.
type Result struct {
	// Blocked: the action must not happen, or (Stop) the model must go on.
	Blocked bool
	Reason  string
	// Ended: a hook said continue:false; the run ends, and not as a success.
	Ended bool
	// Context is text for the model's context.
	Context string
	// Input replaces the tool's arguments, if set.
	Input json.RawMessage
	// Output replaces the tool's output, if Replaced.
	Output   string
	Replaced bool
	// Hook and Origin name the hook that decided.
	Hook, Origin string
}

// Denial is the result as an item's denial; nil when nothing was blocked.
func (r Result) Denial() *event.Denial { return nil }

// Tool is a call as hooks see it: "Bash" with {"command":…} for shell
// commands, "apply_patch", "mcp__server__tool".
type Tool struct {
	Name   string
	Input  json.RawMessage
	UseID  string
	TurnID string
	ItemID string
}

var errRough = errors.New("hook: not finished")

// Runner runs hooks. Its methods may be called from any goroutine.
type Runner struct{}

// New checks all hooks: an unknown event or a bad matcher is an error.
func New(o Options) (*Runner, error) { return nil, errRough }

// Has tells whether any hook listens to that event.
func (r *Runner) Has(name string) bool { return false }

// SessionStart runs before the first turn; source is startup, resume, …
func (r *Runner) SessionStart(ctx context.Context, source string) Result { return Result{} }

// Prompt is UserPromptSubmit.
func (r *Runner) Prompt(ctx context.Context, turnID, prompt string) Result { return Result{} }

// Before is PreToolUse: Blocked unless every hook let the call through.
func (r *Runner) Before(ctx context.Context, t Tool) Result { return Result{} }

// After is PostToolUse.
func (r *Runner) After(ctx context.Context, t Tool, response json.RawMessage) Result { return Result{} }

// Compact is PreCompact or PostCompact.
func (r *Runner) Compact(ctx context.Context, after bool, turnID, trigger string) Result {
	return Result{}
}

// Stop asks whether the turn may end; again tells that a stop hook already
// made the model go on in this turn.
func (r *Runner) Stop(ctx context.Context, turnID string, again bool, lastMessage string) Result {
	return Result{}
}

// Notify runs the notify program with its JSON argument and reports how it
// ended as a hook.completed event.
func Notify(ctx context.Context, o Options, argv []string, n Notification) {}

// Notification is what the notify program is told.
type Notification struct {
	ThreadID, TurnID, Cwd, Client string
	Inputs                        []string
	LastMessage                   string
}
