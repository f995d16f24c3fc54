package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nightshift-ci/nightshift/runner/model"
	"github.com/nightshift-ci/nightshift/runner/runnertest"
)

// caseExpect is what must hold after a step.
type caseExpect struct {
	Exit struct {
		Is        *int
		In        []int
		Nonzero   bool
		ShellCode *int `json:"shell_code"`
	}
	WithinS          float64 `json:"within_s"`
	AtLeastS         float64 `json:"at_least_s"`
	WithinSOfSignal  float64 `json:"within_s_of_signal"`
	MaxRSSMB         int64   `json:"max_rss_mb"`
	Events           []eventMatcher
	EventsAbsent     []eventMatcher `json:"events_absent"`
	ItemsClosed      bool           `json:"items_closed"`
	Stdout, Stderr   streamExpect
	Requests         map[string]requestExpect
	Files            map[string]fileExpect
	Git              *gitExpect
	ProcessesLeft    *processExpect `json:"processes_left"`
	HomeAbsent       []string       `json:"home_absent"`
	Rollouts         *count
	DistinctThreads  *count   `json:"distinct_threads"`
	SameThreadAsStep int      `json:"same_thread_as_step"`
	ErrorClassAny    []string `json:"error_class_any"`
	DenialsReported  bool     `json:"denials_reported"`
	UsageReported    bool     `json:"usage_reported"`
}

// count is a number, or a least and a most.
type count struct{ least, most int }

// UnmarshalJSON reads 3 or {"min":1,"max":3}.
func (c *count) UnmarshalJSON(b []byte) error {
	var n int
	if json.Unmarshal(b, &n) == nil {
		*c = count{n, n}
		return nil
	}
	var bounds struct{ Min, Max *int }
	if err := json.Unmarshal(b, &bounds); err != nil {
		return err
	}
	*c = count{0, 1 << 30}
	if bounds.Min != nil {
		c.least = *bounds.Min
	}
	if bounds.Max != nil {
		c.most = *bounds.Max
	}
	return nil
}

func (c *count) check(t *testing.T, what string, n int) {
	t.Helper()
	if c != nil && (n < c.least || n > c.most) {
		t.Errorf("%s: %d, want %d to %d", what, n, c.least, c.most)
	}
}

type eventMatcher struct {
	Type    string
	TypeAny []string `json:"type_any"`
	Where   map[string]any
	WhereIn map[string][]any `json:"where_in"`
	Count   *count
}

type streamExpect struct {
	Contains            []string
	ContainsAny         []string `json:"contains_any"`
	Absent              []string
	NoLineStarting      []string `json:"no_line_starting"`
	MaxBytes            int      `json:"max_bytes"`
	EveryLineJSONObject bool     `json:"every_line_json_object"`
	ValidUTF8           bool     `json:"valid_utf8"`
	AbsentBytesHex      []string `json:"absent_bytes_hex"`
}

type requestExpect struct {
	Count          *count
	BodyContains   []string          `json:"body_contains"`
	BodyAbsent     []string          `json:"body_absent"`
	MaxBodyBytes   int               `json:"max_body_bytes"`
	MinBodyBytes   int               `json:"min_body_bytes"`
	HeaderContains map[string]string `json:"header_contains"`
}

type fileExpect struct {
	Exists      *bool
	Equals      *string
	BytesBase64 *string `json:"bytes_base64"`
	JSON        map[string]any
	Mode        string
	Lines       *count
	Absent      []string
	Unchanged   bool
}

type gitExpect struct {
	Dir           string
	Numstat       *string
	Commits       *int
	Clean         *bool
	StatusIgnored []string `json:"status_ignored"` // paths that do not count against clean
}

type processExpect struct {
	Matching string
	Count    count
}

// observed is what there is to check after a step.
type observed struct {
	world     *world
	results   []result
	from      int // requests before the step
	before    map[string][]byte
	signalled time.Time
	accept    map[string]json.RawMessage
}

// remember keeps the files that must not change.
func (o *observed) remember(c unattended) {
	for _, e := range c.Expect {
		for path, f := range e.Files {
			if data, err := os.ReadFile(path); f.Unchanged && err == nil {
				o.before[path] = data
			}
		}
	}
}

