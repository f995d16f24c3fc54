package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestFind(t *testing.T) {
	dir := repo(t, map[string]string{"sub/deep/f": "f\n"})
	commit := git(t, dir, "rev-parse", "HEAD")
	git(t, dir, "remote", "add", "origin", "https://user:tok-123@example.com/pears.git")
	check := func(at string, want Facts) {
		t.Helper()
		got, err := Find(at)
		if err != nil || got != want {
			t.Errorf("%s: %v\n got %+v\nwant %+v", at, err, got, want)
		}
	}
	want := Facts{
		Dir: dir, Root: dir, GitDir: dir + "/.git", CommonDir: dir + "/.git", MainRoot: dir,
		Commit: commit, Branch: "main", Remote: "https://example.com/pears.git",
	}
	check(dir, want)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(dir, "sub"), link); err != nil {
		t.Fatal(err)
	}
	want.Dir = dir + "/sub/deep"
	check(link+"/deep", want)
	// An empty .git, as a killed sandbox leaves it, hides nothing.
	if err := os.Mkdir(filepath.Join(dir, "sub/.git"), 0o555); err != nil {
		t.Fatal(err)
	}
	check(dir+"/sub/deep", want)

	git(t, dir, "pack-refs", "--all")
	check(dir+"/sub/deep", want)
	git(t, dir, "checkout", "-q", "-b", "topic/x")
	want.Branch = "topic/x"
	check(dir+"/sub/deep", want)
	git(t, dir, "checkout", "-q", "--detach")
	want.Branch = ""
	check(dir+"/sub/deep", want)
	git(t, dir, "worktree", "add", "-q", "-b", "feature", dir+"-wt")
	check(dir+"-wt", Facts{
		Dir: dir + "-wt", Root: dir + "-wt", GitDir: dir + "/.git/worktrees/ws-wt", CommonDir: dir + "/.git", MainRoot: dir,
		Commit: commit, Branch: "feature", Remote: "https://example.com/pears.git", Linked: true,
	})
	git(t, dir, "checkout", "-q", "--orphan", "empty")
	want.Branch, want.Commit = "empty", ""
	check(dir+"/sub/deep", want)
	if s := want.State(); s.Root != dir || s.Branch != "empty" {
		t.Errorf("state: %+v", s)
	}
	if (Facts{Dir: dir}).State() != nil {
		t.Error("a state without a repository")
	}
}

func TestFindOdd(t *testing.T) {
	base := plain(t, map[string]string{
		"badfile/.git": "not a pointer\n", "dangling/.git": "gitdir: ../nowhere\n", "file": "x",
		"hostile/.git/HEAD": "ref: refs/../../../file\n", "hostile/.git/objects/x": "",
		"loop/.git/HEAD": "ref: refs/heads/a\n", "loop/.git/refs/heads/a": "ref: refs/heads/a\n", "loop/.git/objects/x": "",
		"table/.git/HEAD": "ref: refs/heads/.invalid\n", "table/.git/objects/x": "",
		"secret/.git/HEAD": "ref: refs/heads/a\n", "secret/.git/objects/x": "", "secret/.git/config": "[remote \"origin\"]\nurl = https://tok-123@:bad:port/x\n",
	})
	if err := os.MkdirAll(base+"/fifo/.git/objects", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(base+"/fifo/.git/HEAD", 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct{ root, problem string }{
		"badfile": {"", "not a gitdir file"}, "dangling": {"", "nowhere"}, "hostile": {"hostile", ""}, "loop": {"loop", ""},
		"table": {"table", ""}, "secret": {"secret", ""}, "fifo": {"fifo", ""}, ".": {"", ""},
	} {
		f, err := Find(filepath.Join(base, name))
		if err != nil || f.Commit != "" || f.Remote != "" || !strings.Contains(f.Problem, want.problem) || (want.problem == "") != (f.Problem == "") {
			t.Errorf("%s: %v, %+v", name, err, f)
		}
		if want.root != "" && f.Root != filepath.Join(base, want.root) || want.root == "" && f.Root != "" {
			t.Errorf("%s: root %q", name, f.Root)
		}
	}
	for _, name := range []string{"file", "missing"} {
		if _, err := Find(filepath.Join(base, name)); err == nil {
			t.Errorf("%s was taken for a folder", name)
		}
	}
}

func TestRemoteWithoutCredentials(t *testing.T) {
	for remote, want := range map[string]string{
		"https://example.com/a.git": "https://example.com/a.git", "https://u:tok-123@example.com/a": "https://example.com/a",
		"https://tok-123@example.com/a?token=tok-123#tok-123": "https://example.com/a", "ssh://tok-123@example.com:22/a": "ssh://example.com:22/a",
		"git@example.com:a/b.git": "git@example.com:a/b.git", "tok-123@example.com:a": "example.com:a", "../up/a": "../up/a", "/x@y/a": "/x@y/a",
		"https://tok-123@:bad:port/x": "", "": "",
	} {
		if got := withoutCredentials(remote); got != want {
			t.Errorf("%q: %q, want %q", remote, got, want)
		}
	}
}

// Whatever lies in a git folder, reading it ends and shows no credentials.
func FuzzRepositoryFiles(f *testing.F) {
	f.Add("ref: refs/heads/main\n", "# pack-refs\n1234567890123456789012345678901234567890 refs/heads/main\n", "[remote \"origin\"]\n\turl = https://u:tok-123@example.com/x\n")
	f.Add("1234567890123456789012345678901234567890\n", "", "[remote \"origin\"]\nurl=\"https://tok-123@example.com\"\n[x]")
	f.Fuzz(func(t *testing.T, head, packed, config string) {
		dir := t.TempDir()
		put(t, dir, map[string]string{".git/HEAD": head, ".git/packed-refs": packed, ".git/config": config, ".git/objects/x": ""})
		facts, err := Find(dir)
		if err != nil {
			t.Fatal(err)
		}
		if facts.Commit != "" && !isObjectID(facts.Commit) {
			t.Errorf("commit %q", facts.Commit)
		}
		if host, _, _ := strings.Cut(strings.TrimPrefix(facts.Remote, "https://"), "/"); strings.HasPrefix(facts.Remote, "https://") && strings.Contains(host, "@") {
			t.Errorf("remote %q", facts.Remote)
		}
	})
}

func TestInit(t *testing.T) {
	dir := plain(t, map[string]string{"a": "a\n", "s/b": "b\n"})
	if err := Init(t.Context(), dir, os.Environ(), "as it was"); err != nil {
		t.Fatal(err)
	}
	if got := git(t, dir, "log", "--format=%s", "--name-only"); got != "as it was\n\na\ns/b" {
		t.Errorf("log: %q", got)
	}
	if s := git(t, dir, "status", "--porcelain"); s != "" {
		t.Errorf("status: %s", s)
	}
}
