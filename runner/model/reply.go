package model

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
	"unicode/utf8"
)

// reply is one scripted answer, as it stands in a script:
//
//	{"items": [ITEM, …], "end": "completed", "usage": {"input": 100, …}}
//	{"status": 429, "headers": {"Retry-After": "2"}, "body": {…}}
//
// See ParseScript for the whole format.
type reply struct {
	Items []item `json:"items"`
	// End: completed (default), failed, incomplete, none.
	End      string          `json:"end"`
	Error    json.RawMessage `json:"error"`
	Reason   string          `json:"reason"` // of incomplete; default max_output_tokens
	Usage    *usage          `json:"usage"`
	EndTurn  *bool           `json:"end_turn"`
	ID       string          `json:"response_id"`
	Model    string          `json:"model"`
	CutItem  bool            `json:"cut_mid_item"`
	CutAfter *int            `json:"cut_after"` // events
	Hang     seconds         `json:"hang_s"`
	Gap      seconds         `json:"gap_s"`
	Delay    seconds         `json:"delay_s"`
	Reset    bool            `json:"reset"`

	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`
	// SSE is a stream written out, sent as it is.
	SSE *string `json:"sse"`

	// Compact: the answer to a compaction request.
	Compact bool   `json:"compact"`
	Match   *match `json:"match"`

	// Request and Failure are written by a Recorder.
	Request *requestMark `json:"request"`
	Failure *failureMark `json:"failure"`
}

type match struct {
	Contains string `json:"contains"`
}

type usage struct {
	Input      int64 `json:"input"`
	Cached     int64 `json:"cached"`
	CacheWrite int64 `json:"cache_write"`
	Output     int64 `json:"output"`
	Reasoning  int64 `json:"reasoning"`
}

// seconds is a time in seconds, fractions allowed.
type seconds time.Duration

// UnmarshalJSON reads a number from 0 to a day.
func (s *seconds) UnmarshalJSON(b []byte) error {
	var f float64
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	if f < 0 || f > 86400 {
		return fmt.Errorf("%v is not a time between 0 and 86400 seconds", f)
	}
	*s = seconds(f * float64(time.Second))
	return nil
}

// item is one scripted output item. Exactly one of Message, Reasoning, Call,
// Custom, WebSearch and Raw is set.
type item struct {
	Message   *string         `json:"message"`
	Phase     string          `json:"phase"`
	Deltas    int             `json:"deltas"` // pieces a text is sent in; default 2
	Reasoning *[]string       `json:"reasoning"`
	Encrypted string          `json:"encrypted"`
	Call      string          `json:"call"`
	Custom    string          `json:"custom"`
	CallID    string          `json:"call_id"`
	Args      json.RawMessage `json:"args"` // an object, or a string sent as it is
	Input     string          `json:"input"`
	Namespace string          `json:"namespace"`
	WebSearch json.RawMessage `json:"web_search"`
	// Raw is the item as the service sent it.
	Raw json.RawMessage `json:"raw"`

	// text is the item's own JSON: placeholders are filled in here.
	text json.RawMessage
}

// UnmarshalJSON checks the item and its placeholders.
func (it *item) UnmarshalJSON(b []byte) error {
	type plain item
	var p plain
	if err := strict(b, &p); err != nil {
		return err
	}
	kinds := 0
	for _, set := range []bool{p.Message != nil, p.Reasoning != nil, p.Call != "", p.Custom != "", p.WebSearch != nil, p.Raw != nil} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return errors.New(`an item has exactly one of "message", "reasoning", "call", "custom", "web_search", "raw"`)
	}
	if p.Deltas < 0 || p.Deltas > 1_000_000 {
		return errors.New(`"deltas" is a number from 0 to 1000000`)
	}
	if _, err := placeholders(b); err != nil {
		return err
	}
	*it = item(p)
	it.text = bytes.Clone(b)
	return nil
}

// strict decodes b and refuses unknown fields: a misspelt field would silently
// script something else.
func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// check refuses a reply that cannot be meant.
func (r *reply) check() error {
	switch r.End {
	case "", "completed", "failed", "incomplete", "none":
	default:
		return fmt.Errorf(`"end" is "completed", "failed", "incomplete" or "none", not %q`, r.End)
	}
	if r.Status != 0 && (r.Status < 200 || r.Status > 599) {
		return fmt.Errorf(`"status" is a number from 200 to 599, not %d`, r.Status)
	}
	if r.Status != 0 && (r.Items != nil || r.SSE != nil) {
		return errors.New(`a reply with "status" is a plain HTTP answer: it has no "items" and no "sse"`)
	}
	if r.SSE != nil && r.Items != nil {
		return errors.New(`a reply has "items" or "sse", not both`)
	}
	if r.CutAfter != nil && *r.CutAfter < 0 {
		return errors.New(`"cut_after" is a number of events, 0 or more`)
	}
	return nil
}

// build returns the output item as the service would send it: request n, item i.
func (it item) build(n, i int) (json.RawMessage, error) {
	id := func(prefix string) string { return fmt.Sprintf("%s_r%d_%d", prefix, n, i) }
	callID := it.CallID
	if callID == "" {
		callID = id("call")
	}
	b := body{}
	switch {
	case it.Raw != nil:
		return it.Raw, nil
	case it.Message != nil:
		b.field("type", "message")
		b.field("id", id("msg"))
		b.field("status", "completed")
		b.field("role", "assistant")
		if it.Phase != "" {
			b.field("phase", it.Phase)
		}
		b.field("content", []any{textPart{Type: "output_text", Text: *it.Message, Annotations: []string{}}})
	case it.Reasoning != nil:
		b.field("type", "reasoning")
		b.field("id", id("rs"))
		parts := []summaryPart{}
		for _, text := range *it.Reasoning {
			parts = append(parts, summaryPart{Type: "summary_text", Text: text})
		}
		b.field("summary", parts)
		if it.Encrypted != "" {
			b.field("encrypted_content", it.Encrypted)
		}
	case it.Call != "":
		args, err := argumentText(it.Args)
		if err != nil {
			return nil, err
		}
		b.field("type", "function_call")
		b.field("id", id("fc"))
		b.field("status", "completed")
		b.field("call_id", callID)
		if it.Namespace != "" {
			b.field("namespace", it.Namespace)
		}
		b.field("name", it.Call)
		b.field("arguments", args)
	case it.Custom != "":
		b.field("type", "custom_tool_call")
		b.field("id", id("ctc"))
		b.field("status", "completed")
		b.field("call_id", callID)
		b.field("name", it.Custom)
		b.field("input", it.Input)
	default:
		b.field("type", "web_search_call")
		b.field("id", id("ws"))
		b.field("status", "completed")
		b.field("action", it.WebSearch)
	}
	return b.close(), nil
}

type textPart struct {
	Type        string   `json:"type"`
	Text        string   `json:"text"`
	Annotations []string `json:"annotations"`
}

type summaryPart struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// argumentText is the arguments of a function call: the text of a string, the
// compact JSON of anything else.
func argumentText(raw json.RawMessage) (string, error) {
	if len(raw) == 0 {
		return "{}", nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var b bytes.Buffer
	err := json.Compact(&b, raw)
	return b.String(), err
}

// httpBody is the body of a plain reply and its content type. Objects are
// written with a space after commas and colons, the way the services at hand
// do; clients show such bodies as they are.
func (r *reply) httpBody() ([]byte, string, error) {
	if len(r.Body) == 0 || string(r.Body) == "null" {
		return nil, "", nil
	}
	var text string
	if json.Unmarshal(r.Body, &text) == nil {
		return []byte(text), "text/plain; charset=utf-8", nil
	}
	var bin struct {
		Base64 *string `json:"base64"`
	}
	if strict(r.Body, &bin) == nil && bin.Base64 != nil {
		b, err := base64.StdEncoding.DecodeString(*bin.Base64)
		return b, "application/octet-stream", err
	}
	return spaced(r.Body), "application/json", nil
}

// spaced rewrites JSON with ", " and ": " between its parts.
func spaced(raw []byte) []byte {
	out := make([]byte, 0, len(raw)+len(raw)/8)
	quoted, escaped := false, false
	for _, c := range raw {
		switch {
		case quoted:
			out = append(out, c)
			quoted = c != '"' || escaped
			escaped = c == '\\' && !escaped
		case c == ' ' || c == '\n' || c == '\t' || c == '\r':
		case c == ',' || c == ':':
			out = append(out, c, ' ')
		default:
			out = append(out, c)
			quoted = c == '"'
		}
	}
	return out
}

// pieces cuts s into n parts at character borders; fewer when s is short.
func pieces(s string, n int) []string {
	if n <= 0 {
		n = 2
	}
	var out []string
	for ; n > 1 && len(s) > 1; n-- {
		at := len(s) / n
		for at < len(s) && !utf8.RuneStart(s[at]) {
			at++
		}
		if at == 0 {
			at = 1
		}
		out = append(out, s[:at])
		s = s[at:]
	}
	return append(out, s)
}

// header makes the headers of a plain reply.
func (r *reply) header(contentType string) http.Header {
	h := http.Header{}
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	for name, value := range r.Headers {
		h.Set(name, value)
	}
	return h
}

// decodeReplies reads JSON values one after the other, whatever stands between
// them: JSONL, or pretty-printed objects.
func decodeReplies(data []byte, each func(json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(data))
	for {
		var raw json.RawMessage
		at := int(d.InputOffset())
		at += len(data[at:]) - len(bytes.TrimLeft(data[at:], " \t\r\n"))
		line := 1 + bytes.Count(data[:at], []byte("\n"))
		err := d.Decode(&raw)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		if err := each(raw); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
}
