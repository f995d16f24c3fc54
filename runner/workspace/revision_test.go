package workspace

import (
	"errors"
	"strings"
	"testing"
)

func TestKnown(t *testing.T) {
	dir := repo(t, map[string]string{"a": "1\n"})
	git(t, dir, "branch", "old")
	git(t, dir, "update-ref", "refs/remotes/origin/far", "HEAD")
	git(t, dir, "checkout", "-q", "--orphan", "alone")
	git(t, dir, "commit", "-qm", "alone")
	git(t, dir, "tag", "lonely")
	git(t, dir, "checkout", "-q", "old")
	d := opened(t, dir, Bounds{})
	for _, c := range []struct {
		ref  string
		base bool
		want string // in the error and its hint
	}{
		{"old", true, ""}, {"HEAD", true, ""}, {"lonely", false, ""}, {"origin/far", true, ""},
		{"lonely", true, "no common history"},
		{"far", true, "origin/far"},
		{"nothing", false, "fetch"}, {"0123456789012345678901234567890123456789", false, "fetch"}, {"HEAD~99", false, "fetch"},
		{"--help", false, "not the name"}, {"a\nb", false, "not the name"}, {"old:a", false, "no such"},
	} {
		err := d.Known(t.Context(), c.ref, c.base)
		var bad *RevisionError
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.ref, err)
		case c.want != "" && (!errors.As(err, &bad) || !strings.Contains(bad.Error()+bad.Hint(), c.want)):
			t.Errorf("%s: %v, want %q", c.ref, err, c.want)
		}
	}
	outside := opened(t, t.TempDir(), Bounds{})
	if err := outside.Known(t.Context(), "HEAD", false); err == nil {
		t.Error("a folder without a repository knows HEAD")
	}
}
