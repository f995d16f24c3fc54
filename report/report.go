// Package report turns the records of a run into what people and programs
// read: text, JSON, Markdown, HTML, JUnit, SARIF, patches, provenance and the
// files of CI services.
//
// It is pure: records in, bytes out. It starts no process, opens no network
// connection, reads no environment and no clock. Files are opened by a [Create]
// that the caller supplies. Everything is read off the records, so a run that
// is rendered again from its log gives the same bytes ([Replay]).
//
// The usual call builds one [Reporter] for all requested outputs and gives it
// to [event.NewLog] beside a [NewJSONLFile] and a [NewHuman]:
//
//	r, err := report.New(report.Options{Create: create, Outputs: outputs})
//	log := event.NewLog(nil, masker, report.NewJSONL(file), r)
//
// # What outsiders wrote
//
// Prompts, model text, command output and file names are data in every format:
// they are escaped for the format they land in, cut to what its reader accepts,
// and never obeyed. A cut always says how much was left out.
//
// # Memory
//
// A [Fold] keeps a bounded number of entries and bounded texts, whatever the
// length of the log, and counts what it dropped. Only the patch of the run is
// kept whole, since a cut patch does not apply.
package report

import (
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// SchemaVersion is the version of report.json. It changes when a field changes
// its meaning or goes away, not when one is added.
const SchemaVersion = 1

// Summary is one run, read off its log. It is what report.json holds and what
// every other format is made from. Times are UTC, durations milliseconds, sizes
// bytes, costs US dollars.
type Summary struct {
	SchemaVersion int `json:"schema_version"`
	// Complete is false when the log ends before run.completed: the run was
	// killed. Outcome is "unknown" then.
	Complete  bool   `json:"complete"`
	Outcome   string `json:"outcome"`
	Class     string `json:"class"`
	ExitCode  int    `json:"exit_code"` // -1 while Complete is false
	Message   string `json:"message,omitempty"`
	Hint      string `json:"hint,omitempty"`
	Retryable bool   `json:"retryable"`
	// FinalMessage is the last message of the agent.
	FinalMessage string `json:"final_message"`

	Run        Run       `json:"run"`
	StartedAt  time.Time `json:"started_at"`
	EndedAt    time.Time `json:"ended_at"`
	DurationMS int64     `json:"duration_ms"`

	// Attention lists what a reader should not miss, the gravest first.
	Attention []Attention `json:"attention"`

	Policy       Policy                     `json:"policy"`
	Git          *event.GitState            `json:"git,omitempty"`
	Sandbox      *event.SandboxEnforced     `json:"sandbox,omitempty"`
	Auth         Auth                       `json:"auth"`
	Instructions []event.InstructionsLoaded `json:"instructions"`
	Servers      []event.ServerStatus       `json:"mcp_servers"`

	Usage       event.Usage       `json:"usage"`
	ThreadUsage event.Usage       `json:"thread_usage"`
	CostUSD     float64           `json:"cost_usd"`
	Unpriced    []string          `json:"unpriced_models,omitempty"` // models without a price, not in CostUSD
	Prices      *event.PriceTable `json:"prices,omitempty"`
	Models      []ModelUse        `json:"models"`
	Turns       []Turn            `json:"turns"`
	ModelCalls  []ModelCall       `json:"model_calls"`
	Retries     []Retry           `json:"retries"`
	Fallbacks   []Fallback        `json:"fallbacks"`
	Compactions []Compaction      `json:"compactions"`

	Tools       []ToolUse  `json:"tools"`
	ToolCalls   []ToolCall `json:"tool_calls"`
	FailedTools []ToolCall `json:"failed_tools"`
	Denials     []Denial   `json:"denials"`

	Hooks        []event.HookCompleted   `json:"hooks"`
	Verify       []event.VerifyCompleted `json:"verify"`
	SchemaChecks []event.SchemaChecked   `json:"schema_checks"`
	Findings     []event.FindingReported `json:"findings"`
	Limits       []event.LimitReached    `json:"limits"`
	Agents       []Agent                 `json:"agents"`
	Notices      []event.Notice          `json:"notices"`
	Warnings     []string                `json:"warnings"`

	Changes   Changes                 `json:"changes"`
	Telemetry *event.TelemetryFlushed `json:"telemetry,omitempty"`
	Totals    event.Totals            `json:"totals"`
	Records   uint64                  `json:"records"` // records in the log

	// Omitted counts entries that were left out of a list above, by its name.
	Omitted map[string]int `json:"omitted,omitempty"`

	patch string
	mail  *event.MailDetails
}

// Patch is the unified diff of the run, whole, or "" when there is none. It is
// not part of report.json.
func (s *Summary) Patch() string { return s.patch }

// Success tells whether the run did what it was asked.
func (s *Summary) Success() bool { return s.Complete && s.ExitCode == 0 }

// Run says what was run, for whom and how.
type Run struct {
	Version   string `json:"version"`
	Mode      string `json:"mode"`
	ThreadID  string `json:"thread_id"`
	ParentID  string `json:"parent_thread_id,omitempty"`
	Model     string `json:"model"`
	Provider  string `json:"provider"`
	Effort    string `json:"effort,omitempty"`
	Workdir   string `json:"workdir"`
	Sandbox   string `json:"sandbox_mode"`
	Approval  string `json:"approval_policy"`
	Network   string `json:"network"`
	Prompt    string `json:"prompt"`                  // cut where it is very long
	PromptSHA string `json:"prompt_sha256,omitempty"` // of the whole
	Requester string `json:"requester,omitempty"`
	Job       string `json:"job,omitempty"`
	Task      string `json:"task,omitempty"` // of a batch
}

// Attention is one thing a reader should not miss. Class is a stable word.
type Attention struct {
	Class   string `json:"class"`
	Count   int    `json:"count"`
	Message string `json:"message"`
}

// Policy names the effective policy and where its values came from.
type Policy struct {
	Digest  string            `json:"digest"`
	Origins map[string]string `json:"origins,omitempty"`
}

// Auth is the credential of the run and the attempts to refresh it.
type Auth struct {
	Credential *event.CredentialSelected `json:"credential,omitempty"`
	Refreshes  []event.AuthRefreshed     `json:"refreshes"`
}

// ModelUse is what one model took part in.
type ModelUse struct {
	Model     string      `json:"model"`
	Requests  int         `json:"requests"` // attempts included
	Responses int         `json:"responses"`
	Retries   int         `json:"retries"`
	Usage     event.Usage `json:"usage"`
	CostUSD   float64     `json:"cost_usd"`
	Priced    bool        `json:"priced"`
}

// Turn is one turn of the thread. Usage is the turn's own.
type Turn struct {
	Number     int            `json:"number"` // 1, 2, …
	Status     string         `json:"status"` // completed, failed, interrupted
	StartedAt  time.Time      `json:"started_at"`
	DurationMS int64          `json:"duration_ms"`
	Responses  int            `json:"responses"`
	ToolCalls  int            `json:"tool_calls"`
	Usage      event.Usage    `json:"usage"`
	CostUSD    float64        `json:"cost_usd"`
	Error      *event.Failure `json:"error,omitempty"`
}

// ModelCall is one request to the model and what came of it.
type ModelCall struct {
	Request      int         `json:"request"`
	Turn         int         `json:"turn"`
	Attempts     int         `json:"attempts"`
	Purpose      string      `json:"purpose"`
	Model        string      `json:"model"`
	Status       string      `json:"status"` // the response's, or "none"
	StartedAt    time.Time   `json:"started_at"`
	FirstEventMS int64       `json:"first_event_ms"`
	DurationMS   int64       `json:"duration_ms"`
	Usage        event.Usage `json:"usage"`
	CostUSD      float64     `json:"cost_usd"`
	ResponseID   string      `json:"response_id,omitempty"`
	ServiceID    string      `json:"service_request_id,omitempty"`
	AgentID      string      `json:"agent_id,omitempty"` // the sub-agent that asked
}

// Retry is a failed attempt that was made again.
type Retry struct {
	At time.Time `json:"at"`
	event.ModelRetried
	AgentID string `json:"agent_id,omitempty"`
}

// Fallback is a change of model in the middle of the run.
type Fallback struct {
	At time.Time `json:"at"`
	event.ModelFallback
}

// Compaction is a replacement of earlier items by a summary.
type Compaction struct {
	At time.Time `json:"at"`
	event.HistoryCompacted
}

// ToolUse counts the calls of one tool.
type ToolUse struct {
	Tool       string `json:"tool"`
	Calls      int    `json:"calls"`
	Failed     int    `json:"failed"`
	Declined   int    `json:"declined"`
	DurationMS int64  `json:"duration_ms"`
}

// ToolCall is one call of a tool.
type ToolCall struct {
	Seq        uint64           `json:"seq"` // of the record that closed it
	Turn       int              `json:"turn"`
	Tool       string           `json:"tool"`
	Title      string           `json:"title"` // the command line, paths or server/tool
	ItemID     string           `json:"item_id,omitempty"`
	CallID     string           `json:"call_id,omitempty"`
	AgentID    string           `json:"agent_id,omitempty"`
	Status     event.Status     `json:"status"`
	StartedAt  time.Time        `json:"started_at"`
	DurationMS int64            `json:"duration_ms"`
	ExitCode   *int             `json:"exit_code,omitempty"`
	OutBytes   int64            `json:"output_bytes"`
	SeenBytes  int64            `json:"model_bytes"`
	Resources  *event.Resources `json:"resources,omitempty"`
	Message    string           `json:"message,omitempty"`
}

// Denial is one action that was refused.
type Denial struct {
	Seq     uint64    `json:"seq"`
	At      time.Time `json:"at"`
	Action  string    `json:"action"`
	Subject string    `json:"subject"`
	Reason  string    `json:"reason"`
	Source  string    `json:"source"`
	Rule    string    `json:"rule,omitempty"`
	Origin  string    `json:"origin,omitempty"`
	ItemID  string    `json:"item_id,omitempty"`
	CallID  string    `json:"call_id,omitempty"`
	AgentID string    `json:"agent_id,omitempty"`
}

// Agent is what one sub-agent did, read off its own records.
type Agent struct {
	ID          string      `json:"id"`
	Records     int         `json:"records"`
	Outcome     string      `json:"outcome,omitempty"`
	ToolCalls   int         `json:"tool_calls"`
	FailedTools int         `json:"failed_tools"`
	Denials     int         `json:"denials"`
	Usage       event.Usage `json:"usage"` // of all its turns; part of the run's

	turns event.Usage
}

// Changes is what the run did to the workspace.
type Changes struct {
	// Captured is false when no diff was made; Error says why, if known.
	Captured bool             `json:"captured"`
	Error    string           `json:"error,omitempty"`
	Base     string           `json:"base,omitempty"`
	Head     string           `json:"head,omitempty"`
	Digest   string           `json:"digest,omitempty"`
	Files    []event.FileStat `json:"files"`
	Added    int              `json:"added"`
	Deleted  int              `json:"deleted"`
	Bytes    int              `json:"patch_bytes"`
	// Dirty: the folder had changes before the run, so the patch applies to that
	// state and not to Base.
	Dirty bool `json:"dirty,omitempty"`
	// NotInPatch names files that changed and are not in the patch, with why.
	NotInPatch []string `json:"not_in_patch,omitempty"`
}
