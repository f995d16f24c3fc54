package tool

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// A secret is masked before the output is cut and before the model sees it,
// also where the cut, a poll, or a pause of the command falls into its middle.
func TestSecretsAreMaskedInOutput(t *testing.T) {
	const secret = "sk-fake-9f8e7d6c5b4a39281706"
	mask := event.NewRedactor()
	mask.Add(secret, "KEY")
	r := newRig(t, sandbox.WorkspaceWrite, func(d *Deps, _ *sandbox.Spec) { d.Mask = mask })
	half1, half2 := secret[:11], secret[11:]

	said, _ := r.exec("printf 'a " + half1 + "'; sleep 0.3; printf '" + half2 + " b\\n'")
	if !strings.Contains(said, "a [masked:KEY] b") {
		t.Errorf("%s", said)
	}

	// The answer comes while half of the secret is out.
	said, _ = r.exec("printf 'a "+half1+"'; until [ -e go ]; do sleep 0.05; done; printf '"+half2+" b\\n'", args{"yield_time_ms": 500})
	id := regexp.MustCompile(`session ID (\d+)`).FindStringSubmatch(said)
	if id == nil || strings.Contains(said, half1) {
		t.Fatalf("%s", said)
	}
	r.write("go", "")
	said, _ = r.call("write_stdin", json.RawMessage(`{"session_id":`+id[1]+`}`))
	if !strings.Contains(said, "[masked:KEY] b") {
		t.Errorf("%s", said)
	}

	// The middle of the output is dropped; the secret stands at every border.
	said, _ = r.exec("for i in $(seq 1 60000); do printf '"+secret+"'; done", args{"max_output_tokens": 100})
	items := r.commands()
	for _, text := range []string{said, items[len(items)-1].AggregatedOutput} {
		if strings.Contains(text, "9f8e7d6c") || strings.Contains(text, "39281706") || !strings.Contains(text, "[masked:KEY]") {
			t.Errorf("%.200s … %.200s", text, text[max(0, len(text)-200):])
		}
	}
}
