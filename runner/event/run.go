package event

import "encoding/json"

// RunStarted is the first record of every run.
type RunStarted struct {
	Version   string `json:"version"`
	Mode      string `json:"mode"` // exec, resume, fork, review, agent
	ThreadID  string `json:"thread_id"`
	ParentID  string `json:"parent_thread_id,omitempty"`
	Model     string `json:"model"`
	Provider  string `json:"provider"`
	Effort    string `json:"effort,omitempty"`
	Workdir   string `json:"workdir"`
	Sandbox   string `json:"sandbox_mode"`
	Approval  string `json:"approval_policy"`
	Network   string `json:"network"` // off, allowlist, on
	Prompt    string `json:"prompt"`
	Requester string `json:"requester,omitempty"` // who asked, from the CI variables
	Job       string `json:"job,omitempty"`       // the CI job's URL or name
	Task      string `json:"task,omitempty"`      // id of the batch's task that this run is
	// PolicyDigest is "sha256:…" over the effective policy; Origins says which
	// layer each value that is not a default came from.
	PolicyDigest string            `json:"policy_digest"`
	Origins      map[string]string `json:"policy_origins,omitempty"`
	Git          *GitState         `json:"git,omitempty"`
	// Prices are the rates that costs in this log were made with.
	Prices *PriceTable `json:"prices,omitempty"`
}

// GitState is the repository before the run.
type GitState struct {
	Root   string `json:"root"`
	Commit string `json:"commit,omitempty"`
	Branch string `json:"branch,omitempty"`
	Dirty  bool   `json:"dirty"`
	Remote string `json:"remote,omitempty"` // without credentials
}

// PriceTable holds US dollars for one million tokens, per model.
type PriceTable struct {
	Date   string           `json:"date,omitempty"`
	Models map[string]Price `json:"models"`
}

// Price is in US dollars for one million tokens. CachedInput applies to the
// cached part of the input.
type Price struct {
	Input       float64 `json:"input"`
	CachedInput float64 `json:"cached_input"`
	Output      float64 `json:"output"`
}

// Cost of u in US dollars.
func (p Price) Cost(u Usage) float64 {
	plain := u.Input - u.CachedInput
	return (float64(plain)*p.Input + float64(u.CachedInput)*p.CachedInput + float64(u.Output)*p.Output) / 1e6
}

// SandboxEnforced says what confines the commands of this run, guarantee by
// guarantee.
type SandboxEnforced struct {
	Mode        string            `json:"mode"`
	Level       string            `json:"level"` // full, degraded, external, none
	LandlockABI int               `json:"landlock_abi"`
	Guarantees  []GuaranteeStatus `json:"guarantees"`
	// Writable, Protected and Denied are absolute paths.
	Writable  []string `json:"writable,omitempty"`
	Protected []string `json:"protected,omitempty"`
	Denied    []string `json:"denied,omitempty"`
	// Caches are the private tool caches made for this run, variable to path.
	Caches map[string]string `json:"caches,omitempty"`
}

// GuaranteeStatus is one line of the sandbox report.
type GuaranteeStatus struct {
	Name      string `json:"name"`
	Held      bool   `json:"held"`
	Required  bool   `json:"required"`
	Mechanism string `json:"mechanism,omitempty"`
	Why       string `json:"why,omitempty"`  // why it does not hold
	Hint      string `json:"hint,omitempty"` // what to do about it
}

// CredentialSelected names the credential of the run, never its value.
type CredentialSelected struct {
	Source  string   `json:"source"` // "env CODEX_API_KEY", "auth.json", …
	Mode    string   `json:"mode"`   // apikey, chatgpt, token, none
	Account string   `json:"account,omitempty"`
	Ignored []string `json:"ignored,omitempty"` // sources that lost
}

// AuthRefreshed is one attempt to refresh a login.
type AuthRefreshed struct {
	Reason     string `json:"reason"`  // proactive_expiry, scheduled, unauthorized_recovery
	Outcome    string `json:"outcome"` // refreshed, reloaded, failed
	Class      string `json:"class,omitempty"`
	Message    string `json:"message,omitempty"`
	Persisted  string `json:"persisted,omitempty"` // rename, in_place, recovery_file, writeback, none
	Path       string `json:"path,omitempty"`
	Writeback  string `json:"writeback,omitempty"` // ok, failed
	DurationMS int64  `json:"duration_ms"`
}

