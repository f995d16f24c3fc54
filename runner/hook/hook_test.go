package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Init(nil)
	goleak.VerifyTestMain(m)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type recorder struct{ list []event.HookCompleted }

func (r *recorder) Handle(rec event.Record) error {
	if h, ok := rec.Event.(event.HookCompleted); ok {
		r.list = append(r.list, h)
	}
	return nil
}

func (r *recorder) Close(context.Context) error { return nil }

func (r *recorder) outcomes() string {
	var list []string
	for _, h := range r.list {
		list = append(list, h.Outcome)
	}
	return strings.Join(list, " ")
}

func options(t *testing.T, rec *recorder, hooks ...policy.Hook) Options {
	t.Helper()
	dir := t.TempDir()
	box, err := sandbox.Open(t.Context(), sandbox.Spec{Mode: sandbox.ReadOnly, Workspace: dir, HostTmp: true})
	check(t, err)
	t.Cleanup(func() { check(t, box.Close()) })
	return Options{
		Hooks: hooks, Sandbox: box, Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH"), "MARK=seen"}, SessionID: "thread-1",
		Transcript: "/home/t.jsonl", Model: "m", Log: event.NewLog(nil, nil, rec),
	}
}

func runner(t *testing.T, hooks ...policy.Hook) (*Runner, *recorder) {
	t.Helper()
	rec := &recorder{}
	r, err := New(options(t, rec, hooks...))
	check(t, err)
	return r, rec
}

func on(event, command string) policy.Hook {
	return policy.Hook{Event: event, Command: command, Origin: "config.toml:1"}
}

var bash = Tool{Name: "Bash", Input: json.RawMessage(`{"command":"rm -rf pears"}`), UseID: "call_1", TurnID: "turn-1", ItemID: "item_3"}

// fire runs the hooks of any event with fixed facts.
func fire(t *testing.T, r *Runner, name string) Result {
	t.Helper()
	switch name {
	case SessionStart:
		return r.SessionStart(t.Context(), "startup")
	case UserPromptSubmit:
		return r.Prompt(t.Context(), "turn-1", "count the pears")
	case PreToolUse:
		return r.Before(t.Context(), bash)
	case PostToolUse:
		return r.After(t.Context(), bash, json.RawMessage(`"Chunk ID: abc123\nWall time: 1.0000 seconds\nProcess exited with code 0\nOriginal token count: 1\nOutput:\ntwo\nOutput:\nx\n"`))
	case PreCompact, PostCompact:
		return r.Compact(t.Context(), name == PostCompact, "turn-1", "before_turn")
	case Stop:
		return r.Stop(t.Context(), "turn-1", true, "done")
	}
	t.Fatalf("no event %s", name)
	return Result{}
}

func spoken(r Result) string {
	switch {
	case r.Ended:
		return "ended: " + r.Why
	case r.Blocked:
		return "blocked: " + r.Why
	case r.Replaced:
		return "replaced: " + r.Output
	case r.Input != nil:
		return "input: " + string(r.Input)
	case r.Context != "":
		return "context: " + r.Context
	}
	return "through"
}

