package main

import (
	"strings"
	"testing"
)

// The comparison of streams must itself tell right from wrong.
func TestCompareStreams(t *testing.T) {
	golden := lines(
		`{"type":"thread.started","thread_id":"<thread-id>"}`,
		`{"type":"item.started","item":{"id":"item_0","type":"command_execution","command":"a","status":"in_progress"}}`,
		`{"type":"item.completed","item":{"id":"item_0","type":"command_execution","command":"a","status":"completed"}}`,
		`{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"x"}}`,
		`{"type":"turn.completed","usage":{"input_tokens":1}}`,
	)
	tests := []struct {
		name  string
		got   string
		equal bool
	}{
		{"itself", golden, true},
		{"more fields", strings.ReplaceAll(golden, `"text":"x"`, `"text":"x","extra":{"y":1}`), true},
		{"other ids", strings.NewReplacer("item_0", "item_5", "item_1", "item_3").Replace(golden), true},
		{"a refused action besides", strings.NewReplacer(`{"type":"item.started"`, `{"type":"item.completed","item":{"id":"item_9","type":"error","message":"no","status":"declined"}}`+"\n"+`{"type":"item.started"`).Replace(golden), true},
		{"ids mixed up", strings.Replace(golden, `completed","item":{"id":"item_0"`, `completed","item":{"id":"item_1"`, 1), false},
		{"one id for two items", strings.ReplaceAll(golden, "item_1", "item_0"), false},
		{"an item too many", golden + `{"type":"item.completed","item":{"id":"item_2","type":"agent_message","text":"y"}}` + "\n", false},
		{"a failed command instead", strings.ReplaceAll(golden, `"status":"completed"`, `"status":"failed"`), false},
		{"a line missing", strings.Replace(golden, `{"type":"turn.completed","usage":{"input_tokens":1}}`+"\n", "", 1), false},
		{"other usage", strings.Replace(golden, `"input_tokens":1`, `"input_tokens":2`, 1), false},
		{"a field missing", strings.Replace(golden, `,"text":"x"`, "", 1), false},
		{"no JSON", golden + "done\n", false},
	}
	for _, tt := range tests {
		if diff := compareStreams(golden, tt.got, false); (diff == "") != tt.equal {
			t.Errorf("%s: difference %q, want equal %v", tt.name, diff, tt.equal)
		}
	}
}

func lines(l ...string) string { return strings.Join(l, "\n") + "\n" }
