package runner

import (
	"testing"

	"github.com/nightshift-ci/nightshift/runner/model"
)

// TestReadContent: services send the content of a message as parts, as a bare
// text, or not at all.
func TestReadContent(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"type":"message","content":[{"type":"output_text","text":"a"},{"type":"output_text","text":"b"}]}`: "ab",
		`{"type":"message","content":"bare"}`: "bare",
		`{"type":"message","content":null}`:   "",
		`{"type":"message"}`:                  "",
	} {
		o, err := readItem(model.Item{Raw: []byte(raw)})
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if text, _ := o.text(); text != want {
			t.Errorf("%s: %q, want %q", raw, text, want)
		}
	}
	if _, err := readItem(model.Item{Raw: []byte(`{"content":[7]}`)}); err == nil {
		t.Error("a part that is a number is read")
	}
}