// What each way of ending means at each event. Rows of PreToolUse that the
// reference lets through, and this program does not, are marked (closed).
func TestWhatHooksSay(t *testing.T) {
	js := func(s string) string { return "cat >/dev/null; printf '%s' '" + s + "'" }
	specific := func(event, s string) string {
		return js(`{"hookSpecificOutput":{"hookEventName":"` + event + `",` + s + `}}`)
	}
	const noReason = "the hook gave no reason"
	for _, c := range []struct{ event, command, want, outcome string }{
		{PreToolUse, "true", "through", "completed"},
		{PreToolUse, "echo a remark", "through", "completed"},
		{PreToolUse, "echo no pears >&2; exit 2", "blocked: no pears", "blocked"},
		{PreToolUse, "exit 2", "blocked: " + noReason, "blocked"},                                                                                   // (closed)
		{PreToolUse, "echo odd >&2; exit 1", "blocked: the hook failed: exit code 1: odd", "failed"},                                                // (closed)
		{PreToolUse, "/no/such/program", "blocked: the hook failed: exit code 127", "failed"},                                                       // (closed)
		{PreToolUse, "sleep 60", "blocked: the hook failed: it took longer than its timeout of 1s", "timeout"},                                      // (closed)
		{PreToolUse, "trap '' TERM; sleep 60 & wait; sleep 60", "blocked: the hook failed: it took longer than its timeout of 1s", "timeout"},       // (closed)
		{PreToolUse, "kill -KILL $$", "blocked: the hook failed: ", "failed"},                                                                       // (closed)
		{PreToolUse, js(`{"decision":"blo`), "blocked: the hook failed: its output cannot be read", "failed"},                                       // (closed)
		{PreToolUse, js(`{"descision":"block"}`), `blocked: the hook failed: its output cannot be read: json: unknown field "descision"`, "failed"}, // (closed)
		{PreToolUse, js(`{}}`), "blocked: the hook failed: its output goes on after the JSON object", "failed"},
		{PreToolUse, js(`{} {}`), "blocked: the hook failed: its output goes on after the JSON object", "failed"},
		{PreToolUse, js(`{"decision":"deny"}`), `blocked: the hook failed: its decision is "deny"`, "failed"},
		{PreToolUse, js(`{"continue":false,"stopReason":"enough"}`), "ended: enough", "blocked"},                                                                      // (closed)
		{PreToolUse, specific(PreToolUse, `"permissionDecision":"ask"`), "blocked: the hook failed: it asks for a decision, and nobody is there to decide", "failed"}, // (closed)
		{PreToolUse, specific(PreToolUse, `"permissionDecision":"perhaps"`), `blocked: the hook failed: its permissionDecision is "perhaps"`, "failed"},
		{PreToolUse, specific(PostToolUse, `"permissionDecision":"allow"`), `blocked: the hook failed: its hookEventName is "PostToolUse" and not "PreToolUse"`, "failed"},
		{PreToolUse, specific(PreToolUse, `"permissionDecision":"allow"`), "through", "completed"},
		{PreToolUse, js(`{"decision":"block","reason":"no"}`), "blocked: no", "blocked"},
		{PreToolUse, specific(PreToolUse, `"permissionDecision":"deny","permissionDecisionReason":"never"`), "blocked: never", "blocked"},
		{PreToolUse, specific(PreToolUse, `"permissionDecision":"allow","updatedInput":{"command":"ls"}`), `input: {"command":"ls"}`, "completed"},
		{PreToolUse, specific(PreToolUse, `"permissionDecision":"allow","updatedInput":"ls"`), "blocked: the hook failed: its updatedInput is not an object", "failed"},
		{PreToolUse, specific(PreToolUse, `"additionalContext":"careful"`), "context: careful", "completed"},
		{PreToolUse, js(`{"systemMessage":"x","suppressOutput":true,"continue":true}`), "through", "completed"},
		{PreToolUse, "yes '{' | head -c 3000000", "blocked: the hook failed: it printed more than 1048576 bytes", "failed"},

		{PostToolUse, "true", "through", "completed"},
		{PostToolUse, "echo new text >&2; exit 2", "replaced: new text", "completed"},
		{PostToolUse, js(`{"decision":"block","reason":"hidden"}`), "replaced: hidden", "completed"},
		{PostToolUse, js(`{"continue":false,"stopReason":"stop here"}`), "replaced: stop here", "completed"},
		{PostToolUse, specific(PostToolUse, `"additionalContext":"note"`), "context: note", "completed"},
		{PostToolUse, "exit 3", "through", "failed"},
		{PostToolUse, "exit 2", "through", "failed"},
		{PostToolUse, specific(PostToolUse, `"updatedInput":{}`), "through", "failed"},

		{UserPromptSubmit, "echo not today >&2; exit 2", "blocked: not today", "blocked"},
		{UserPromptSubmit, js(`{"decision":"block","reason":"no"}`), "blocked: no", "blocked"},
		{UserPromptSubmit, "echo the moon is full", "context: the moon is full", "completed"},
		{UserPromptSubmit, "exit 1", "blocked: the hook failed: exit code 1", "failed"},
		{UserPromptSubmit, js(`{"continue":false}`), "ended: " + noReason, "blocked"},

		{SessionStart, "echo it is night", "context: it is night", "completed"},
		{SessionStart, "echo x >&2; exit 2", "through", "failed"},
		{SessionStart, js(`{"continue":false,"stopReason":"closed"}`), "ended: closed", "blocked"},
		{SessionStart, specific(SessionStart, `"permissionDecision":"deny"`), "through", "failed"},

		{Stop, "true", "through", "completed"},
		{Stop, "echo test it first >&2; exit 2", "blocked: test it first", "blocked"},
		{Stop, js(`{"decision":"block","reason":"go on"}`), "blocked: go on", "blocked"},
		{Stop, js(`{"continue":false,"stopReason":"stop","decision":"block"}`), "ended: stop", "blocked"},
		{Stop, "echo text", "through", "failed"},
		{Stop, "exit 2", "through", "failed"},
		{Stop, "exit 1", "through", "failed"},

		{PreCompact, "exit 1", "through", "failed"},
		{PostCompact, "true", "through", "completed"},
	} {
		t.Run(c.event+" "+c.command, func(t *testing.T) {
			t.Parallel()
			h := on(c.event, c.command)
			if c.outcome == "timeout" {
				h.Timeout = time.Second
			}
			r, rec := runner(t, h)
			got := fire(t, r, c.event)
			if !strings.HasPrefix(spoken(got), c.want) || len(c.want) < 10 && spoken(got) != c.want {
				t.Errorf("got %q, want %q", spoken(got), c.want)
			}
			if rec.outcomes() != c.outcome {
				t.Errorf("events: %+v, want %s", rec.list, c.outcome)
			}
			if d := got.Denial(); (d != nil) != (got.Blocked || got.Ended) || d != nil && (d.Source != "hook" || d.Rule != c.command || d.Origin != "config.toml:1" || d.Reason == "") {
				t.Errorf("denial: %+v", d)
			}
			if c.outcome != "failed" && c.outcome != "timeout" || c.event != PreToolUse && c.event != UserPromptSubmit {
				return
			}
			h.OnError = "continue" // the user's own word opens the gate, and the event still tells
			r, rec = runner(t, h)
			if got := fire(t, r, c.event); got.Blocked || rec.outcomes() != c.outcome {
				t.Errorf("on_error = continue: %q, %s", spoken(got), rec.outcomes())
			}
		})
	}
}

