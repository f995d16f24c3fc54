package event

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// FuzzDecode reads logs: what was decoded encodes to something that decodes to
// the same, and an error names the line and ends the sequence.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		``, "\n\n", `{"type":"turn.started"}`, `{"seq":1,"time":"2026-01-31T10:00:00Z","type":"turn.started"}` + "\n" + `{"type":"thread.started","thread_id":"t"}`,
		`{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"x"}}`, `{"type":"item.completed","item":{"id":"a","type":"web_search","id":"b","item_id":"item_1"}}`,
		`{"type":"item.started","item":{"type":"hologram","n":1}}`, `{"type":"item.completed","item":null}`, `{"type":"item.completed"}`, `{"type":""}`, `{"type":7}`, `[]`, `null`,
		`{"type":"new.kind","x":{"y":1}}`, `{"type":"error","message":"m"}{"type":"error"}`, `{"seq":-1,"type":"error"}`, `{"time":"yesterday","type":"error"}`,
		`{"type":"item.completed","item":{"id":"i","type":"error","tool":"t","message":"m"}}`, `{"type":"agent.event","agent_id":"a","record":{"type":"turn.started"}}`,
		`{"type":"run.completed","totals":{},"usage":{"input_tokens":-5}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, log []byte) {
		failed := false
		for rec, err := range Decode(bytes.NewReader(log)) {
			if failed {
				t.Fatal("the sequence goes on after an error")
			}
			if failed = err != nil; failed {
				if !strings.HasPrefix(err.Error(), "line ") {
					t.Errorf("no line: %v", err)
				}
				continue
			}
			line, err := json.Marshal(rec)
			if err != nil {
				if (rec.Time.Year() < 0 || rec.Time.Year() > 9999) || lacksDetails(rec.Event) {
					continue // nothing that a log of ours could hold
				}
				t.Fatalf("a decoded record does not encode: %v", err)
			}
			var again Record
			if err := json.Unmarshal(line, &again); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			second, err := json.Marshal(again)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(line, second) {
				t.Fatalf("encoded again it differs:\n%s\n%s", line, second)
			}
		}
	})
}

func lacksDetails(e Event) bool {
	switch e := e.(type) {
	case ItemStarted:
		return e.Item.Details == nil
	case ItemUpdated:
		return e.Item.Details == nil
	case ItemCompleted:
		return e.Item.Details == nil
	}
	return false
}

// keeper is a sink that keeps everything.
type keeper struct{ records []Record }

func (k *keeper) Handle(r Record) error       { k.records = append(k.records, r); return nil }
func (k *keeper) Close(context.Context) error { return nil }

// TestItemsCloseOnce: the log itself sees to it that an item is completed once,
// whoever forgets it or does it twice.
func TestItemsCloseOnce(t *testing.T) {
	k := &keeper{}
	l := NewLog(nil, nil, k)
	open := []ItemDetails{
		CommandExecution{Command: "a", Status: InProgress}, FileChange{Status: InProgress}, MCPToolCall{Server: "s", Status: InProgress},
		CollabToolCall{Tool: "wait", Status: InProgress}, ToolCall{Tool: "t", Status: InProgress}, TodoList{}, WebSearch{CallID: "ws_1"},
	}
	var ids []string
	for _, d := range open {
		ids = append(ids, l.Start(d))
	}
	l.Complete(ids[0], CommandExecution{Command: "a", Status: Completed})
	l.Complete(ids[0], CommandExecution{Command: "a", Status: Failed})
	l.Update(ids[0], CommandExecution{Command: "late"})
	l.Complete("item_99", AgentMessage{Text: "never started"})
	l.CloseItems()
	l.CloseItems()
	l.Complete(ids[1], FileChange{Status: Completed})

	closed := map[string]int{}
	for _, r := range k.records {
		switch e := r.Event.(type) {
		case ItemUpdated:
			t.Errorf("an update of a closed item: %+v", e)
		case ItemCompleted:
			closed[e.Item.ID]++
			if s := reflect.ValueOf(e.Item.Details).FieldByName("Status"); s.IsValid() && s.String() != string(Failed) && e.Item.ID != ids[0] {
				t.Errorf("%s is %q", e.Item.ID, s)
			}
		}
	}
	for _, id := range ids {
		if closed[id] != 1 {
			t.Errorf("%s was closed %d times", id, closed[id])
		}
	}
	if len(closed) != len(ids) {
		t.Errorf("%v", closed)
	}
}

// stumbler panics or fails in one of its methods.
type stumbler struct {
	keeper
	in    string
	panic bool
}

func (s *stumbler) stumble(in string) error {
	if in != s.in {
		return nil
	}
	if s.panic {
		panic("a bug in " + in)
	}
	return errors.New("a fault in " + in)
}

func (s *stumbler) Handle(r Record) error {
	return errors.Join(s.stumble("handle"), s.keeper.Handle(r))
}

func (s *stumbler) Close(context.Context) error { return s.stumble("close") }

func (s *stumbler) Flush(context.Context) []Event {
	if err := s.stumble("flush"); err != nil {
		return []Event{Notice{Message: err.Error()}}
	}
	return nil
}

func (s *stumbler) Ending(Record) { _ = s.stumble("ending") }

// TestBrokenSinks: a sink that fails or panics anywhere takes nothing from the
// others, and is told of.
func TestBrokenSinks(t *testing.T) {
	for _, in := range []string{"handle", "close", "flush", "ending"} {
		for _, panics := range []bool{true, false} {
			good := &keeper{}
			early := &stumbler{in: in, panic: panics}
			l := NewLog(func() time.Time { return time.Unix(0, 0) }, nil, early)
			l.Emit(TurnStarted{})
			l.Attach(good)
			l.Emit(TurnCompleted{})
			err := l.Finish(context.Background(), RunCompleted{Outcome: "success"})
			if told := err != nil; told != (panics || in == "handle" || in == "close") {
				t.Errorf("%s panic=%v: %v", in, panics, err)
			}
			n := len(good.records)
			if n < 3 || good.records[0].Event != (TurnStarted{}) || good.records[n-1].Kind() != KindRunCompleted {
				t.Errorf("%s panic=%v: the other sink got %d records", in, panics, n)
			}
		}
	}
}
