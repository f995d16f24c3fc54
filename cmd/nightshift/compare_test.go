package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
)

var (
	uuidPattern  = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	shellPattern = regexp.MustCompile(`("command": ?")(?:/[a-z]+)*/(?:ba|da|z)?sh( -l?c )`)
	bashPattern  = regexp.MustCompile(`/usr/bin/bash: line`)
)

// normalise is the one place where volatile text is replaced.
func (w *world) normalise(stream string) string {
	stream = strings.NewReplacer(
		w.ws, "<cwd>", w.home, "<codex-home>", w.base, "<base>",
		fmt.Sprintf("127.0.0.1:%d", w.server.Port), "<mock>",
	).Replace(stream)
	stream = shellPattern.ReplaceAllString(stream, "${1}<shell>${2}")
	stream = bashPattern.ReplaceAllString(stream, "/bin/bash: line")
	names := map[string]string{}
	return uuidPattern.ReplaceAllStringFunc(stream, func(id string) string {
		if names[id] == "" {
			names[id] = fmt.Sprintf("<uuid-%d>", len(names))
			if len(names) == 1 {
				names[id] = "<thread-id>"
			}
		}
		return names[id]
	})
}

func decodeLines(stream string) ([]map[string]any, string) {
	var out []map[string]any
	for _, line := range strings.Split(strings.TrimSpace(stream), "\n") {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			return nil, line
		}
		out = append(out, m)
	}
	return out, ""
}

// compareStreams compares event by event. Ours may have more fields, and items
// for actions that were refused or failed where the reference shows nothing.
func compareStreams(want, got string, anyOrder bool) string {
	w, bad := decodeLines(want)
	if bad != "" {
		return "the golden stream is damaged: " + bad
	}
	g, bad := decodeLines(got)
	if bad != "" {
		return "stdout has a line that is no JSON object: " + bad
	}
	if anyOrder {
		sortItems(w)
		sortItems(g)
	}
	extra := refused(g)
	ids := map[string]string{}
	i := 0
	for _, line := range g {
		if tried := maps.Clone(ids); i < len(w) && covers(w[i], line, tried) {
			ids = tried
			i++
			continue
		}
		if id, _ := at(line, "item.id"); id != nil && extra[fmt.Sprint(id)] {
			continue
		}
		expected := "the end of the stream"
		if i < len(w) {
			expected = compact(w[i])
		}
		return fmt.Sprintf("event %d\n got  %s\n want %s\nstream:\n%s", i+1, compact(line), expected, got)
	}
	if i < len(w) {
		return fmt.Sprintf("the stream ends before %s\nstream:\n%s", compact(w[i]), got)
	}
	return ""
}

// refused finds the items of which the reference shows nothing.
func refused(lines []map[string]any) map[string]bool {
	out := map[string]bool{}
	for _, line := range lines {
		id, _ := at(line, "item.id")
		status, _ := at(line, "item.status")
		if status == "failed" || status == "declined" {
			out[fmt.Sprint(id)] = true
		}
	}
	return out
}

// covers tells whether got has everything that want has. Item ids correspond
// one to one.
func covers(want, got any, ids map[string]string) bool {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return false
		}
		for key, value := range w {
			other, ok := g[key]
			if !ok || !covers(value, other, ids) {
				return false
			}
		}
		return true
	case []any:
		g, ok := got.([]any)
		return ok && len(g) == len(w) && !slices.ContainsFunc(seq(len(w)), func(i int) bool { return !covers(w[i], g[i], ids) })
	case string:
		if g, ok := got.(string); ok && strings.HasPrefix(w, "item_") && strings.HasPrefix(g, "item_") {
			if known, ok := ids[g]; ok {
				return known == w
			}
			if slices.Contains(slices.Collect(maps.Values(ids)), w) {
				return false
			}
			ids[g] = w
			return true
		}
	}
	return reflect.DeepEqual(want, got)
}

func seq(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// sortItems puts item events in an order of their own, without their ids; a
// start stays before its completion.
func sortItems(lines []map[string]any) {
	key := func(m map[string]any) string {
		item, _ := m["item"].(map[string]any)
		rest := maps.Clone(item)
		delete(rest, "id")
		return fmt.Sprint(rest["command"], rest["text"]) + "\x00" + strings.Replace(fmt.Sprint(m["type"]), "item.started", "item.a", 1)
	}
	isCommand := func(m map[string]any) bool { kind, _ := at(m, "item.type"); return kind == "command_execution" }
	from := slices.IndexFunc(lines, isCommand)
	if from < 0 {
		return
	}
	to := from
	for to < len(lines) && isCommand(lines[to]) {
		to++
	}
	sort.SliceStable(lines[from:to], func(a, b int) bool { return key(lines[from+a]) < key(lines[from+b]) })
}

func compact(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// The comparison of streams must itself tell right from wrong.
func TestCompareStreams(t *testing.T) {
	golden := lines(
		`{"type":"thread.started","thread_id":"<thread-id>"}`,
		`{"type":"item.started","item":{"id":"item_0","type":"command_execution","command":"a","status":"in_progress"}}`,
		`{"type":"item.completed","item":{"id":"item_0","type":"command_execution","command":"a","status":"completed"}}`,
		`{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"x"}}`,
		`{"type":"turn.completed","usage":{"input_tokens":1}}`,
	)
	tests := []struct {
		name  string
		got   string
		equal bool
	}{
		{"itself", golden, true},
		{"more fields", strings.ReplaceAll(golden, `"text":"x"`, `"text":"x","extra":{"y":1}`), true},
		{"other ids", strings.NewReplacer("item_0", "item_5", "item_1", "item_3").Replace(golden), true},
		{"a refused action besides", strings.NewReplacer(`{"type":"item.started"`, `{"type":"item.completed","item":{"id":"item_9","type":"error","message":"no","status":"declined"}}`+"\n"+`{"type":"item.started"`).Replace(golden), true},
		{"ids mixed up", strings.Replace(golden, `completed","item":{"id":"item_0"`, `completed","item":{"id":"item_1"`, 1), false},
		{"one id for two items", strings.ReplaceAll(golden, "item_1", "item_0"), false},
		{"an item too many", golden + `{"type":"item.completed","item":{"id":"item_2","type":"agent_message","text":"y"}}` + "\n", false},
		{"a failed command instead", strings.ReplaceAll(golden, `"status":"completed"`, `"status":"failed"`), false},
		{"a line missing", strings.Replace(golden, `{"type":"turn.completed","usage":{"input_tokens":1}}`+"\n", "", 1), false},
		{"other usage", strings.Replace(golden, `"input_tokens":1`, `"input_tokens":2`, 1), false},
		{"a field missing", strings.Replace(golden, `,"text":"x"`, "", 1), false},
		{"no JSON", golden + "done\n", false},
	}
	for _, tt := range tests {
		if diff := compareStreams(golden, tt.got, false); (diff == "") != tt.equal {
			t.Errorf("%s: difference %q, want equal %v", tt.name, diff, tt.equal)
		}
	}
}

func lines(l ...string) string { return strings.Join(l, "\n") + "\n" }
