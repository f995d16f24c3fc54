package rollout

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
)

// aborted is the output of a call that was never answered.
const aborted = "aborted"

// builder makes a History of lines.
type builder struct {
	h      History
	broken int // lines that could not be read
}

// message is the part of a message item that is looked at.
type message struct {
	Type    string          `json:"type"`
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// texts are the texts of the message's parts.
func (m message) texts() []string {
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(m.Content, &parts) != nil {
		var s string
		if json.Unmarshal(m.Content, &s) != nil {
			return nil
		}
		return []string{s}
	}
	var list []string
	for _, p := range parts {
		list = append(list, p.Text)
	}
	return list
}

func (m message) text() string { return strings.Join(m.texts(), "") }

// lastText is the last text: images stand before what was asked.
func (m message) lastText() string {
	list := m.texts()
	if len(list) == 0 {
		return ""
	}
	return list[len(list)-1]
}

// add applies one line.
func (b *builder) add(l line) {
	var err error
	switch l.Type {
	case typeItem:
		err = b.item(l.Payload)
	case typeTurn:
		err = b.turn(l.Payload)
	case typeUsage:
		var u usageRecord
		if err = json.Unmarshal(l.Payload, &u); err == nil {
			b.h.Usage, b.h.Last = u.Thread.toUsage(), u.Usage.toUsage()
		}
	case typeEvent:
		err = b.event(l.Payload)
	case typeCompacted:
		err = b.compacted(l.Payload)
	}
	if err != nil {
		b.broken++
	}
}

func (b *builder) item(raw json.RawMessage) error {
	clean, err := forModel(raw)
	if err != nil {
		return err
	}
	b.h.Items = append(b.h.Items, model.Item{Raw: clean})
	return nil
}

func (b *builder) turn(raw json.RawMessage) error {
	var t turnContext
	if err := json.Unmarshal(raw, &t); err != nil {
		return err
	}
	b.h.Model, b.h.Effort, b.h.Sandbox = t.Model, t.Effort, t.Sandbox.Type
	return nil
}

func (b *builder) event(raw json.RawMessage) error {
	var e struct {
		Type string `json:"type"`
		Num  int    `json:"num_turns"`
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return err
	}
	switch e.Type {
	case "task_started", "turn_started":
		b.h.Turns++
	case "token_count":
		var c tokenCount
		if err := json.Unmarshal(raw, &c); err != nil {
			return err
		}
		if c.Info != nil {
			b.h.Usage, b.h.Last = c.Info.Total.toUsage(), c.Info.Last.toUsage()
		}
	case "thread_rolled_back":
		b.rollBack(e.Num)
	}
	return nil
}

// rollBack drops the last n prompts and what followed them.
func (b *builder) rollBack(n int) {
	for i := len(b.h.Items) - 1; i >= 0 && n > 0; i-- {
		if isPrompt(b.h.Items[i].Raw) {
			b.h.Items = b.h.Items[:i]
			n--
		}
	}
}

// isPrompt tells a message that the user wrote from context messages.
func isPrompt(raw []byte) bool {
	var m message
	if json.Unmarshal(raw, &m) != nil || m.Type != "message" || m.Role != "user" {
		return false
	}
	text := m.text()
	for _, context := range []string{"<environment_context>", "# AGENTS.md instructions", "<skill>", "<turn_aborted>", "<user_instructions>", "<user_shell_command>"} {
		if strings.HasPrefix(text, context) {
			return false
		}
	}
	return true
}

// compacted replaces the history. Files of older versions only hold the
// summary; their history is then the user's prompts and the summary.
func (b *builder) compacted(raw json.RawMessage) error {
	var c compacted
	if err := json.Unmarshal(raw, &c); err != nil {
		return err
	}
	old := b.h.Items
	b.h.Items = nil
	if c.Replacement != nil {
		for _, it := range c.Replacement {
			if err := b.item(it); err != nil {
				return err
			}
		}
		return nil
	}
	for _, it := range old {
		if isPrompt(it.Raw) {
			b.h.Items = append(b.h.Items, it)
		}
	}
	text, err := event.Marshal(map[string]any{
		"type": "message", "role": "user",
		"content": []map[string]string{{"type": "input_text", "text": c.Message}},
	})
	if err != nil {
		return err
	}
	b.h.Items = append(b.h.Items, model.Item{Raw: text})
	return nil
}

// localFields are fields of stored items that the reference keeps for itself
// and does not send.
var localFields = []string{"internal_chat_message_metadata_passthrough"}

// forModel returns an item as it is sent. An item without local fields comes
// back byte for byte.
func forModel(raw json.RawMessage) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	if len(fields["type"]) == 0 {
		return nil, fmt.Errorf("an item without a type")
	}
	has := false
	for _, name := range localFields {
		if _, ok := fields[name]; ok {
			has = true
		}
	}
	if !has {
		return bytes.Clone(raw), nil
	}
	return dropFields(raw, localFields)
}

// dropFields removes top-level fields and keeps the order of the others.
func dropFields(raw []byte, names []string) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	out := []byte{'{'}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		name, _ := key.(string)
		if slices.Contains(names, name) {
			continue
		}
		quoted, err := event.Marshal(name)
		if err != nil {
			return nil, err
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, quoted...), ':'), value...)
	}
	return append(out, '}'), nil
}

// call is what pairs a call with its output.
type call struct {
	Type   string `json:"type"`
	CallID string `json:"call_id"`
}

// outputOf is the type of the output that answers a call of that type.
var outputOf = map[string]string{
	"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output",
}

// closeCalls answers calls that have no output, right after the call, and
// drops outputs that answer no call: the service refuses both.
func closeCalls(items []model.Item) ([]model.Item, error) {
	seen := make([]call, len(items))
	answered, asked := map[call]bool{}, map[call]bool{}
	for i, it := range items {
		if err := json.Unmarshal(it.Raw, &seen[i]); err != nil {
			return nil, err
		}
		if out, ok := outputOf[seen[i].Type]; ok {
			asked[call{out, seen[i].CallID}] = true
		}
		answered[seen[i]] = true
	}
	var out []model.Item
	for i, it := range items {
		isOutput := seen[i].Type == "function_call_output" || seen[i].Type == "custom_tool_call_output"
		if isOutput && !asked[seen[i]] {
			continue
		}
		out = append(out, it)
		want, isCall := outputOf[seen[i].Type]
		if !isCall || answered[call{want, seen[i].CallID}] {
			continue
		}
		raw, err := event.Marshal(struct {
			call
			Output string `json:"output"`
		}{call{want, seen[i].CallID}, aborted})
		if err != nil {
			return nil, err
		}
		out = append(out, model.Item{Raw: raw})
	}
	return out, nil
}

// finish closes open calls and reports lines that could not be read.
func (b *builder) finish() (History, error) {
	items, err := closeCalls(b.h.Items)
	if err != nil {
		return History{}, fmt.Errorf("thread %s: %w", b.h.ID, err)
	}
	b.h.Items = items
	if b.broken > 0 {
		what := "1 line of thread %s could not be read and was left out"
		if b.broken > 1 {
			what = strconv.Itoa(b.broken) + " lines of thread %s could not be read and were left out"
		}
		b.h.Notices = append(b.h.Notices, event.Notice{Class: "thread_damaged", Origin: b.h.Path, Message: fmt.Sprintf(what, b.h.ID)})
	}
	return b.h, nil
}
