package auth

import (
	"strings"
	"testing"
	"time"
)

// FuzzAnswers reads what the token endpoint and the notes of other runs may hold:
// nothing of it can do more than be misunderstood.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{
		`{"error":"invalid_grant"}`, `{"error":{"code":"refresh_token_reused","type":"x"}}`, `{"access_token":"a","expires_in":3600}`,
		`{"error":{"error":{}}}`, `[]`, `null`, ``, `{"a":1e400}`, `{"code":"\u0000 X "}`,
		`{"token":"t","class":"refresh_unavailable","until":"2026-01-01T00:00:00Z","writeback_pending":"x"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		code, fields := readAnswer(text)
		if code != strings.ToLower(strings.TrimSpace(code)) || fields == nil && code != "" {
			t.Errorf("code %q, fields %v", code, fields)
		}
		n := parseNote(text)
		if err := n.failure(NewSecret("some token"), time.Now()); err != nil && n.Token != tokenDigest(NewSecret("some token")) {
			t.Errorf("a note about another token counts: %v", err)
		}
		if d := retryAfter(string(text)); d < 0 || d > 1<<20*time.Second {
			t.Errorf("retry after %s", d)
		}
	})
}

// FuzzJWT: a token is opaque or has claims that can be written down again.
func FuzzJWT(f *testing.F) {
	for _, s := range []string{"", "a.b.c", "a.e30.c", "a.e30=.c", "a.bnVsbA.c", "a.eyJleHAiOjF9.c", "a.eyJleHAiOi0xZTQwMH0.c", "....", "a.eyJleHAiOjI1MzQwMjMwMDc5OX0.c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, token string) {
		c, ok := readJWT(NewSecret(token))
		if !ok && c != (claims{}) {
			t.Errorf("an opaque token has claims %+v", c)
		}
		if _, err := c.expires.MarshalJSON(); err != nil {
			t.Errorf("%v", err)
		}
	})
}
