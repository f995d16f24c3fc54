package runner

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
)

// TestCompaction: a history over the limit becomes a shorter one. One that does
// not get shorter stays, and the service tells whether it fits.
func TestCompaction(t *testing.T) {
	t.Parallel()
	// Call ids differ, so that nothing else makes the requests equal.
	n := 0
	long := func() step {
		n++
		return replyWith(model.Response{Usage: event.Usage{Input: 900, Output: 200}}, shell(fmt.Sprint("c", n), "head -c 9000 /dev/zero | tr '\\0' x"))
	}
	for _, c := range []struct {
		name      string
		steps     []step
		outcome   string
		class     string
		purposes  string
		compacted int
	}{
		{"shrinks", []step{long(), says("what was done"), says("done")}, "success", "completed", "turn compaction turn", 1},
		{"twice", []step{long(), says("s"), long(), says("s"), says("done")}, "success", "completed", "turn compaction turn compaction turn", 2},
		{"grows", []step{long(), says(strings.Repeat("y", 100_000)), says("done")}, "success", "completed", "turn compaction turn", 0},
		{"grows, and is not tried with every response", []step{long(), says(strings.Repeat("y", 100_000)), replyWith(model.Response{Usage: event.Usage{Input: 1900}}, shell("g", "true")), says("done")},
			"success", "completed", "turn compaction turn turn", 0},
		{"grows and does not fit", []step{long(), says(strings.Repeat("y", 100_000)), breaks("context_length", "too long"), says(strings.Repeat("y", 100_000))},
			"failed", "context_length", "turn compaction turn compaction", 0},
		{"no summary", []step{long(), reply(), says("done")}, "success", "completed", "turn compaction turn", 0},
		{"fails", []step{long(), breaks("overloaded", "busy")}, "service", "overloaded", "turn compaction", 0},
		{"overflow", []step{reply(shell("x1", "head -c 9000 /dev/zero | tr '\\0' x")), breaks("context_length", "too long"), says("s"), says("done")},
			"success", "completed", "turn turn compaction turn", 1},
		{"too large for the gateway", []step{reply(shell("x6", "head -c 9000 /dev/zero | tr '\\0' x")), breaks("too_large", "413"), says("s"), says("done")},
			"success", "completed", "turn turn compaction turn", 1},
		{"overflow twice", []step{reply(shell("x2", "head -c 9000 /dev/zero | tr '\\0' x")), breaks("context_length", "too long"), says("s"), breaks("context_length", "too long")},
			"failed", "context_length", "turn turn compaction turn", 1},
		{"overflow of the summary, too", []step{reply(shell("x4", "head -c 9000 /dev/zero | tr '\\0' x")), reply(shell("x5", "echo LATER")),
			breaks("context_length", "too long"), breaks("context_length", "too long"), says("s"), says("done")},
			"success", "completed", "turn turn turn compaction compaction turn", 1},
		{"overflow of all that could be summarized", []step{long(), breaks("context_length", "too long"), breaks("context_length", "too long"), says("done")},
			"success", "completed", "turn compaction compaction turn", 0},
		{"overflow of the prompt", []step{breaks("context_length", "too long")}, "failed", "context_length", "turn", 0},
		{"overflow and no summary", []step{reply(shell("x3", "true")), breaks("context_length", "too long"), breaks("overloaded", "busy")},
			"failed", "context_length", "turn turn compaction", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLoop(t, "model_auto_compact_token_limit=1000").says(c.steps...)
			l.rewrites = true
			res := l.play()
			if res.Outcome.Outcome != c.outcome || res.Class != c.class {
				t.Errorf("%s/%s: %s", res.Outcome.Outcome, res.Class, res.Message)
			}
			if got := l.purposes(); got != c.purposes {
				t.Errorf("requests %q, want %q", got, c.purposes)
			}
			done := all[event.HistoryCompacted](l.seen)
			if len(done) != c.compacted || res.Completed.Totals.Compactions != c.compacted {
				t.Errorf("%d compactions, %+v", len(done), res.Completed.Totals)
			}
			for _, e := range done {
				if e.BytesAfter >= e.BytesBefore {
					t.Errorf("%+v", e)
				}
			}
			for i, r := range l.model.requests {
				if r.Purpose == "compaction" && (len(r.Tools) > 0 || r.Schema != nil) {
					t.Errorf("request %d offers tools or asks for a schema", i+1)
				}
			}
			if c.compacted > 0 {
				text := string(rawItem(l.model.requests[len(l.model.requests)-1].Input).Raw)
				if !strings.Contains(text, "do it") {
					t.Error("the user's prompt is lost")
				}
				if strings.Count(text, "Hand-over from the earlier part") > 1 || strings.Count(text, "environment_context") > 2 {
					t.Error("the history grows with every compaction")
				}
			}
		})
	}
}

