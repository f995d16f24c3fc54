package runner

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/auth"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
	"github.com/nightshift-ci/nightshift/runner/workspace"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// Exit codes of a run. The manual's table is made from them (ExitCodes).
const (
	ExitSuccess  = 0  // turn completed with a final answer
	ExitFailed   = 1  // turn failed, empty answer, anything else
	ExitUsage    = 2  // usage: flags, config syntax, no prompt
	ExitPolicy   = 3  // policy: requirement violated or unreadable
	ExitSandbox  = 4  // sandbox: required guarantee not available
	ExitAuth     = 5  // auth: missing, refused, refresh failed
	ExitService  = 6  // model service: quota, overload, network, after retries
	ExitLimit    = 7  // a limit: turns, tokens, money, wall or idle time
	ExitOutput   = 8  // output: schema mismatch, report not written
	ExitGate     = 9  // gate: denials or failed tools under --strict, verify, review
	ExitInternal = 70 // internal error (please report)
	ExitSignal   = 128
)

// ExitCodes is the table of the manual, in order.
var ExitCodes = []struct {
	Code    int
	Outcome string
	Meaning string
}{
	{ExitSuccess, "success", "the turn completed with a final answer"},
	{ExitFailed, "failed", "the turn failed, the answer was empty, or anything not listed below"},
	{ExitUsage, "usage", "usage: flags, syntax of a configuration file, no prompt, a missing input file"},
	{ExitPolicy, "policy", "policy: a requirement is violated, unreadable or cannot be applied"},
	{ExitSandbox, "sandbox", "sandbox: a required guarantee is not available on this machine"},
	{ExitAuth, "auth", "auth: credential missing, refused, or its refresh failed"},
	{ExitService, "service", "model service: quota, overload, network, after all retries"},
	{ExitLimit, "limit", "a limit was reached: turns, tool calls, tokens, money, wall or idle time"},
	{ExitOutput, "output", "output: the answer does not fit the schema, or a requested file was not written"},
	{ExitGate, "gate", "a gate failed: --verify, --fail-on, or denials and failed tools under --strict"},
	{ExitInternal, "internal", "internal error (please report it)"},
}

// Outcome is how a run ended: what the last event, the report and the exit code
// say.
type Outcome struct {
	Outcome   string // word of ExitCodes, or "interrupted"
	Class     string // stable word, finer than Outcome
	ExitCode  int
	Message   string
	Hint      string
	Retryable bool
	// Code and Status are the model service's own words for a refused request.
	Code   string
	Status int
}

// Failure is the outcome as turn.failed tells it.
func (o Outcome) Failure() event.Failure {
	return event.Failure{Message: o.Message, Outcome: o.Outcome, Class: o.Class, Code: o.Code, Status: o.Status, Retryable: o.Retryable, Hint: o.Hint}
}

// SignalError is the cause of a run that a signal ended.
type SignalError struct{ Signal int }

// Error names the signal.
func (e SignalError) Error() string {
	return fmt.Sprintf("interrupted by %s", signalName(e.Signal))
}

func signalName(n int) string {
	switch syscall.Signal(n) {
	case syscall.SIGINT:
		return "SIGINT"
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGHUP:
		return "SIGHUP"
	case syscall.SIGQUIT:
		return "SIGQUIT"
	}
	return fmt.Sprintf("signal %d", n)
}

// TurnError is a turn that failed for a reason of its own.
type TurnError struct {
	Class    string
	Message  string
	HintText string
	Code     int
}

// Error is the message.
func (e *TurnError) Error() string { return e.Message }

// Hint tells what to do.
func (e *TurnError) Hint() string { return e.HintText }

// Panic is a recovered bug.
type Panic struct {
	Value any
	Stack []byte
}

// Error says that this is our fault.
func (e *Panic) Error() string { return fmt.Sprintf("internal error: %v", e.Value) }

// Hint asks for a report.
func (e *Panic) Hint() string {
	return "this is a bug in nightshift; please report it with the output of `nightshift --version`"
}

