// Package mcp offers the tools of MCP servers to the model. It is the only
// importer of the MCP SDK.
package mcp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/tool"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// Starter starts server processes; *sandbox.Sandbox is one.
type Starter interface {
	Start(context.Context, sandbox.Command) (*sandbox.Process, error)
}

// Options configures [Start].
type Options struct {
	Servers map[string]policy.MCPServer
	// Sandbox runs stdio servers; Dir is their working folder unless the
	// server names one.
	Sandbox Starter
	Dir     string
	// Env is the base environment of stdio servers; LookupEnv gives the values
	// of variables that a server's config names.
	Env       []string
	LookupEnv func(string) (string, bool)
	HTTP      *http.Client // for streamable HTTP servers; nil: a default one
	Version   string       // of this program, told to servers
	Log       *event.Log
	// Decide says whether a tool may be called; nil applies [Approve] with
	// FullAccess false.
	Decide func(Request) Decision
}

// Request is a call that must be decided.
type Request struct {
	Server, Tool string
	Mode         string // auto, prompt, approve
	ReadOnly     bool   // annotations of the server: hints, not facts
	Destructive  bool
	Arguments    []byte
}

// Decision of a call. Reason is shown to the model and in the item.
type Decision struct {
	Allowed bool
	Reason  string
	Source  string // approval, hook, requirement
}

var errRough = errors.New("mcp: not finished")

// Set is the servers of a run.
type Set struct{}

// Start begins to start all servers, side by side, and returns at once.
func Start(ctx context.Context, o Options) *Set { return &Set{} }

// Ready waits until every server has answered, failed or timed out. A required
// server that is not ready is a *RequiredError.
func (s *Set) Ready(ctx context.Context) error { return errRough }

// Tools are the tools of all ready servers and, when a server is configured,
// the resource tools.
func (s *Set) Tools() []tool.Tool { return nil }

// Close ends all servers within a bound.
func (s *Set) Close() error { return nil }

// RequiredError lists required servers that could not be had.
type RequiredError struct{ Servers []Failure }

// Failure is one server that is not ready.
type Failure struct {
	Server, Reason string
	Policy         bool // switched off by a requirement
	After          time.Duration
}

// Error names each server and why.
func (e *RequiredError) Error() string { return "required MCP servers failed to initialize" }

// Specs groups tools into the request's tool list: plain tools as they are,
// namespaced ones as one {"type":"namespace"} object per namespace.
func Specs(tools []tool.Tool) [][]byte { return nil }
