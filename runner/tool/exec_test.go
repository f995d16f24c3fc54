package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/policy/rules"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/sandbox"
)

func TestCommandAndItsEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	r.write("prices.txt", "pear 2\nfig 3\n")
	said, res := r.exec("cat prices.txt; echo no scale >&2; pwd; exit 3")
	wants(t, said, answerOf("3", "pear 2\nfig 3\nno scale\n"+r.ws+"\n"))
	code := 3
	want := []event.CommandExecution{{Command: "/bin/bash -lc 'cat prices.txt; echo no scale >&2; pwd; exit 3'",
		AggregatedOutput: "pear 2\nfig 3\nno scale\n" + r.ws + "\n", ExitCode: &code, Status: event.Failed}}
	if d := cmp.Diff(want, r.commands()); d != "" {
		t.Error(d)
	}
	if res.Status != event.Failed || *res.ExitCode != 3 || res.Running || res.Denied != nil || res.Resources == nil {
		t.Errorf("%+v", res)
	}
	dec := events[event.PolicyDecision](r)
	if len(dec) != 1 || dec[0].Outcome != policy.Sandboxed || dec[0].ItemID != "item_0" || dec[0].CallID != "call_1" || dec[0].Shell == "" {
		t.Errorf("%+v", dec)
	}
	done := events[event.ToolCompleted](r)
	if len(done) != 1 || done[0].Tool != "exec_command" || done[0].Status != event.Failed || done[0].OutBytes == 0 || done[0].ItemID != "item_0" {
		t.Errorf("%+v", done)
	}
	started := events[event.ItemStarted](r)
	if len(started) != 1 || started[0].Item.Details.(event.CommandExecution).Status != event.InProgress {
		t.Errorf("%+v", started)
	}
}

func TestCommandOptions(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	r.write("sub/x", "")
	said, _ := r.exec("pwd; shopt -q login_shell && echo login; echo id $CODEX_TOOL_CALL_ID", args{"workdir": "sub"})
	wants(t, said, answerOf("0", r.ws+"/sub\nlogin\nid call_1\n"))
	said, _ = r.exec("shopt -q login_shell || echo plain", args{"login": false, "workdir": filepath.Join(r.ws, "sub")})
	wants(t, said, answerOf("0", "plain\n"))
	said, _ = r.exec("echo $0", args{"shell": "/bin/sh"})
	wants(t, said, answerOf("0", "/bin/sh\n"))
	for _, other := range []string{"python3", "ls", "/usr/bin/env", "./sh", "/missing/shell"} { // no shell: the user's instead
		said, _ = r.exec("echo $0", args{"shell": other})
		wants(t, said, `\n/bin/bash\n$`)
	}
	said, _ = r.exec("echo $0", args{"shell": "sh"})
	wants(t, said, `\n/bin/sh\n$`)
	said, _ = r.exec("echo $0", args{"shell": "/missing/shell"}) // the user's shell instead
	wants(t, said, answerOf("0", "/bin/bash\n"))
	said, _ = r.exec("cat; echo end")
	wants(t, said, answerOf("0", "end\n"))
	said, _ = r.exec("kill -TERM $$")
	wants(t, said, answerOf("143", "(?s).*"))
	if got := r.commands(); got[1].Command != "/bin/bash -c 'shopt -q login_shell || echo plain'" || got[2].Command != "/bin/sh -lc 'echo $0'" {
		t.Errorf("%+v", got)
	}
}

func TestCommandThatCannotStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	const text = `exec_command failed: CreateProcess { message: "Rejected(\"Failed to create unified exec process: No such file or directory (os error 2)\")" }`
	for _, more := range []args{{"workdir": "missing"}, {"workdir": "none/such"}} {
		said, res := r.exec("true", more)
		if want := text + "\n" + filepath.Join(r.ws, more["workdir"].(string)) + ": the working folder does not exist."; said != want || res.Status != event.Failed || *res.ExitCode != -1 {
			t.Errorf("%v: %s %+v", more, said, res)
		}
	}
	for _, c := range r.commands() {
		if c.Status != event.Failed || *c.ExitCode != -1 || c.AggregatedOutput != "Failed to create unified exec process: No such file or directory (os error 2)" {
			t.Errorf("%+v", c)
		}
	}
	said, _ := r.exec("echo " + strings.Repeat("x", 200_000))
	if !strings.HasPrefix(said, `exec_command failed: CreateProcess { message: "Rejected(\"Failed to create unified exec process: Argument list too long (os error 7)\")" }`+"\nThe command has 200005 bytes: ") || !strings.Contains(said, "apply_patch") {
		t.Error(said)
	}
	said, res := r.exec("echo \x00")
	if !strings.Contains(said, "nul byte") || *res.ExitCode != -1 || len(r.commands()) != 4 || r.commands()[3].Command != "<command included NUL byte>" {
		t.Errorf("%s %+v", said, res)
	}
	said, _ = r.call("exec_command", json.RawMessage(`{"command": "ls"}`))
	if said != "failed to parse function arguments: missing field `cmd` at line 1 column 17" {
		t.Error(said)
	}
	if its := r.items(); len(its) != 5 || its[4].Details.(event.ToolCall).Tool != "exec_command" {
		t.Errorf("%+v", its)
	}
}

