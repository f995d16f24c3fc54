// Package tool holds the tools the model can call. A failed command is a Result
// that the model sees; an error of Call ends the turn.
//
// [Builtin] makes the built-in ones:
//
//	set := tool.Builtin(deps)
//	request.Tools = set.Specs()      // what is offered
//	for _, t := range set.Tools() …  // what is answered
//	set.CompletePlan()               // when the turn ends
//	set.CloseAll(ctx)                // when the run ends
//
// Every call goes through policy first and acts inside the sandbox only:
// commands as processes, patches and images as functions of [Helpers] that run
// in the confined child. Every call leaves a tool.completed event, and every
// action an item, also when it was refused or never began; an item that was
// started is completed once, at the latest by CloseAll.
//
// Texts that the model gets are those of the reference where callers or models
// depend on them, quirks included; they are checked by tests, word for word.
package tool

import (
	"context"
	"encoding/json"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// Call is one call of the model.
type Call struct {
	ID        string // call_id
	Name      string
	Namespace string          // "mcp__server" for MCP tools
	Arguments json.RawMessage // function calls
	Input     string          // custom (freeform) calls
	Custom    bool
}

// Result is what the model sees and what the log tells.
type Result struct {
	// Output is a JSON string or a list of content parts.
	Output json.RawMessage
	Status event.Status
	ItemID string
	// Denied is set when policy, sandbox or a hook refused the call.
	Denied *event.Denial
	// Message is a one-line account for the log.
	Message   string
	ExitCode  *int
	OutBytes  int64
	Resources *event.Resources
	// Context is what a hook tells the model beside the output.
	Context string
	// Running: a session is left open.
	Running bool
}

// Tool is one tool.
type Tool interface {
	// Name is the name in calls ("exec_command"); Namespace "" for plain tools.
	Name() string
	// Spec is the JSON of the tool in the request.
	Spec() json.RawMessage
	// Parallel tells whether calls may run beside others of the same response.
	Parallel() bool
	Call(context.Context, Call) (Result, error)
}
