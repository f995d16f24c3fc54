package event

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Status of an item.
type Status string

// Statuses of items. Declined is an action that policy or the sandbox refused
// before it began.
const (
	InProgress Status = "in_progress"
	Completed  Status = "completed"
	Failed     Status = "failed"
	Declined   Status = "declined"
)

// Item is one entry of the transcript: an id ("item_0", "item_1", … in order of
// first appearance) and its details.
type Item struct {
	ID      string
	Details ItemDetails
}

// ItemDetails is the type-specific part of an item. The set is closed.
type ItemDetails interface{ itemType() string }

// ItemType returns the "type" word of d.
func ItemType(d ItemDetails) string { return d.itemType() }

// AgentMessage is a whole message of the model.
type AgentMessage struct {
	Text string `json:"text"`
}

// Reasoning is a reasoning summary, its parts joined by newlines.
type Reasoning struct {
	Text string `json:"text"`
}

// Denial says who refused an action and under which rule. It is attached to
// items that never ran.
type Denial struct {
	// Reason is a sentence for people.
	Reason string `json:"reason"`
	// Source is what refused: "rule", "requirement", "sandbox", "approval",
	// "hook", "danger", "limit".
	Source string `json:"source"`
	// Rule is the matched pattern or key, Origin its file:line, if any.
	Rule   string `json:"rule,omitempty"`
	Origin string `json:"origin,omitempty"`
}

// CommandExecution is one command, however often it is polled.
type CommandExecution struct {
	Command string `json:"command"`
	// AggregatedOutput is stdout and stderr in order of arrival, valid UTF-8,
	// at most 1 MiB with a line that counts the omitted bytes.
	AggregatedOutput string  `json:"aggregated_output"`
	ExitCode         *int    `json:"exit_code"`
	Status           Status  `json:"status"`
	Denial           *Denial `json:"denial,omitempty"`
}

// FileChange is one patch.
type FileChange struct {
	Changes []PathChange `json:"changes"`
	Status  Status       `json:"status"`
	Denial  *Denial      `json:"denial,omitempty"`
	// Message says why a failed patch failed.
	Message string `json:"message,omitempty"`
}

// PathChange is one file of a patch; Path is absolute, a moved file shows its
// old path with kind "update".
type PathChange struct {
	Path string `json:"path"`
	Kind string `json:"kind"` // add, delete, update
}

// MCPToolCall is a call of a tool of an MCP server.
type MCPToolCall struct {
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Result    *MCPResult      `json:"result"`
	Error     *MCPError       `json:"error"`
	Status    Status          `json:"status"`
	Denial    *Denial         `json:"denial,omitempty"`
}

// MCPResult is what the server answered, its content blocks kept verbatim.
type MCPResult struct {
	Content           []json.RawMessage `json:"content"`
	StructuredContent json.RawMessage   `json:"structured_content"`
}

// MCPError is a call that gave no result.
type MCPError struct {
	Message string `json:"message"`
}

// WebSearch is a hosted search. The reference repeats the key "id" (item id,
// then call id); readers keep the last, so CallID is what is written as "id"
// and the item's own id stands in "item_id".
type WebSearch struct {
	CallID string
	Query  string
	Action json.RawMessage
}

// TodoList is the plan of the turn.
type TodoList struct {
	Items []Todo `json:"items"`
}

// Todo is one step of the plan.
type Todo struct {
	Text      string `json:"text"`
	Completed bool   `json:"completed"`
}

// CollabToolCall is a call to a sub-agent.
type CollabToolCall struct {
	Tool              string                `json:"tool"`
	SenderThreadID    string                `json:"sender_thread_id"`
	ReceiverThreadIDs []string              `json:"receiver_thread_ids"`
	Prompt            *string               `json:"prompt"`
	AgentsStates      map[string]AgentState `json:"agents_states"`
	Status            Status                `json:"status"`
}

// AgentState is the state of one sub-agent.
type AgentState struct {
	Status  string  `json:"status"`
	Message *string `json:"message"`
}

// ToolCall is a call that has no item type in the reference (unknown tools, bad
// arguments, refused requests): shown so that nothing the model tried is
// invisible. On the wire it is an item of type "error" with extra fields.
type ToolCall struct {
	Message string  `json:"message"`
	Tool    string  `json:"tool"`
	Status  Status  `json:"status"`
	Denial  *Denial `json:"denial,omitempty"`
}