// Where login shells are not allowed, a call that says nothing of it is not
// refused: the model gets a plain shell.
func TestWithoutLoginShells(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite, func(d *Deps, _ *sandbox.Spec) { d.NoLogin = true })
	said, _ := r.exec("shopt -q login_shell || echo plain")
	wants(t, said, answerOf("0", "plain\n"))
	if got := r.commands()[0].Command; got != "/bin/bash -c 'shopt -q login_shell || echo plain'" {
		t.Error(got)
	}
}

func TestYieldAndPoll(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	said, res := r.exec("echo one; until [ -e go ]; do sleep 0.05; done; echo two; exit 4", args{"yield_time_ms": 1})
	id := wants(t, said, runningPattern+`one\n$`)[1]
	if !res.Running || res.Status != event.InProgress || len(events[event.ItemCompleted](r)) != 0 {
		t.Errorf("%+v", res)
	}
	r.write("go", "")
	said, res = r.call("write_stdin", json.RawMessage(`{"session_id":`+id+`}`))
	wants(t, said, answerOf("4", "two\n"))
	if res.Running || *res.ExitCode != 4 || res.ItemID != "item_0" {
		t.Errorf("%+v", res)
	}
	code := 4
	if d := cmp.Diff([]event.CommandExecution{{Command: r.commands()[0].Command, AggregatedOutput: "one\ntwo\n", ExitCode: &code, Status: event.Failed}}, r.commands()); d != "" {
		t.Error(d)
	}
	said, _ = r.call("write_stdin", json.RawMessage(`{"session_id":`+id+`}`))
	if said != "write_stdin failed: Unknown process id "+id {
		t.Error(said)
	}
}

func TestUnicodeAcrossPolls(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	said, _ := r.exec(`printf 'a\342\202'; until [ -e go ]; do sleep 0.05; done; printf '\254b\377'`, args{"yield_time_ms": 1})
	id := wants(t, said, runningPattern+`a?$`)[1]
	r.write("go", "")
	more, _ := r.call("write_stdin", json.RawMessage(`{"session_id":`+id+`}`))
	_, first, _ := strings.Cut(said, "Output:\n")
	_, second, _ := strings.Cut(more, "Output:\n")
	if first+second != "a€b�" {
		t.Errorf("%q then %q", first, second)
	}
	if got := r.commands()[0].AggregatedOutput; got != "a€b�" {
		t.Errorf("item: %q", got)
	}
}

func TestBackgroundChildHoldsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	said, res := r.exec("loop='while :; do echo x >> alive; sleep 0.1; done'; bash -c \"$loop\" & setsid bash -c \"$loop\" & echo started")
	wants(t, said, answerOf("0", "started\n"))
	if res.Running {
		t.Error("the call is held by a background child")
	}
	before := r.read("alive")
	time.Sleep(400 * time.Millisecond)
	if after := r.read("alive"); after != before {
		t.Error("a background child outlives its command")
	}
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	said, _ := r.exec("stty size; tty >/dev/null && echo terminal", args{"tty": true})
	wants(t, said, answerOf("0", "24 80\nterminal\n"))
	if got := r.commands()[0].AggregatedOutput; got != "24 80\r\nterminal\r\n" {
		t.Errorf("item: %q", got)
	}
	said, _ = r.exec("stty -echo; echo ready; read name; echo hello $name; trap 'echo interrupted; exit 7' INT; while :; do sleep 0.05; done", args{"tty": true, "yield_time_ms": 1000})
	id := wants(t, said, runningPattern+`ready\n$`)[1]
	said, _ = r.call("write_stdin", json.RawMessage(`{"session_id":`+id+`,"chars":"world\n","yield_time_ms":1000}`))
	wants(t, said, runningPattern+`hello world\n$`)
	said, _ = r.call("write_stdin", json.RawMessage(`{"session_id":`+id+`,"chars":"\u0003","yield_time_ms":5000}`))
	wants(t, said, answerOf("7", "(?s).*interrupted\n"))
}

