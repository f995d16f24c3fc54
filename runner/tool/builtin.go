package tool

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/patch"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// Decider is what the tools ask of policy; [*policy.Policy] fits. A verdict
// whose outcome is neither policy.Sandboxed nor policy.Unsandboxed refuses.
type Decider interface {
	// Command decides on one program, Shell on a script, Escalation on a script
	// that asks to run outside the sandbox.
	Command(argv []string) policy.Verdict
	Shell(script, shellPath string, login bool) policy.Verdict
	Escalation(script, shellPath string, login bool) policy.Verdict
}

// Deps is what the built-in tools work with.
type Deps struct {
	Log *event.Log
	// Box gives the sandbox of the run.
	Box    func(context.Context) (*sandbox.Sandbox, error)
	Policy Decider
	// Workdir is the real path of the working folder.
	Workdir string
	// Shell is the absolute path of the user's shell.
	Shell string
	// NoLogin: login shells are not allowed, so a call that says nothing of it
	// gets a plain one.
	NoLogin bool
	// Env is the environment of one call's commands.
	Env func(callID string) []string
	// Scope says where patches may write.
	Scope patch.Scope
	// Limits bound every command.
	Limits sandbox.Limits
	// UpdatePlan offers update_plan, ViewImage view_image.
	UpdatePlan bool
	ViewImage  bool
	// NoShell: commands are not offered, and none can be called. NoTerminals:
	// none gets a terminal.
	NoShell     bool
	NoTerminals bool
	// MaxTokens is the most the model sees of one command's output, PollMost the
	// longest wait for a session; 0 is the reference's default.
	MaxTokens int64
	PollMost  time.Duration
	// WebSearch is disabled, cached, indexed or live.
	WebSearch string
	// Mask masks secrets in what commands print, before it is cut to a length and
	// before the model sees it; nil masks nothing.
	Mask *event.Redactor
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Set is the built-in tools of one run. Its methods may be called from any
// goroutine.
type Set struct {
	deps     Deps
	sessions *sessions
	plan     *planTool
	tools    []Tool
	// gate lets commands run beside each other and a patch only alone, whether
	// it comes as apply_patch or inside a command.
	gate sync.RWMutex
}

// Builtin makes the built-in tools. Tools whose Spec is nil are not offered to
// the model, but a call of them is answered.
func Builtin(d Deps) *Set {
	if d.Now == nil {
		d.Now = time.Now
	}
	s := &Set{deps: d}
	s.sessions = newSessions(s)
	s.plan = &planTool{set: s, offered: d.UpdatePlan}
	if s.deps.MaxTokens <= 0 {
		s.deps.MaxTokens = maxTokens
	}
	if !d.NoShell {
		s.tools = append(s.tools, &execTool{s}, &stdinTool{s})
	}
	s.tools = append(s.tools, &patchTool{s}, s.plan, &imageTool{s, d.ViewImage}, &userInputTool{s}, &permissionsTool{s}, &searchTool{s, d.WebSearch})
	return s
}

// Tools lists the tools in the order of the request.
func (s *Set) Tools() []Tool { return append([]Tool(nil), s.tools...) }

// Specs lists the specs of the offered tools, in the order of the request.
func (s *Set) Specs() []json.RawMessage {
	var out []json.RawMessage
	for _, t := range s.tools {
		if spec := t.Spec(); spec != nil {
			out = append(out, spec)
		}
	}
	return out
}

// CloseAll stops every session that still runs and completes its item as
// failed. When it returns no process of the set is left, unless ctx ended
// first: then they have been told to die, and the sandbox's Close sees to it.
func (s *Set) CloseAll(ctx context.Context) { s.sessions.closeAll(ctx) }

// CompletePlan closes the todo_list item of the turn, if there is one.
func (s *Set) CompletePlan() { s.plan.complete() }

// Helpers are the functions that the tools run inside the sandbox, by name, for
// sandbox.Init.
func Helpers() map[string]sandbox.HelperFunc {
	return map[string]sandbox.HelperFunc{patch.HelperName: patch.Helper, imageHelper: readImage, tableHelper: tableFile}
}

// finish emits what a call measured and returns the result.
func (s *Set) finish(c Call, began time.Time, r Result) Result {
	s.deps.Log.Emit(event.ToolCompleted{Tool: c.Name, CallID: c.ID, ItemID: r.ItemID, Status: r.Status,
		DurationMS: s.deps.Now().Sub(began).Milliseconds(), ExitCode: r.ExitCode, OutBytes: r.OutBytes,
		SeenBytes: int64(len(r.Output)), Resources: r.Resources, Message: r.Message})
	return r
}

// failed answers a call that could not be carried out and shows it as an item,
// so that nothing the model tried is invisible.
func (s *Set) failed(c Call, began time.Time, text string) Result {
	id := s.deps.Log.Complete("", event.ToolCall{Message: text, Tool: c.Name, Status: event.Failed})
	return s.finish(c, began, Result{Output: quoted(text), Status: event.Failed, ItemID: id, Message: text})
}

// refused answers a call that is not allowed.
func (s *Set) refused(c Call, began time.Time, d event.Denial, text string) Result {
	id := s.deps.Log.Complete("", event.ToolCall{Message: d.Reason, Tool: c.Name, Status: event.Declined, Denial: &d})
	s.decision(c, id, "tool", c.Name, d)
	return s.finish(c, began, Result{Output: quoted(text), Status: event.Declined, ItemID: id, Denied: &d, Message: d.Reason})
}

// decision tells that an action was refused.
func (s *Set) decision(c Call, itemID, action, subject string, d event.Denial) {
	s.deps.Log.Emit(event.PolicyDecision{Action: action, Subject: subject, Decision: "forbidden", Outcome: policy.Denied,
		Reason: d.Reason, Source: d.Source, Rule: d.Rule, Origin: d.Origin, ItemID: itemID, CallID: c.ID})
}