// TestWithoutOldest: what is left out are whole responses, the oldest first, and
// no message of a person.
func TestWithoutOldest(t *testing.T) {
	t.Parallel()
	item := func(kind, id string, size int) model.Item {
		return rawItem(map[string]string{"type": kind, "call_id": id, "role": map[bool]string{true: "user"}[kind == "message"], "id": id, "arguments": strings.Repeat("x", size)})
	}
	items := []model.Item{
		item("message", "m1", 0), item("reasoning", "r1", 10), item("function_call", "a", 10), item("custom_tool_call", "b", 10), item("function_call_output", "a", 900),
		item("custom_tool_call_output", "b", 10), item("message", "m2", 0), item("reasoning", "r2", 10), item("function_call", "c", 10), item("function_call_output", "c", 1200),
	}
	names := func(items []model.Item) string {
		var out []string
		for _, it := range items {
			o, err := readItem(it)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, o.ID)
		}
		return strings.Join(out, " ")
	}
	once := withoutOldest(items)
	twice := withoutOldest(once)
	if names(once) != "m1 m2 r2 c c" || names(twice) != "m1 m2" || withoutOldest(twice) != nil {
		t.Errorf("%q, then %q", names(once), names(twice))
	}
}

// TestCompactionIsBounded: a model that fills its context with every response
// does not play on for ever.
func TestCompactionIsBounded(t *testing.T) {
	t.Parallel()
	var steps []step
	for i := range 30 {
		steps = append(steps, replyWith(model.Response{Usage: event.Usage{Input: 5000}}, shell(fmt.Sprint("c", i), "head -c 4000 /dev/zero | tr '\\0' x")),
			replyWith(model.Response{Usage: event.Usage{Input: 5000}}, said("s")))
	}
	l := newLoop(t, "model_auto_compact_token_limit=1000").says(steps...)
	l.rewrites = true
	l.want(l.play(), "failed", "context_length", ExitFailed)
	if n := len(all[event.HistoryCompacted](l.seen)); n != maxCompactions {
		t.Errorf("%d compactions", n)
	}
}

// TestFallback: an overloaded or missing model makes place for the next one, in
// order; a bad request does not.
func TestFallback(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		steps  []step
		models string
		class  string
	}{
		{"not needed", []step{says("done")}, "a", "completed"},
		{"first", []step{breaks("overloaded", "busy"), says("done")}, "a b", "completed"},
		{"second", []step{breaks("invalid_model", "gone"), breaks("server_error", "500"), says("done")}, "a b c", "completed"},
		{"none left", []step{breaks("overloaded", "1"), breaks("overloaded", "2"), breaks("overloaded", "3")}, "a b c", "overloaded"},
		{"stays", []step{breaks("rate_limit", "1"), reply(shell("x", "true")), says("done")}, "a b b", "completed"},
		{"bad request", []step{breaks("bad_request", "no")}, "a", "bad_request"},
		{"unauthorized", []step{breaks("unauthorized", "no")}, "a", "unauthorized"},
		{"quota", []step{breaks("quota", "no")}, "a", "quota"},
		{"network", []step{breaks("network", "no route")}, "a", "network"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLoop(t, "model=a", `model_fallback=["b","c"]`).says(c.steps...)
			res := l.play()
			var asked []string
			for _, r := range l.model.requests {
				asked = append(asked, r.Model)
			}
			if got := strings.Join(asked, " "); got != c.models || res.Class != c.class {
				t.Errorf("asked %q and ended as %s, want %q and %s", got, res.Class, c.models, c.class)
			}
			models := strings.Fields(c.models)
			if n, want := len(all[event.ModelFallback](l.seen)), len(unique(models))-1; n != want {
				t.Errorf("%d fallbacks in the log, want %d", n, want)
			}
		})
	}
}

func unique(words []string) map[string]bool {
	set := map[string]bool{}
	for _, w := range words {
		set[w] = true
	}
	return set
}

// endpoint is a model whose provider shortens histories itself.
type endpoint struct {
	*actor
	answer func(model.Request) (model.Response, error)
	asked  []model.Request
}

// Compact answers with what the test wants.
func (e *endpoint) Compact(_ context.Context, req model.Request) (model.Response, error) {
	e.asked = append(e.asked, req)
	return e.answer(req)
}

