// Package hook runs the command hooks of a configuration around session, turn
// and tool calls, with the reference's JSON and exit codes, but failing closed
// where a hook gates something.
//
// A gate (PreToolUse, UserPromptSubmit) that cannot give a clear answer has not
// said yes: a program that is missing, crashes, runs too long or prints what
// cannot be read blocks, unless the hook's own on_error says "continue". Every
// run of a hook is an event.
//
// Hooks run one after the other in the sandbox they are given, those of users
// first and those of the managed configuration last, so that what a user's hook
// makes of a tool's input is what a managed hook judges.
package hook

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// Events of hooks, as configurations name them.
const (
	SessionStart      = "SessionStart"
	UserPromptSubmit  = "UserPromptSubmit"
	PreToolUse        = "PreToolUse"
	PermissionRequest = "PermissionRequest"
	PostToolUse       = "PostToolUse"
	PreCompact        = "PreCompact"
	PostCompact       = "PostCompact"
	Stop              = "Stop"
)

var events = []string{SessionStart, UserPromptSubmit, PreToolUse, PermissionRequest, PostToolUse, PreCompact, PostCompact, Stop}

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
	Shell      string // runs `SHELL -c COMMAND`; "" = /bin/sh
	SessionID  string
	Transcript string // path of the thread's file, "" when ephemeral
	Model      string
	Permission string        // permission_mode told to hooks; "" = bypassPermissions
	Timeout    time.Duration // of a hook that names none; 0 = policy.HookTimeout
	Log        *event.Log
	// Mask masks secrets in what hooks say, before it is cut to a length and before
	// the model sees it; nil masks nothing. What a hook puts into a tool's input
	// stays as it is.
	Mask *event.Redactor
}

// Result is what all hooks of one event say together.
type Result struct {
	// Blocked: the action must not happen, or (Stop) the model must go on.
	Blocked bool
	// Reason is for the model. After PreToolUse it is the reference's sentence
	// that names hook and command.
	Reason string
	// Ended: a hook said continue:false; the run ends, and not as a success.
	Ended bool
	// Context is text for the model's context.
	Context string
	// Input replaces the tool's input, if set; an object like the one of Tool.
	Input json.RawMessage
	// Output replaces the tool's output, if Replaced.
	Output   string
	Replaced bool
	// Hook and Origin name the hook that decided, Why is its own reason.
	Hook, Origin, Why string
}

// Denial is the result as an item's denial; nil when nothing was blocked.
func (r Result) Denial() *event.Denial {
	if !r.Blocked && !r.Ended {
		return nil
	}
	return &event.Denial{Reason: r.Why, Source: "hook", Rule: r.Hook, Origin: r.Origin}
}

// Tool is a call as hooks see it: "Bash" with {"command":…} for shell
// commands, "apply_patch" likewise with the patch, "mcp__server__tool" with the
// arguments.
type Tool struct {
	Name   string
	Input  json.RawMessage
	UseID  string
	TurnID string
	ItemID string // for the event, if known
	Dir    string // working folder of the call, if it has its own
}

// Runner runs hooks. Its methods may be called from any goroutine.
type Runner struct {
	o        Options
	hooks    []hook
	failures atomic.Int64
}

// Failures is how many hooks have failed so far, on a time-out or otherwise.
func (r *Runner) Failures() int { return int(r.failures.Load()) }

// hook is one checked hook.
type hook struct {
	policy.Hook
	match func(subject string) bool
}

