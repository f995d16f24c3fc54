package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
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

func TestAnswers(t *testing.T) {
	s, rec := one(t, "odd")
	const failed = `[{"type":"input_text","text":"WALL"},{"type":"input_text","text":"tool call error: tool call failed for ` + "`s/answer`" + `\n\nCaused by:\n    `
	for x, want := range map[string]string{
		"mixed": `[{"type":"input_text","text":"WALL"},{"type":"input_text","text":"t1"},{"type":"input_image","image_url":"data:image/png;base64,aGk=","detail":"high"},` +
			`{"type":"input_text","text":"<audio content omitted because you do not support audio input>"},` +
			`{"type":"input_text","text":"{\"type\":\"resource\",\"resource\":{\"uri\":\"file:///x\",\"text\":\"r\"}}"},` +
			`{"type":"input_text","text":"{\"type\":\"hologram\",\"shape\":[1,2]}"},{"type":"input_text","text":"<image content of 4 bytes omitted>"}]`,
		"structured": `"WALL\n{\"b\":12345678901234567890,\"a\":{\"y\":[1,2]}}"`,
		"null":       `[{"type":"input_text","text":"WALL"},{"type":"input_text","text":"t"}]`,
		"empty":      `[{"type":"input_text","text":"WALL"}]`,
		"nothing":    `[{"type":"input_text","text":"WALL"}]`,
		"badcontent": failed + `the server's answer is not of the form that the protocol asks for"}]`,
		"nullblock":  failed + `the server's answer holds content that is none"}]`,
		"number":     failed + `the server's answer is not of the form that the protocol asks for"}]`,
		"refused":    failed + `Mcp error: -32000: text"}]`,
	} {
		if got := shown(call(t, s, "answer", `{"x":"`+x+`"}`)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", x, got, want)
		}
	}
	for _, args := range []string{`[1]`, `"x"`, `null`, `{`} {
		if r := call(t, s, "answer", args); r.Status != event.Failed || !strings.Contains(string(r.Output), "failed to parse function arguments") {
			t.Errorf("arguments %s: %s", args, r.Output)
		}
	}
	if items := rec.items(t); !strings.Contains(items, `"structured_content":{"b":12345678901234567890,"a":{"y":[1,2]}}`) || !strings.Contains(items, `{"type":"hologram","shape":[1,2]}`) {
		t.Errorf("content is not kept as it came:\n%s", items)
	}
}

func TestBigAnswers(t *testing.T) {
	s, rec := one(t, "big")
	for _, n := range []int{1000, 100_000, 5_000_000} { // the last one is 10 MB
		r := call(t, s, "fill", fmt.Sprintf(`{"n":%d}`, n))
		var parts []part
		check(t, json.Unmarshal(r.Output, &parts))
		if r.Status != event.Completed || len(parts) != 2 {
			t.Fatalf("%d: %s, %d parts", n, r.Status, len(parts))
		}
		got := parts[1].Text
		if n == 1000 {
			if len(got) != 2000 {
				t.Errorf("a short text was cut to %d bytes", len(got))
			}
			continue
		}
		lost := 2*n - strings.Count(got, "é")*2
		if len(got) > maxModelText || !strings.Contains(got, fmt.Sprintf("é…%d tokens truncated…é", (lost+3)/4)) {
			t.Errorf("%d: the model sees %d bytes, %.60q", n, len(got), got[len(got)/2-30:])
		}
	}
	if n := len(rec.items(t)); n > 3*maxEventBytes {
		t.Errorf("the log holds %d bytes", n)
	}
	r := call(t, s, "fill", fmt.Sprintf(`{"n":%d}`, maxMessage))
	if r.Status != event.Failed || !strings.Contains(string(r.Output), "a message of more than") {
		t.Errorf("an endless message: %s", r.Output)
	}
	waitFor(t, rec, "s died, s ready")
}

