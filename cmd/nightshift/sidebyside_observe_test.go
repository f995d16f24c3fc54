package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nightshift-ci/nightshift/runner/model"
)

// observation is what the runs of a case left, without what is new each time.
// Texts that a program writes for the model are its own: they are named, not kept.
type observation struct {
	Steps    []observedStep    `json:"steps"`
	Requests []observedRequest `json:"requests,omitempty"`
	Files    map[string]string `json:"files,omitempty"`
	Threads  [][]string        `json:"threads,omitempty"`
}

type observedStep struct {
	Exit   int    `json:"exit"`
	Stdout string `json:"stdout,omitempty"`
}

type observedRequest struct {
	To      string            `json:"to"`
	Headers []string          `json:"headers,omitempty"`
	Body    map[string]string `json:"body,omitempty"`
	Tools   []string          `json:"tools,omitempty"`
	Input   []string          `json:"input,omitempty"`
}

// volatile is what differs from run to run besides folders and ids.
var volatile = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`Chunk ID: [0-9a-f]{6}`), "Chunk ID: <hex>"},
	{regexp.MustCompile(`Wall time:? [0-9.]+ seconds`), "Wall time <n> seconds"},
	{regexp.MustCompile(`session ID [0-9]+`), "session ID <n>"},
	{regexp.MustCompile(`session_id\\?": ?[0-9]+`), `session_id":<n>`},
	{regexp.MustCompile(`/usr/bin/sh\b`), "/bin/sh"},
	{regexp.MustCompile(`worktrees/[0-9a-f]{4}/`), "worktrees/<hex>/"},
	{regexp.MustCompile(`\b20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z?`), "<time>"},
	{regexp.MustCompile(`call_r[0-9]+_[0-9]+`), "<call>"},
}

func (w *world) plain(s string) string {
	s = strings.NewReplacer(w.ws, "<cwd>", w.home, "<codex-home>", w.userHome, "<home>", w.base, "<base>", fmt.Sprintf("127.0.0.1:%d", w.server.Port), "<mock>").Replace(s)
	s = shellPattern.ReplaceAllString(s, "${1}<shell>${2}")
	s = bashPattern.ReplaceAllString(s, "/bin/bash: line")
	for i, id := range w.threads {
		if id != "" && !slices.Contains(w.threads[:i], id) {
			s = strings.ReplaceAll(s, id, fmt.Sprintf("<thread-%d>", i+1))
		}
	}
	s = uuidPattern.ReplaceAllString(s, "<uuid>")
	for _, v := range volatile {
		s = v.pattern.ReplaceAllString(s, v.by)
	}
	return s
}

func (w *world) observeStep(res result) observedStep {
	return observedStep{Exit: res.code, Stdout: w.plain(string(res.stdout))}
}

// observe adds the requests, files and threads.
func (w *world) observe(t *testing.T, seen *observation, words map[string]bool) {
	t.Helper()
	for _, r := range w.server.Requests() {
		if !model.IsModelPath(r.Method, r.Path) && !strings.Contains(r.Path, "compact") {
			continue // lists of models and the like are nothing that a caller sees
		}
		o := observedRequest{To: r.Method + " " + r.Path}
		if r.Query != "" {
			o.To += "?" + r.Query
		}
		for name, values := range r.Header {
			switch name = strings.ToLower(name); name {
			case "accept-encoding", "content-length", "user-agent", "traceparent", "x-codex-turn-metadata":
				o.Headers = append(o.Headers, name)
			default:
				o.Headers = append(o.Headers, name+": "+w.plain(strings.Join(values, ", ")))
			}
		}
		slices.Sort(o.Headers)
		w.observeBody(t, &o, r.Body, words)
		seen.Requests = append(seen.Requests, o)
	}
	w.observeFiles(t, seen)
	w.observeThreads(t, seen)
}