// InstructionsLoaded is one AGENTS.md-like file given to the model.
type InstructionsLoaded struct {
	Path      string `json:"path"`
	Bytes     int    `json:"bytes"`
	LostBytes int    `json:"lost_bytes,omitempty"`
	Ref       string `json:"ref,omitempty"` // the trusted git ref it was read from
}

// ServerStatus is the state of one MCP server after start-up or at its end.
type ServerStatus struct {
	Server     string   `json:"server"`
	Status     string   `json:"status"` // ready, failed, disabled, died
	Tools      []string `json:"tools,omitempty"`
	Message    string   `json:"message,omitempty"`
	DurationMS int64    `json:"duration_ms,omitempty"`
}

// ModelRequest is one POST to the model.
type ModelRequest struct {
	Request int    `json:"request"` // 1, 2, … over the run
	Attempt int    `json:"attempt"` // 1, 2, … of this request
	Purpose string `json:"purpose"` // turn, compaction, final_answer, repair, review
	Model   string `json:"model"`
	Bytes   int    `json:"bytes"`
	Items   int    `json:"items"`
}

// ModelResponse is a response whose terminal event has come.
type ModelResponse struct {
	Request      int    `json:"request"`
	Model        string `json:"model"`
	ResponseID   string `json:"response_id,omitempty"`
	ServiceID    string `json:"service_request_id,omitempty"`
	Status       string `json:"status"`
	Usage        Usage  `json:"usage"`
	FirstEventMS int64  `json:"first_event_ms"`
	DurationMS   int64  `json:"duration_ms"`
}

// ModelRetried is an attempt that failed and will be made again.
type ModelRetried struct {
	Request int    `json:"request"`
	Attempt int    `json:"attempt"`
	Max     int    `json:"max"`
	Layer   string `json:"layer"` // request, stream
	Class   string `json:"class"`
	Status  int    `json:"http_status,omitempty"`
	Message string `json:"message"`
	DelayMS int64  `json:"delay_ms"`
}

// ModelFallback is a change of model in the middle of a run.
type ModelFallback struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Class  string `json:"class"`
	Reason string `json:"reason"`
}

// HistoryCompacted tells that earlier items were replaced by a summary.
type HistoryCompacted struct {
	Trigger     string `json:"trigger"` // before_turn, mid_turn, context_length, too_large
	Method      string `json:"method"`  // endpoint, summary
	ItemsBefore int    `json:"items_before"`
	ItemsAfter  int    `json:"items_after"`
	BytesBefore int    `json:"bytes_before"`
	BytesAfter  int    `json:"bytes_after"`
}

// PolicyDecision is one decision on one action.
type PolicyDecision struct {
	Action   string `json:"action"`  // command, patch, network, mcp, hook, escalation, tool
	Subject  string `json:"subject"` // the command line, path, host:port, server/tool
	Decision string `json:"decision"`
	Outcome  string `json:"outcome"` // sandboxed, unsandboxed, allowed, denied
	Reason   string `json:"reason,omitempty"`
	Source   string `json:"source,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Origin   string `json:"origin,omitempty"` // file:line
	ItemID   string `json:"item_id,omitempty"`
	CallID   string `json:"call_id,omitempty"`
	// Command is the argv or shell text a replay needs to decide again.
	Argv  []string `json:"argv,omitempty"`
	Shell string   `json:"shell,omitempty"`
}

// ToolCompleted holds the measures of one tool call.
type ToolCompleted struct {
	Tool       string     `json:"tool"`
	CallID     string     `json:"call_id"`
	ItemID     string     `json:"item_id,omitempty"`
	Status     Status     `json:"status"`
	DurationMS int64      `json:"duration_ms"`
	ExitCode   *int       `json:"exit_code,omitempty"`
	OutBytes   int64      `json:"output_bytes"`
	SeenBytes  int64      `json:"model_bytes"` // after truncation
	Resources  *Resources `json:"resources,omitempty"`
	Message    string     `json:"message,omitempty"`
}

// Resources is what a process tree used.
type Resources struct {
	CPUMS     int64  `json:"cpu_ms"`
	PeakBytes int64  `json:"peak_memory_bytes"`
	OOMKills  int    `json:"oom_kills,omitempty"`
	Source    string `json:"source"` // cgroup, rusage
	Killed    string `json:"killed,omitempty"`
}

// HookCompleted is one run of one hook.
type HookCompleted struct {
	Event      string `json:"event"`
	Hook       string `json:"hook"`
	Origin     string `json:"origin,omitempty"`
	Outcome    string `json:"outcome"` // completed, blocked, failed, timeout, skipped
	ExitCode   *int   `json:"exit_code,omitempty"`
	Message    string `json:"message,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	ItemID     string `json:"item_id,omitempty"`
}

