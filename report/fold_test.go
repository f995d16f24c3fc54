package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// longLog is a reader that makes a log of n rounds while it is read: each a
// command with some output, its measures, a denial, a notice, a request.
type longLog struct {
	n, i int
	buf  bytes.Buffer
}

func (l *longLog) Read(p []byte) (int, error) {
	if l.buf.Len() == 0 {
		if l.i > l.n {
			return 0, io.EOF
		}
		l.i++
		l.round()
	}
	return l.buf.Read(p)
}

func (l *longLog) round() {
	seq := uint64(l.i * 10)
	put := func(e event.Event) {
		seq++
		b, err := json.Marshal(event.Record{Seq: seq, Time: time.Unix(int64(l.i), 0).UTC(), Event: e})
		if err != nil {
			panic(err)
		}
		l.buf.Write(append(b, '\n'))
	}
	if l.i > l.n {
		put(event.RunCompleted{Outcome: "success"})
		return
	}
	if l.i == 1 {
		put(event.RunStarted{Model: "m"})
		put(event.TurnStarted{})
	}
	id, code := fmt.Sprintf("item_%d", l.i), l.i%2
	put(event.ModelRequest{Request: l.i, Attempt: 1, Model: "m"})
	put(event.ModelResponse{Request: l.i, Model: "m", Usage: event.Usage{Input: 1}})
	put(event.ItemStarted{Item: event.Item{ID: id, Details: event.CommandExecution{Command: "make", Status: event.InProgress}}})
	put(event.ItemCompleted{Item: event.Item{ID: id, Details: event.CommandExecution{Command: "make " + strings.Repeat("x", 200), AggregatedOutput: strings.Repeat("y", 500), ExitCode: &code, Status: event.Failed}}})
	put(event.ToolCompleted{Tool: "exec_command", ItemID: id, CallID: id, Status: event.Failed})
	put(event.PolicyDecision{Action: "network", Subject: "h:1", Outcome: "denied"})
	put(event.Notice{Class: "x", Message: strings.Repeat("z", 50)})
}

// Memory does not grow with the log: what is beyond the caps is counted.
func TestFoldStaysSmall(t *testing.T) {
	heap := func(rounds int) (uint64, *Summary) {
		f := NewFold()
		for rec, err := range event.Decode(&longLog{n: rounds}) {
			if err != nil {
				t.Fatal(err)
			}
			f.Add(rec)
		}
		s := f.Summary()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		runtime.KeepAlive(f)
		return m.HeapAlloc, s
	}
	short, _ := heap(maxCalls + 100)
	long, s := heap(2 * (maxCalls + 100)) // twice as long
	if long > short+short/4 {
		t.Errorf("the heap grew from %d to %d bytes with twice the log", short, long)
	}
	n := 2 * (maxCalls + 100)
	if s.Totals.ToolCalls != n || s.Totals.FailedTools != n || s.Totals.Denials != n || s.Totals.ModelResponses != n || s.Usage.Input != int64(n) {
		t.Errorf("totals %+v, usage %+v, want %d of each", s.Totals, s.Usage, n)
	}
	for _, k := range []string{"tool_calls", "failed_tools", "denials", "notices", "model_calls"} {
		if s.Omitted[k] == 0 {
			t.Errorf("what was left out of %s is not counted: %v", k, s.Omitted)
		}
	}
	if len(s.ToolCalls) != maxCalls || len(s.FailedTools) != maxEntries {
		t.Errorf("%d calls, %d failed", len(s.ToolCalls), len(s.FailedTools))
	}
}

// What was refused counts once, however it is told.
func TestDenialsCountOnce(t *testing.T) {
	item := event.ItemCompleted{Item: event.Item{ID: "item_0", Details: event.CommandExecution{Command: "rm", Status: event.Declined, Denial: &event.Denial{Reason: "no", Source: "rule"}}}}
	byItem := event.PolicyDecision{Action: "command", Subject: "rm -rf", Outcome: "denied", ItemID: "item_0", CallID: "c1", Rule: "r", Origin: "f:1"}
	byCall := event.PolicyDecision{Action: "command", Subject: "rm -rf", Outcome: "denied", CallID: "c1", Rule: "r", Origin: "f:1"}
	done := event.ToolCompleted{Tool: "exec_command", CallID: "c1", ItemID: "item_0", Status: event.Declined}
	for name, events := range map[string][]event.Event{
		"item only": {item}, "decision only": {byItem}, "decision, item": {byItem, item}, "item, decision": {item, byItem},
		"by call, item, measures": {byCall, item, done}, "item, by call, measures": {item, byCall, done}, "by call, measures, item": {byCall, done, item},
		"all of them": {byCall, item, done, byItem},
	} {
		f := NewFold()
		for i, e := range events {
			f.Add(event.Record{Seq: uint64(i + 1), Event: e})
		}
		s := f.Summary()
		if len(s.Denials) != 1 || s.Totals.Denials != 1 {
			t.Errorf("%s: %d denials, total %d", name, len(s.Denials), s.Totals.Denials)
			continue
		}
		if d := s.Denials[0]; d.Subject == "" || d.Action != "command" || name != "item only" && d.Origin != "f:1" {
			t.Errorf("%s: %+v", name, d)
		}
		if s.Totals.FailedTools != 0 {
			t.Errorf("%s: a refusal is counted as a failed tool", name)
		}
	}
}

