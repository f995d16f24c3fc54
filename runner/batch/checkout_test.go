package batch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// A repository below /tmp is one like any other, also when it is a linked work
// tree: commands see another /tmp, git must not.
func TestCheckoutOfLocalRepositories(t *testing.T) {
	repo := t.TempDir()
	git(t, repo, "init", "-q")
	if err := os.WriteFile(filepath.Join(repo, "a"), []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, repo, "add", ".")
	git(t, repo, "commit", "-q", "-m", "first")
	want := git(t, repo, "rev-parse", "HEAD")
	linked := filepath.Join(t.TempDir(), "linked")
	git(t, repo, "worktree", "add", "-q", linked)
	for name, source := range map[string]string{"main": repo, "linked": linked} {
		t.Run(name, func(t *testing.T) {
			out, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			g := &Git{Root: out, Cache: filepath.Join(out, "cache"), Environ: os.Environ()}
			tree := filepath.Join(out, "tree")
			got, err := g.Checkout(t.Context(), source, "", tree)
			if err != nil || got != want {
				t.Fatalf("Checkout = %q, %v; want %s", got, err, want)
			}
			if err := os.WriteFile(filepath.Join(tree, "a"), []byte("2\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			commit, err := g.Commit(t.Context(), tree, "second", "body")
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Branch(t.Context(), repo, tree, "nightshift/"+name); err != nil {
				t.Fatal(err)
			}
			if at := git(t, repo, "rev-parse", "nightshift/"+name); at != commit {
				t.Errorf("the branch is at %s, the commit is %s", at, commit)
			}
		})
	}
	if s := git(t, repo, "status", "--porcelain"); s != "" {
		t.Errorf("the repository changed: %s", s)
	}
}