func (w *world) observeBody(t *testing.T, o *observedRequest, body []byte, words map[string]bool) {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		o.Body = map[string]string{"": "no JSON"}
		return
	}
	o.Body = map[string]string{}
	for key, raw := range fields {
		switch key {
		case "input":
			var items []map[string]any
			if err := json.Unmarshal(raw, &items); err != nil {
				t.Errorf("input is no list of objects: %v", err)
			}
			for _, it := range items {
				o.Input = append(o.Input, w.plainItem(it, words))
			}
			// Each program puts what it tells the model into messages of its own.
			o.Input = slices.CompactFunc(o.Input, func(a, b string) bool { return a == b && a == developer })
		case "tools":
			var tools []map[string]any
			if err := json.Unmarshal(raw, &tools); err != nil {
				t.Errorf("tools is no list of objects: %v", err)
			}
			for _, tool := range tools {
				o.Tools = append(o.Tools, plainTool(tool)...)
			}
			slices.Sort(o.Tools)
		case "client_metadata":
			var metadata map[string]any
			if err := json.Unmarshal(raw, &metadata); err != nil {
				t.Errorf("client_metadata is no object: %v", err)
			}
			o.Body[key] = strings.Join(slices.Sorted(maps.Keys(metadata)), " ")
		case "instructions":
			o.Body[key] = "text"
		default:
			var v any
			if err := json.Unmarshal(raw, &v); err != nil {
				t.Error(err)
			}
			o.Body[key] = w.plain(compact(v))
		}
	}
}

// plainTool is the shape of a tool: name and parameters.
func plainTool(tool map[string]any) []string {
	kind, _ := tool["type"].(string)
	name, _ := tool["name"].(string)
	if list, ok := tool["tools"].([]any); ok {
		var out []string
		for _, sub := range list {
			if m, ok := sub.(map[string]any); ok {
				for _, s := range plainTool(m) {
					out = append(out, name+" "+s)
				}
			}
		}
		return out
	}
	parameters, _ := at(tool, "parameters.properties")
	keys, _ := parameters.(map[string]any)
	required, _ := at(tool, "parameters.required")
	s := strings.TrimSpace(kind + " " + name)
	if keys != nil {
		s += "(" + strings.Join(slices.Sorted(maps.Keys(keys)), ", ") + ")"
	}
	if list, ok := required.([]any); ok && len(list) > 0 {
		s += fmt.Sprint(" needs ", list)
	}
	if access, ok := tool["external_web_access"]; ok {
		s += fmt.Sprintf(" external_web_access=%v", access)
	}
	return []string{s}
}

// caseMark stands in the instructions that cases give by files and keys.
const caseMark = "teal"

const (
	ownText   = "a text of its own"
	developer = "developer"
)

// plainItem is an item of the input.
func (w *world) plainItem(it map[string]any, words map[string]bool) string {
	kind, _ := it["type"].(string)
	role, _ := it["role"].(string)
	switch kind {
	case "message":
		var parts []string
		list, _ := it["content"].([]any)
		for _, p := range list {
			part, _ := p.(map[string]any)
			parts = append(parts, w.plainPart(role, part, words))
		}
		if role == "developer" {
			parts = slices.DeleteFunc(parts, func(p string) bool { return p == ownText || strings.HasPrefix(p, "<") })
			if len(parts) == 0 {
				return developer
			}
		}
		return role + ": " + strings.Join(parts, " + ")
	case "function_call_output", "custom_tool_call_output":
		text, ok := it["output"].(string)
		if !ok {
			text = compact(it["output"])
		}
		return kind + " " + fmt.Sprint(it["call_id"]) + ": " + short(w.plain(text))
	case "additional_tools":
		return kind
	}
	rest := maps.Clone(it)
	delete(rest, "id")
	delete(rest, "status")
	maps.DeleteFunc(rest, func(_ string, v any) bool { return v == nil })
	return short(w.plain(compact(rest)))
}

