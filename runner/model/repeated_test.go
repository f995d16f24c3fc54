package model_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nightshift-ci/nightshift/runner/model"
)

// TestItemsUnderOneID: an item that is sent twice counts once, and items that
// only share an id are several. A search is known as it was announced.
func TestItemsUnderOneID(t *testing.T) {
	message := func(text string) string {
		return `{"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"` + text + `"}]}`
	}
	done := func(item, place string) string {
		return `{"type":"response.output_item.done",` + place + `"item":` + item + `}`
	}
	for _, c := range []struct {
		name   string
		events []string
		want   []string
	}{
		{"no place", []string{done(message("a"), ""), done(message("b"), "")}, []string{message("a"), message("b")}},
		{"two places", []string{done(message("a"), `"output_index":0,`), done(message("b"), `"output_index":1,`)}, []string{message("a"), message("b")}},
		{"sent again", []string{done(message("a"), ""), done(message("a"), "")}, []string{message("a")}},
		{"made better", []string{done(message("a"), `"output_index":0,`), done(message("b"), `"output_index":0,`)}, []string{message("b")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := collect(t.Context(), script(t, sse(t, c.events...), model.Options{}), ask("x"))
			if o.err != nil {
				t.Fatal(o.err)
			}
			var got []string
			for _, it := range o.done.Items {
				got = append(got, string(it.Raw))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	early := `{"type":"web_search_call","id":"ws","status":"in_progress"}`
	o := collect(t.Context(), script(t, sse(t, `{"type":"response.output_item.added","item":`+early+`}`, `{"type":"response.output_item.added","item":`+message("")+`}`,
		done(`{"type":"web_search_call","id":"ws","action":{"type":"search","query":"q"}}`, "")), model.Options{}), ask("x"))
	if o.err != nil || len(o.done.Announced) != 1 || string(o.done.Announced["ws"]) != early {
		t.Errorf("announced: %s, %v", o.done.Announced, o.err)
	}
}

// sse is a script whose one reply is these events and the end.
func sse(t *testing.T, events ...string) string {
	t.Helper()
	events = append(events, `{"type":"response.completed","response":{"id":"r"}}`)
	text, err := json.Marshal("data: " + strings.Join(events, "\n\ndata: ") + "\n\n")
	if err != nil {
		t.Fatal(err)
	}
	return `{"responses":[{"sse":` + string(text) + `}]}`
}