func TestHookInput(t *testing.T) {
	common := `"transcript_path":"/home/t.jsonl","cwd":"DIR","hook_event_name":"%s","model":"m","permission_mode":"bypassPermissions",`
	for event, want := range map[string]string{
		SessionStart:     `{"session_id":"thread-1",` + common + `"source":"startup"}`,
		UserPromptSubmit: `{"session_id":"thread-1","turn_id":"turn-1",` + common + `"prompt":"count the pears"}`,
		PreToolUse:       `{"session_id":"thread-1","turn_id":"turn-1",` + common + `"tool_name":"Bash","tool_input":{"command":"rm -rf pears"},"tool_use_id":"call_1"}`,
		PostToolUse:      `{"session_id":"thread-1","turn_id":"turn-1",` + common + `"tool_name":"Bash","tool_input":{"command":"rm -rf pears"},"tool_response":"two\nOutput:\nx\n","tool_use_id":"call_1"}`,
		Stop:             `{"session_id":"thread-1","turn_id":"turn-1",` + common + `"stop_hook_active":true,"last_assistant_message":"done"}`,
		PreCompact:       `{"session_id":"thread-1","turn_id":"turn-1",` + common + `"trigger":"before_turn"}`,
	} {
		command := "cat >&2; echo \"$MARK $PWD\" >&2; exit 2"
		r, rec := runner(t, on(event, command))
		got := fire(t, r, event)
		text := got.Why + got.Output
		if text == "" {
			text = strings.TrimPrefix(rec.list[0].Message, "exit code 2: ")
		}
		want = fmt.Sprintf(strings.ReplaceAll(want, "DIR", r.o.Dir), event) + "\nseen " + r.o.Dir
		if text != want {
			t.Errorf("%s:\n got %s\nwant %s", event, text, want)
		}
	}
	r, _ := runner(t, on(PreToolUse, "cat >&2; exit 2"))
	odd := r.Before(t.Context(), Tool{Name: "view_image", Input: json.RawMessage(`{not json`), Dir: "/elsewhere"})
	if !strings.Contains(odd.Why, `"tool_input":"{not json"`) || !strings.Contains(odd.Why, `"cwd":"/elsewhere"`) || !strings.HasPrefix(odd.Reason, "Tool call blocked by PreToolUse hook: ") {
		t.Errorf("odd input: %s", odd.Reason)
	}
}

