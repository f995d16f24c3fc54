// Package mcp offers the tools of MCP servers to the model. It is the only
// importer of the MCP SDK.
//
// [Start] begins to start all servers of a configuration side by side and
// returns at once; [Set.Ready] waits for them, [Set.Tools] gives what they
// offer, [Set.Close] ends them. A stdio server is a process in the run's
// sandbox. Nothing a server does may hold or end a run: start-up, calls and the
// end have bounds, messages have a largest size, and a server that dies is a
// failed call and an event, never a wait.
//
// What a server says of itself (annotations, schemas, names) is a hint of an
// outsider. Names are made safe and unique, schemas that are not schemas are
// replaced or refused, and whether a tool may be called is decided by the caller.
package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
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
	// of variables that a server's configuration names.
	Env       []string
	LookupEnv func(string) (string, bool)
	// HTTP carries the requests to streamable HTTP servers; nil: a plain client
	// without proxy. Its CheckRedirect is not used.
	HTTP    *http.Client
	Version string // of this program, told to servers
	Log     *event.Log
	// Mask masks secrets in what servers answer and say, before it is cut to a
	// length and before the model sees it; nil masks nothing.
	Mask *event.Redactor
	// Decide says whether a tool may be called; nil applies [Approve] with
	// fullAccess false.
	Decide func(Request) Decision
	// MaxText is the text of one answer that the model sees, in bytes; 0 is the
	// reference's 12 000 tokens of 4 bytes.
	MaxText int
}

// Request is a call that must be decided.
type Request struct {
	Server, Tool string // as the server calls it
	Mode         string // auto, prompt, approve
	ReadOnly     bool   // annotations of the server: hints, not facts
	Destructive  bool
	Arguments    []byte
}

// Decision of a call. Reason is shown to the model and in the item when the
// call is refused.
type Decision struct {
	Allowed bool
	Reason  string
	Source  string // approval, hook, requirement
	Rule    string
	Origin  string // file:line
}

// needsApproval is the reference's text of a refused call.
const needsApproval = "MCP tool call requires approval, but approval policy is never"

// Approve decides without a human: approved tools run, and those that call
// themselves read-only unless they are set to prompt. With full access there
// is nothing left to protect, and all run.
func Approve(r Request, fullAccess bool) Decision {
	if fullAccess || r.Mode == "approve" || r.ReadOnly && !r.Destructive && r.Mode != "prompt" {
		return Decision{Allowed: true, Source: "approval"}
	}
	return Decision{Reason: needsApproval, Source: "approval"}
}

// Bounds of a server that names none.
const (
	defaultStartup = 10 * time.Second
	defaultCall    = 60 * time.Second
)

// Set is the servers of a run.
type Set struct {
	o       Options
	servers []*server // in order of name
	stop    context.CancelFunc
	wg      sync.WaitGroup // one goroutine per server

	mu     sync.Mutex
	closed bool
	tools  []tool.Tool
}

// Start begins to start all servers, side by side, and returns at once. The
// servers live until Close, or until ctx ends.
func Start(ctx context.Context, o Options) *Set {
	if o.Decide == nil {
		o.Decide = func(r Request) Decision { return Approve(r, false) }
	}
	if o.LookupEnv == nil {
		o.LookupEnv = func(string) (string, bool) { return "", false }
	}
	if o.MaxText <= 0 {
		o.MaxText = maxModelText
	}
	ctx, stop := context.WithCancel(ctx)
	s := &Set{o: o, stop: stop}
	var names []string
	for name := range o.Servers {
		names = append(names, name)
	}
	slices.Sort(names)
	namespaces := safeNames(names, "mcp__")
	for _, name := range names {
		cfg := o.Servers[name]
		cfg.Name = name
		one := newServer(ctx, s, cfg, namespaces[name])
		s.servers = append(s.servers, one)
		s.wg.Go(one.live)
	}
	return s
}

// Ready waits until every server has answered, failed or timed out. A required
// server that is not ready is a *RequiredError; the end of ctx is its cause.
func (s *Set) Ready(ctx context.Context) error {
	var failed []Failure
	for _, one := range s.servers {
		select {
		case <-one.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if one.startErr != nil && one.cfg.Required {
			failed = append(failed, Failure{
				Server: one.cfg.Name, Reason: one.startErr.Error(),
				Policy: one.cfg.DisabledBy != "", After: one.took,
			})
		}
	}
	if len(failed) > 0 {
		return &RequiredError{Servers: failed}
	}
	return nil
}

// Tools are the tools of all ready servers in order of their names and, when
// there is a server, the resource tools. It is called after Ready.
func (s *Set) Tools() []tool.Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tools != nil {
		return s.tools
	}
	for _, one := range s.servers {
		if one.isReady() {
			s.tools = append(s.tools, resourceTools(s)...)
			break
		}
	}
	for _, one := range s.servers {
		if one.isReady() {
			for _, t := range one.tools {
				s.tools = append(s.tools, t)
			}
		}
	}
	return s.tools
}

// Close ends all servers, side by side and within a bound, and returns when
// everything they started is gone.
func (s *Set) Close() error {
	s.mu.Lock()
	already := s.closed
	s.closed = true
	s.mu.Unlock()
	if !already {
		var ends sync.WaitGroup
		for _, one := range s.servers {
			ends.Go(one.end)
		}
		ends.Wait()
		s.stop()
	}
	s.wg.Wait()
	return nil
}

func (s *Set) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *Set) find(name string) (*server, error) {
	for _, one := range s.servers {
		if one.cfg.Name == name {
			if !one.isReady() {
				return nil, fmt.Errorf("MCP server %q is not running", name)
			}
			return one, nil
		}
	}
	return nil, fmt.Errorf("unknown MCP server %q", name)
}

// RequiredError lists required servers that could not be had.
type RequiredError struct{ Servers []Failure }

// Failure is one server that is not ready.
type Failure struct {
	Server, Reason string
	Policy         bool // switched off by a requirement
	After          time.Duration
}

// Error names each server and why.
func (e *RequiredError) Error() string {
	var parts []string
	for _, f := range e.Servers {
		parts = append(parts, f.Server+": "+f.Reason)
	}
	return "required MCP servers failed to initialize: " + strings.Join(parts, "; ")
}

// Hint tells what to look at.
func (e *RequiredError) Hint() string {
	for _, f := range e.Servers {
		if f.Policy {
			return "the managed requirements do not allow this server; remove `required` or ask for it to be allowed"
		}
	}
	return "run the server's command by hand, raise startup_timeout_sec, or remove `required`"
}

var errClosing = errors.New("the run is ending")
