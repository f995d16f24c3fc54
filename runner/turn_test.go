package runner

import (
	"strings"
	"testing"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
)

func TestAnswer(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	more := replyWith(model.Response{EndTurn: &no}, said("thinking on"))
	nothing := replyWith(model.Response{EndTurn: &no})
	for _, c := range []struct {
		name    string
		steps   []step
		outcome string
		class   string
		code    int
		final   string
	}{
		{"a message", []step{says("done")}, "success", "completed", 0, "done"},
		{"the last of two", []step{reply(said("one"), said("two"))}, "success", "completed", 0, "two"},
		{"asked on", []step{more, replyWith(model.Response{EndTurn: &yes}, said("done"))}, "success", "completed", 0, "done"},
		{"nothing", []step{reply()}, "failed", "empty_answer", 1, ""},
		{"an empty message", []step{says("")}, "failed", "empty_answer", 1, ""},
		{"blanks", []step{says(" \n\t ")}, "failed", "empty_answer", 1, " \n\t "},
		{"reasoning only", []step{reply(object{"type": "reasoning", "summary": []object{{"type": "summary_text", "text": "hm"}}})}, "failed", "empty_answer", 1, ""},
		{"a word before the work, none after it", []step{reply(said("I begin."), callOf("c1", "update_plan", object{"plan": []object{}})), reply()},
			"failed", "empty_answer", 1, "I begin."},
		{"a refusal", []step{reply(refusal("I will not."))}, "failed", "refused", 1, "I will not."},
		{"a refusal after a call", []step{reply(shell("c1", "true"), refusal("No."))}, "failed", "refused", 1, "No."},
		{"nothing for ever", []step{nothing, nothing, nothing, nothing}, "service", "bad_response", 6, ""},
		{"nothing, then an answer", []step{nothing, nothing, says("done")}, "success", "completed", 0, "done"},
		{"an unknown item", []step{reply(object{"type": "hologram", "id": "h1"}, said("done"))}, "success", "completed", 0, "done"},
		{"an item that is none", []step{reply("text"), says("done")}, "service", "bad_response", 6, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLoop(t).says(c.steps...)
			res := l.play()
			l.want(res, c.outcome, c.class, c.code)
			if res.Completed.FinalMessage != c.final {
				t.Errorf("final message %q, want %q", res.Completed.FinalMessage, c.final)
			}
			if open := openCalls(items(res.History)); len(open) > 0 {
				t.Errorf("the history that is left holds calls without an output: %v", open)
			}
			turn := len(all[event.TurnCompleted](l.seen)) + len(all[event.TurnFailed](l.seen))
			if turn != 1 {
				t.Errorf("the turn ended %d times", turn)
			}
		})
	}
}

func items[T ~[]byte](raw []T) []model.Item {
	var out []model.Item
	for _, r := range raw {
		out = append(out, model.Item{Raw: []byte(r)})
	}
	return out
}

// TestHistoryIsAppendOnly has calls of every kind between requests; play checks
// that each request begins with the bytes of the one before.
func TestHistoryIsAppendOnly(t *testing.T) {
	t.Parallel()
	l := newLoop(t, "sandbox_mode=workspace-write", "tools.update_plan.enabled=true").says(
		reply(said("first"), shell("c1", "echo one"), shell("c2", "echo two; exit 3")),
		reply(patchOf("p1", "*** Begin Patch\n*** Add File: new.txt\n+<&> é\n*** End Patch\n")),
		reply(callOf("c3", "no_such_tool", object{}), callOf("c4", "update_plan", object{"plan": []object{{"step": "x", "status": "pending"}}})),
		reply(object{"type": "function_call", "call_id": "c5", "name": "exec_command", "arguments": "{not json"}),
		says("done"))
	l.want(l.play(), "success", "completed", 0)
	if n := len(l.model.requests); n != 5 {
		t.Fatalf("%d requests", n)
	}
	specs := l.model.requests[0].Tools
	for i, req := range l.model.requests {
		if len(req.Tools) != len(specs) || req.CacheKey != l.opts.Thread.ID {
			t.Errorf("request %d has other tools or another cache key: the service's prompt cache would not help", i+1)
		}
	}
	for id, want := range map[string]string{"c1": "one", "c2": "code 3", "p1": "new.txt", "c3": "unsupported call: no_such_tool", "c4": "Plan updated", "c5": "failed to parse"} {
		if got := l.output(id); !strings.Contains(got, want) {
			t.Errorf("the output of %s is %q, want %q in it", id, got, want)
		}
	}
}