func TestBlockedTextIsTheReferences(t *testing.T) {
	r, rec := runner(t, on(PreToolUse, "echo no one >&2; exit 2"))
	got := r.Before(t.Context(), Tool{Name: "Bash", Input: json.RawMessage(`{"command":"echo one"}`), ItemID: "item_7"})
	if got.Reason != "Command blocked by PreToolUse hook: no one. Command: echo one" {
		t.Errorf("reason: %s", got.Reason)
	}
	h := rec.list[0]
	if h.ItemID != "item_7" || h.ExitCode == nil || *h.ExitCode != 2 || h.Message != "no one" || h.Event != PreToolUse || h.Origin != "config.toml:1" {
		t.Errorf("event: %+v", h)
	}
}

// Which tools a matcher selects, as observed of the reference.
func TestMatchers(t *testing.T) {
	for _, c := range []struct {
		pattern, tool string
		want          bool
	}{
		{"", "Bash", true}, {"*", "Bash", true}, {"Bash", "Bash", true}, {"as", "Bash", false}, {"as|zz", "Bash", false}, {"bash", "Bash", false},
		{"^B", "Bash", true}, {"B.*h", "Bash", true}, {"a.h", "Bash", true}, {"Bash|Edit", "Bash", true}, {"Bash|Edit", "apply_patch", true},
		{"apply_patch|Write", "apply_patch", true}, {"Bash", "apply_patch", false}, {"mcp__.*", "mcp__scales__weigh", true}, {"mcp__scales", "mcp__scales__weigh", false},
	} {
		r, err := New(Options{Hooks: []policy.Hook{{Event: PreToolUse, Matcher: c.pattern, Command: "true"}}})
		check(t, err)
		if got := len(r.listening(PreToolUse, subjects(c.tool)...)) == 1; got != c.want {
			t.Errorf("%q on %s: %v", c.pattern, c.tool, got)
		}
	}
	r, _ := runner(t, policy.Hook{Event: SessionStart, Matcher: "resume", Command: "echo back again"})
	if got := r.SessionStart(t.Context(), "startup"); got.Context != "" {
		t.Errorf("the matcher of SessionStart is not used: %+v", got)
	}
	if got := r.SessionStart(t.Context(), "resume"); got.Context != "back again" {
		t.Errorf("resume: %+v", got)
	}
	if !r.Has(SessionStart) || r.Has(Stop) {
		t.Error("Has")
	}
}

// Users' hooks run first and managed ones last, so a managed gate judges what a
// user's hook made of the input.
func TestManagedHooksSeeWhatWillRun(t *testing.T) {
	gate := on(PreToolUse, "grep -q evil && { echo evil found >&2; exit 2; }; true")
	gate.Managed = true
	rewrite := on(PreToolUse, `cat >/dev/null; echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{"command":"evil"}}}'`)
	r, rec := runner(t, gate, rewrite)
	if got := r.Before(t.Context(), bash); !got.Blocked || got.Why != "evil found" || got.Hook != gate.Command {
		t.Errorf("%+v", got)
	}
	if rec.outcomes() != "completed blocked" {
		t.Errorf("events: %s", rec.outcomes())
	}
}

