package workspace

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every file costs, most of all on a disk where many were just deleted: what a
// new repository holds is all that the private folder needs.
func TestThePrivateFolderIsSmall(t *testing.T) {
	d := opened(t, repo(t, map[string]string{"a": "a\n"}), Bounds{})
	check(t, d.Ready(t.Context()))
	var names []string
	entries, err := os.ReadDir(filepath.Join(d.o.Private, "git0"))
	check(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"HEAD", "config", "index", "objects", "refs"}; !slices.Equal(names, want) {
		t.Errorf("it holds %q, not %q", names, want)
	}
}

// What the repository keeps beside its settings counts, and so do its objects,
// however their folder is called.
func TestFilesOfTheRepositoryCount(t *testing.T) {
	for _, name := range []string{"plain", "a:b", `a"b`, "a\\b", "a\nb", "#a", " a"} {
		base, err := filepath.EvalSymlinks(t.TempDir())
		check(t, err)
		dir := filepath.Join(base, name, "ws")
		check(t, os.MkdirAll(filepath.Dir(dir), 0o755))
		check(t, os.Rename(repo(t, map[string]string{"a": "a\n", "gone": twenty}), dir))
		put(t, dir, map[string]string{".git/info/exclude": "# said\n\n*.ign\n"})
		diff := captured(t, dir, Bounds{}, func() {
			put(t, dir, map[string]string{"a": "b\n", "x.ign": "x\n"})
			check(t, os.Remove(filepath.Join(dir, "gone")))
		})
		if got := stats(diff.Files); got != "update a +1-1, delete gone +0-20" || diff.Dirty || !strings.Contains(diff.Patch, "-a line of text\n") {
			t.Errorf("%q: %s, dirty %v\n%s", name, got, diff.Dirty, diff.Patch)
		}
	}
	for text, want := range map[string]bool{"": true, "# a\n\n#b": true, "# a\nx\n": false, " # a\n": false, "\n\nx": false} {
		if onlyComments(text) != want {
			t.Errorf("only comments in %q: %v", text, !want)
		}
	}
}
