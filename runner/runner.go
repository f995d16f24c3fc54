// Package runner is the loop: it asks the model, runs the calls it makes under
// policy and inside the sandbox, and writes one event log.
//
// [Run] is the only entry. It never returns without having closed every item
// and ended every process it started, and its [Outcome] is what the last event,
// the report and the exit code say. Nothing here reads the environment, the
// clock of the machine's user or the command line: [Options] holds it all, so
// that many runs fit in one process.
package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
	"github.com/nightshift-ci/nightshift/runner/rollout"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// Options is everything a run is made of.
type Options struct {
	Version string
	Mode    string // exec, resume, fork, review, agent
	Policy  *policy.Policy
	Log     *event.Log
	Mask    *event.Redactor
	Model   model.Streamer
	// Credential names what authorizes the model's requests; its secrets are
	// already known to Mask.
	Credential event.CredentialSelected

	Environ  []string // of the process; commands see what policy leaves of it
	Workdir  string   // real path
	Home     string   // CODEX_HOME
	UserHome string
	// SystemDir is the folder of the policy and skills of the machine.
	SystemDir string
	Private   string // folder of the run, out of reach of commands, removed by the caller
	// Outputs are files that the caller writes about the run, as real paths.
	// Commands cannot change those that exist, and none is part of the diff.
	Outputs []string

	// Notices are what preparing the run had to say.
	Notices []event.Notice

	Prompt string
	Images []Image
	// Extra are developer messages besides the usual ones: the role of a sub-agent.
	Extra  []string
	Schema *Schema // --output-schema

	Thread           Thread
	InstructionsFrom string // git ref of trusted AGENTS.md
	// ReviewBase and ReviewCommit are what a review is about, if set; a repository
	// without them ends the run before the model is asked.
	ReviewBase     string
	ReviewCommit   string
	Strict         bool
	FailOn         string // review: severity that fails the run
	Requester, Job string
	Task           string // id of the batch's task, if any
	TraceParent    string
	NewID          func() string    // UUIDv7; safe for concurrent use
	Now            func() time.Time // nil: time.Now
	// Hurry is called, from any goroutine, when a time limit has ended the work:
	// sinks must not wait for their readers any more. nil: nobody listens.
	Hurry  func()
	Agents *AgentPool // nil: sub-agents are not offered
	// Early is the start of the run's sandbox, if the caller began with it; the
	// caller closes it.
	Early *sandbox.Early
	// spent is what the limits of the whole run count; set for sub-agents, which
	// share it with their parent.
	spent *spending
	// row is set for workers of a job over a CSV file: what they hand in.
	row *rowReport
	// role is what a sub-agent is: its model and effort override the run's.
	role policy.AgentRole
	// HTTP reaches MCP servers that are not processes; nil is a default client
	// without a proxy.
	HTTP *http.Client
	// Diag takes diagnostics of the runner itself; the zero value drops them.
	// What a user must know is an event, never only a line here.
	Diag zerolog.Logger
}

// Image is one picture of the prompt.
type Image struct {
	Path string // as given
	Data []byte
	MIME string
	Err  error // unreadable: the model gets a note instead
}

// Thread says where the conversation is kept and what it starts from.
type Thread struct {
	ID       string
	ParentID string // fork
	Source   string
	// Store writes the thread; nil under --ephemeral.
	Store *rollout.Writer
	// History and Usage are those of the thread so far.
	History []json.RawMessage
	Usage   event.Usage
	// Base are base instructions that the thread keeps beside its history.
	Base string
	// LastTokens is the size of the last response's context.
	LastTokens int64
	// Model is the model the thread was last run with, "" for a new one.
	Model string
}

// Result is what a run leaves behind.
type Result struct {
	Outcome
	Completed event.RunCompleted
	Usage     event.Usage // of the thread
	// History is the thread's items, for a further turn in the same process.
	History []json.RawMessage
}

