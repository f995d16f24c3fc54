package report

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// A job over a table has an agent for each row: what they all did counts, however
// many there are, and those that are not listed are counted as agents.
func TestManyAgentsAreCounted(t *testing.T) {
	f := NewFold()
	seq := uint64(0)
	emit := func(id string, e event.Event) {
		seq++
		inner, err := json.Marshal(event.Record{Seq: 1, Event: e})
		if err != nil {
			t.Fatal(err)
		}
		f.Add(event.Record{Seq: seq, Event: event.AgentEvent{AgentID: id, Record: inner}})
	}
	const agents = maxEntries + 50
	for i := range agents {
		id := fmt.Sprintf("agent-%d", i)
		emit(id, event.RunStarted{ThreadID: id})
		emit(id, event.ModelRequest{Request: i + 1, Attempt: 1, Model: "m"})
		emit(id, event.ModelResponse{Request: i + 1, Model: "m", Usage: event.Usage{Input: 1}})
		emit(id, event.ToolCompleted{Tool: "exec_command", CallID: "c", Status: event.Failed})
		emit(id, event.PolicyDecision{Action: "network", Subject: "h:1", Outcome: "denied"})
	}
	s := f.Summary()
	if s.Usage.Input != agents || s.Models[0].Responses != agents || s.Totals.FailedTools != agents || s.Totals.Denials != agents || s.Totals.ModelResponses != agents {
		t.Errorf("usage %+v, models %+v, totals %+v; want %d of each", s.Usage, s.Models, s.Totals, agents)
	}
	if len(s.Agents) != maxEntries || s.Omitted["agents"] != agents-maxEntries {
		t.Errorf("%d agents listed, %d left out", len(s.Agents), s.Omitted["agents"])
	}
}
