package rollout

import (
	"encoding/json"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// timeLayout is how the reference writes times in lines.
const timeLayout = "2006-01-02T15:04:05.000Z"

// line is one line of a file.
type line struct {
	Timestamp string          `json:"timestamp"`
	Ordinal   *int64          `json:"ordinal,omitempty"`
	Type      string          `json:"type"`
	Payload   json.RawMessage `json:"payload"`
}

// Line types.
const (
	typeMeta      = "session_meta"
	typeTurn      = "turn_context"
	typeItem      = "response_item"
	typeEvent     = "event_msg"
	typeUsage     = "token_usage_record"
	typeCompacted = "compacted"
)

// sessionMeta is the first line.
type sessionMeta struct {
	ID           string          `json:"id"`
	SessionID    string          `json:"session_id,omitempty"`
	ForkedFrom   string          `json:"forked_from_id,omitempty"`
	ForkedEnd    *int64          `json:"forked_from_ordinal_exclusive,omitempty"`
	Parent       string          `json:"parent_thread_id,omitempty"`
	Timestamp    string          `json:"timestamp"`
	Cwd          string          `json:"cwd"`
	Originator   string          `json:"originator"`
	CLIVersion   string          `json:"cli_version"`
	Source       json.RawMessage `json:"source,omitempty"`
	ThreadSource string          `json:"thread_source,omitempty"`
	Provider     string          `json:"model_provider"`
	Base         *baseText       `json:"base_instructions,omitempty"`
	Git          *gitInfo        `json:"git,omitempty"`
	HistoryMode  string          `json:"history_mode,omitempty"`
	HistoryBase  *historyBase    `json:"history_base,omitempty"`
}

type baseText struct {
	Text string `json:"text"`
}

type gitInfo struct {
	Commit     string `json:"commit_hash,omitempty"`
	Branch     string `json:"branch,omitempty"`
	Repository string `json:"repository_url,omitempty"`
}

// historyBase says that a fork's history begins in another thread's file.
type historyBase struct {
	ThreadID string `json:"thread_id"`
	End      int64  `json:"end_ordinal_exclusive"`
}

type turnContext struct {
	TurnID   string        `json:"turn_id"`
	Cwd      string        `json:"cwd"`
	Approval string        `json:"approval_policy"`
	Sandbox  sandboxPolicy `json:"sandbox_policy"`
	Model    string        `json:"model"`
	Effort   string        `json:"effort,omitempty"`
	Summary  string        `json:"summary"`
}

type sandboxPolicy struct {
	Type     string   `json:"type"`
	Writable []string `json:"writable_roots,omitempty"`
	Network  *bool    `json:"network_access,omitempty"`
}

// usage is event.Usage as the reference stores it.
type usage struct {
	Input      int64 `json:"input_tokens"`
	Cached     int64 `json:"cached_input_tokens"`
	CacheWrite int64 `json:"cache_write_input_tokens"`
	Output     int64 `json:"output_tokens"`
	Reasoning  int64 `json:"reasoning_output_tokens"`
	Total      int64 `json:"total_tokens"`
}

func fromUsage(u event.Usage) usage {
	return usage{u.Input, u.CachedInput, u.CacheWriteInput, u.Output, u.Reasoning, u.Total()}
}

func (u usage) toUsage() event.Usage {
	return event.Usage{Input: u.Input, CachedInput: u.Cached, CacheWriteInput: u.CacheWrite, Output: u.Output, Reasoning: u.Reasoning}
}

// usageRecord is written after each response. SessionID and the turns are what
// the reference needs to accept the line.
type usageRecord struct {
	ThreadID   string `json:"thread_id"`
	TurnID     string `json:"turn_id"`
	SessionID  string `json:"session_id"`
	RootTurn   string `json:"root_turn_id"`
	ResponseID string `json:"response_id"`
	Usage      usage  `json:"usage"`
	Turn       usage  `json:"turn_token_usage"`
	Thread     usage  `json:"thread_token_usage"`
}

type tokenCount struct {
	Type string     `json:"type"`
	Info *tokenInfo `json:"info"`
}

type tokenInfo struct {
	Total usage `json:"total_token_usage"`
	Last  usage `json:"last_token_usage"`
}

type compacted struct {
	Message     string            `json:"message"`
	Replacement []json.RawMessage `json:"replacement_history,omitempty"`
}

func stamp(t time.Time) string { return t.UTC().Format(timeLayout) }