// VerifyCompleted is one run of one --verify command.
type VerifyCompleted struct {
	Command    string `json:"command"`
	Round      int    `json:"round"`
	ExitCode   int    `json:"exit_code"`
	Passed     bool   `json:"passed"`
	Output     string `json:"output,omitempty"` // bounded tail
	DurationMS int64  `json:"duration_ms"`
}

// SchemaChecked is one validation of the final answer.
type SchemaChecked struct {
	Valid  bool     `json:"valid"`
	Round  int      `json:"round"`
	Errors []string `json:"errors,omitempty"`
}

// FindingReported is one finding of a review.
type FindingReported struct {
	Title      string  `json:"title"`
	Body       string  `json:"body"`
	Path       string  `json:"path"` // relative to the repository
	StartLine  int     `json:"start_line"`
	EndLine    int     `json:"end_line"`
	Severity   string  `json:"severity"` // critical, high, medium, low
	Confidence float64 `json:"confidence"`
}

// LimitReached names the limit that stopped the run.
type LimitReached struct {
	Limit string `json:"limit"` // max_turns, max_tool_calls, max_wall, max_idle, max_tokens, max_cost, repeated_failure
	Max   string `json:"max"`
	Used  string `json:"used"`
}

// AgentEvent is an event of a sub-agent's own log.
type AgentEvent struct {
	AgentID string          `json:"agent_id"`
	Record  json.RawMessage `json:"record"`
}

// MaxAgentDepth bounds how deep agents of agents are followed: a log may come
// from anywhere.
const MaxAgentDepth = 32

// Innermost is the record that an agent, or an agent of one, has logged, the id
// of that agent, and of the one that it belongs to, "" for the run's own. Beyond
// MaxAgentDepth the record is an AgentEvent still. The error is that of a record
// that cannot be read.
func (e AgentEvent) Innermost() (rec Record, parent, id string, err error) {
	rec.Event = e
	for range MaxAgentDepth {
		outer, ok := rec.Event.(AgentEvent)
		if !ok {
			break
		}
		rec = Record{}
		if err := json.Unmarshal(outer.Record, &rec); err != nil {
			return Record{}, "", "", err
		}
		parent, id = id, outer.AgentID
	}
	return rec, parent, id, nil
}

