package tool

import (
	"context"
	_ "embed"
	"encoding/json"
	"sync"

	"github.com/nightshift-ci/nightshift/runner/event"
)

//go:embed update_plan.md
var planDescription string

type planArgs struct {
	Plan []struct {
		Step   string `json:"step"`
		Status string `json:"status"`
	} `json:"plan"`
	Explanation string `json:"explanation"`
}

func planShape() shape {
	step := shape{kind: object, fields: []field{{"step", shape{kind: text}, true},
		{"status", shape{kind: text, words: []string{"pending", "in_progress", "completed"}}, true}}}
	return shape{kind: object, fields: []field{{"plan", shape{kind: list, elem: &step}, true}, {"explanation", shape{kind: text}, false}}}
}

// planTool is update_plan. The turn has one todo_list item, which the first
// call opens and the end of the turn closes.
type planTool struct {
	set     *Set
	offered bool

	mu   sync.Mutex
	item string
	last event.TodoList
}

func (t *planTool) Name() string   { return "update_plan" }
func (t *planTool) Parallel() bool { return false }

func (t *planTool) Spec() json.RawMessage {
	if !t.offered {
		return nil
	}
	return functionSpec(t.Name(), planDescription, planShape())
}

// Call replaces the plan.
func (t *planTool) Call(_ context.Context, c Call) (Result, error) {
	s, began := t.set, t.set.deps.Now()
	if !t.offered {
		return s.failed(c, began, "unsupported call: "+t.Name()), nil
	}
	var a planArgs
	if err := decodeArgs(c.Arguments, planShape(), &a); err != nil {
		return s.failed(c, began, err.Error()), nil
	}
	todo := event.TodoList{Items: make([]event.Todo, len(a.Plan))}
	for i, p := range a.Plan {
		todo.Items[i] = event.Todo{Text: p.Step, Completed: p.Status == "completed"}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.item == "" {
		t.item = s.deps.Log.Start(todo)
	} else {
		s.deps.Log.Update(t.item, todo)
	}
	t.last = todo
	return s.finish(c, began, Result{Output: quoted("Plan updated"), Status: event.Completed, ItemID: t.item}), nil
}

func (t *planTool) complete() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.item != "" {
		t.set.deps.Log.Complete(t.item, t.last)
		t.item = ""
	}
}