// ErrorItem is a warning.
type ErrorItem struct {
	Message string `json:"message"`
}

// UnknownItem is an item of a type this version does not know.
type UnknownItem struct {
	Type string
	Raw  json.RawMessage
}

func (AgentMessage) itemType() string     { return "agent_message" }
func (Reasoning) itemType() string        { return "reasoning" }
func (CommandExecution) itemType() string { return "command_execution" }
func (FileChange) itemType() string       { return "file_change" }
func (MCPToolCall) itemType() string      { return "mcp_tool_call" }
func (WebSearch) itemType() string        { return "web_search" }
func (TodoList) itemType() string         { return "todo_list" }
func (CollabToolCall) itemType() string   { return "collab_tool_call" }
func (ToolCall) itemType() string         { return "error" }
func (ErrorItem) itemType() string        { return "error" }
func (u UnknownItem) itemType() string    { return u.Type }

// MarshalJSON writes {"id":…,"type":…,…details}.
func (it Item) MarshalJSON() ([]byte, error) {
	switch d := it.Details.(type) {
	case nil:
		return nil, fmt.Errorf("item %s has no details", it.ID)
	case UnknownItem:
		return d.Raw, nil
	case WebSearch:
		action := d.Action
		if len(action) == 0 {
			action = json.RawMessage(`{"type":"other"}`)
		}
		return Marshal(struct {
			ID     string          `json:"id"`
			Type   string          `json:"type"`
			ItemID string          `json:"item_id"`
			Query  string          `json:"query"`
			Action json.RawMessage `json:"action"`
		}{d.CallID, "web_search", it.ID, d.Query, action})
	}
	body, err := Marshal(it.Details)
	if err != nil {
		return nil, err
	}
	head, err := Marshal(struct {
		ID   string `json:"id"`
		Type string `json:"type"`
	}{it.ID, it.Details.itemType()})
	if err != nil {
		return nil, err
	}
	return join(head, body), nil
}

// UnmarshalJSON reads an item by its type.
func (it *Item) UnmarshalJSON(b []byte) error {
	var head struct {
		ID     string `json:"id"`
		ItemID string `json:"item_id"`
		Type   string `json:"type"`
		Tool   string `json:"tool"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return err
	}
	it.ID = head.ID
	var err error
	switch head.Type {
	case "agent_message":
		it.Details, err = decode[AgentMessage](b)
	case "reasoning":
		it.Details, err = decode[Reasoning](b)
	case "command_execution":
		it.Details, err = decode[CommandExecution](b)
	case "file_change":
		it.Details, err = decode[FileChange](b)
	case "mcp_tool_call":
		it.Details, err = decode[MCPToolCall](b)
	case "todo_list":
		it.Details, err = decode[TodoList](b)
	case "collab_tool_call":
		it.Details, err = decode[CollabToolCall](b)
	case "error":
		if head.Tool != "" {
			it.Details, err = decode[ToolCall](b)
		} else {
			it.Details, err = decode[ErrorItem](b)
		}
	case "web_search":
		var w struct {
			Query  string          `json:"query"`
			Action json.RawMessage `json:"action"`
		}
		err = json.Unmarshal(b, &w)
		it.Details = WebSearch{CallID: head.ID, Query: w.Query, Action: w.Action}
		if head.ItemID != "" {
			it.ID = head.ItemID
		}
	default:
		it.Details = UnknownItem{Type: head.Type, Raw: bytes.Clone(b)}
	}
	return err
}

func decode[T any](b []byte) (T, error) {
	var v T
	err := json.Unmarshal(b, &v)
	return v, err
}

// Marshal is json.Marshal without HTML escaping: readers of streams, threads and
// hooks compare texts, and in JSON "<" is no danger.
func Marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// join splices two JSON objects into one, a's fields first.
func join(a, b []byte) []byte {
	if len(b) <= 2 {
		return a
	}
	out := make([]byte, 0, len(a)+len(b))
	out = append(out, a[:len(a)-1]...)
	out = append(out, ',')
	return append(out, b[1:]...)
}
