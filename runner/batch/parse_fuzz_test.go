package batch

import (
	"bytes"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

func FuzzDecodeResults(f *testing.F) {
	for _, s := range []string{"", "\n\n", `{"id":"a","exit_code":0}` + "\n", `{"id":"a"}` + "\n" + `{"id":`, "[]", "null\n", `{"id":"a","started":"x"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		rs, err := DecodeResults(bytes.NewReader(text))
		if lines := bytes.Count(text, []byte("\n")) + 1; len(rs) > lines || err != nil && rs != nil && len(rs) == 0 {
			t.Errorf("%d results of %d lines, %v", len(rs), lines, err)
		}
		if merged := Merge(rs, rs); len(merged) > len(rs) {
			t.Errorf("%d results became %d", len(rs), len(merged))
		}
	})
}

func FuzzShard(f *testing.F) {
	for _, s := range []string{"1/1", "2/10", "0/3", "4/3", "1/", "/", "+1/+2", "1/2/3", "-1/5", "99999999999999999999/1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseShard(text)
		if err != nil {
			return
		}
		if s.Index < 0 || s.Index >= s.Count {
			t.Fatalf("%q is %+v", text, s)
		}
		if again, err := ParseShard(fmt.Sprintf("%d/%d", s.Index+1, s.Count)); err != nil || again != s {
			t.Errorf("%q is %+v, then %+v (%v)", text, s, again, err)
		}
	})
}

// FuzzCleanURL: what is shown of a repository's address holds no password.
func FuzzCleanURL(f *testing.F) {
	for _, s := range []string{"https://u:secretword@example.com/r", "ssh://git:secretword@example.com/r", "git@example.com:r", "/srv/r", "https://secretword@example.com", "https://u:secretword@[::1]:3/r?x#y", "://", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, repo string) {
		clean, user := splitURL(repo)
		if user == nil {
			return
		}
		u, err := url.Parse(clean)
		if err != nil {
			t.Fatalf("%q became %q: %v", repo, clean, err)
		}
		if _, has := u.User.Password(); has || u.User != nil && strings.HasPrefix(u.Scheme, "http") {
			t.Errorf("%q became %q", repo, clean)
		}
	})
}
