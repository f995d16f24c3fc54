package tool

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/policy/rules"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/patch"
	"github.com/nightshift-ci/nightshift/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Init(Helpers())
	goleak.VerifyTestMain(m)
}

// rig is a set of tools with a real sandbox around a workspace of its own.
type rig struct {
	t    *testing.T
	set  *Set
	box  *sandbox.Sandbox
	base string // holds ws and out; not writable inside
	ws   string
	out  string

	mu      sync.Mutex
	records []event.Record
	verdict func(script string, escalated bool) policy.Verdict
}

// newRig opens a sandbox. Its folders are not below /tmp, which commands see as
// a folder of their own.
func newRig(t *testing.T, mode sandbox.Mode, change ...func(*Deps, *sandbox.Spec)) *rig {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Skipf("no home folder for the test's files: %v", err)
	}
	base, err := os.MkdirTemp(home, ".tool-test-")
	if err != nil {
		t.Skipf("no folder outside /tmp: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	if base, err = filepath.EvalSymlinks(base); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, base: base, ws: filepath.Join(base, "ws"), out: filepath.Join(base, "out")}
	for _, d := range []string{r.ws, r.out} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	spec := sandbox.Spec{Mode: mode, Workspace: r.ws, ProtectNames: []string{".git", ".codex"}, Private: t.TempDir()}
	scope := patch.Scope{ProtectNames: spec.ProtectNames}
	if mode == sandbox.WorkspaceWrite {
		spec.Write, scope.Roots = []string{r.ws}, []string{r.ws}
		spec.Require = sandbox.WritesConfined | sandbox.TreeDies
	}
	if mode == sandbox.FullAccess {
		scope = patch.Scope{Roots: []string{"/"}}
	}
	d := Deps{Log: event.NewLog(nil, nil, r), Workdir: r.ws, Shell: "/bin/bash", Policy: r, Scope: scope,
		Box: func(context.Context) (*sandbox.Sandbox, error) { return r.box, nil },
		Env: func(id string) []string {
			return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + base, "LANG=C.UTF-8", "TERM=dumb", "CODEX_TOOL_CALL_ID=" + id}
		},
		UpdatePlan: true, ViewImage: true}
	for _, f := range change {
		f(&d, &spec)
	}
	var missing *sandbox.UnsupportedError
	if r.box, err = sandbox.Open(t.Context(), spec); errors.As(err, &missing) && os.Getenv("CI") == "" {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	r.set = Builtin(d)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		r.set.CloseAll(ctx)
		if err := r.box.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// Handle and Close make the rig the log's sink.
func (r *rig) Handle(rec event.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, rec)
	return nil
}

func (r *rig) Close(context.Context) error { return nil }

// The rig is the policy too: everything is sandboxed unless a test says else.
func (r *rig) ask(script string, escalated bool) policy.Verdict {
	if r.verdict != nil {
		return r.verdict(script, escalated)
	}
	if escalated {
		return policy.Verdict{Outcome: policy.Denied, Source: "approval", Reason: "nobody can approve it"}
	}
	return policy.Verdict{Outcome: policy.Sandboxed}
}

func (r *rig) Command(argv []string) policy.Verdict { return r.ask(strings.Join(argv, " "), false) }
func (r *rig) Shell(script, _ string, _ bool) policy.Verdict {
	return r.ask(script, false)
}
func (r *rig) Escalation(script, _ string, _ bool) policy.Verdict { return r.ask(script, true) }

func match(level rules.Level, justification string, prefix ...string) policy.Verdict {
	return policy.Verdict{Outcome: policy.Denied, Source: "rule", Reason: "a rule says no", Rule: strings.Join(prefix, " "), Origin: "/r/default.rules:3", Decision: rules.Decision{Level: level,
		Matches: []rules.Match{{Prefix: prefix, Level: level, Justification: justification, Origin: "/r/default.rules:3"}}}}
}

type args map[string]any

// call calls a tool by name and returns the text the model gets.
func (r *rig) call(name string, a any) (string, Result) {
	r.t.Helper()
	return r.callWith(r.t.Context(), name, "call_1", a)
}

func (r *rig) callWith(ctx context.Context, name, id string, a any) (string, Result) {
	r.t.Helper()
	c := Call{ID: id, Name: name}
	switch a := a.(type) {
	case string:
		c.Custom, c.Input = true, a
	case json.RawMessage:
		c.Arguments = a
	default:
		b, err := json.Marshal(a)
		if err != nil {
			r.t.Fatal(err)
		}
		c.Arguments = b
	}
	for _, one := range r.set.Tools() {
		if one.Name() == name {
			res, err := one.Call(ctx, c)
			if err != nil {
				r.t.Errorf("%s: %v", name, err)
			}
			var said string
			if json.Unmarshal(res.Output, &said) != nil {
				said = string(res.Output)
			}
			return said, res
		}
	}
	r.t.Fatalf("no tool %s", name)
	return "", Result{}
}

func (r *rig) exec(cmd string, more ...args) (string, Result) {
	r.t.Helper()
	a := args{"cmd": cmd}
	for _, m := range more {
		for k, v := range m {
			a[k] = v
		}
	}
	return r.call("exec_command", a)
}

// commands returns the last state of every command item, in order of start.
func (r *rig) commands() []event.CommandExecution {
	var out []event.CommandExecution
	for _, it := range r.items() {
		if c, ok := it.Details.(event.CommandExecution); ok {
			out = append(out, c)
		}
	}
	return out
}

func (r *rig) patches() []event.FileChange {
	var out []event.FileChange
	for _, it := range r.items() {
		if c, ok := it.Details.(event.FileChange); ok {
			out = append(out, c)
		}
	}
	return out
}

// items returns the last state of every item and checks that none is completed
// twice or changed after its end.
func (r *rig) items() []event.Item {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []event.Item
	at, ended := map[string]int{}, map[string]bool{}
	put := func(it event.Item) {
		if ended[it.ID] {
			r.t.Errorf("item %s goes on after its end", it.ID)
		}
		i, known := at[it.ID]
		if !known {
			i = len(out)
			at[it.ID] = i
			out = append(out, it)
		}
		out[i] = it
	}
	for _, rec := range r.records {
		switch e := rec.Event.(type) {
		case event.ItemStarted:
			put(e.Item)
		case event.ItemUpdated:
			put(e.Item)
		case event.ItemCompleted:
			put(e.Item)
			ended[e.Item.ID] = true
		}
	}
	return out
}

// events returns all events of one type.
func events[T event.Event](r *rig) []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []T
	for _, rec := range r.records {
		if e, ok := rec.Event.(T); ok {
			out = append(out, e)
		}
	}
	return out
}

func (r *rig) write(name, data string) {
	r.t.Helper()
	p := filepath.Join(r.ws, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o777); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(data), 0o666); err != nil {
		r.t.Fatal(err)
	}
}

// read returns a file of the workspace, "<none>" if there is none.
func (r *rig) read(name string) string {
	if !filepath.IsAbs(name) {
		name = filepath.Join(r.ws, name)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return "<none>"
	}
	return string(b)
}

func wants(t *testing.T, got, pattern string) []string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(got)
	if m == nil {
		t.Fatalf("got\n%.2000q\nwant\n%s", got, pattern)
	}
	return m
}

// answerOf is the pattern of a finished command's answer.
func answerOf(code, output string) string {
	return `^Chunk ID: [0-9a-f]{6}\nWall time: \d+\.\d{4} seconds\nProcess exited with code ` + code + `\nOriginal token count: \d+\nOutput:\n` + output + `$`
}

const runningPattern = `^Chunk ID: [0-9a-f]{6}\nWall time: \d+\.\d{4} seconds\nProcess running with session ID (\d+)\nOriginal token count: \d+\nOutput:\n`
