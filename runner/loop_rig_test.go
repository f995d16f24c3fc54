package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
	"github.com/nightshift-ci/nightshift/runner/tool"
)

// loop is one run of the turn loop: a model that says what the test wants, and
// everything else real: policy, sandbox, tools, log.
type loop struct {
	t     *testing.T
	dir   string
	ws    string
	opts  Options
	model *actor
	seen  *memory
	// tools are offered besides the built-in ones.
	tools []tool.Tool
	// rewrites: a compaction may replace the history between requests.
	rewrites bool
}

// newLoop makes a run in a folder of its own; overrides are those of -c.
func newLoop(t *testing.T, overrides ...string) *loop {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "nightshift-loop-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("the run left something behind: %v", err)
		}
	})
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	l := &loop{t: t, dir: dir, ws: dir + "/ws", model: &actor{}, seen: &memory{}}
	for _, d := range []string{"ws", "user", "codex", "runtime"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l.opts = Options{
		Version: "test", Mode: "exec", Model: l.model, Environ: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir + "/user", "SHELL=/bin/sh"},
		Workdir: l.ws, Home: dir + "/codex", UserHome: dir + "/user", SystemDir: dir + "/etc", Private: dir + "/runtime",
		Prompt: "do it", Mask: event.NewRedactor(), Credential: event.CredentialSelected{Source: "test", Mode: "none"},
	}
	l.config("", overrides...)
	ids := 0
	var mu sync.Mutex
	l.opts.NewID = func() string {
		mu.Lock()
		defer mu.Unlock()
		ids++
		return fmt.Sprintf("00000000-0000-7000-8000-%012d", ids)
	}
	l.opts.Thread.ID = l.opts.NewID()
	return l
}

// config loads the policy of a config.toml and overrides.
func (l *loop) config(toml string, overrides ...string) *loop {
	l.t.Helper()
	if toml != "" {
		if err := os.WriteFile(l.opts.Home+"/config.toml", []byte(toml), 0o600); err != nil {
			l.t.Fatal(err)
		}
	}
	src := policy.Sources{Files: disk{}, SystemDir: l.opts.SystemDir, Home: l.opts.Home, UserHome: l.opts.UserHome, Cwd: l.ws,
		LookupEnv: func(string) (string, bool) { return "", false }}
	for _, o := range overrides {
		v, err := policy.ParseOverride(o)
		if err != nil {
			l.t.Fatal(err)
		}
		src.Overrides = append(src.Overrides, v)
	}
	var err error
	if l.opts.Policy, err = policy.Load(src); err != nil {
		l.t.Fatal(err)
	}
	return l
}

// disk is the real file system.
type disk struct{}

func (disk) ReadFile(name string) ([]byte, error)       { return os.ReadFile(name) }
func (disk) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }
func (disk) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }
func (disk) RealPath(name string) string                { return filepath.Clean(name) }

// says is what the model does, request by request.
func (l *loop) says(steps ...step) *loop { l.model.steps = steps; return l }

// play carries the run out and checks what holds of every run.
func (l *loop) play() Result { l.t.Helper(); return l.playIn(context.Background()) }

func (l *loop) playIn(ctx context.Context) Result {
	l.t.Helper()
	l.opts.Log = event.NewLog(l.opts.Now, l.opts.Mask, l.seen)
	l.opts.Log.Settle()
	r := newRun(l.opts)
	l.model.first = func() {
		if r.tools != nil {
			r.tools.list = append(r.tools.list, l.tools...)
		}
	}
	res := r.carryOut(ctx)
	if err := l.opts.Log.Finish(context.Background(), res.Completed); err != nil {
		l.t.Errorf("the log: %v", err)
	}
	l.check()
	return res
}

// check looks for what no run may do: items left open or closed twice, requests
// that the service would refuse, a history whose sent part changed.
func (l *loop) check() {
	l.t.Helper()
	if bad := itemFaults(l.seen.records()); len(bad) > 0 {
		l.t.Errorf("items: %v\n%s", bad, l.seen.text())
	}
	recs := l.seen.records()
	if last := recs[len(recs)-1].Event; !is[event.RunCompleted](last) {
		l.t.Errorf("the last record is %T", last)
	}
	var before []model.Item
	for i, req := range l.model.requests {
		if open := openCalls(req.Input); len(open) > 0 {
			l.t.Errorf("request %d holds calls without an output: %v", i+1, open)
		}
		if !l.rewrites && !prefixOf(before, req.Input) {
			l.t.Errorf("request %d changes what was sent before", i+1)
		}
		before = req.Input
	}
}

