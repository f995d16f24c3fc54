package auth

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/runnertest"
)

// TestFedRAMPAccounts: the service routes them by a header.
func TestFedRAMPAccounts(t *testing.T) {
	for claim, want := range map[any]string{true: "true", false: "", "yes": ""} {
		r := newRig(t, time.Hour)
		id := runnertest.JWT(map[string]any{"https://api.openai.com/auth": map[string]any{"chatgpt_account_id": "acct-p", "chatgpt_account_is_fedramp": claim}})
		r.write([]byte(strings.ReplaceAll(chatgptFile("acct-p"), runnertest.IDToken("acct-p"), id)))
		c, err := Load(t.Context(), r.src)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequest(http.MethodPost, "http://127.0.0.1:1/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Authorize(req); err != nil {
			t.Fatal(err)
		}
		if got := req.Header.Get("X-OpenAI-Fedramp"); got != want {
			t.Errorf("claim %v: header %q, want %q", claim, got, want)
		}
	}
}
