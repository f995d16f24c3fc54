package hook

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// A secret that a hook says is masked before its words are cut: neither the model
// nor the log gets it or half of it.
func TestSecretsAreMaskedBeforeTheCut(t *testing.T) {
	const says = `i=0; while [ $i -lt 5000 ]; do printf sekret-token-8f3a1c; i=$((i+1)); done`
	for name, hook := range map[string]string{
		"stderr": "( " + says + " ) >&2; exit 2",
		"failed": "( " + says + " ) >&2; exit 1",
		"stdout": `printf '{"decision":"block","reason":"'; ` + says + `; printf '"}'`,
	} {
		mask := event.NewRedactor()
		if !mask.Add("sekret-token-8f3a1c", "TOKEN") {
			t.Fatal("the secret is too short")
		}
		rec := &recorder{}
		o := options(t, rec, on(PreToolUse, hook))
		o.Mask, o.Log = mask, event.NewLog(nil, mask, rec)
		r, err := New(o)
		check(t, err)
		res := fire(t, r, PreToolUse)
		line, err := json.Marshal(rec.list)
		check(t, err)
		for where, text := range map[string]string{"the model": res.Reason, "the log": string(line)} {
			if strings.Contains(text, "sek") || strings.Contains(text, "8f3") || !strings.Contains(text, "[masked:TOKEN]") {
				t.Errorf("%s: %s gets %.80q … %q", name, where, text, text[max(0, len(text)-200):])
			}
		}
	}
}
