package runner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
)

// stopHook is a configuration with a Stop hook.
func stopHook(command string) string {
	return fmt.Sprintf("[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = \"command\"\ncommand = %q\n", command)
}

func again(n int, s step) []step {
	out := make([]step, n)
	for i := range out {
		out[i] = s
	}
	return out
}

// TestStopHook: a hook may send the model back, but not for ever.
func TestStopHook(t *testing.T) {
	t.Parallel()
	block := `echo '{"decision":"block","reason":"not yet"}'`
	for _, c := range []struct {
		name      string
		command   string
		overrides []string
		outcome   string
		class     string
		code      int
		requests  int
	}{
		{"agrees", "true", nil, "success", "completed", 0, 1},
		{"blocks for ever", block, nil, "gate", "stop_hook", ExitGate, 4},
		{"blocks for ever, no round", block, []string{"limits.stop_hook_rounds=0"}, "gate", "stop_hook", ExitGate, 1},
		{"blocks for ever, one round", block, []string{"limits.stop_hook_rounds=1"}, "gate", "stop_hook", ExitGate, 2},
		{"blocks by exit code", "echo 'not yet' >&2; exit 2", nil, "gate", "stop_hook", ExitGate, 4},
		{"ends the run", `echo '{"continue":false,"stopReason":"enough"}'`, nil, "failed", "hook_stopped", ExitFailed, 1},
		{"crashes", "exit 7", nil, "success", "completed", 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLoop(t).config(stopHook(c.command), c.overrides...).says(again(8, says("done"))...)
			res := l.play()
			l.want(res, c.outcome, c.class, c.code)
			failures := map[bool]int{true: 1}[c.name == "crashes"]
			if n := res.Completed.Totals.HookFailures; n != failures {
				t.Errorf("%d failures of hooks are in the totals, want %d", n, failures)
			}
			if n := len(l.model.requests); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
			if c.requests > 1 && !strings.Contains(string(lastItem(l).Raw), "not yet") {
				t.Errorf("the model was not told why: %s", lastItem(l).Raw)
			}
		})
	}
}

func lastItem(l *loop) model.Item {
	in := l.model.requests[len(l.model.requests)-1].Input
	return in[len(in)-1]
}

// TestVerify: a check that fails goes back to the model with its output, a
// bounded number of times.
func TestVerify(t *testing.T) {
	t.Parallel()
	fix := []step{says("done"), reply(shell("a", "echo ok > state")), says("fixed")}
	for _, c := range []struct {
		name      string
		commands  string
		overrides []string
		steps     []step
		outcome   string
		code      int
		runs      int
	}{
		{"passes", `"true"`, nil, again(5, says("done")), "success", 0, 1},
		{"never passes", `"echo broken pipe 7; exit 5"`, nil, again(9, says("done")), "gate", ExitGate, 4},
		{"no round", `"exit 5"`, []string{"limits.verify_rounds=0"}, again(9, says("done")), "gate", ExitGate, 1},
		{"one round", `"exit 5"`, []string{"limits.verify_rounds=1"}, again(9, says("done")), "gate", ExitGate, 2},
		{"is fixed", `"grep ok state"`, nil, fix, "success", 0, 2},
		{"two, one fails", `"true","grep ok state"`, nil, fix, "success", 0, 4},
		{"prints what no terminal should see", `"printf '\\033[2J\\377\\000x'; head -c 300000 /dev/zero | tr '\\0' y; exit 1"`, []string{"limits.verify_rounds=1"}, again(5, says("done")), "gate", ExitGate, 2},
		{"leaves a process", `"sleep 60 & true"`, nil, again(5, says("done")), "success", 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLoop(t, append(c.overrides, "sandbox_mode=workspace-write", "verify=["+c.commands+"]")...).says(c.steps...)
			res := l.play()
			if res.Outcome.Outcome != c.outcome || res.ExitCode != c.code {
				t.Errorf("%s, exit code %d (%s)", res.Outcome.Outcome, res.ExitCode, res.Message)
			}
			runs := all[event.VerifyCompleted](l.seen)
			if len(runs) != c.runs {
				t.Errorf("%d runs, want %d: %+v", len(runs), c.runs, runs)
			}
			for _, v := range runs {
				if v.Passed != (v.ExitCode == 0) || len(v.Output) > 2*verifyTail {
					t.Errorf("exit code %d, passed %v, %d bytes of output", v.ExitCode, v.Passed, len(v.Output))
				}
			}
			if c.name == "never passes" && !strings.Contains(string(lastItem(l).Raw), "broken pipe 7") {
				t.Errorf("the model was not shown the output: %s", lastItem(l).Raw)
			}
		})
	}
}