func is[T event.Event](e event.Event) bool { _, ok := e.(T); return ok }

func prefixOf(a, b []model.Item) bool {
	return len(a) <= len(b) && slices.EqualFunc(a, b[:len(a)], func(x, y model.Item) bool { return bytes.Equal(x.Raw, y.Raw) })
}

// openCalls are the calls in items that have no output, or more than one.
func openCalls(items []model.Item) []string {
	outputs := map[string]int{}
	var calls, bad []string
	for _, it := range items {
		o, err := readItem(it)
		if err != nil {
			return []string{err.Error()}
		}
		switch o.Type {
		case "function_call", "custom_tool_call":
			calls = append(calls, o.CallID)
		case "function_call_output", "custom_tool_call_output":
			outputs[o.CallID]++
		}
	}
	for _, c := range calls {
		if outputs[c] != 1 {
			bad = append(bad, c)
		}
	}
	return bad
}

// itemFaults are the items that were not opened and closed as they should be.
func itemFaults(records []event.Record) []string {
	state := map[string]string{}
	var bad []string
	for _, rec := range records {
		switch e := rec.Event.(type) {
		case event.ItemStarted:
			if state[e.Item.ID] != "" {
				bad = append(bad, e.Item.ID+" started again")
			}
			state[e.Item.ID] = "open"
		case event.ItemUpdated:
			if state[e.Item.ID] != "open" {
				bad = append(bad, e.Item.ID+" updated while not open")
			}
		case event.ItemCompleted:
			if state[e.Item.ID] == "closed" {
				bad = append(bad, e.Item.ID+" closed twice")
			}
			state[e.Item.ID] = "closed"
		case event.TurnCompleted, event.TurnFailed:
			for id, s := range state {
				if s == "open" {
					bad = append(bad, id+" open at the end of the turn")
				}
			}
		}
	}
	return bad
}

// memory is a sink that keeps everything.
type memory struct {
	mu   sync.Mutex
	list []event.Record
	// on is called with every record.
	on func(event.Record)
}

func (m *memory) Handle(r event.Record) error {
	m.mu.Lock()
	m.list = append(m.list, r)
	on := m.on
	m.mu.Unlock()
	if on != nil {
		on(r)
	}
	return nil
}

func (m *memory) Close(context.Context) error { return nil }

func (m *memory) records() []event.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.list)
}

// text is the log as its reader sees it.
func (m *memory) text() string {
	var b bytes.Buffer
	for _, r := range m.records() {
		raw, err := json.Marshal(r)
		if err != nil {
			return err.Error()
		}
		b.Write(append(raw, '\n'))
	}
	return b.String()
}

// all are the events of one kind.
func all[T event.Event](m *memory) []T {
	var out []T
	for _, r := range m.records() {
		if e, ok := r.Event.(T); ok {
			out = append(out, e)
		}
	}
	return out
}

// finished are the details of completed items of one type.
func finished[T event.ItemDetails](m *memory) []T {
	var out []T
	for _, e := range all[event.ItemCompleted](m) {
		if d, ok := e.Item.Details.(T); ok {
			out = append(out, d)
		}
	}
	return out
}

// step is what the model does with one request.
type step func(ctx context.Context, req model.Request, yield func(model.Delta, error) bool)

// actor is a model that follows its steps, in the order of the requests.
type actor struct {
	mu       sync.Mutex
	steps    []step
	requests []model.Request
	first    func()
}

// Stream plays the next step. A request too many is an error of the test.
func (a *actor) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		a.mu.Lock()
		a.requests = append(a.requests, req)
		if a.first != nil {
			a.first()
			a.first = nil
		}
		var s step
		if len(a.steps) > 0 {
			s, a.steps = a.steps[0], a.steps[1:]
		}
		a.mu.Unlock()
		if err := context.Cause(ctx); err != nil {
			yield(model.Delta{}, err)
			return
		}
		if s == nil {
			yield(model.Delta{}, &model.APIError{Class: "script", Message: "the test has no further response"})
			return
		}
		s(ctx, req, yield)
	}
}

// reply is a finished response with these items.
func reply(items ...any) step { return replyWith(model.Response{}, items...) }

