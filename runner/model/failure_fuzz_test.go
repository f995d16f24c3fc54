package model

import (
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzServiceError: whatever a service says about an error, it becomes a failure
// of some class with a text that is text.
func FuzzServiceError(f *testing.F) {
	for _, s := range []string{
		`{"error":{"message":"m","type":"t","code":"c","param":null}}`, `{"error":"text"}`, `{"message":"m","code":429}`, `{"error":null}`,
		`{"error":{"message":{"a":1},"code":["x"]}}`, `[]`, `"x"`, ``, `{"error":{"code":"rate_limit_exceeded","message":"Please try again in 1.5s."}}`,
		`{"error":{"resets_in_seconds":-1e308,"resets_at":1e308}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, ok := parseServiceError(text)
		if !ok {
			return
		}
		got := responseFailure(e, time.Unix(1_800_000_000, 0))
		if got == nil || got.err == nil || got.err.Class == "" || len(got.err.Message) > 2*maxMessage || utf8.Valid(text) && !utf8.ValidString(got.err.Message) {
			t.Errorf("%+v", got)
		}
	})
}