func waitFor(t *testing.T, rec *recorder, want string) {
	t.Helper()
	for range 500 {
		if rec.statuses() == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("statuses: %s, want %s", rec.statuses(), want)
}

func TestToolList(t *testing.T) {
	cfg := fakeServer("list")
	cfg.DisabledTools = []string{"off"}
	s, rec := fixture(t, map[string]policy.MCPServer{"my server": cfg}, nil)
	check(t, s.Ready(t.Context()))
	specs := Specs(s.Tools())
	if len(specs) != 4 {
		t.Fatalf("%d specs", len(specs))
	}
	var ns struct {
		Type, Name, Description string
		Tools                   []struct {
			Type, Name, Description string
			Strict                  bool
			Parameters              json.RawMessage
		}
	}
	check(t, json.Unmarshal(specs[3], &ns))
	if ns.Type != "namespace" || ns.Name != "mcp__my_server" || ns.Description != "How to use it." {
		t.Errorf("namespace: %+v", ns)
	}
	got := map[string]string{}
	for _, f := range ns.Tools {
		got[f.Name] = string(f.Parameters)
		if f.Type != "function" || f.Strict || len(f.Description) > maxDescription {
			t.Errorf("function: %.200v", f)
		}
	}
	const empty = `{"type":"object","properties":{}}`
	want := map[string]string{
		"plain": `{"type":"object","properties":{"x":{"type":"string"}},"$defs":{}}`, "no_schema": empty, "nulls": empty, "listed": empty, "string": empty,
		"untyped": `{"properties":{"y":{}},"type":"object"}`, "noprops": `{"properties":{},"required":["z"],"type":"object"}`,
		hashedName("a.b", "a_b", 64): empty, hashedName("a b", "a_b", 64): empty, "a_b": empty, "c_d": empty,
		hashedName(strings.Repeat("n", 80), strings.Repeat("n", 80), 64): empty, "_": empty, "long": empty,
	}
	for name, schema := range want {
		if got[name] != schema {
			t.Errorf("%s: %s, want %s", name, got[name], schema)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d tools: %v", len(got), got)
	}
	for _, said := range []string{`"plain" twice`, "that cannot be read: null", "that cannot be read: 7", `"huge" of MCP server my server was left out`, `"string" of MCP server my server has a schema that describes no object`} {
		if !strings.Contains(rec.notices(), said) {
			t.Errorf("%q is not said in\n%s", said, rec.notices())
		}
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("l", 100)
	names := []string{"ok-1", "a.b", "a/b", "a_b", "x y", long, long + "2", ""}
	got := safeNames(names, "mcp__")
	seen := map[string]bool{}
	valid := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	for _, n := range names {
		if seen[got[n]] || !valid.MatchString(got[n]) {
			t.Errorf("%q became %q", n, got[n])
		}
		seen[got[n]] = true
	}
	if got["ok-1"] != "mcp__ok-1" || got["a_b"] != "mcp__a_b" || got["x y"] != "mcp__x_y" {
		t.Errorf("%v", got)
	}
	slices.Reverse(names)
	for n, safe := range safeNames(names, "mcp__") {
		if got[n] != safe {
			t.Errorf("the order changes %q", n)
		}
	}
}

func TestFilters(t *testing.T) {
	cfg := fakeServer("scales")
	cfg.EnabledTools, cfg.DisabledTools = []string{"weigh", "jam", "missing"}, []string{"jam"}
	s, rec := fixture(t, map[string]policy.MCPServer{"s": cfg, "p": fakeServer("paged")}, nil)
	check(t, s.Ready(t.Context()))
	var names []string
	for _, one := range s.Tools() {
		names = append(names, one.Name())
	}
	if got := strings.Join(names, " "); got != "list_mcp_resources list_mcp_resource_templates read_mcp_resource a b weigh" {
		t.Errorf("tools: %s", got)
	}
	if !strings.Contains(rec.notices(), `names "missing"`) {
		t.Errorf("notices: %s", rec.notices())
	}
	if got := len(Specs(s.Tools())); got != 5 {
		t.Errorf("%d specs", got)
	}
}

// Servers that break the rules at their start cost their start-up bound at
// most, all of them together, and are reported.
func TestStartFailures(t *testing.T) {
	servers := map[string]policy.MCPServer{"good": fakeServer("scales"), "missing": {Enabled: true, Command: "/no/such/program"}, "neither": {Enabled: true}}
	for _, b := range []string{"silent", "deaf", "diesearly", "version", "notalist", "endless", "circle"} {
		servers[b] = fakeServer(b)
	}
	for _, b := range []string{"silent", "deaf"} {
		c := servers[b]
		c.StartupTimeout = time.Second
		servers[b] = c
	}
	off := fakeServer("scales")
	off.Enabled = false
	servers["off"] = off
	banned := fakeServer("scales")
	banned.DisabledBy = "/etc/requirements.toml:3"
	servers["banned"] = banned
	s, rec := fixture(t, servers, nil)
	check(t, s.Ready(t.Context()))
	want := "banned disabled, circle failed, deaf failed, diesearly failed, endless failed, good ready, missing failed, neither failed, notalist failed, off disabled, silent failed, version failed"
	waitFor(t, rec, want)
	for name, said := range map[string]string{
		"silent": "startup_timeout_sec of 1s", "deaf": "startup_timeout_sec of 1s", "diesearly": "exit code 3; it said: cannot open [31m database",
		"version": "1066-10-14", "notalist": "is no list", "endless": "more than 100 pages", "circle": "an earlier page", "missing": "program",
		"neither": "neither a command nor a url", "banned": "/etc/requirements.toml:3", "off": "enabled",
	} {
		for _, e := range rec.all() {
			if st, ok := e.(event.ServerStatus); ok && st.Server == name && !strings.Contains(st.Message, said) {
				t.Errorf("%s: %q does not say %q", name, st.Message, said)
			}
		}
	}
	for _, one := range s.Tools() {
		if n, ok := one.(namespaced); ok && n.Namespace() != "mcp__good" {
			t.Errorf("a tool of %s", n.Namespace())
		}
	}
}

func TestRequired(t *testing.T) {
	dies, banned := fakeServer("diesearly"), fakeServer("scales")
	dies.Required, banned.Required, banned.DisabledBy = true, true, "req:1"
	s, _ := fixture(t, map[string]policy.MCPServer{"dies": dies, "banned": banned, "good": fakeServer("scales")}, nil)
	err := s.Ready(t.Context())
	var re *RequiredError
	if !errors.As(err, &re) || len(re.Servers) != 2 || !re.Servers[0].Policy || re.Servers[1].Server != "dies" || re.Hint() == "" {
		t.Fatalf("%+v", err)
	}
	if !strings.HasPrefix(err.Error(), "required MCP servers failed to initialize: banned: switched off by the requirements (req:1); dies: ") {
		t.Errorf("%v", err)
	}
}

func TestNothingHoldsACall(t *testing.T) {
	for behaviour, want := range map[string]string{
		"stuck": "Caused by:\\n    timed out awaiting tools/call after 300ms", "dies": "exit code 7; it said: out of pears",
		"flood": "messages that nobody asked for", "floodjunk": "lines that are no messages", "floodline": "a message of more than",
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()
			cfg := fakeServer(behaviour)
			if behaviour == "stuck" {
				cfg.ToolTimeout = 300 * time.Millisecond
			}
			s, rec := fixture(t, map[string]policy.MCPServer{"s": cfg}, nil)
			check(t, s.Ready(t.Context()))
			r := call(t, s, "one", `{}`)
			if r.Status != event.Failed || !strings.Contains(string(r.Output), want) {
				t.Errorf("%s: %s", r.Status, r.Output)
			}
			if behaviour != "stuck" {
				waitFor(t, rec, "s died, s ready")
				if r := call(t, s, "one", `{}`); r.Status != event.Failed || !strings.Contains(string(r.Output), want) {
					t.Errorf("a call after its end: %s", r.Output)
				}
			}
		})
	}
}

// A server that does not read blocks the write of a large request; the call
// ends all the same.
func TestDeafServer(t *testing.T) {
	cfg := fakeServer("deafcall")
	cfg.ToolTimeout = time.Second
	s, rec := fixture(t, map[string]policy.MCPServer{"s": cfg}, nil)
	check(t, s.Ready(t.Context()))
	call(t, s, "one", `{}`) // from here on it reads nothing
	big := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", 256<<10))
	if r := call(t, s, "one", big); r.Status != event.Failed || !strings.Contains(string(r.Output), "timed out") {
		t.Errorf("%.300s", r.Output)
	}
	waitFor(t, rec, "s died, s ready")
	if m := rec.message("died"); !strings.Contains(m, "takes no more input") {
		t.Errorf("died: %s", m)
	}
}

func TestCancelledCall(t *testing.T) {
	s, rec := one(t, "stuckcall")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(200*time.Millisecond, func() { cancel(errors.New("interrupted by a signal")) })
	r, err := find(t, s, "one").Call(ctx, tool.Call{ID: "c", Name: "one"})
	check(t, err)
	if r.Status != event.Failed || !strings.Contains(string(r.Output), "interrupted by a signal") {
		t.Errorf("%s", r.Output)
	}
	if items := rec.items(t); strings.Count(items, "item.completed") != 1 {
		t.Errorf("items: %s", items)
	}
}

func TestChattyServer(t *testing.T) {
	s, _ := one(t, "chatty")
	for range 3 {
		if r := call(t, s, "one", `{"x":"hi"}`); r.Status != event.Completed || !strings.Contains(string(r.Output), "one hi") {
			t.Errorf("%s", r.Output)
		}
	}
}

// Close is bounded for a server that ends at nothing but SIGKILL.
func TestStubbornServerIsEnded(t *testing.T) {
	s, rec := one(t, "stubborn")
	proc := s.servers[0].proc
	check(t, s.Close())
	if !within(proc.Done(), time.Millisecond) {
		t.Error("it is still there")
	}
	if got := rec.statuses(); got != "s ready" {
		t.Errorf("the run's own end is reported as %s", got)
	}
}

func TestCloseWhileStarting(t *testing.T) {
	s, _ := fixture(t, map[string]policy.MCPServer{"a": fakeServer("silent"), "b": fakeServer("deaf")}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := s.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Ready: %v", err)
	}
	check(t, s.Close())
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

func TestResources(t *testing.T) {
	s, rec := fixture(t, map[string]policy.MCPServer{"lib": fakeServer("library"), "bare": fakeServer("scales"), "dead": fakeServer("diesearly")}, nil)
	check(t, s.Ready(t.Context()))
	for _, c := range []struct{ name, args, want string }{
		{"list_mcp_resources", ``, `"{\"resources\":[{\"name\":\"pear\",\"server\":\"lib\",\"size\":12345678901234567890,\"uri\":\"pear://1\"}]}"`},
		{"list_mcp_resources", `{"server":"lib"}`, `"{\"resources\":[{\"name\":\"pear\",\"server\":\"lib\",\"size\":12345678901234567890,\"uri\":\"pear://1\"}],\"server\":\"lib\"}"`},
		{"list_mcp_resource_templates", `{"server":"lib"}`, `"{\"nextCursor\":\"more\",\"resourceTemplates\":[{\"name\":\"pears\",\"server\":\"lib\",\"uriTemplate\":\"pear://{n}\"}],\"server\":\"lib\"}"`},
		{"read_mcp_resource", `{"server":"lib","uri":"pear://1"}`, `"{\"contents\":[{\"uri\":\"pear://1\",\"text\":\"a pear\"}],\"server\":\"lib\",\"uri\":\"pear://1\"}"`},
		{"read_mcp_resource", `{"server":"lib","uri":"x"}`, "\"resources/read failed: resources/read failed for `lib` (x): Mcp error: -32601: no such method\""},
		{"read_mcp_resource", `{"server":"lib"}`, "\"failed to parse function arguments: `server` and `uri` must not be empty\""},
		{"list_mcp_resources", `{"server":"nobody"}`, `"unknown MCP server \"nobody\""`},
		{"list_mcp_resources", `{"server":"dead"}`, `"MCP server \"dead\" is not running"`},
		{"list_mcp_resources", `{"server":"bare"}`, `"resources/list failed: Mcp error: -32601: no such method"`},
		{"list_mcp_resources", `{"cursor":"x"}`, `"a cursor belongs to one server: name it"`},
		{"list_mcp_resources", `{"server":7}`, ``},
	} {
		r := call(t, s, c.name, c.args)
		if got := string(r.Output); c.want != "" && got != c.want || c.want == "" && r.Status != event.Failed {
			t.Errorf("%s %s:\n got %s\nwant %s", c.name, c.args, got, c.want)
		}
	}
	if items := rec.items(t); !strings.Contains(items, `"server":"codex","tool":"list_mcp_resources","arguments":{}`) {
		t.Errorf("items: %s", items)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte("hello\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\r\n\n[{}]\n{\"jsonrpc\":\"2.0\",\"method\":\"x\"}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fr := &frames{br: bufio.NewReaderSize(bytes.NewReader(b), 16), failed: func(error) {}}
		var out bytes.Buffer
		if _, err := out.ReadFrom(fr); err != nil {
			return
		}
		for line := range bytes.Lines(out.Bytes()) {
			if !json.Valid(line) {
				t.Errorf("let through: %q", line)
			}
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"content":[{"type":"text","text":"x"},{"type":"image","data":"x","mimeType":"image/png"}],"structuredContent":{},"isError":true}`))
	f.Add([]byte(`{"content":[{"type":"audio"}],"structuredContent":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := parseAnswer(raw)
		if err != nil {
			return
		}
		if out := a.forModel(time.Second); !json.Valid(out) {
			t.Errorf("output %s", out)
		}
		if _, err := json.Marshal(a.forEvent()); err != nil {
			t.Errorf("event: %v", err)
		}
	})
}