var tagPattern = regexp.MustCompile(`^\s*<([A-Za-z_]+)`)

func (w *world) plainPart(role string, part map[string]any, words map[string]bool) string {
	kind, _ := part["type"].(string)
	text, isText := part["text"].(string)
	switch {
	case kind == "input_image":
		url, _ := part["image_url"].(string)
		kind, _, _ := strings.Cut(url, ",")
		return fmt.Sprintf("image %s %d bytes detail %v", kind, len(url), part["detail"])
	case !isText:
		return short(w.plain(compact(part)))
	case role == "assistant" || strings.HasPrefix(text, "# AGENTS.md"):
		return kind + " " + short(w.plain(text))
	}
	if ours, ok := known(text, words); ok {
		return kind + " " + short(w.plain(ours))
	}
	if m := tagPattern.FindStringSubmatch(text); m != nil {
		return "<" + m[1] + ">"
	}
	return ownText
}

// known finds what of a text comes from the case: a text that is one of its words
// or begins with one that is a sentence; a sentence in the middle; lines with the
// mark.
func known(text string, words map[string]bool) (string, bool) {
	if words[text] || text == "" {
		return text, true
	}
	for _, word := range slices.Sorted(maps.Keys(words)) {
		switch at := strings.Index(text, word); {
		case !strings.Contains(word, " ") || at < 0:
		case at == 0:
			return text, true
		default:
			return "… " + word + " …", true
		}
	}
	var marked []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, caseMark) {
			marked = append(marked, strings.TrimSpace(line))
		}
	}
	return strings.Join(marked, "\n"), len(marked) > 0
}

func short(s string) string {
	if len(s) > 600 {
		return s[:300] + fmt.Sprintf("[…%d bytes…]", len(s)-600) + s[len(s)-300:]
	}
	return s
}

// observeFiles keeps what lies in the folder of the case, outside of the home.
func (w *world) observeFiles(t *testing.T, seen *observation) {
	t.Helper()
	seen.Files = map[string]string{}
	err := filepath.WalkDir(w.base, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || p == w.home || p == w.system || p == w.base+"/bin" || p == w.userHome) {
			return fs.SkipDir
		}
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		text := w.plain(string(data))
		if len(data) > 300 || bytes.IndexByte(data, 0) >= 0 {
			text = fmt.Sprintf("%.8x of %d bytes", sha256.Sum256([]byte(text)), len(data))
		}
		seen.Files[w.plain(p)] = text
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// observeThreads keeps the shape of the threads on disk: the keys of their first
// line, and the kinds of the others.
func (w *world) observeThreads(t *testing.T, seen *observation) {
	t.Helper()
	files, err := filepath.Glob(w.home + "/sessions/*/*/*/rollout-*.jsonl")
	if err != nil {
		t.Error(err)
	}
	slices.Sort(files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		var lines []string
		for line := range strings.Lines(string(data)) {
			var l struct {
				Type    string
				Payload map[string]any
			}
			if json.Unmarshal([]byte(line), &l) != nil {
				lines = append(lines, "no JSON")
				continue
			}
			switch l.Type {
			case "session_meta":
				for _, key := range slices.Sorted(maps.Keys(l.Payload)) {
					lines = append(lines, "session_meta has "+key)
				}
			case "turn_context", "compacted":
				lines = append(lines, l.Type)
			case "response_item":
				kind, _ := l.Payload["type"].(string)
				role, _ := l.Payload["role"].(string)
				if role == developer {
					continue // each program has its own
				}
				lines = append(lines, strings.TrimSpace("item "+kind+" "+role))
			}
		}
		seen.Threads = append(seen.Threads, lines)
	}
}

// differences lists where ours is not like the reference's: "PLACE: - what is
// missing" and "PLACE: + what is more".
func (want observation) differences(got observation) (out []string) {
	add := func(format string, args ...any) {
		out = append(out, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "⏎"))
	}
	for i := range min(len(want.Steps), len(got.Steps)) {
		w, g := want.Steps[i], got.Steps[i]
		if w.Exit != g.Exit {
			add("step %d exit: %d -> %d", i+1, w.Exit, g.Exit)
		}
		lines := func(s string) []string { return slices.Collect(strings.Lines(s)) }
		eachDifference(lines(w.Stdout), lines(g.Stdout), sameEvent, func(sign, line string) { add("step %d stdout: %s %s", i+1, sign, strings.TrimSuffix(line, "\n")) })
	}
	if len(want.Requests) != len(got.Requests) {
		add("requests: %d -> %d", len(want.Requests), len(got.Requests))
	}
	for i := range min(len(want.Requests), len(got.Requests)) {
		w, g := want.Requests[i], got.Requests[i]
		if w.To != g.To {
			add("request %d: %s -> %s", i+1, w.To, g.To)
		}
		equal := func(a, b string) bool { return a == b }
		eachDifference(w.Headers, g.Headers, equal, func(sign, line string) { add("request %d header: %s %s", i+1, sign, line) })
		eachDifference(w.Tools, g.Tools, equal, func(sign, line string) { add("request %d tools: %s %s", i+1, sign, line) })
		eachDifference(w.Input, g.Input, equal, func(sign, line string) { add("request %d input: %s %s", i+1, sign, line) })
		out = append(out, mapDifferences(fmt.Sprintf("request %d body", i+1), w.Body, g.Body)...)
	}
	out = append(out, mapDifferences("file", want.Files, got.Files)...)
	if len(want.Threads) != len(got.Threads) {
		add("threads: %d -> %d", len(want.Threads), len(got.Threads))
	}
	for i := range min(len(want.Threads), len(got.Threads)) {
		eachDifference(want.Threads[i], got.Threads[i], func(a, b string) bool { return a == b }, func(sign, line string) { add("thread %d: %s %s", i+1, sign, line) })
	}
	return out
}

