// Package event is the vocabulary of a run and its one log.
//
// Everything a run tells anybody is an [Event] emitted to a [Log]. The log
// numbers it, encodes it as one line of JSON, masks secrets in those bytes and
// hands the decoded [Record] to every [Sink]. Reports, the JSONL stream on
// stdout, telemetry and the exit code are all read off the records, so a run
// can be rendered again from a recorded log.
//
// Wire events (IsWire) are those of "codex exec --json"; the others are ours
// and appear in --events FILE only. New kinds and new fields may be added; no
// existing one changes its meaning. Unknown kinds survive decoding as
// [Unknown].
//
// The package imports the standard library only and is imported by everybody.
package event

import "encoding/json"

// Kind is the "type" field of an event.
type Kind string

// Wire kinds: the reference's event stream.
const (
	KindThreadStarted Kind = "thread.started"
	KindTurnStarted   Kind = "turn.started"
	KindItemStarted   Kind = "item.started"
	KindItemUpdated   Kind = "item.updated"
	KindItemCompleted Kind = "item.completed"
	KindTurnCompleted Kind = "turn.completed"
	KindTurnFailed    Kind = "turn.failed"
	KindError         Kind = "error"
)

// Our own kinds, written to --events FILE and read by reports.
const (
	KindRunStarted         Kind = "run.started"
	KindSandboxEnforced    Kind = "sandbox.enforced"
	KindCredentialSelected Kind = "auth.selected"
	KindAuthRefreshed      Kind = "auth.refreshed"
	KindInstructionsLoaded Kind = "instructions.loaded"
	KindServerStatus       Kind = "mcp.server"
	KindModelRequest       Kind = "model.request"
	KindModelResponse      Kind = "model.response"
	KindModelRetried       Kind = "model.retried"
	KindModelFallback      Kind = "model.fallback"
	KindHistoryCompacted   Kind = "history.compacted"
	KindPolicyDecision     Kind = "policy.decision"
	KindToolCompleted      Kind = "tool.completed"
	KindHookCompleted      Kind = "hook.completed"
	KindVerifyCompleted    Kind = "verify.completed"
	KindSchemaChecked      Kind = "schema.checked"
	KindFindingReported    Kind = "review.finding"
	KindLimitReached       Kind = "limit.reached"
	KindAgentEvent         Kind = "agent.event"
	KindNotice             Kind = "notice"
	KindDiffCaptured       Kind = "diff.captured"
	KindTelemetryFlushed   Kind = "telemetry.flushed"
	KindRunCompleted       Kind = "run.completed"
)

// IsWire tells whether k belongs to the reference's stream, and so to stdout
// under --json.
func (k Kind) IsWire() bool {
	switch k {
	case KindThreadStarted, KindTurnStarted, KindItemStarted, KindItemUpdated,
		KindItemCompleted, KindTurnCompleted, KindTurnFailed, KindError:
		return true
	}
	return false
}

// Event is one thing that happened. The set is closed: one struct per kind, all
// in this package.
type Event interface{ kind() Kind }

// KindOf returns the kind of e.
func KindOf(e Event) Kind { return e.kind() }

// ThreadStarted opens the stream; ThreadID is a UUIDv7.
type ThreadStarted struct {
	ThreadID string `json:"thread_id"`
}

// TurnStarted follows the start-up warnings.
type TurnStarted struct{}

// ItemStarted, ItemUpdated and ItemCompleted carry the same item id. Every
// started item is completed exactly once, on every ending of a run.
type ItemStarted struct {
	Item Item `json:"item"`
}

// ItemUpdated replaces what was said of the item.
type ItemUpdated struct {
	Item Item `json:"item"`
}

// ItemCompleted closes the item.
type ItemCompleted struct {
	Item Item `json:"item"`
}

// TurnCompleted ends a successful turn. Usage is the running total of the
// thread, earlier turns included.
type TurnCompleted struct {
	Usage Usage `json:"usage"`
}

// TurnFailed ends a failed turn.
type TurnFailed struct {
	Error Failure `json:"error"`
	// Usage is the thread's total so far; the reference has no such field.
	Usage *Usage `json:"usage,omitempty"`
}

// Failure says why a turn failed. Message is the reference's text; Outcome and
// Class are stable words for programs, the coarse one of the exit code and the
// fine one; Code and Status are what the service itself said.
type Failure struct {
	Message   string `json:"message"`
	Outcome   string `json:"outcome,omitempty"`
	Class     string `json:"class,omitempty"`
	Code      string `json:"code,omitempty"`
	Status    int    `json:"status,omitempty"`
	Retryable bool   `json:"retryable,omitempty"`
	Hint      string `json:"hint,omitempty"`
}

// Error is a message of the stream that need not be fatal: retries use it too.
type Error struct {
	Message string `json:"message"`
	Class   string `json:"class,omitempty"`
}

// Usage counts tokens. CachedInput and CacheWriteInput are parts of Input;
// Reasoning is a part of Output.
type Usage struct {
	Input           int64 `json:"input_tokens"`
	CachedInput     int64 `json:"cached_input_tokens"`
	CacheWriteInput int64 `json:"cache_write_input_tokens"`
	Output          int64 `json:"output_tokens"`
	Reasoning       int64 `json:"reasoning_output_tokens"`
}

// Add returns the sum of u and v.
func (u Usage) Add(v Usage) Usage {
	u.Input += v.Input
	u.CachedInput += v.CachedInput
	u.CacheWriteInput += v.CacheWriteInput
	u.Output += v.Output
	u.Reasoning += v.Reasoning
	return u
}

// Total is the number of tokens in and out.
func (u Usage) Total() int64 { return u.Input + u.Output }

// Unknown is an event of a kind this version does not know, kept verbatim.
type Unknown struct {
	Type Kind
	Raw  json.RawMessage
}

func (ThreadStarted) kind() Kind { return KindThreadStarted }
func (TurnStarted) kind() Kind   { return KindTurnStarted }
func (ItemStarted) kind() Kind   { return KindItemStarted }
func (ItemUpdated) kind() Kind   { return KindItemUpdated }
func (ItemCompleted) kind() Kind { return KindItemCompleted }
func (TurnCompleted) kind() Kind { return KindTurnCompleted }
func (TurnFailed) kind() Kind    { return KindTurnFailed }
func (Error) kind() Kind         { return KindError }
func (u Unknown) kind() Kind     { return u.Type }
