package runner

import (
	"encoding/json"
	"testing"
)

// TestWebEvent: what a search is shown as, as the reference shows it.
func TestWebEvent(t *testing.T) {
	for _, c := range []struct{ action, query, shown string }{
		{``, "", `{"type":"other"}`},
		{`null`, "", `{"type":"other"}`},
		{`7`, "", `{"type":"other"}`},
		{`{"type":"later kind","url":"u"}`, "", `{"type":"other"}`},
		{`{"type":"search","query":"q"}`, "q", `{"type":"search","query":"q"}`},
		{`{"type":"search","query":"q","queries":["a","b"],"sources":[{"type":"url"}]}`, "q", `{"type":"search","query":"q","queries":["a","b"]}`},
		{`{"type":"search","queries":["a","b"]}`, "a ...", `{"type":"search","queries":["a","b"]}`},
		{`{"type":"search","query":null,"queries":["a"]}`, "a", `{"type":"search","queries":["a"]}`},
		{`{"type":"search","query":"","queries":[]}`, "", `{"type":"search","query":"","queries":[]}`},
		{`{"type":"search","queries":["","b"]}`, "", `{"type":"search","queries":["","b"]}`},
		{`{"type":"open_page","url":"u"}`, "u", `{"type":"open_page","url":"u"}`},
		{`{"type":"open_page","url":null}`, "", `{"type":"open_page"}`},
		{`{"type":"find_in_page","url":"u","pattern":"p"}`, "'p' in u", `{"type":"find_in_page","url":"u","pattern":"p"}`},
		{`{"type":"find_in_page","pattern":"p"}`, "'p'", `{"type":"find_in_page","pattern":"p"}`},
		{`{"type":"find_in_page","url":"u"}`, "u", `{"type":"find_in_page","url":"u"}`},
	} {
		got := webEvent("ws", json.RawMessage(c.action))
		if got.Query != c.query || string(got.Action) != c.shown {
			t.Errorf("%s is shown as %q, %s", c.action, got.Query, got.Action)
		}
	}
}
