package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// The body is written by hand, field by field: the usual way runs
// every raw value through encoding/json, which compacts it and escapes <, > and
// &. The service's prompt cache works on bytes, so the history must leave
// exactly as it came, and everything that differs between two requests of a turn
// must come after it.

// encode writes the body of a POST to {base}/responses.
func encode(r Request) ([]byte, error) {
	b := body{}
	b.field("model", r.Model)
	b.field("stream", true)
	b.field("store", false)
	if r.Tools != nil {
		if err := b.list("tools", r.Tools); err != nil {
			return nil, err
		}
	}
	b.field("tool_choice", "auto")
	b.field("parallel_tool_calls", r.Parallel)
	summary := r.Summary
	if summary == "none" { // a word of the configuration; the service knows no such one
		summary = ""
	}
	if r.Effort != "" || summary != "" {
		b.field("reasoning", struct {
			Effort  string `json:"effort,omitempty"`
			Summary string `json:"summary,omitempty"`
		}{r.Effort, summary})
	}
	if r.Tier != "" {
		b.field("service_tier", r.Tier)
	}
	b.field("include", []string{"reasoning.encrypted_content"})
	if r.CacheKey != "" {
		b.field("prompt_cache_key", r.CacheKey)
	}
	if r.MaxTokens > 0 {
		b.field("max_output_tokens", r.MaxTokens)
	}
	if err := b.text(r); err != nil {
		return nil, err
	}
	if err := b.items("input", r.Input); err != nil {
		return nil, err
	}
	if len(r.Metadata) > 0 {
		b.field("client_metadata", r.Metadata)
	}
	return b.close(), nil
}

// encodeCompact writes the body of a POST to {base}/responses/compact.
func encodeCompact(r Request) ([]byte, error) {
	b := body{}
	b.field("model", r.Model)
	if r.CacheKey != "" {
		b.field("prompt_cache_key", r.CacheKey)
	}
	if err := b.items("input", r.Input); err != nil {
		return nil, err
	}
	return b.close(), nil
}

// body builds a JSON object field by field, in order.
type body struct{ buf bytes.Buffer }

func (b *body) key(name string) {
	if b.buf.Len() == 0 {
		b.buf.WriteByte('{')
	} else {
		b.buf.WriteByte(',')
	}
	b.buf.WriteByte('"')
	b.buf.WriteString(name)
	b.buf.WriteString(`":`)
}

// field writes a value of a type that always encodes: strings, numbers, maps of
// strings.
func (b *body) field(name string, v any) {
	b.key(name)
	b.buf.Write(plainJSON(v))
}

func (b *body) items(name string, items []Item) error {
	raw := make([]json.RawMessage, len(items))
	for i, it := range items {
		raw[i] = it.Raw
	}
	return b.list(name, raw)
}

// list writes raw values verbatim.
func (b *body) list(name string, raw []json.RawMessage) error {
	b.key(name)
	b.buf.WriteByte('[')
	for i, v := range raw {
		if !json.Valid(v) {
			return fmt.Errorf("request to the model: %s[%d] is not JSON: %s", name, i, excerpt(string(v), 80))
		}
		if i > 0 {
			b.buf.WriteByte(',')
		}
		b.buf.Write(v)
	}
	b.buf.WriteByte(']')
	return nil
}

func (b *body) text(r Request) error {
	if r.Verbosity == "" && r.Schema == nil {
		return nil
	}
	inner := body{}
	if r.Verbosity != "" {
		inner.field("verbosity", r.Verbosity)
	}
	if r.Schema != nil {
		if !json.Valid(r.Schema) {
			return fmt.Errorf("request to the model: the output schema is not JSON: %s", excerpt(string(r.Schema), 80))
		}
		format := body{}
		format.field("type", "json_schema")
		format.field("strict", true)
		format.key("schema")
		format.buf.Write(r.Schema)
		format.field("name", "codex_output_schema")
		inner.key("format")
		inner.buf.Write(format.close())
	}
	b.key("text")
	b.buf.Write(inner.close())
	return nil
}

func (b *body) close() []byte {
	b.buf.WriteByte('}')
	return b.buf.Bytes()
}

// plainJSON encodes v without HTML escapes. The values it gets cannot fail to
// encode.
func plainJSON(v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return []byte("null")
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// Header names that carry the identity of the thread and the turn. The values
// of the first group are the thread id (CacheKey); those of the second are
// taken from the request's metadata.
var (
	threadHeaders   = []string{"session-id", "thread-id", "x-client-request-id"}
	metadataHeaders = []string{"x-codex-window-id", "x-codex-turn-metadata"}
)

// turnStateHeader is echoed on later requests of a turn when a response carried
// it.
const turnStateHeader = "x-codex-turn-state"

// setHeaders puts everything but the credential on req. What the caller gives in
// Request.Headers wins over what is derived here, and the provider's own headers
// win over both.
func (c *Client) setHeaders(req *http.Request, r Request, turnState string) {
	h := req.Header
	set := func(name, value string) {
		if value != "" {
			h.Set(name, value)
		}
	}
	set("originator", c.o.Originator)
	if c.o.UserAgent != "" {
		h.Set("User-Agent", c.o.UserAgent)
	}
	for _, name := range threadHeaders {
		set(name, r.CacheKey)
	}
	for _, name := range metadataHeaders {
		set(name, headerText(r.Metadata[name]))
	}
	set(turnStateHeader, turnState)
	for _, from := range []http.Header{r.Headers, c.o.Headers} {
		for name, values := range from {
			h[http.CanonicalHeaderKey(name)] = append([]string(nil), values...)
		}
	}
}

// headerText makes a JSON text fit for a header: what is not printable ASCII is
// escaped as JSON allows, so that a workspace path with umlauts does not make
// the request invalid.
func headerText(s string) string {
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		plain = s[i] >= 0x20 && s[i] < 0x7f
	}
	if plain {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r >= 0x20 && r < 0x7f:
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// excerpt cuts s to n bytes, at a character.
func excerpt(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// Body is the request as it would be sent, for people who want to see it.
func Body(r Request) ([]byte, error) { return encode(r) }