// A tool call is one, whether its item or its measures come first, or only one
// of them.
func TestToolCallsCountOnce(t *testing.T) {
	code := 3
	item := event.ItemCompleted{Item: event.Item{ID: "item_0", Details: event.CommandExecution{Command: "make", ExitCode: &code, Status: event.Failed}}}
	done := event.ToolCompleted{Tool: "exec_command", CallID: "c1", ItemID: "item_0", Status: event.Failed, DurationMS: 5}
	for name, events := range map[string][]event.Event{"item first": {item, done}, "measures first": {done, item}, "item only": {item}, "measures only": {done}} {
		f := NewFold()
		for i, e := range events {
			f.Add(event.Record{Seq: uint64(i + 1), Event: e})
		}
		for range 2 { // asking twice changes nothing
			s := f.Summary()
			if len(s.ToolCalls) != 1 || s.Totals.FailedTools != 1 || len(s.FailedTools) != 1 || len(s.Tools) != 1 || s.Tools[0].Failed != 1 {
				t.Errorf("%s: %+v %+v", name, s.Totals, s.ToolCalls)
			}
			if c := s.ToolCalls[0]; name != "measures only" && (c.Title != "make" || *c.ExitCode != 3) || c.Tool != "exec_command" {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
}

// The stream of --json alone gives a report too: less, and marked incomplete.
func TestWireStream(t *testing.T) {
	var wire bytes.Buffer
	scenarios()[0].record(t, NewWire(&wire))
	s, err := ReadSummary(&wire)
	if err != nil {
		t.Fatal(err)
	}
	if s.Complete || s.Outcome != "unknown" || s.ExitCode != -1 || s.Success() {
		t.Errorf("%+v", s)
	}
	if s.Run.ThreadID != thread || s.Usage != used.Add(used) || len(s.ToolCalls) != 3 || len(s.FailedTools) != 1 || s.FinalMessage == "" || len(s.Turns) != 1 {
		t.Errorf("thread %s, usage %+v, %d calls, %d failed", s.Run.ThreadID, s.Usage, len(s.ToolCalls), len(s.FailedTools))
	}
}

// Usage and cost are known per model and per turn, also of a run that was
// killed.
func TestCost(t *testing.T) {
	f := NewFold()
	price := map[string]event.Price{"a": {Input: 1, CachedInput: 0.1, Output: 10}}
	for i, e := range []event.Event{
		event.RunStarted{Model: "a", Prices: &event.PriceTable{Models: price}},
		event.TurnStarted{},
		event.ModelRequest{Request: 1, Attempt: 1, Model: "a"},
		event.ModelResponse{Request: 1, Model: "a-2026-01-01", Usage: event.Usage{Input: 1e6, CachedInput: 5e5, Output: 1e5}},
		event.ModelRequest{Request: 2, Attempt: 1, Model: "b"},
		event.ModelResponse{Request: 2, Model: "b", Usage: event.Usage{Input: 100}},
		event.TurnCompleted{}, event.TurnStarted{},
		event.ModelRequest{Request: 3, Attempt: 1, Model: "a"},
		event.ModelResponse{Request: 3, Usage: event.Usage{Output: 1e5}},
	} {
		f.Add(event.Record{Seq: uint64(i + 1), Time: time.Unix(int64(i), 0), Event: e})
	}
	s := f.Summary()
	near := func(got, want float64) bool { return got > want-1e-9 && got < want+1e-9 }
	if !near(s.CostUSD, 0.5+0.05+1+1) || len(s.Models) != 2 || !near(s.Models[0].CostUSD, 2.55) || s.Models[1].Priced {
		t.Errorf("cost %v, models %+v", s.CostUSD, s.Models)
	}
	if len(s.Turns) != 2 || !near(s.Turns[0].CostUSD, 1.55) || !near(s.Turns[1].CostUSD, 1) || s.Turns[1].Status != "interrupted" {
		t.Errorf("turns %+v", s.Turns)
	}
	if len(s.Unpriced) != 1 || s.Unpriced[0] != "b" {
		t.Errorf("unpriced %v", s.Unpriced)
	}
}

// Everything that went wrong is pointed at, in every format that people read.
func TestTruthIsTold(t *testing.T) {
	classes := map[string]bool{}
	for _, sc := range scenarios() {
		s := sc.summary(t)
		var md, page bytes.Buffer
		for format, w := range map[string]*bytes.Buffer{"markdown": &md, "html": &page} {
			if err := Render(w, format, []*Summary{s}, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, a := range s.Attention {
			classes[a.Class] = true
			if !strings.Contains(md.String(), strings.ReplaceAll(a.Class, "_", `\_`)) || !strings.Contains(page.String(), a.Class) {
				t.Errorf("%s: %s is not in the reports", sc.name, a.Class)
			}
		}
	}
	for _, c := range []string{"incomplete_log", "sandbox_guarantee", "denial", "failed_tool", "schema_mismatch", "limit", "retry", "fallback", "compaction",
		"truncated_instructions", "hook_failed", "mcp_server", "diff_failed", "telemetry_lost", "patch_incomplete", "verify_failed"} {
		if !classes[c] {
			t.Errorf("no scenario shows %s", c)
		}
	}
}
