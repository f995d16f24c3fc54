package model

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// maxMarks bounds the items of a request that a recording remembers, maxMarkText
// the bytes of each that can be read in it.
const (
	maxMarks    = 32
	maxMarkText = 200
)

// requestMark is what a recording remembers of a request: enough to notice that
// a replay took another course, not enough to leak a prompt's context.
type requestMark struct {
	Purpose string `json:"purpose,omitempty"`
	Items   int    `json:"items"`
	// New holds the last items of the input: those that the model had not seen
	// before.
	New []itemMark `json:"new,omitempty"`
}

// itemMark is one input item.
type itemMark struct {
	Type   string `json:"type"`
	Role   string `json:"role,omitempty"`
	CallID string `json:"call_id,omitempty"`
	// Digest is over the whole text without its volatile parts; Text is the
	// beginning of that text.
	Digest string `json:"digest"`
	Text   string `json:"text,omitempty"`
}

// mark describes q. Of a thread's first request only the last item is
// remembered: what stands before it depends on the machine.
func (r *Recorder) mark(q Request) requestMark {
	m := requestMark{Purpose: q.Purpose, Items: len(q.Input)}
	from, seen := r.known[q.CacheKey]
	if !seen || from > len(q.Input) {
		from = len(q.Input) - 1
	}
	from = max(from, len(q.Input)-maxMarks, 0)
	for _, it := range q.Input[from:] {
		m.New = append(m.New, markOf(it.Raw))
	}
	return m
}

func markOf(raw json.RawMessage) itemMark {
	var it struct {
		Type    string          `json:"type"`
		Role    string          `json:"role"`
		CallID  string          `json:"call_id"`
		Output  json.RawMessage `json:"output"`
		Content json.RawMessage `json:"content"`
	}
	// An item that is not as expected is compared as it stands.
	_ = json.Unmarshal(raw, &it)
	text := string(raw)
	switch {
	case it.Output != nil:
		text = outputText(it.Output)
	case it.Content != nil:
		text = outputText(it.Content)
	}
	text = settled(text)
	sum := sha256.Sum256([]byte(text))
	return itemMark{
		Type: it.Type, Role: it.Role, CallID: it.CallID,
		Digest: hex.EncodeToString(sum[:8]), Text: excerpt(text, maxMarkText),
	}
}

// differs compares the end of a request's input with the mark and describes the
// first difference.
func (m *requestMark) differs(input []json.RawMessage) string {
	if m == nil || len(m.New) == 0 {
		return ""
	}
	if len(input) < len(m.New) {
		return fmt.Sprintf("the request has %d items, the recorded one had %d", len(input), m.Items)
	}
	tail := input[len(input)-len(m.New):]
	for i, want := range m.New {
		got := markOf(tail[i])
		if got.Type != want.Type || got.CallID != want.CallID || got.Role != want.Role {
			return fmt.Sprintf("the request has %s where the recorded one had %s", got.name(), want.name())
		}
		if got.Digest != want.Digest {
			return fmt.Sprintf("%s differs from the recorded one: %s", got.name(), firstDifference(want.Text, got.Text))
		}
	}
	return ""
}

func (m itemMark) name() string {
	switch {
	case m.CallID != "":
		return fmt.Sprintf("the %s of call %s", strings.ReplaceAll(m.Type, "_", " "), m.CallID)
	case m.Role != "":
		return fmt.Sprintf("the %s message", m.Role)
	}
	return "an item of type " + m.Type
}

// firstDifference shows both texts from a little before they part.
func firstDifference(want, got string) string {
	i := 0
	for i < len(want) && i < len(got) && want[i] == got[i] {
		i++
	}
	if i == len(want) && i == len(got) {
		return "behind its first bytes"
	}
	from := strings.LastIndexByte(want[:i], '\n') + 1
	cutFrom := func(s string) string { return strings.ToValidUTF8(excerpt(s[min(from, len(s)):], 80), "") }
	return fmt.Sprintf("recorded %q, now %q", cutFrom(want), cutFrom(got))
}

// replacement is what stands for whatever an expression finds.
type replacement struct {
	re   *regexp.Regexp
	with string
}

// volatile lists what differs between two runs that do the same.
var volatile = sync.OnceValue(func() []replacement {
	return []replacement{
		{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uuid>"},
		{regexp.MustCompile(`Chunk ID: [0-9a-f]+`), "Chunk ID: <id>"},
		{regexp.MustCompile(`Wall time:? [0-9.]+ seconds`), "Wall time: <time>"},
		{regexp.MustCompile(`Original token count: \d+`), "Original token count: <n>"},
		{regexp.MustCompile(`session ID \d+`), "session ID <id>"},
		{regexp.MustCompile(`\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?`), "<date>"},
		{regexp.MustCompile(`\b\d\d:\d\d:\d\d(\.\d+)?\b`), "<clock>"},
		{regexp.MustCompile(`\b\d+(\.\d+)? ?(ns|µs|us|ms|s|sec|seconds)\b`), "<time>"},
		{regexp.MustCompile(`0x[0-9a-f]+`), "<address>"},
		{regexp.MustCompile(`(/[A-Za-z0-9._@+~-]+)+/`), "<dir>/"},
		{regexp.MustCompile(`\b[0-9a-f]{7,40}\b`), "<hash>"},
	}
})

// settled is text without its volatile parts.
func settled(text string) string {
	for _, v := range volatile() {
		text = v.re.ReplaceAllLiteralString(text, v.with)
	}
	return text
}