// New checks all hooks. An unknown event or a matcher that is not a pattern is an
// error, since a hook that never runs lets everything through.
func New(o Options) (*Runner, error) {
	if o.Shell == "" {
		o.Shell = "/bin/sh"
	}
	if o.Permission == "" {
		o.Permission = "bypassPermissions"
	}
	if o.Timeout <= 0 {
		o.Timeout = policy.HookTimeout
	}
	r := &Runner{o: o}
	for _, h := range o.Hooks {
		if !slices.Contains(events, h.Event) {
			return nil, &ConfigError{h.Origin, fmt.Sprintf("unknown hook event %q; there are %s", h.Event, strings.Join(events, ", "))}
		}
		if strings.TrimSpace(h.Command) == "" {
			return nil, &ConfigError{h.Origin, "a hook without a command"}
		}
		match, err := policy.HookMatcher(h.Matcher)
		if err != nil {
			return nil, &ConfigError{h.Origin, fmt.Sprintf("the matcher %q is not a regular expression: %v", h.Matcher, err)}
		}
		if h.Timeout <= 0 {
			h.Timeout = o.Timeout
		}
		r.hooks = append(r.hooks, hook{h, match})
	}
	slices.SortStableFunc(r.hooks, func(a, b hook) int {
		switch {
		case a.Managed == b.Managed:
			return 0
		case b.Managed:
			return -1
		}
		return 1
	})
	return r, nil
}

// ConfigError is a hook that cannot be run as configured.
type ConfigError struct{ Origin, Message string }

// Error names the place and what is wrong.
func (e *ConfigError) Error() string {
	if e.Origin == "" {
		return e.Message
	}
	return e.Origin + ": " + e.Message
}

// Hint says why this stops the run.
func (e *ConfigError) Hint() string {
	return "a hook that cannot run protects nothing; correct it or take it out"
}

// subjects are the names a tool is matched by: hooks written for other programs
// know patches by the names of those programs' tools.
func subjects(toolName string) []string {
	if toolName == "apply_patch" {
		return []string{toolName, "Edit", "Write"}
	}
	return []string{toolName}
}

// Has tells whether any hook listens to that event.
func (r *Runner) Has(name string) bool {
	return slices.ContainsFunc(r.hooks, func(h hook) bool { return h.Event == name })
}

// listening are the hooks of an event that match one of the subjects; events
// without a subject match all.
func (r *Runner) listening(name string, subjects ...string) []hook {
	var list []hook
	for _, h := range r.hooks {
		if h.Event == name && (len(subjects) == 0 || slices.ContainsFunc(subjects, h.match)) {
			list = append(list, h)
		}
	}
	return list
}

// input is the JSON a hook reads.
type input struct {
	SessionID  string  `json:"session_id"`
	TurnID     string  `json:"turn_id,omitempty"`
	Transcript *string `json:"transcript_path"`
	Cwd        string  `json:"cwd"`
	Event      string  `json:"hook_event_name"`
	Model      string  `json:"model"`
	Permission string  `json:"permission_mode"`

	Source       string          `json:"source,omitempty"`
	Trigger      string          `json:"trigger,omitempty"`
	Prompt       *string         `json:"prompt,omitempty"`
	ToolName     string          `json:"tool_name,omitempty"`
	ToolInput    json.RawMessage `json:"tool_input,omitempty"`
	ToolResponse json.RawMessage `json:"tool_response,omitempty"`
	ToolUseID    string          `json:"tool_use_id,omitempty"`
	StopActive   *bool           `json:"stop_hook_active,omitempty"`
	LastMessage  *string         `json:"last_assistant_message,omitempty"`
}

func (r *Runner) input(name, turnID string) input {
	in := input{
		SessionID: r.o.SessionID, TurnID: turnID, Cwd: r.o.Dir, Event: name, Model: r.o.Model, Permission: r.o.Permission,
	}
	if r.o.Transcript != "" {
		in.Transcript = &r.o.Transcript
	}
	return in
}

// SessionStart runs before the first turn; source is startup, resume or fork.
func (r *Runner) SessionStart(ctx context.Context, source string) Result {
	in := r.input(SessionStart, "")
	in.Source = source
	return r.runAll(ctx, r.listening(SessionStart, source), in, "")
}

// Prompt is UserPromptSubmit.
func (r *Runner) Prompt(ctx context.Context, turnID, prompt string) Result {
	in := r.input(UserPromptSubmit, turnID)
	in.Prompt = &prompt
	return r.runAll(ctx, r.listening(UserPromptSubmit), in, "")
}