// Notice is something a person should know that changes nothing by itself.
type Notice struct {
	Class   string `json:"class"`
	Message string `json:"message"`
	Origin  string `json:"origin,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// DiffCaptured is what the run changed in the workspace.
type DiffCaptured struct {
	Base   string     `json:"base,omitempty"` // commit the patch applies to
	Head   string     `json:"head,omitempty"` // tree id after the run
	Files  []FileStat `json:"files"`
	Patch  string     `json:"patch"`  // git diff --binary --full-index
	Digest string     `json:"digest"` // sha256:… of Patch
	// Dirty: the folder had changes before the run, so the patch applies to that
	// state and not to Base itself.
	Dirty bool `json:"dirty,omitempty"`
	// Omitted names files that changed and are not in the patch, each with why.
	Omitted []string     `json:"omitted,omitempty"`
	Error   string       `json:"error,omitempty"`
	Mail    *MailDetails `json:"mail,omitempty"`
}

// MailDetails are what a mail patch needs besides the diff.
type MailDetails struct {
	Author  string `json:"author"`
	Subject string `json:"subject"`
}

// FileStat is one changed file.
type FileStat struct {
	Path    string `json:"path"`
	OldPath string `json:"old_path,omitempty"`
	Kind    string `json:"kind"` // add, delete, update, rename, mode
	Added   int    `json:"added"`
	Deleted int    `json:"deleted"`
	Binary  bool   `json:"binary,omitempty"`
	Mode    string `json:"mode,omitempty"`
}

// TelemetryFlushed counts what the collector took and what was lost.
type TelemetryFlushed struct {
	Exported int64  `json:"exported"`
	Lost     int64  `json:"lost"`
	Message  string `json:"message,omitempty"`
}

// RunCompleted is the last record of every run.
type RunCompleted struct {
	Outcome      string  `json:"outcome"` // success, failed, limit, interrupted, denied, usage, policy, sandbox, auth, output, internal
	Class        string  `json:"class"`
	ExitCode     int     `json:"exit_code"`
	Message      string  `json:"message,omitempty"`
	Hint         string  `json:"hint,omitempty"`
	Retryable    bool    `json:"retryable"`
	FinalMessage string  `json:"final_message"`
	DurationMS   int64   `json:"duration_ms"`
	Usage        Usage   `json:"usage"`        // of this run
	ThreadUsage  Usage   `json:"thread_usage"` // earlier turns included
	CostUSD      float64 `json:"cost_usd,omitempty"`
	Totals       Totals  `json:"totals"`
}

// Totals counts what happened.
type Totals struct {
	ModelResponses int `json:"model_responses"`
	ModelRetries   int `json:"model_retries"`
	ToolCalls      int `json:"tool_calls"`
	FailedTools    int `json:"failed_tools"`
	Denials        int `json:"denials"`
	HookFailures   int `json:"hook_failures"`
	Compactions    int `json:"compactions"`
	Agents         int `json:"agents"`
}

// Add returns the sum of t and u.
func (t Totals) Add(u Totals) Totals {
	return Totals{
		ModelResponses: t.ModelResponses + u.ModelResponses, ModelRetries: t.ModelRetries + u.ModelRetries,
		ToolCalls: t.ToolCalls + u.ToolCalls, FailedTools: t.FailedTools + u.FailedTools, Denials: t.Denials + u.Denials,
		HookFailures: t.HookFailures + u.HookFailures, Compactions: t.Compactions + u.Compactions, Agents: t.Agents + u.Agents,
	}
}

func (RunStarted) kind() Kind         { return KindRunStarted }
func (SandboxEnforced) kind() Kind    { return KindSandboxEnforced }
func (CredentialSelected) kind() Kind { return KindCredentialSelected }
func (AuthRefreshed) kind() Kind      { return KindAuthRefreshed }
func (InstructionsLoaded) kind() Kind { return KindInstructionsLoaded }
func (ServerStatus) kind() Kind       { return KindServerStatus }
func (ModelRequest) kind() Kind       { return KindModelRequest }
func (ModelResponse) kind() Kind      { return KindModelResponse }
func (ModelRetried) kind() Kind       { return KindModelRetried }
func (ModelFallback) kind() Kind      { return KindModelFallback }
func (HistoryCompacted) kind() Kind   { return KindHistoryCompacted }
func (PolicyDecision) kind() Kind     { return KindPolicyDecision }
func (ToolCompleted) kind() Kind      { return KindToolCompleted }
func (HookCompleted) kind() Kind      { return KindHookCompleted }
func (VerifyCompleted) kind() Kind    { return KindVerifyCompleted }
func (SchemaChecked) kind() Kind      { return KindSchemaChecked }
func (FindingReported) kind() Kind    { return KindFindingReported }
func (LimitReached) kind() Kind       { return KindLimitReached }
func (AgentEvent) kind() Kind         { return KindAgentEvent }
func (Notice) kind() Kind             { return KindNotice }
func (DiffCaptured) kind() Kind       { return KindDiffCaptured }
func (TelemetryFlushed) kind() Kind   { return KindTelemetryFlushed }
func (RunCompleted) kind() Kind       { return KindRunCompleted }
