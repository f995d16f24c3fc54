package main

import (
	"testing"
)

// Every option of the commands that normalize rewrites has its shape there: of
// one that has none the value would be taken for the prompt.
func TestEveryOptionHasItsShape(t *testing.T) {
	seen := 0
	for _, command := range grammarOf(t).Model.Children {
		switch command.Name {
		case "exec", "resume", "fork", "review":
		default:
			continue
		}
		for _, flag := range command.Flags {
			if flag.Name == "help" || flag.Name == "version" {
				continue
			}
			seen++
			shape, ok := execShapes["--"+flag.Name]
			if !ok || shape.value == flag.IsBool() {
				t.Errorf("%s --%s: shape %+v (%v), and the grammar has a flag without a value: %v", command.Name, flag.Name, shape, ok, flag.IsBool())
			}
			if shape.repeat != flag.IsSlice() {
				t.Errorf("%s --%s: repeat %v, and the grammar has a list: %v", command.Name, flag.Name, shape.repeat, flag.IsSlice())
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d options were compared", seen)
	}
}