// TestCompactionEndpoint: what the endpoint sends is taken over as it is, if it
// is shorter; where it is of no use, a summary takes its place, once and for all.
func TestCompactionEndpoint(t *testing.T) {
	t.Parallel()
	opaque := func(n int) model.Item {
		return rawItem(object{"type": "compaction", "encrypted_content": strings.Repeat("k", n)})
	}
	short := func(req model.Request) (model.Response, error) {
		out := model.Response{Usage: event.Usage{Input: 900, Output: 50}}
		for _, it := range req.Input { // the service keeps messages that are not answers
			if o, err := readItem(it); err == nil && o.Type == "message" && o.Role != "assistant" {
				out.Items = append(out.Items, it)
			}
		}
		out.Items = append(out.Items, opaque(100))
		return out, nil
	}
	fails := func(class string) func(model.Request) (model.Response, error) {
		return func(model.Request) (model.Response, error) {
			return model.Response{}, &model.APIError{Class: class, Message: class}
		}
	}
	for _, c := range []struct {
		name      string
		overrides []string
		answer    func(model.Request) (model.Response, error)
		methods   string
		asked     int
	}{
		{"shorter", nil, short, "endpoint endpoint", 2},
		{"no endpoint", nil, fails("not_found"), "summary summary", 1},
		{"overloaded", nil, fails("overloaded"), "summary summary", 1},
		{"no shorter", nil, func(model.Request) (model.Response, error) {
			return model.Response{Items: []model.Item{opaque(100_000)}}, nil
		}, "summary summary", 1},
		{"empty", nil, func(model.Request) (model.Response, error) { return model.Response{}, nil }, "summary summary", 1},
		{"own prompt", []string{"compact_prompt=Sum it up."}, short, "summary summary", 0},
		{"other provider", []string{`model_provider="m"`, `model_providers.m.base_url="http://127.0.0.1:1/v1"`}, short, "summary summary", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := 0
			long := func() step {
				n++
				return replyWith(model.Response{Usage: event.Usage{Input: 900, Output: 200}}, shell(fmt.Sprint("c", n), "head -c 9000 /dev/zero | tr '\\0' x"))
			}
			steps := []step{long(), long(), says("done")}
			if strings.Contains(c.methods, "summary") {
				steps = []step{long(), says("s"), long(), says("s"), says("done")}
			}
			l := newLoop(t, append(c.overrides, "model_auto_compact_token_limit=1000")...).says(steps...)
			l.rewrites = true
			e := &endpoint{actor: l.model, answer: c.answer}
			l.opts.Model = e
			l.want(l.play(), "success", "completed", 0)
			var methods []string
			for _, h := range all[event.HistoryCompacted](l.seen) {
				methods = append(methods, h.Method)
				if h.BytesAfter >= h.BytesBefore {
					t.Errorf("%+v", h)
				}
			}
			if got := strings.Join(methods, " "); got != c.methods || len(e.asked) != c.asked {
				t.Errorf("%q and %d requests of the endpoint, want %q and %d", got, len(e.asked), c.methods, c.asked)
			}
			last := string(rawItem(l.model.requests[len(l.model.requests)-1].Input).Raw)
			if strings.Count(last, `do it`) != 1 || strings.Count(last, "<environment_context>") != 1 || strings.Contains(last, "xxxxxxxx") {
				t.Errorf("the last request: %.3000s", last)
			}
			if (c.methods == "endpoint endpoint") != strings.Contains(last, `"type":"compaction"`) {
				t.Error("the opaque item is lost")
			}
			for _, req := range e.asked {
				if open := openCalls(req.Input); len(open) > 0 || len(req.Tools) > 0 {
					t.Errorf("calls without an output: %v", open)
				}
			}
		})
	}
}

// TestCompactLimit: the window of the model bounds the history where no limit is
// configured, or a greater one.
func TestCompactLimit(t *testing.T) {
	for _, c := range []struct {
		overrides []string
		want      int64
	}{
		{nil, 0},
		{[]string{"model_auto_compact_token_limit=700"}, 700},
		{[]string{"model_context_window=1000"}, 900},
		{[]string{"model_context_window=1000", "model_auto_compact_token_limit=700"}, 700},
		{[]string{"model_context_window=1000", "model_auto_compact_token_limit=5000"}, 900},
	} {
		if got := newRun(newLoop(t, c.overrides...).opts).compactLimit(); got != c.want {
			t.Errorf("%v: %d, want %d", c.overrides, got, c.want)
		}
	}
}