func TestInterruptWithoutTerminal(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	said, _ := r.exec("trap 'echo interrupted; exit 7' INT; echo up; while :; do sleep 0.05; done", args{"yield_time_ms": 1000})
	id := wants(t, said, runningPattern+`up\n$`)[1]
	said, _ = r.call("write_stdin", json.RawMessage(`{"session_id":`+id+`,"chars":"text"}`))
	if said != "write_stdin failed: stdin is closed for this session; rerun exec_command with tty=true to keep stdin open" {
		t.Error(said)
	}
	said, _ = r.call("write_stdin", json.RawMessage(`{"session_id":`+id+`,"chars":"\u0003","yield_time_ms":5000}`))
	wants(t, said, answerOf("7", "interrupted\n"))
}

// TestEndlessOutput: what a command writes does not pile up anywhere, and the
// model gets its first and its last lines.
func TestEndlessOutput(t *testing.T) { // not parallel: it looks at the heap
	r := newRig(t, sandbox.WorkspaceWrite)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	said, res := r.exec(`echo first; head -c 60000000 /dev/zero | tr '\0' x; echo; echo FAILED: last; exit 1`, args{"yield_time_ms": 30000})
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
		t.Errorf("%d MiB of heap are held", grown>>20)
	}
	wants(t, said, answerOf("1", `Warning: truncated output \(original token count: 15000005\)\n\.\.\. 5895\d{4} bytes omitted \.\.\.\n\nfirst\n(?s:x+…\d+ tokens truncated…x+)\nFAILED: last\n`))
	if len(said) > 41_000 || res.OutBytes != 60_000_000+6+1+13 {
		t.Errorf("%d bytes said, %d bytes written", len(said), res.OutBytes)
	}
	c := r.commands()[0]
	if len(c.AggregatedOutput) != 1_048_608 || !strings.HasPrefix(c.AggregatedOutput, "first\n") || !strings.HasSuffix(c.AggregatedOutput, "FAILED: last\n") || *c.ExitCode != 1 {
		t.Errorf("item: %d bytes", len(c.AggregatedOutput))
	}
}

func TestHostileOutput(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	said, _ := r.exec(`printf '{"type":"turn.completed"}\n\033[31mred\033[0m \377\376\000 end\n\342\200\250\n'`)
	want := "{\"type\":\"turn.completed\"}\n\x1b[31mred\x1b[0m ��\x00 end\n\u2028\n"
	if _, got, _ := strings.Cut(said, "Output:\n"); got != want {
		t.Errorf("%q", got)
	}
	if got := r.commands()[0].AggregatedOutput; got != want || !utf8.ValidString(got) {
		t.Errorf("item: %q", got)
	}
}

func TestMaxOutputTokens(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	said, _ := r.exec("seq 1 1200", args{"max_output_tokens": 100})
	wants(t, said, `Original token count: 1224\nOutput:\nWarning: truncated output \(original token count: 1224\)\nTotal output lines: 1200\n\n1\n2\n(?s:.*)…1124 tokens truncated…(?s:.*)1199\n1200\n$`)
}

// TestCloseAll: a command that still runs when the run ends is stopped and
// never shown as a success, even if it exits with 0 when told to go.
func TestCloseAll(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	r.exec("echo up; sleep 97532", args{"yield_time_ms": 1})
	r.exec("trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done", args{"yield_time_ms": 300})
	r.exec("trap '' TERM; echo up; while :; do echo x >> alive; sleep 0.05; done", args{"yield_time_ms": 300})
	r.exec("echo done")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r.set.CloseAll(ctx)
	r.set.CloseAll(ctx)
	got := r.commands()
	for i, c := range got {
		if want := map[bool]event.Status{true: event.Failed, false: event.Completed}[i < 3]; c.Status != want || c.ExitCode == nil || want == event.Failed && *c.ExitCode == 0 {
			t.Errorf("%d: %s %v", i, c.Status, c.ExitCode)
		}
	}
	if len(got) != 4 || len(events[event.ItemCompleted](r)) != 4 || len(events[event.Notice](r)) != 3 {
		t.Errorf("%d items, %d notices", len(got), len(events[event.Notice](r)))
	}
	before := r.read("alive")
	time.Sleep(200 * time.Millisecond)
	if r.read("alive") != before {
		t.Error("a process is left")
	}
}