// Before is PreToolUse: Blocked unless every hook let the call through. Each
// hook sees the input as the hooks before it have made it.
func (r *Runner) Before(ctx context.Context, t Tool) Result {
	in := r.toolInput(PreToolUse, t)
	all := r.runAll(ctx, r.listening(PreToolUse, subjects(t.Name)...), in, t.ItemID)
	if all.Blocked {
		all.Reason = blockedText(t, all)
	}
	return all
}

// blockedText is what the model sees instead of the tool's output.
func blockedText(t Tool, r Result) string {
	if command, ok := commandOf(t.Input); ok {
		return fmt.Sprintf("Command blocked by PreToolUse hook: %s. Command: %s", r.Why, command)
	}
	return fmt.Sprintf("Tool call blocked by PreToolUse hook: %s. Tool: %s", r.Why, t.Name)
}

func commandOf(toolInput json.RawMessage) (string, bool) {
	var in struct {
		Command *string `json:"command"`
	}
	if json.Unmarshal(toolInput, &in) != nil || in.Command == nil {
		return "", false
	}
	return *in.Command, true
}

func (r *Runner) toolInput(name string, t Tool) input {
	in := r.input(name, t.TurnID)
	in.ToolName, in.ToolInput, in.ToolUseID = t.Name, t.Input, t.UseID
	if len(in.ToolInput) == 0 || !json.Valid(in.ToolInput) {
		text, err := event.Marshal(string(t.Input)) // what the model wrote, though it is not JSON
		if err == nil {
			in.ToolInput = text
		}
	}
	if t.Dir != "" {
		in.Cwd = t.Dir
	}
	return in
}

// After is PostToolUse. response is the tool's output as the model would see
// it; of a shell command hooks get the output alone.
func (r *Runner) After(ctx context.Context, t Tool, response json.RawMessage) Result {
	in := r.toolInput(PostToolUse, t)
	in.ToolResponse = response
	var text string
	if t.Name == "Bash" && json.Unmarshal(response, &text) == nil {
		if _, output, ok := strings.Cut(text, "\nOutput:\n"); ok && strings.HasPrefix(text, "Chunk ID: ") {
			if raw, err := event.Marshal(output); err == nil {
				in.ToolResponse = raw
			}
		}
	}
	return r.runAll(ctx, r.listening(PostToolUse, subjects(t.Name)...), in, t.ItemID)
}

// Compact is PreCompact, or PostCompact when after is set; trigger says what
// made the history be compacted.
func (r *Runner) Compact(ctx context.Context, after bool, turnID, trigger string) Result {
	name := PreCompact
	if after {
		name = PostCompact
	}
	in := r.input(name, turnID)
	in.Trigger = trigger
	return r.runAll(ctx, r.listening(name, trigger), in, "")
}

// Stop asks whether the turn may end; again tells that a stop hook already
// made the model go on in this turn. How often that may happen is the caller's
// business.
func (r *Runner) Stop(ctx context.Context, turnID string, again bool, lastMessage string) Result {
	in := r.input(Stop, turnID)
	in.StopActive, in.LastMessage = &again, &lastMessage
	return r.runAll(ctx, r.listening(Stop), in, "")
}

// runAll runs hooks one after the other and joins what they say. After a hook
// that blocks or ends the run the others are skipped.
func (r *Runner) runAll(ctx context.Context, hooks []hook, in input, itemID string) Result {
	var all Result
	var contexts, outputs []string
	for _, h := range hooks {
		said := r.run(ctx, h, in, itemID)
		if said.context != "" {
			contexts = append(contexts, said.context)
		}
		if said.input != nil {
			all.Input, in.ToolInput = said.input, said.input
		}
		if said.replaced {
			all.Replaced = true
			outputs = append(outputs, said.output)
		}
		if said.blocked || said.ended {
			all.Blocked, all.Ended = said.blocked, said.ended
			all.Reason, all.Why, all.Hook, all.Origin = said.reason, said.reason, h.Command, h.Origin
			break
		}
	}
	all.Context, all.Output = strings.Join(contexts, "\n\n"), strings.Join(outputs, "\n")
	return all
}
