package runner

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/nightshift-ci/nightshift/runner/model"
)

// history is what the model is sent: raw items, append-only. The bytes of an
// item never change once it was sent, so the service's prompt cache works; only
// a compaction replaces the list.
type history struct {
	items []model.Item
}

func (h *history) add(items ...model.Item) { h.items = append(h.items, items...) }

// snapshot is the input of a request. The slice is capped so that later
// additions never show through.
func (h *history) snapshot() []model.Item { return h.items[:len(h.items):len(h.items)] }

func (h *history) bytes() int {
	n := 0
	for _, it := range h.items {
		n += len(it.Raw)
	}
	return n
}

// rawItem encodes v without HTML escaping: the text of a prompt stays readable
// in recorded requests.
func rawItem(v any) model.Item {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("an item of our own does not encode: %v", err))
	}
	return model.Item{Raw: bytes.TrimSuffix(buf.Bytes(), []byte("\n"))}
}

// part is one content part of a message.
type part struct {
	Type     string `json:"type"`
	Text     string `json:"text,omitempty"`
	ImageURL string `json:"image_url,omitempty"`
	Detail   string `json:"detail,omitempty"`
}

func textPart(s string) part { return part{Type: "input_text", Text: s} }

// message makes a message item of the given role.
func (r *run) message(role string, parts ...part) model.Item {
	type item struct {
		Type    string `json:"type"`
		ID      string `json:"id"`
		Role    string `json:"role"`
		Content []part `json:"content"`
	}
	return rawItem(item{"message", "msg_" + r.NewID(), role, parts})
}

// callOutput is the answer to one call of the model.
func (r *run) callOutput(c call, output json.RawMessage) model.Item {
	type item struct {
		Type   string          `json:"type"`
		ID     string          `json:"id"`
		CallID string          `json:"call_id"`
		Output json.RawMessage `json:"output"`
	}
	if c.Custom {
		return rawItem(item{"custom_tool_call_output", "ctco_" + r.NewID(), c.ID, output})
	}
	return rawItem(item{"function_call_output", "fco_" + r.NewID(), c.ID, output})
}

// outputItem is the part of a response's item that the loop must understand.
type outputItem struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Role      string          `json:"role"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Namespace string          `json:"namespace"`
	Arguments json.RawMessage `json:"arguments"`
	Input     string          `json:"input"`
	Status    string          `json:"status"`
	Phase     string          `json:"phase"`
	Action    json.RawMessage `json:"action"`
	Content   contentParts    `json:"content"`
	Summary   []struct {
		Text string `json:"text"`
	} `json:"summary"`
}

// contentPart is one part of a message.
type contentPart struct {
	Type    string `json:"type"`
	Text    string `json:"text"`
	Refusal string `json:"refusal"`
}

// contentParts are the parts of a message. Some services send a bare text in
// their place.
type contentParts []contentPart

// UnmarshalJSON reads a list, or a text as its only part.
func (c *contentParts) UnmarshalJSON(b []byte) error {
	var text *string
	if json.Unmarshal(b, &text) == nil {
		*c = nil
		if text != nil {
			*c = contentParts{{Type: "output_text", Text: *text}}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]contentPart)(c))
}

func readItem(it model.Item) (outputItem, error) {
	var o outputItem
	if err := json.Unmarshal(it.Raw, &o); err != nil {
		return o, fmt.Errorf("the model sent an item that is not readable: %w", err)
	}
	return o, nil
}

// text joins the text parts of a message; refusal is set when the model
// refused.
func (o outputItem) text() (text, refusal string) {
	var b bytes.Buffer
	for _, c := range o.Content {
		switch c.Type {
		case "output_text", "text", "input_text":
			b.WriteString(c.Text)
		case "refusal":
			refusal += c.Refusal
		}
	}
	return b.String(), refusal
}

// arguments returns the call's arguments as JSON text: the service sends them
// as a string.
func (o outputItem) arguments() json.RawMessage {
	var s string
	if json.Unmarshal(o.Arguments, &s) == nil {
		return json.RawMessage(s)
	}
	return o.Arguments
}