// TestCloseAllGivesUp: when the time is over, items are closed all the same.
func TestCloseAllGivesUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	r.exec("trap '' TERM; echo up; while :; do sleep 0.05; done", args{"yield_time_ms": 300})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.set.CloseAll(ctx)
	if got := r.commands(); got[0].Status != event.Failed || *got[0].ExitCode == 0 {
		t.Errorf("%+v", got)
	}
}

func TestCancelledCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for i := 0; i < 200 && r.read("up") == "<none>"; i++ {
			time.Sleep(50 * time.Millisecond)
		}
		cancel()
	}()
	_, res := r.callWith(ctx, "exec_command", "c", args{"cmd": "touch up; sleep 97533", "yield_time_ms": 30000})
	if res.Status != event.Failed || r.commands()[0].Status != event.Failed {
		t.Errorf("%+v %+v", res, r.commands())
	}
}

// TestSessionOutlivesItsCall: the context of a call ends with the call; the
// command does not.
func TestSessionOutlivesItsCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	ctx, cancel := context.WithCancel(t.Context())
	said, _ := r.callWith(ctx, "exec_command", "c", args{"cmd": "until [ -e go ]; do sleep 0.05; done; echo still here", "yield_time_ms": 1})
	id := wants(t, said, runningPattern)[1]
	cancel()
	r.write("go", "")
	said, _ = r.call("write_stdin", json.RawMessage(`{"session_id":`+id+`}`))
	wants(t, said, answerOf("0", "still here\n"))
}

// TestParallelCalls: each of three commands waits until the others run.
func TestParallelCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			said, _ := r.callWith(t.Context(), "exec_command", fmt.Sprint("c", i), args{"yield_time_ms": 30000,
				"cmd": fmt.Sprintf("touch %d; n=0; until [ -e 0 ] && [ -e 1 ] && [ -e 2 ]; do sleep 0.05; n=$((n+1)); [ $n -lt 500 ] || exit 9; done; echo met", i)})
			wants(t, said, answerOf("0", "met\n"))
		})
	}
	wg.Wait()
}

