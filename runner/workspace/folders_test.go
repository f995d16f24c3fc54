package workspace

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestGitFolders(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	check(t, err)
	repo := filepath.Join(base, "repo")
	git(t, base, "init", "-q", repo)
	git(t, repo, "commit", "-q", "--allow-empty", "-m", "first")
	git(t, repo, "worktree", "add", "-q", filepath.Join(base, "linked"))
	git(t, base, "clone", "-q", "--shared", repo, filepath.Join(base, "borrower"))
	git(t, base, "clone", "-q", "--shared", filepath.Join(base, "borrower"), filepath.Join(base, "second"))
	in := func(parts ...string) string { return filepath.Join(append([]string{base}, parts...)...) }
	for dir, want := range map[string][]string{
		"repo":     {},
		"linked":   {in("repo/.git/worktrees/linked"), in("repo/.git")},
		"borrower": {in("repo/.git/objects")},
		"second":   {in("borrower/.git/objects"), in("repo/.git/objects")},
	} {
		f, err := Find(in(dir))
		check(t, err)
		if got := f.GitFolders(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", dir, got, want)
		}
	}
	// Names that are no object folders show nothing.
	names := []byte("/etc\n" + base + "\n# comment\n\"quoted\"\n../../../borrower/.git/objects\n")
	check(t, os.WriteFile(in("repo/.git/objects/info/alternates"), names, 0o644))
	f, err := Find(in("repo"))
	check(t, err)
	if got := f.GitFolders(); !slices.Equal(got, []string{in("borrower/.git/objects")}) {
		t.Errorf("alternates: %q", got)
	}
}