// TestSchemaGate: an answer that does not fit is handed back once; the rest is
// exit 8.
func TestSchemaGate(t *testing.T) {
	t.Parallel()
	schema, err := ParseSchema("s.json", []byte(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		answers  []string
		code     int
		requests int
	}{
		{[]string{`{"n":1}`}, 0, 1},
		{[]string{`{"n":"one"}`, `{"n":1}`}, 0, 2},
		{[]string{"```json\n{\"n\":1}\n```", `{"n":1}`}, 0, 2},
		{[]string{`{"n":1} {"n":2}`, `{"n":1}`}, 0, 2},
		{[]string{``, `{"n":1}`}, 0, 2},
		{[]string{`[]`, `{"m":1}`}, ExitOutput, 2},
		{[]string{`{`, `{`}, ExitOutput, 2},
	} {
		var steps []step
		for _, a := range c.answers {
			steps = append(steps, says(a))
		}
		l := newLoop(t).says(steps...)
		l.opts.Schema = schema
		res := l.play()
		if res.ExitCode != c.code || len(l.model.requests) != c.requests {
			t.Errorf("%q: exit code %d after %d requests, want %d after %d (%s)", c.answers, res.ExitCode, len(l.model.requests), c.code, c.requests, res.Message)
		}
		if len(l.model.requests) == 2 && !strings.Contains(string(lastItem(l).Raw), "does not fit") {
			t.Errorf("%q: the model was not told: %s", c.answers, lastItem(l).Raw)
		}
		for _, r := range l.model.requests {
			if string(r.Schema) != string(schema.JSON) {
				t.Errorf("%q: a request without the schema", c.answers)
			}
		}
	}
}

// TestPromptHook: a hook that refuses the prompt, or cannot answer, ends the run
// before the model is asked.
func TestPromptHook(t *testing.T) {
	t.Parallel()
	for command, class := range map[string]string{"exit 2": "prompt_blocked", "exit 7": "prompt_blocked", "true": "completed"} {
		l := newLoop(t).config(fmt.Sprintf("[[hooks.UserPromptSubmit]]\n[[hooks.UserPromptSubmit.hooks]]\ntype = \"command\"\ncommand = %q\n", command)).
			says(says("done"))
		if res := l.play(); res.Class != class {
			t.Errorf("%s: %s (%s)", command, res.Class, res.Message)
		}
		if want := class == "completed"; want != (len(l.model.requests) == 1) {
			t.Errorf("%s: %d requests", command, len(l.model.requests))
		}
	}
}

// TestVerifyTellsNoSecret: the model is told which check failed, without the
// secrets that its command or its output holds.
func TestVerifyTellsNoSecret(t *testing.T) {
	t.Parallel()
	l := newLoop(t, `verify=["echo sesame-open-1234; false"]`, "limits.verify_rounds=1").says(says("done"), says("done"))
	l.opts.Mask.Add("sesame-open-1234", "DOOR")
	l.want(l.play(), "gate", "verify_failed", ExitGate)
	if told := string(lastItem(l).Raw); strings.Contains(told, "sesame") || strings.Count(told, "[masked:DOOR]") != 2 {
		t.Errorf("the model was told %s", told)
	}
}

// A review that does not list its findings is no review without findings.
func TestReadReview(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{"findings":[],"overall_correctness":"patch is correct"}`:     true,
		"```json\n{\"findings\":[]}\n```":                              true,
		`{"findings":null,"overall_correctness":"patch is incorrect"}`: false,
		`{"findings": null }`:                                          false, `{"findings":"none"}`: false, `{"overall_correctness":"patch is correct"}`: false, `{"findings":[`: false,
		"All is well.": false, "}{": false,
	} {
		var a reviewAnswer
		if got := decodeReview(text, &a); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
