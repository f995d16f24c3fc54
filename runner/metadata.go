package runner

import (
	"fmt"
	"net/http"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// turnMetadata is the JSON of x-codex-turn-metadata.
type turnMetadata struct {
	SessionID     string `json:"session_id"`
	ThreadID      string `json:"thread_id"`
	TurnID        string `json:"turn_id"`
	RootTurnID    string `json:"root_turn_id"`
	WindowID      string `json:"window_id"`
	RequestKind   string `json:"request_kind"`
	HistoryInit   string `json:"history_initialization"`
	TurnTrigger   string `json:"turn_trigger"`
	ThreadSource  string `json:"thread_source"`
	Sandbox       string `json:"sandbox"`
	SandboxMode   string `json:"sandbox_mode"`
	TurnStartedMS int64  `json:"turn_started_at_unix_ms"`
	Model         string `json:"model"`
	Effort        string `json:"reasoning_effort,omitempty"`
}

// requestKinds are the reference's words for the purposes of requests.
var requestKinds = map[string]string{"compaction": "compaction"}

// metadata are the client_metadata strings of a request; the client derives the
// headers from them. They name no path and no machine.
func (r *run) metadata(purpose string) map[string]string {
	kind, ok := requestKinds[purpose]
	if !ok {
		kind = "turn"
	}
	init := map[string]string{"resume": "cold_resume", "fork": "cold_fork"}[r.Mode]
	if init == "" {
		init = "new"
	}
	confined := "seccomp"
	if r.cfg.SandboxMode == string(sandbox.FullAccess) {
		confined = "none"
	}
	window := fmt.Sprintf("%s:%d", r.Thread.ID, r.totals.Compactions)
	turn := turnMetadata{SessionID: r.Thread.ID, ThreadID: r.Thread.ID, TurnID: r.turnID, RootTurnID: r.turnID, WindowID: window,
		RequestKind: kind, HistoryInit: init, TurnTrigger: "exec", ThreadSource: r.Thread.Source, Sandbox: confined,
		SandboxMode: r.cfg.SandboxMode, TurnStartedMS: r.started.UnixMilli(), Model: r.model, Effort: r.effort()}
	return map[string]string{"session_id": r.Thread.ID, "thread_id": r.Thread.ID, "turn_id": r.turnID, "root_turn_id": r.turnID,
		"x-codex-window-id": window, "x-codex-turn-metadata": string(rawItem(turn).Raw)}
}

// headers are the request's own headers.
func (r *run) headers() http.Header {
	h := http.Header{}
	if r.TraceParent != "" {
		h.Set("traceparent", r.TraceParent)
	}
	if r.Mode == "review" {
		h.Set("x-openai-subagent", "review")
	}
	return h
}