func TestTooManySessions(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	var wg sync.WaitGroup
	for i := range maxSessions {
		wg.Go(func() {
			r.callWith(t.Context(), "exec_command", fmt.Sprint("c", i), args{"cmd": "sleep 97534", "yield_time_ms": 250, "login": false})
		})
	}
	wg.Wait()
	said, res := r.exec("true")
	if !strings.Contains(said, "64 commands are running already") || res.Status != event.Declined || res.Denied.Source != "limit" {
		t.Errorf("%s %+v", said, res)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	verdicts := map[string]policy.Verdict{
		"touch a": match(rules.Forbidden, "No touching.", "touch"),
		"touch b": match(rules.Forbidden, "", "touch", "b"),
		"touch c": match(rules.Prompt, "Ask first.", "touch"),
		"rm -f d": {Outcome: policy.Denied, Source: "danger", Reason: "rm -f deletes without asking"},
		"touch e": {},
		"touch f": {Outcome: policy.Denied, Source: "requirement", Reason: "requirements.toml forbids it"},
	}
	r.verdict = func(script string, escalated bool) policy.Verdict {
		if escalated {
			return policy.Verdict{Outcome: policy.Denied, Source: "approval", Reason: "nobody can approve it"}
		}
		return verdicts[script]
	}
	reject := func(cmd, why string) string {
		return startFailure("`/bin/bash -lc '" + cmd + "'` rejected: " + why)
	}
	for cmd, want := range map[string]string{
		"touch a": reject("touch a", "No touching."),
		"touch b": reject("touch b", "policy forbids commands starting with `touch b`"),
		"touch c": reject("touch c", "approval required by policy, but AskForApproval is set to Never"),
		"rm -f d": reject("rm -f d", "rm -f style commands are not permitted. Remove what you name without -f, or delete files with apply_patch."),
		"touch e": reject("touch e", "the policy does not allow it"),
		"touch f": reject("touch f", "requirements.toml forbids it"),
	} {
		said, res := r.exec(cmd)
		if said != want || res.Status != event.Declined || res.Denied == nil || res.Denied.Reason == "" {
			t.Errorf("%s: %s\nwant %s\n%+v", cmd, said, want, res)
		}
	}
	said, res := r.exec("touch g", args{"sandbox_permissions": "require_escalated", "justification": "must write"})
	if said != "approval policy is Never; reject command — you cannot ask for escalated permissions if the approval policy is Never" || res.Denied.Source != "approval" || !strings.HasSuffix(res.Denied.Reason, "the model's reason was: must write") {
		t.Errorf("%s %+v", said, res)
	}
	if names, err := filepath.Glob(filepath.Join(r.ws, "[^.]*")); err != nil || len(names) > 0 {
		t.Errorf("something ran: %v %v", names, err)
	}
	items := r.commands()
	for _, c := range items {
		if c.Status != event.Declined || c.Denial == nil || c.ExitCode != nil || c.AggregatedOutput != "" {
			t.Errorf("%+v", c)
		}
	}
	dec := events[event.PolicyDecision](r)
	if len(items) != 7 || len(dec) != 7 || len(events[event.ToolCompleted](r)) != 7 {
		t.Errorf("%d items, %d decisions", len(items), len(dec))
	}
	for _, d := range dec {
		if d.Outcome != policy.Denied || d.Source == "" || d.ItemID == "" || d.Shell == "" || d.Source == "rule" && (d.Rule == "" || d.Origin == "") {
			t.Errorf("%+v", d)
		}
	}
}

func TestUnsandboxedByRule(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.ReadOnly)
	r.verdict = func(_ string, escalated bool) policy.Verdict {
		if escalated {
			return policy.Verdict{Outcome: policy.Unsandboxed, Decision: rules.Decision{Level: rules.Allow}}
		}
		return policy.Verdict{Outcome: policy.Sandboxed}
	}
	r.exec("touch inside")
	r.exec("touch outside", args{"sandbox_permissions": "require_escalated"})
	if r.read("inside") != "<none>" || r.read("outside") == "<none>" {
		t.Errorf("inside %q, outside %q", r.read("inside"), r.read("outside"))
	}
	if d := events[event.PolicyDecision](r); d[len(d)-1].Outcome != policy.Unsandboxed || d[len(d)-1].Action != "escalation" {
		t.Errorf("%+v", d)
	}
}

// TestSandboxDenialIsCounted: the item looks as in the reference, the denial is
// a decision of its own.
func TestSandboxDenialIsCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.ReadOnly)
	said, res := r.exec("echo hi > note.txt")
	wants(t, said, answerOf("1", ".*note.txt: Read-only file system\n"))
	if res.Denied == nil || res.Denied.Source != "sandbox" || res.Status != event.Failed {
		t.Errorf("%+v", res)
	}
	if c := r.commands()[0]; c.Denial != nil || c.Status != event.Failed || *c.ExitCode != 1 {
		t.Errorf("%+v", c)
	}
	if d := events[event.PolicyDecision](r); len(d) != 2 || d[1].Outcome != policy.Denied || d[1].Source != "sandbox" {
		t.Errorf("%+v", d)
	}
}

func TestHookDecline(t *testing.T) {
	t.Parallel()
	r := newRig(t, sandbox.WorkspaceWrite)
	d := event.Denial{Source: "hook", Reason: "not on Fridays", Rule: "check.sh"}
	for _, one := range r.set.Tools() {
		dec, ok := one.(interface {
			Decline(context.Context, Call, event.Denial, string) Result
		})
		if !ok {
			continue
		}
		res := dec.Decline(t.Context(), Call{ID: "c", Name: one.Name(), Arguments: json.RawMessage(`{"cmd":"touch x","session_id":1}`),
			Custom: one.Name() == "apply_patch", Input: "*** Begin Patch\n*** Add File: n\n+x\n*** End Patch"}, d, "blocked")
		if string(res.Output) != `"blocked"` || res.Status != event.Declined || res.Denied == nil {
			t.Errorf("%s: %+v", one.Name(), res)
		}
	}
	if c := r.commands(); len(c) != 1 || c[0].Status != event.Declined || c[0].Command != "/bin/bash -lc 'touch x'" || c[0].Denial.Rule != "check.sh" {
		t.Errorf("%+v", c)
	}
	if p := r.patches(); len(p) != 1 || p[0].Status != event.Declined || p[0].Changes[0].Path != filepath.Join(r.ws, "n") {
		t.Errorf("%+v", p)
	}
}
