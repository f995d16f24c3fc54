package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/tool"
)

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
	want := "banned disabled, circle failed, deaf failed, diesearly failed, endless failed, good ready, missing failed, neither failed, notalist failed, off disabled, silent failed, version ready"
	waitFor(t, rec, want)
	for name, said := range map[string]string{
		"silent": "startup_timeout_sec of 1s", "deaf": "startup_timeout_sec of 1s", "diesearly": "exit code 3; it said: cannot open [31m database",
		"notalist": "is not a list", "endless": "more than 100 pages", "circle": "an earlier page", "missing": "program",
		"neither": "neither a command nor a url", "banned": "/etc/requirements.toml:3", "off": "enabled",
	} {
		for _, e := range rec.all() {
			if st, ok := e.(event.ServerStatus); ok && st.Server == name && !strings.Contains(st.Message, said) {
				t.Errorf("%s: %q does not say %q", name, st.Message, said)
			}
		}
	}
	told := slices.ContainsFunc(rec.all(), func(e event.Event) bool {
		n, ok := e.(event.Notice)
		return ok && n.Class == "mcp_version_unknown" && strings.Contains(n.Message, "1066-10-14")
	})
	if !told {
		t.Error("it is not told that the version is unknown")
	}
	for _, one := range s.Tools() {
		if n, ok := one.(namespaced); ok && n.Namespace() != "mcp__good" && n.Namespace() != "mcp__version" {
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
		"flood": "messages that nobody asked for", "floodjunk": "lines that are not messages", "floodline": "a message of more than",
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

func FuzzFrames(f *testing.F) {
	f.Add([]byte("[]\n[1,{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":\"no\"}]\n{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{}}\n{\"jsonrpc\":\"2.0\"}\n{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":7}"))
	f.Add([]byte("hello\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\r\n\n[{}]\n{\"jsonrpc\":\"2.0\",\"method\":\"x\"}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fr := &frames{br: bufio.NewReaderSize(bytes.NewReader(b), 16), failed: func(error) {}}
		var out bytes.Buffer
		if _, err := out.ReadFrom(fr); err != nil {
			return
		}
		for line := range bytes.Lines(out.Bytes()) {
			if _, err := jsonrpc.DecodeMessage(bytes.TrimSpace(line)); err != nil {
				t.Errorf("let through: %q: %v", line, err)
			}
		}
	})
}