func replyWith(r model.Response, items ...any) step {
	for _, it := range items {
		r.Items = append(r.Items, rawItem(it))
	}
	if r.Usage.Total() == 0 {
		r.Usage = event.Usage{Input: 100, Output: 10}
	}
	return func(_ context.Context, _ model.Request, yield func(model.Delta, error) bool) {
		if yield(model.Delta{Progress: &model.Progress{Event: "response.created"}}, nil) {
			yield(model.Delta{Done: &r}, nil)
		}
	}
}

type object map[string]any

func said(text string) object {
	return object{"type": "message", "role": "assistant", "content": []object{{"type": "output_text", "text": text}}}
}

func refusal(text string) object {
	return object{"type": "message", "role": "assistant", "content": []object{{"type": "refusal", "refusal": text}}}
}

func callOf(id, name string, args object) object {
	raw, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return object{"type": "function_call", "call_id": id, "name": name, "arguments": string(raw)}
}

func shell(id, script string) object { return callOf(id, "exec_command", object{"cmd": script}) }

func patchOf(id, text string) object {
	return object{"type": "custom_tool_call", "call_id": id, "name": "apply_patch", "input": text}
}

func agentCall(id, name string, args object) object {
	c := callOf(id, name, args)
	c["namespace"] = agentNamespace
	return c
}

// says answers with a message.
func says(text string) step { return reply(said(text)) }

// breaks fails the request.
func breaks(class, text string) step {
	return func(_ context.Context, _ model.Request, yield func(model.Delta, error) bool) {
		yield(model.Delta{}, &model.APIError{Class: class, Message: text})
	}
}

// hangs begins a response and never ends it.
func hangs(ctx context.Context, _ model.Request, yield func(model.Delta, error) bool) {
	if yield(model.Delta{Progress: &model.Progress{Event: "response.created"}}, nil) {
		<-ctx.Done()
		yield(model.Delta{}, context.Cause(ctx))
	}
}

// after runs f, then plays s.
func after(f func(), s step) step {
	return func(ctx context.Context, req model.Request, yield func(model.Delta, error) bool) {
		f()
		s(ctx, req, yield)
	}
}

// output is what the model was told of a call, in the last request.
func (l *loop) output(callID string) string {
	l.t.Helper()
	if len(l.model.requests) == 0 {
		return ""
	}
	for _, it := range l.model.requests[len(l.model.requests)-1].Input {
		var o struct {
			Type   string          `json:"type"`
			CallID string          `json:"call_id"`
			Output json.RawMessage `json:"output"`
		}
		if json.Unmarshal(it.Raw, &o) != nil || o.CallID != callID || len(o.Output) == 0 {
			continue
		}
		var s string
		if json.Unmarshal(o.Output, &s) != nil {
			return string(o.Output)
		}
		return s
	}
	return ""
}

// want compares an ending.
func (l *loop) want(res Result, outcome, class string, code int) {
	l.t.Helper()
	if res.Outcome.Outcome != outcome || res.Class != class || res.ExitCode != code {
		l.t.Errorf("the run ended as %s/%s with exit code %d (%s), want %s/%s with %d\n%s",
			res.Outcome.Outcome, res.Class, res.ExitCode, res.Message, outcome, class, code, l.seen.text())
	}
}

// fakeTool is a tool of the test.
type fakeTool struct {
	name     string
	parallel bool
	call     func(context.Context, tool.Call) (tool.Result, error)
}

func (f *fakeTool) Name() string          { return f.name }
func (f *fakeTool) Spec() json.RawMessage { return nil }
func (f *fakeTool) Parallel() bool        { return f.parallel }

func (f *fakeTool) Call(ctx context.Context, c tool.Call) (tool.Result, error) { return f.call(ctx, c) }

func done(text string) (tool.Result, error) {
	return tool.Result{Output: quote(text), Status: event.Completed}, nil
}

func failed(text string) (tool.Result, error) {
	return tool.Result{Output: quote(text), Status: event.Failed}, nil
}

// signalled is a context that a signal ends when f is called.
func signalled() (ctx context.Context, f func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	return ctx, func() { cancel(SignalError{Signal: 15}) }
}

// soon fails the test when f takes longer than a generous bound.
func soon(t *testing.T, bound time.Duration, f func()) {
	t.Helper()
	ended := make(chan struct{})
	go func() { defer close(ended); f() }()
	select {
	case <-ended:
	case <-time.After(bound):
		t.Fatalf("it did not end within %s", bound)
	}
}

var errTool = errors.New("the tool is broken")
