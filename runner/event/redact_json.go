package event

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"time"
)

// jsonMasker rewrites one JSON value string by string. It runs only on lines in
// which something was found.
type jsonMasker struct {
	m   *matcher
	s   *scratch
	in  []byte // valid JSON
	i   int
	out []byte
}

// maskJSON masks in every string of line, which holds at least one secret.
func maskJSON(m *matcher, line []byte, s *scratch) []byte {
	j := &jsonMasker{m: m, s: s, in: line, out: make([]byte, 0, len(line)+64)}
	if !json.Valid(line) {
		// Nothing may pass unmasked, and the result must be JSON.
		j.text(string(line))
		return j.out
	}
	j.value("", 0)
	return append(j.out, j.in[j.i:]...)
}

// value masks the value at j.i, which stands under the given name of a member;
// depth counts the objects around it.
func (j *jsonMasker) value(name string, depth int) {
	j.space()
	switch c := j.in[j.i]; c {
	case '{', '[':
		j.copy(1)
		for j.space(); j.in[j.i] != '}' && j.in[j.i] != ']'; j.space() {
			switch {
			case j.in[j.i] == ',':
				j.copy(1)
			case c == '[':
				j.value(name, depth)
			default:
				key := j.name()
				j.space()
				j.copy(1) // colon
				j.value(key, depth+1)
			}
		}
		j.copy(1)
	case '"':
		raw := j.literal()
		text, plain := unquote(raw)
		switch {
		case depth == 1 && name == "time" && isTime(text), vocabulary().words[text]:
			j.out = append(j.out, raw...)
		default:
			j.masked(raw, text, plain)
		}
	default:
		raw := j.token()
		if vocabulary().numbers[name] || !j.m.contains(raw, textEscapes, j.s) {
			j.out = append(j.out, raw...)
			return
		}
		j.text(string(raw))
	}
}

// name masks the name of a member and returns it as it was.
func (j *jsonMasker) name() string {
	raw := j.literal()
	text, plain := unquote(raw)
	if vocabulary().names[text] {
		j.out = append(j.out, raw...)
	} else {
		j.masked(raw, text, plain)
	}
	return text
}

// masked appends a string: as it was where nothing is found in it.
func (j *jsonMasker) masked(raw []byte, text string, plain bool) {
	if len(text) < MinSecret || plain && !j.m.contains([]byte(text), textEscapes, j.s) {
		j.out = append(j.out, raw...)
		return
	}
	j.s.text = append(j.s.text[:0], text...)
	if spans := j.m.find(j.s.text, textEscapes, j.s); len(spans) == 0 {
		j.out = append(j.out, raw...)
	} else {
		j.quote(string(j.m.replace(nil, j.s.text, 0, len(j.s.text), spans)))
	}
}

// text appends text, masked, as a string.
func (j *jsonMasker) text(text string) {
	b := []byte(text)
	j.quote(string(j.m.replace(nil, b, 0, len(b), j.m.find(b, textEscapes, j.s))))
}

func (j *jsonMasker) quote(text string) {
	b, err := Marshal(text)
	if err != nil {
		b = []byte(`""`) // a string can always be encoded
	}
	j.out = append(j.out, b...)
}

func (j *jsonMasker) copy(n int) {
	j.out = append(j.out, j.in[j.i:j.i+n]...)
	j.i += n
}

func (j *jsonMasker) space() {
	for j.i < len(j.in) && strings.IndexByte(" \t\r\n", j.in[j.i]) >= 0 {
		j.copy(1)
	}
}

// literal consumes a string with its quotes.
func (j *jsonMasker) literal() []byte {
	start := j.i
	for j.i++; j.in[j.i] != '"'; j.i++ {
		if j.in[j.i] == '\\' {
			j.i++
		}
	}
	j.i++
	return j.in[start:j.i]
}

// token consumes a number or a word.
func (j *jsonMasker) token() []byte {
	start := j.i
	for j.i < len(j.in) && strings.IndexByte(",]} \t\r\n", j.in[j.i]) < 0 {
		j.i++
	}
	return j.in[start:j.i]
}

// unquote decodes a string literal; plain tells that it has no escapes.
func unquote(raw []byte) (text string, plain bool) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	if json.Unmarshal(raw, &text) != nil {
		return string(raw), false // cannot be: the line is valid
	}
	return text, false
}

func isTime(text string) bool {
	_, err := time.Parse(time.RFC3339Nano, text)
	return err == nil
}

// vocabulary holds what every log says anyway and what readers need to make
// sense of it: somebody whose password is a word of it loses nothing.
var vocabulary = sync.OnceValue(func() (v struct{ names, numbers, words map[string]bool }) {
	v.names, v.numbers, v.words = map[string]bool{}, map[string]bool{}, map[string]bool{}
	var learn func(reflect.Type)
	learn = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range t.NumField() {
			f := t.Field(i)
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
				v.names[name] = true
				kind := f.Type
				if kind.Kind() == reflect.Pointer {
					kind = kind.Elem()
				}
				v.numbers[name] = v.numbers[name] || reflect.Int <= kind.Kind() && kind.Kind() <= reflect.Float64
			}
			learn(f.Type)
		}
	}
	for kind, read := range decoders {
		v.words[string(kind)] = true
		if e, err := read([]byte("{}")); err == nil {
			learn(reflect.TypeOf(e))
		}
	}
	for _, d := range []ItemDetails{AgentMessage{}, Reasoning{}, CommandExecution{}, FileChange{}, MCPToolCall{},
		WebSearch{}, TodoList{}, CollabToolCall{}, ToolCall{}, ErrorItem{}} {
		v.words[d.itemType()] = true
		learn(reflect.TypeOf(d))
	}
	for _, name := range []string{"id", "item_id", "seq", "time", "type", "query", "action"} {
		v.names[name] = true
	}
	v.numbers["seq"] = true
	for _, word := range []string{string(InProgress), string(Completed), string(Failed), string(Declined),
		"read-only", "workspace-write", "danger-full-access", "sandboxed", "unsandboxed", "allowed", "denied",
		"success", "failed", "interrupted", "internal", "policy", "sandbox", "output", "command", "network",
		"requirement", "approval", "danger", "degraded", "external", "blocked", "timeout", "skipped", "delete",
		"update", "rename", "disabled", "exec_command", "write_stdin", "apply_patch", "update_plan", "view_image"} {
		v.words[word] = true
	}
	return v
})