// check checks everything that e names.
func (o *observed) check(t *testing.T, e caseExpect) {
	t.Helper()
	defer func() {
		if t.Failed() {
			for _, r := range o.results {
				t.Logf("exit %d after %v\nstdout:\n%s\nstderr:\n%s", r.code, r.took, excerptOf(r.stdout), excerptOf(r.stderr))
			}
		}
	}()
	// Orphans are looked for while they would still be there.
	o.checkProcesses(t, e.ProcessesLeft)
	for _, r := range o.results {
		o.checkResult(t, e, r)
	}
	stdout, stderr := o.joined()
	lines := o.lines(t)
	checkEvents(t, e, lines)
	e.Stdout.check(t, "stdout", stdout, nil)
	e.Stderr.check(t, "stderr", stderr, stdout)
	requests := o.world.server.Requests()[o.from:]
	for key, want := range e.Requests {
		want.check(t, key, slices.DeleteFunc(slices.Clone(requests), func(r runnertest.Request) bool {
			if key == "model" {
				return !model.IsModelPath(r.Method, r.Path)
			}
			return r.Method+" "+r.Path != key
		}))
	}
	for path, want := range e.Files {
		want.check(t, path, o.before[path], o.accept)
	}
	if e.Git != nil {
		o.checkGit(t, *e.Git)
	}
	o.checkHome(t, e)
	o.checkReported(t, e, lines, stderr)
}

func (o *observed) joined() (stdout, stderr []byte) {
	for _, r := range o.results {
		stdout = append(stdout, r.stdout...)
		stderr = append(stderr, r.stderr...)
	}
	return stdout, stderr
}

func (o *observed) lines(t *testing.T) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, r := range o.results {
		if bytes.HasPrefix(bytes.TrimSpace(r.stdout), []byte("{")) {
			out = append(out, r.lines(t)...)
		}
	}
	return out
}

func (o *observed) checkResult(t *testing.T, e caseExpect, r result) {
	t.Helper()
	switch {
	case e.Exit.Is != nil && r.code != *e.Exit.Is,
		e.Exit.ShellCode != nil && r.code != *e.Exit.ShellCode,
		e.Exit.In != nil && !slices.Contains(e.Exit.In, r.code),
		e.Exit.Nonzero && r.code == 0:
		t.Errorf("exit code %d, want %s", r.code, compact(e.Exit))
	}
	if s := r.took.Seconds(); e.WithinS > 0 && s > e.WithinS || s < e.AtLeastS {
		t.Errorf("took %.1f s, want %.1f to %.1f s", s, e.AtLeastS, e.WithinS)
	}
	if e.WithinSOfSignal > 0 {
		if s := r.ended.Sub(o.signalled).Seconds(); o.signalled.IsZero() || s > e.WithinSOfSignal {
			t.Errorf("ended %.1f s after the signal, want at most %.1f", s, e.WithinSOfSignal)
		}
	}
	if mb := r.rss >> 20; e.MaxRSSMB > 0 && mb > e.MaxRSSMB {
		t.Errorf("used %d MB of memory, want at most %d", mb, e.MaxRSSMB)
	}
}

func (m eventMatcher) matches(line map[string]any) bool {
	kind, _ := line["type"].(string)
	if m.Type != "" && kind != m.Type || m.TypeAny != nil && !slices.Contains(m.TypeAny, kind) {
		return false
	}
	for path, want := range m.Where {
		if got, ok := at(line, path); !ok || !reflect.DeepEqual(got, want) {
			return false
		}
	}
	for path, words := range m.WhereIn {
		got, ok := at(line, path)
		if !ok || !slices.ContainsFunc(words, func(want any) bool { return reflect.DeepEqual(got, want) }) {
			return false
		}
	}
	return true
}

func checkEvents(t *testing.T, e caseExpect, lines []map[string]any) {
	t.Helper()
	number := func(m eventMatcher) (n int) {
		for _, line := range lines {
			if m.matches(line) {
				n++
			}
		}
		return n
	}
	for _, m := range e.Events {
		want := m.Count
		if want == nil {
			want = &count{1, 1 << 30}
		}
		want.check(t, "events like "+compact(m), number(m))
	}
	for _, m := range e.EventsAbsent {
		(&count{}).check(t, "events like "+compact(m), number(m))
	}
	if !e.ItemsClosed {
		return
	}
	started, completed := map[string]int{}, map[string]int{}
	for _, line := range lines {
		id, _ := at(line, "item.id")
		switch line["type"] {
		case "item.started":
			started[fmt.Sprint(id)]++
		case "item.completed":
			completed[fmt.Sprint(id)]++
		}
	}
	for id := range started {
		if completed[id] == 0 {
			t.Errorf("item %s was started and not completed", id)
		}
	}
	for id, n := range completed {
		if n > 1 {
			t.Errorf("item %s was completed %d times", id, n)
		}
	}
}