func TestSeveralHooks(t *testing.T) {
	r, rec := runner(t, on(UserPromptSubmit, "echo one"), on(UserPromptSubmit, "echo two"), on(PostToolUse, "echo a >&2; exit 2"), on(PostToolUse, "echo b >&2; exit 2"),
		on(PreToolUse, "echo stop >&2; exit 2"), on(PreToolUse, "echo never >&2; exit 2"))
	if got := fire(t, r, UserPromptSubmit); got.Context != "one\n\ntwo" {
		t.Errorf("contexts: %q", got.Context)
	}
	if got := fire(t, r, PostToolUse); got.Output != "a\nb" {
		t.Errorf("outputs: %q", got.Output)
	}
	if got := fire(t, r, PreToolUse); got.Why != "stop" || rec.outcomes() != "completed completed completed completed blocked" {
		t.Errorf("%q, %s", got.Why, rec.outcomes())
	}
}

func TestConfigErrors(t *testing.T) {
	for _, h := range []policy.Hook{
		{Event: "PreToolUses", Command: "true"}, {Event: PreToolUse, Command: " "}, {Event: PreToolUse, Command: "true", Matcher: "a("},
	} {
		h.Origin = "config.toml:7"
		_, err := New(Options{Hooks: []policy.Hook{h}})
		var ce *ConfigError
		if !errors.As(err, &ce) || !strings.HasPrefix(err.Error(), "config.toml:7: ") || ce.Hint() == "" {
			t.Errorf("%+v: %v", h, err)
		}
	}
}

func TestCancelledRunBlocks(t *testing.T) {
	r, _ := runner(t, on(PreToolUse, "sleep 60"))
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() { cancel(errors.New("interrupted")) })
	if got := r.Before(ctx, bash); !got.Blocked || !strings.Contains(got.Why, "interrupted") {
		t.Errorf("%+v", got)
	}
}

func TestNotify(t *testing.T) {
	rec := &recorder{}
	o := options(t, rec)
	n := Notification{ThreadID: "t", TurnID: "u", Cwd: o.Dir, Client: "codex_exec", Inputs: []string{"<p>"}, LastMessage: "done"}
	Notify(t.Context(), o, []string{"sh", "-c", `echo "$1"; exit 3`, "notify"}, n)
	want := `exit code 3: {"type":"agent-turn-complete","thread-id":"t","turn-id":"u","cwd":"` + o.Dir + `","client":"codex_exec","input-messages":["<p>"],"last-assistant-message":"done"}` + "\n"
	if len(rec.list) != 1 || rec.list[0].Outcome != "failed" || rec.list[0].Message != want {
		t.Errorf("%+v, want %s", rec.list, want)
	}
	Notify(t.Context(), o, nil, n)
	Notify(t.Context(), o, []string{"true"}, Notification{})
	Notify(t.Context(), o, []string{"/no/such/program"}, n)
	o.Timeout = 200 * time.Millisecond
	Notify(t.Context(), o, []string{"sh", "-c", "sleep 60"}, n)
	if got := rec.outcomes(); got != "failed completed failed timeout" {
		t.Errorf("outcomes: %s %+v", got, rec.list[len(rec.list)-1])
	}
}

// No output of a hook is understood in two ways, and a gate never opens for
// one that could not be read.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{"", "x", `{"decision":"block"}`, `{"continue":false}`, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{"command":"x"}}}`, `{"a":1}`} {
		f.Add(0, s, "")
		f.Add(2, "", s)
	}
	f.Fuzz(func(t *testing.T, code int, stdout, stderr string) {
		for _, event := range events {
			s, err := read(event, code, stdout, stderr)
			if err != nil {
				continue
			}
			if (s.blocked || s.ended) && (s.input != nil || s.reason == "" || s.blocked && s.ended) {
				t.Errorf("%s: %+v", event, s)
			}
			if s.input != nil && (event != PreToolUse || !json.Valid(s.input)) {
				t.Errorf("%s: input %s", event, s.input)
			}
			if code != 0 && code != 2 {
				t.Errorf("%s: exit code %d was understood as %+v", event, code, s)
			}
			if event == PreToolUse && code == 2 && !s.blocked {
				t.Error("exit code 2 opened a gate")
			}
			if slices.Contains([]string{PreToolUse, Stop, PostToolUse}, event) && code == 0 && strings.TrimSpace(stdout) == "" && s.blocked {
				t.Errorf("%s: blocked by nothing", event)
			}
		}
	})
}