func mapDifferences(place string, want, got map[string]string) (out []string) {
	both := maps.Clone(want)
	if both == nil {
		both = map[string]string{}
	}
	maps.Copy(both, got)
	for _, key := range slices.Sorted(maps.Keys(both)) {
		w, inWant := want[key]
		g, inGot := got[key]
		switch {
		case !inWant:
			out = append(out, fmt.Sprintf("%s %s: + %s", place, key, short(g)))
		case !inGot:
			out = append(out, fmt.Sprintf("%s %s: - %s", place, key, short(w)))
		case w != g:
			out = append(out, fmt.Sprintf("%s %s: %s -> %s", place, key, short(w), short(g)))
		}
	}
	return out
}

// sameEvent: ours may have more fields; ids count items and are not compared.
func sameEvent(want, got string) bool {
	if want == got {
		return true
	}
	var w, g map[string]any
	if json.Unmarshal([]byte(want), &w) != nil || json.Unmarshal([]byte(got), &g) != nil {
		return false
	}
	for _, m := range []map[string]any{w, g} {
		if item, ok := m["item"].(map[string]any); ok {
			delete(item, "id")
		}
	}
	return covers(w, g, map[string]string{}) && reflect.DeepEqual(w["type"], g["type"])
}

// eachDifference calls f for what a longest common sequence leaves out.
func eachDifference(want, got []string, same func(a, b string) bool, f func(sign, line string)) {
	n, m := len(want), len(got)
	common := make([][]int, n+1)
	for i := range common {
		common[i] = make([]int, m+1)
	}
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			if same(want[i], got[j]) {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < n || j < m {
		switch {
		case i < n && j < m && same(want[i], got[j]):
			i, j = i+1, j+1
		case j >= m || i < n && common[i+1][j] >= common[i][j+1]:
			f("-", want[i])
			i++
		default:
			f("+", got[j])
			j++
		}
	}
}