// check checks a stream; the words of contains_any may also stand in events.
func (e streamExpect) check(t *testing.T, name string, data, events []byte) {
	t.Helper()
	text := string(data)
	for _, s := range e.Contains {
		if !strings.Contains(text, s) {
			t.Errorf("%s lacks %q", name, s)
		}
	}
	if len(e.ContainsAny) > 0 && !slices.ContainsFunc(e.ContainsAny, func(s string) bool {
		return strings.Contains(text, s) || strings.Contains(string(events), s)
	}) {
		t.Errorf("neither %s nor the events have one of %q", name, e.ContainsAny)
	}
	for _, s := range e.Absent {
		if strings.Contains(text, s) {
			t.Errorf("%s has %q", name, s)
		}
	}
	if e.MaxBytes > 0 && len(data) > e.MaxBytes {
		t.Errorf("%s has %d bytes, want at most %d", name, len(data), e.MaxBytes)
	}
	if e.ValidUTF8 && !utf8.Valid(data) {
		t.Errorf("%s is not valid UTF-8", name)
	}
	for _, h := range e.AbsentBytesHex {
		if b, err := hex.DecodeString(h); err != nil || bytes.Contains(data, b) {
			t.Errorf("%s has the bytes %s (%v)", name, h, err)
		}
	}
	for line := range strings.Lines(text) {
		for _, s := range e.NoLineStarting {
			if strings.HasPrefix(line, s) {
				t.Errorf("%s has a line starting with %q", name, s)
			}
		}
		var m map[string]any
		if e.EveryLineJSONObject && json.Unmarshal([]byte(line), &m) != nil {
			t.Errorf("%s has a line that is no JSON object: %s", name, excerptOf([]byte(line)))
		}
	}
}

// check checks the requests of one kind. A text counts as present in a body as
// it stands or in one of its JSON strings.
func (e requestExpect) check(t *testing.T, key string, requests []runnertest.Request) {
	t.Helper()
	e.Count.check(t, "requests to "+key, len(requests))
	has := func(text string) bool {
		return slices.ContainsFunc(requests, func(r runnertest.Request) bool {
			return bytes.Contains(r.Body, []byte(text)) || strings.Contains(plainText(r.Body), text)
		})
	}
	for _, s := range e.BodyContains {
		if !has(s) {
			t.Errorf("no request to %s has %q", key, s)
		}
	}
	for _, s := range e.BodyAbsent {
		if has(s) {
			t.Errorf("a request to %s has %q", key, s)
		}
	}
	largest := 0
	for _, r := range requests {
		largest = max(largest, len(r.Body))
		for name, want := range e.HeaderContains {
			if got := r.Header.Get(name); !strings.Contains(got, want) {
				t.Errorf("header %s of a request to %s is %q, want %q in it", name, key, got, want)
			}
		}
	}
	if e.MaxBodyBytes > 0 && largest > e.MaxBodyBytes || largest < e.MinBodyBytes {
		t.Errorf("the largest request to %s has %d bytes, want %d to %d", key, largest, e.MinBodyBytes, e.MaxBodyBytes)
	}
}

// plainText is all strings of a JSON text, one a line.
func plainText(body []byte) string {
	var v any
	if json.Unmarshal(body, &v) != nil {
		return ""
	}
	var b strings.Builder
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			b.WriteString(v + "\n")
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(v)
	return b.String()
}

// checkReported looks for what must stand in a machine-readable place: any field
// of an event but the message for people.
func (o *observed) checkReported(t *testing.T, e caseExpect, lines []map[string]any, stderr []byte) {
	t.Helper()
	var words []string
	usage, denied := false, false
	for _, line := range lines {
		kind, _ := line["type"].(string)
		denial, _ := at(line, "item.denial")
		status, _ := at(line, "item.status")
		denied = denied || denial != nil || status == "declined"
		if kind != "turn.failed" && kind != "turn.completed" {
			continue
		}
		if _, ok := at(line, "usage.input_tokens"); ok {
			usage = true
		}
		words = append(words, machineWords(line)...)
	}
	if len(e.ErrorClassAny) > 0 && !slices.ContainsFunc(words, func(w string) bool { return slices.Contains(e.ErrorClassAny, w) }) {
		t.Errorf("the terminal event has the words %q, want one of %q", words, e.ErrorClassAny)
	}
	if e.UsageReported && !usage {
		t.Error("the terminal event has no usage")
	}
	if e.DenialsReported && !denied && !regexp.MustCompile(`(?i)denied|declined|refused`).Match(stderr) {
		t.Error("no event and no line of stderr names the refusal")
	}
}

// machineWords is every string of v that is not in a field "message" or "hint".
func machineWords(v any) (out []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, e := range v {
			out = append(out, machineWords(e)...)
		}
	case map[string]any:
		for key, e := range v {
			if key != "message" && key != "hint" {
				out = append(out, machineWords(e)...)
			}
		}
	}
	return out
}