// Bounds of ending a run: of the tools and the sandbox, and of the diff. Both
// are short once the caller wants the run to end: with those of the credential
// and the sinks they fit the 7 s that a CI system gives after a signal.
const (
	cleanupBound   = 3 * time.Second
	hurriedCleanup = 2 * time.Second
	diffBound      = 60 * time.Second
	hurriedDiff    = 1500 * time.Millisecond
)

// run is the state of one run. Only the goroutine of Run touches it, except
// where a field says otherwise.
type run struct {
	Options
	log         *event.Log
	cfg         *policy.Config
	started     time.Time
	meter       meter
	clock       *clock
	history     history
	box         *sandbox.Sandbox
	confinement *Confinement // set before box
	tools       *toolset
	state       runState
	model       string // in force, after fallbacks
	totals      event.Totals
	final       string // last message of the turn
	answered    bool   // the last response had a message
	commentary  bool   // it called that no answer
	request     int
	turnID      string
	closers     []func(context.Context)
	// denied counts refused connections; the proxy's goroutines add to it.
	denied atomic.Int64
	// refusals are what the egress proxy refused and no output told yet.
	refusals refusals
	// bug is the first panic that ending the run ran into.
	bug error
}

// Run carries out one turn. It returns after everything it started has ended;
// the caller emits Result.Completed with Log.Finish.
func Run(ctx context.Context, o Options) Result { return newRun(o).carryOut(ctx) }

func newRun(o Options) *run {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Hurry == nil {
		o.Hurry = func() {}
	}
	r := &run{Options: o, log: o.Log, cfg: o.Policy.Config(), started: o.Now()}
	r.turnID = r.NewID()
	switch {
	case o.Mode == "agent":
		r.cfg = agentConfig(*r.cfg, o.role)
	case o.Mode == "review" && r.cfg.ReviewModel != "" && o.Policy.Origins()["model"] != "-m":
		c := *r.cfg
		c.Model = c.ReviewModel
		r.cfg = &c
	}
	r.model = r.cfg.Model
	if o.spent == nil {
		r.spent = &spending{}
	}
	r.meter = meter{limits: r.cfg.Limits, prices: r.cfg.Prices.Models, spent: r.spent}
	return r
}

// agentConfig is the configuration of a sub-agent: the model of its role, and
// none of the gates that are for the end of the whole run.
func agentConfig(c policy.Config, role policy.AgentRole) *policy.Config {
	c.Model = cmp.Or(role.Model, c.Model)
	c.ReasoningEffort = cmp.Or(role.Effort, c.ReasoningEffort)
	c.Verify = nil
	return &c
}

// carryOut does the work under the run's limits and ends it.
func (r *run) carryOut(caller context.Context) Result {
	ctx, cancel := context.WithCancelCause(caller)
	defer cancel(nil)
	work, cancelWork := context.WithCancelCause(ctx)
	defer cancelWork(nil)
	r.clock = startClock(r.cfg.Limits, cancelWork, cancel, r.Hurry)
	defer r.clock.stop()

	err := guarded(func() error {
		if err := r.open(work); err != nil {
			return err
		}
		return r.turn(work)
	})
	if cause := context.Cause(work); cause != nil && err != nil && !isOwn(err) {
		err = cause
	}
	var limit *LimitError
	if errors.As(err, &limit) {
		if bug := guarded(func() error { r.sumUp(ctx, limit); return nil }); bug != nil {
			err = bug
		}
	}
	var sig SignalError
	if err != nil && !isOwn(err) && errors.As(context.Cause(caller), &sig) {
		err = sig // it came during the summary
	}
	return r.end(caller, err)
}

// isOwn tells whether err says more than the cancellation that came with it.
func isOwn(err error) bool {
	var bug *Panic
	return errors.As(err, &bug)
}

// guarded turns a panic into an error: a bug must not leave items open.
func guarded(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Panic{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}

// progress notes what the run is doing, for whoever debugs it.
func (r *run) progress(format string, args ...any) {
	r.Diag.Debug().Str("thread", r.Thread.ID).Int64("ms", r.Now().Sub(r.started).Milliseconds()).Msgf(format, args...)
}
