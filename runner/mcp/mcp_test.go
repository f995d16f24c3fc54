package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/tool"
	"github.com/nightshift-ci/nightshift/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Init(nil)
	if name := os.Getenv(behaviourVar); name != "" {
		behave(name)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// recorder keeps the events of a log.
type recorder struct {
	mu   sync.Mutex
	list []event.Event
}

func (r *recorder) Handle(rec event.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, rec.Event)
	return nil
}

func (r *recorder) Close(context.Context) error { return nil }

func (r *recorder) all() []event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// statuses lists server events as "name status".
func (r *recorder) statuses() string {
	var list []string
	for _, e := range r.all() {
		if s, ok := e.(event.ServerStatus); ok {
			list = append(list, s.Server+" "+s.Status)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func (r *recorder) message(status string) string {
	for _, e := range r.all() {
		if s, ok := e.(event.ServerStatus); ok && s.Status == status {
			return s.Message
		}
	}
	return ""
}

func (r *recorder) notices() string {
	var list []string
	for _, e := range r.all() {
		if n, ok := e.(event.Notice); ok {
			list = append(list, n.Message)
		}
	}
	return strings.Join(list, "\n")
}

// items are the items of the log as JSON lines.
func (r *recorder) items(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	for _, e := range r.all() {
		switch e.(type) {
		case event.ItemStarted, event.ItemCompleted:
			line, err := (event.Record{Event: e}).Wire()
			check(t, err)
			b.Write(append(line, '\n'))
		}
	}
	return b.String()
}

func fakeServer(behaviour string) policy.MCPServer {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return policy.MCPServer{
		Enabled: true, Command: exe, Args: []string{"-test.run=^$"}, Env: map[string]string{behaviourVar: behaviour},
		StartupTimeout: 20 * time.Second, ToolTimeout: 20 * time.Second,
	}
}

// fixture starts servers in a read-only sandbox.
func fixture(t *testing.T, servers map[string]policy.MCPServer, change func(*Options)) (*Set, *recorder) {
	t.Helper()
	box, err := sandbox.Open(t.Context(), sandbox.Spec{Mode: sandbox.ReadOnly, Workspace: t.TempDir(), HostTmp: true})
	check(t, err)
	rec := &recorder{}
	o := Options{
		Servers: servers, Sandbox: box, Dir: t.TempDir(), Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=/nowhere"},
		Version: "1.0.0", Log: event.NewLog(nil, nil, rec),
	}
	if change != nil {
		change(&o)
	}
	s := Start(t.Context(), o)
	t.Cleanup(func() {
		check(t, s.Close())
		check(t, s.Close())
		check(t, box.Close())
	})
	return s, rec
}

func one(t *testing.T, behaviour string) (*Set, *recorder) {
	t.Helper()
	s, rec := fixture(t, map[string]policy.MCPServer{"s": fakeServer(behaviour)}, nil)
	check(t, s.Ready(t.Context()))
	return s, rec
}

func find(t *testing.T, s *Set, name string) tool.Tool {
	t.Helper()
	for _, one := range s.Tools() {
		if one.Name() == name {
			return one
		}
	}
	t.Fatalf("no tool %s", name)
	return nil
}

func call(t *testing.T, s *Set, name, args string) tool.Result {
	t.Helper()
	r, err := find(t, s, name).Call(t.Context(), tool.Call{ID: "call_" + name, Name: name, Namespace: "mcp__s", Arguments: json.RawMessage(args)})
	check(t, err)
	if !json.Valid(r.Output) {
		t.Fatalf("output is no JSON: %s", r.Output)
	}
	return r
}

var wallTime = regexp.MustCompile(`Wall time: \d+\.\d{4} seconds\\nOutput:`)

// shown is an output with its time taken out.
func shown(r tool.Result) string { return wallTime.ReplaceAllString(string(r.Output), "WALL") }

// The stream of the golden scenario mcp_calls of the reference.
func TestGoldenCalls(t *testing.T) {
	s, rec := fixture(t, map[string]policy.MCPServer{"scales": fakeServer("scales")}, nil)
	check(t, s.Ready(t.Context()))
	for name, want := range map[string]struct {
		status event.Status
		output string
	}{
		"weigh":   {event.Completed, `"WALL\n{\"grams\":600}"`},
		"jam":     {event.Failed, `[{"type":"input_text","text":"WALL"},{"type":"input_text","text":"the scale jammed"}]`},
		"discard": {event.Declined, `[{"type":"input_text","text":"WALL"},{"type":"input_text","text":"MCP tool call requires approval, but approval policy is never"}]`},
		"burn":    {event.Declined, `[{"type":"input_text","text":"WALL"},{"type":"input_text","text":"MCP tool call requires approval, but approval policy is never"}]`},
	} {
		args := `{}`
		if name == "weigh" {
			args = `{ "fruit": "pear", "n": 4 }`
		}
		if r := call(t, s, name, args); r.Status != want.status || shown(r) != want.output || (r.Denied != nil) != (want.status == event.Declined) {
			t.Errorf("%s: %s %s", name, r.Status, shown(r))
		}
	}
	items := rec.items(t)
	for _, want := range []string{
		`"type":"mcp_tool_call","server":"scales","tool":"weigh","arguments":{"fruit":"pear","n":4},"result":null,"error":null,"status":"in_progress"}`,
		`"arguments":{"fruit":"pear","n":4},"result":{"content":[{"type":"text","text":"600 grams"}],"structured_content":{"grams":600}},"error":null,"status":"completed"}`,
		`"tool":"jam","arguments":{},"result":{"content":[{"type":"text","text":"the scale jammed"}],"structured_content":null},"error":null,"status":"failed"}`,
		`"tool":"discard","arguments":{},"result":null,"error":{"message":"MCP tool call requires approval, but approval policy is never"},"status":"failed"`,
	} {
		if !strings.Contains(items, want) {
			t.Errorf("no item\n%s\nin\n%s", want, items)
		}
	}
	if strings.Count(items, `"item.started"`) != 4 || strings.Count(items, `"item.completed"`) != 4 {
		t.Errorf("items:\n%s", items)
	}
	denied := 0
	for _, e := range rec.all() {
		if d, ok := e.(event.PolicyDecision); ok && d.Action == "mcp" && d.Outcome == "denied" && d.ItemID != "" {
			denied++
		}
	}
	if denied != 2 || rec.statuses() != "scales ready" {
		t.Errorf("%d denials, %s", denied, rec.statuses())
	}
}

func TestApproval(t *testing.T) {
	type row struct{ mode, kind string }
	for r, want := range map[row]bool{
		{"auto", "readonly"}: true, {"prompt", "readonly"}: false, {"approve", "readonly"}: true,
		{"auto", "none"}: false, {"prompt", "none"}: false, {"approve", "none"}: true,
		{"auto", "destructive"}: false, {"approve", "destructive"}: true,
	} {
		q := Request{Mode: r.mode, ReadOnly: r.kind == "readonly", Destructive: r.kind == "destructive"}
		if got := Approve(q, false); got.Allowed != want || !want && got.Reason != needsApproval {
			t.Errorf("%+v: %+v", r, got)
		}
		if !Approve(q, true).Allowed {
			t.Errorf("%+v is refused with full access", r)
		}
	}
	s, _ := fixture(t, map[string]policy.MCPServer{"s": func() policy.MCPServer {
		c := fakeServer("scales")
		c.DefaultApproval, c.ToolApproval = "approve", map[string]string{"weigh": "prompt"}
		return c
	}()}, func(o *Options) {
		o.Decide = func(r Request) Decision {
			if r.Tool == "jam" {
				return Decision{Reason: "not today", Source: "requirement", Rule: "r", Origin: "f:1"}
			}
			return Approve(r, false)
		}
	})
	check(t, s.Ready(t.Context()))
	if r := call(t, s, "discard", ``); r.Status != event.Completed {
		t.Errorf("approved by default: %s", r.Output)
	}
	if r := call(t, s, "weigh", `{"n":1}`); r.Denied == nil {
		t.Errorf("one tool is set to prompt: %s", r.Output)
	}
	if r := call(t, s, "jam", `{}`); r.Denied == nil || r.Denied.Source != "requirement" || !strings.Contains(string(r.Output), "not today") {
		t.Errorf("refused by the caller: %s %+v", r.Output, r.Denied)
	}
	d := find(t, s, "weigh").(*remote).Decline(t.Context(), tool.Call{ID: "c"}, event.Denial{Reason: "r", Source: "hook"}, "a hook said no")
	if d.Status != event.Declined || d.ItemID == "" || !strings.Contains(string(d.Output), "a hook said no") {
		t.Errorf("declined: %+v", d)
	}
}

func TestServerEnvironmentAndConfinement(t *testing.T) {
	cfg := fakeServer("env")
	cfg.Env["A"], cfg.Env["HOME"], cfg.EnvVars = "set", "/its/own", []string{"B", "UNSET"}
	cfg.Cwd = t.TempDir()
	target := filepath.Join(t.TempDir(), "escaped")
	s, _ := fixture(t, map[string]policy.MCPServer{"s": cfg}, func(o *Options) {
		o.LookupEnv = func(name string) (string, bool) { return "passed", name == "B" }
	})
	check(t, s.Ready(t.Context()))
	r := call(t, s, "one", fmt.Sprintf(`{"x":%q}`, target))
	if want := "set|passed|/its/own|" + cfg.Cwd + "|true"; !strings.Contains(string(r.Output), want) {
		t.Errorf("%s, want %s", r.Output, want)
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("a server wrote in a read-only sandbox")
	}
}

// A working folder that is not absolute is below the run's, as it is in the
// reference.
func TestServerFolder(t *testing.T) {
	below, above := fakeServer("env"), fakeServer("env")
	below.Cwd, above.Cwd = "tools", "../beside"
	base := t.TempDir()
	for _, dir := range []string{"repo/tools", "beside"} {
		check(t, os.MkdirAll(filepath.Join(base, dir), 0o755))
	}
	for want, cfg := range map[string]policy.MCPServer{"repo/tools": below, "beside": above} {
		s, _ := fixture(t, map[string]policy.MCPServer{"s": cfg}, func(o *Options) { o.Dir = filepath.Join(base, "repo") })
		check(t, s.Ready(t.Context()))
		if r := call(t, s, "one", `{"x":"/nowhere/x"}`); !strings.Contains(string(r.Output), "|"+filepath.Join(base, want)+"|") {
			t.Errorf("%s: %s", want, r.Output)
		}
	}
}

// A server that could not start is told with what to do, where that is known.
func TestStartAdvice(t *testing.T) {
	silent := fakeServer("silent")
	silent.StartupTimeout = time.Second
	free := silent
	free.Sandbox = "none"
	words := policy.MCPServer{Enabled: true, Command: "no-such-program -y some-server"}
	dies := fakeServer("diesearly")
	_, rec := fixture(t, map[string]policy.MCPServer{"silent": silent, "free": free, "words": words, "dies": dies}, func(o *Options) {
		o.Env = append(o.Env, noNetwork)
	})
	waitFor(t, rec, "dies failed, free failed, silent failed, words failed")
	const offline, arguments = "without network", "arguments belong into args"
	for name, c := range map[string]struct{ says, not string }{"silent": {offline, arguments}, "free": {"startup_timeout_sec", offline}, "words": {arguments, offline}, "dies": {"exit code 3", offline}} {
		for _, e := range rec.all() {
			if st, ok := e.(event.ServerStatus); ok && st.Server == name && (!strings.Contains(st.Message, c.says) || strings.Contains(st.Message, c.not)) {
				t.Errorf("%s: %q", name, st.Message)
			}
		}
	}
}
