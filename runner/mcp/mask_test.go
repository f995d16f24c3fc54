package mcp

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
)

// A secret that a server says is masked before its words are cut, so that no half
// of one stays; neither the model nor the log gets it.
func TestSecretsAreMaskedBeforeTheCut(t *testing.T) {
	mask := event.NewRedactor()
	if !mask.Add("sekret-token-8f3a1c", "TOKEN") {
		t.Fatal("the secret is too short")
	}
	var rec recorder
	s, _ := fixture(t, map[string]policy.MCPServer{"s": fakeServer("leaky")}, func(o *Options) {
		o.Mask, o.Log = mask, event.NewLog(nil, mask, &rec)
	})
	check(t, s.Ready(t.Context()))
	for _, c := range [][2]string{{"answer", ""}, {"refuse", ""}, {"read_mcp_resource", `{"server":"s","uri":"x"}`}, {"die", ""}} {
		r := call(t, s, c[0], c[1])
		if out := string(r.Output); strings.Contains(out, "ekret") || strings.Contains(out, "8f3a1") || !strings.Contains(out, "[masked:TOKEN]") {
			t.Errorf("%s: the model gets %.60q … %q", c[0], out, out[max(0, len(out)-60):])
		}
	}
	for _, e := range rec.all() {
		line, err := json.Marshal(e)
		check(t, err)
		if text := string(line); strings.Contains(text, "ekret") || strings.Contains(text, "8f3a1") {
			i := max(strings.Index(text, "ekret"), strings.Index(text, "8f3a1"))
			t.Errorf("the log holds part of the secret: … %q", text[max(0, i-40):min(len(text), i+40)])
		}
	}
}