// Classify is the only place that turns an error into an outcome. A nil error
// is a success.
func Classify(err error) Outcome {
	if err == nil {
		return Outcome{Outcome: "success", Class: "completed", ExitCode: ExitSuccess}
	}
	o := classify(err)
	if o.Message == "" {
		o.Message = err.Error()
	}
	var h interface{ Hint() string }
	if o.Hint == "" && errors.As(err, &h) {
		o.Hint = h.Hint()
	}
	return o
}

func classify(err error) Outcome {
	var (
		sig     SignalError
		limit   *LimitError
		turn    *TurnError
		api     *model.APIError
		authErr *auth.Error
		pol     *policy.Errors
		one     *policy.Error
		box     *sandbox.UnsupportedError
		setup   *sandbox.SetupError
		spec    *sandbox.SpecError
		roots   *ConfineError
		bug     *Panic
		ref     *workspace.RefError
		review  *workspace.RevisionError
	)
	switch {
	case errors.As(err, &sig):
		return Outcome{Outcome: "interrupted", Class: "signal", ExitCode: ExitSignal + sig.Signal, Retryable: true}
	case errors.As(err, &limit):
		return Outcome{Outcome: "limit", Class: limit.Limit, ExitCode: ExitLimit}
	case errors.As(err, &bug):
		return Outcome{Outcome: "internal", Class: "internal", ExitCode: ExitInternal}
	case errors.As(err, &turn):
		return Outcome{Outcome: outcomeWord(turn.Code), Class: turn.Class, ExitCode: turn.Code}
	case errors.As(err, &authErr):
		return Outcome{Outcome: "auth", Class: authErr.Class, ExitCode: ExitAuth, Retryable: authErr.Retryable}
	case errors.As(err, &api):
		o := Outcome{Class: api.Class, Retryable: api.Retryable, Message: api.Message, Code: api.Code, Status: api.Status}
		o.ExitCode = serviceCode(api.Class)
		o.Outcome = outcomeWord(o.ExitCode)
		return o
	case errors.As(err, &pol):
		code := ExitUsage
		if pol.Kind() == policy.KindPolicy {
			code = ExitPolicy
		}
		return Outcome{Outcome: outcomeWord(code), Class: outcomeWord(code), ExitCode: code}
	case errors.As(err, &one):
		return classify(&policy.Errors{List: []*policy.Error{one}})
	case errors.As(err, &box):
		return Outcome{Outcome: "sandbox", Class: "sandbox_unsupported", ExitCode: ExitSandbox}
	case errors.As(err, &spec) || errors.As(err, &roots):
		return Outcome{Outcome: "usage", Class: "sandbox_folders", ExitCode: ExitUsage}
	case errors.As(err, &ref) || errors.As(err, &review):
		return Outcome{Outcome: "usage", Class: "revision", ExitCode: ExitUsage}
	case errors.As(err, &setup):
		return Outcome{Outcome: "sandbox", Class: "sandbox_setup", ExitCode: ExitSandbox}
	case errors.Is(err, context.DeadlineExceeded):
		return Outcome{Outcome: "failed", Class: "timeout", ExitCode: ExitFailed, Retryable: true}
	}
	return Outcome{Outcome: "failed", Class: "failed", ExitCode: ExitFailed}
}

// serviceCode sorts the model's error classes: a refused key is an auth
// problem, a request that can never succeed is a failed turn, the rest is the
// service.
func serviceCode(class string) int {
	switch class {
	case "unauthorized", "forbidden":
		return ExitAuth
	case "bad_request", "invalid_prompt", "context_length", "invalid_model", "incomplete",
		"max_output_tokens", "content_filter", "not_found", "script":
		return ExitFailed
	}
	return ExitService
}

func outcomeWord(code int) string {
	for _, c := range ExitCodes {
		if c.Code == code {
			return c.Outcome
		}
	}
	if code > ExitSignal {
		return "interrupted"
	}
	return "failed"
}
