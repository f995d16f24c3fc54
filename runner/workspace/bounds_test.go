package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/sandbox"
)

func omitted(list []string) string { return strings.Join(list, "\n") }

func TestLargeFilesAreNamedNotDiffed(t *testing.T) {
	dir := repo(t, map[string]string{"a": "a\n"})
	put(t, dir, map[string]string{"old-big": strings.Repeat("o", 5000), "old-kept": "k\n", "old-gone": strings.Repeat("g", 5000), "same-big": strings.Repeat("s", 5000)})
	diff := captured(t, dir, Bounds{FileBytes: 4096}, func() {
		put(t, dir, map[string]string{"a": "b\n", "old-big": strings.Repeat("p", 5000), "new-big": strings.Repeat("n", 5000)})
		check(t, os.Remove(filepath.Join(dir, "old-gone")))
	})
	if got := stats(diff.Files); got != "update a +1-1" {
		t.Errorf("files: %s", got)
	}
	for _, want := range []string{"old-big: changed, but", "new-big: 5000 bytes", "old-gone: deleted, but"} {
		if !strings.Contains(omitted(diff.Omitted), want) {
			t.Errorf("%q is not said in\n%s", want, omitted(diff.Omitted))
		}
	}
	if len(diff.Omitted) != 3 || !diff.Dirty {
		t.Errorf("dirty %v, omitted\n%s", diff.Dirty, omitted(diff.Omitted))
	}
}

func TestUntrackedBeyondTheBoundKeepsASignature(t *testing.T) {
	for _, b := range []Bounds{{UntrackedAll: 5}, {Entries: 1}} {
		dir := repo(t, nil)
		put(t, dir, map[string]string{"1": "1111\n", "2": "2222\n", "3": "3333\n"})
		diff := captured(t, dir, b, func() { put(t, dir, map[string]string{"1": "x\n", "3": "x\n", "4": "x\n"}) })
		if got := stats(diff.Files); got != "update 1 +1-1, add 4 +1-0 100644" {
			t.Errorf("%+v: files %s", b, got)
		}
		if len(diff.Omitted) != 1 || !strings.HasPrefix(diff.Omitted[0], "3: changed, but") {
			t.Errorf("%+v: omitted %q", b, diff.Omitted)
		}
	}
}

func TestPatchBound(t *testing.T) {
	dir := repo(t, nil)
	d := opened(t, dir, Bounds{PatchBytes: 1000})
	check(t, d.Ready(t.Context()))
	put(t, dir, map[string]string{"a": strings.Repeat("line\n", 1000)})
	diff := d.Diff(t.Context())
	if diff.Patch != "" || !strings.Contains(diff.Error, "larger than 1000 bytes") || stats(diff.Files) != "add a +1000-0 100644" {
		t.Errorf("%q, %s, %d bytes", diff.Error, stats(diff.Files), len(diff.Patch))
	}
}

func TestTimeBound(t *testing.T) {
	d := opened(t, repo(t, nil), Bounds{Timeout: time.Nanosecond})
	if err := d.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("baseline without time: %v", err)
	}
	if diff := d.Diff(t.Context()); diff.Error == "" || diff.Patch != "" {
		t.Errorf("a diff without a baseline: %+v", diff)
	}
}

func plain(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	check(t, err)
	put(t, dir, files)
	return dir
}

func TestFolderWithoutRepository(t *testing.T) {
	dir := plain(t, map[string]string{"a": "a\n", "sub/b": "b\n", ".gitignore": "*.log\n"})
	old := copyTree(t, dir)
	diff := captured(t, dir, Bounds{}, func() {
		put(t, dir, map[string]string{"a": "b\n", "sub/c": "c\n", "x.log": "x\n"})
		check(t, os.Remove(filepath.Join(dir, "sub/b")))
	})
	if got := stats(diff.Files); got != "update a +1-1, delete sub/b +0-1, add sub/c +1-0 100644" || diff.Base != "" {
		t.Errorf("files: %s, base %q", got, diff.Base)
	}
	apply(t, old, diff.Patch)
	same(t, state(t, old), state(t, dir), "x.log")
	if _, err := os.Stat(filepath.Join(dir, ".git")); !os.IsNotExist(err) {
		t.Error("a repository was made")
	}
}

func TestFolderTooLargeToCopy(t *testing.T) {
	for _, b := range []Bounds{{Entries: 2}, {UntrackedAll: 3}} {
		d := opened(t, plain(t, map[string]string{"a": "aa\n", "b": "bb\n", "c": "cc\n"}), b)
		if err := d.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "too large to copy") {
			t.Errorf("%+v: %v", b, err)
		}
		if diff := d.Diff(t.Context()); !strings.Contains(diff.Error, "too large to copy") {
			t.Errorf("%+v: %q", b, diff.Error)
		}
	}
}

// A folder that holds several repositories is followed into each.
func TestFolderOfRepositories(t *testing.T) {
	dir := plain(t, map[string]string{"notes": "n\n"})
	for _, name := range []string{"one", "two"} {
		put(t, dir, map[string]string{name + "/f": "f\n"})
		git(t, filepath.Join(dir, name), "init", "-q")
		git(t, filepath.Join(dir, name), "add", "-A")
		git(t, filepath.Join(dir, name), "commit", "-qm", "x")
	}
	old := copyTree(t, dir)
	diff := captured(t, dir, Bounds{}, func() { put(t, dir, map[string]string{"one/f": "g\n", "two/n": "n\n", "notes": "m\n"}) })
	if got := stats(diff.Files); got != "update notes +1-1, update one/f +1-1, add two/n +1-0 100644" {
		t.Errorf("files: %s", got)
	}
	apply(t, old, diff.Patch)
	same(t, state(t, old), state(t, dir))
}

func TestSubmodules(t *testing.T) {
	lib := repo(t, map[string]string{"l": "l\n"})
	dir := repo(t, map[string]string{"a": "a\n"})
	git(t, dir, "submodule", "--quiet", "add", lib, "deep/lib")
	git(t, dir, "commit", "-qm", "sub")
	old := copyTree(t, dir)
	diff := captured(t, dir, Bounds{}, func() { put(t, dir, map[string]string{"deep/lib/l": "m\n", "deep/lib/n": "n\n", "a": "b\n"}) })
	if got := stats(diff.Files); got != "update a +1-1, update deep/lib/l +1-1, add deep/lib/n +1-0 100644" || diff.Dirty {
		t.Errorf("files: %s, dirty %v", got, diff.Dirty)
	}
	apply(t, old, diff.Patch)
	same(t, state(t, old), state(t, dir))

	put(t, dir, map[string]string{"deep/lib/l": "l\n"})
	check(t, os.Remove(filepath.Join(dir, "deep/lib/n")))
	facts, err := Find(filepath.Join(dir, "deep/lib"))
	check(t, err)
	if !facts.Submodule || facts.Root != filepath.Join(dir, "deep/lib") || facts.Linked {
		t.Errorf("facts: %+v", facts)
	}
}

// A .gitmodules that points through a link out of the workspace is not
// followed.
func TestHostileSubmodulePath(t *testing.T) {
	outside := repo(t, map[string]string{"secret": "s\n"})
	dir := repo(t, map[string]string{".gitmodules": "[submodule \"x\"]\n\tpath = link\n\turl = x\n[submodule \"y\"]\n\tpath = ../ws2\n\turl = y\n"})
	check(t, os.Symlink(outside, filepath.Join(dir, "link")))
	diff := captured(t, dir, Bounds{}, func() { put(t, outside, map[string]string{"secret": "changed\n"}) })
	if len(diff.Files) != 0 || strings.Contains(diff.Patch, "changed") {
		t.Errorf("%s\n%s", stats(diff.Files), diff.Patch)
	}
}

func TestOddRepositories(t *testing.T) {
	files := map[string]string{"a/x": "x\n", "b/y": "y\n", "t.txt": "one\ntwo\n"}
	for name, prepare := range map[string]func(t *testing.T) string{
		"linked work tree": func(t *testing.T) string {
			dir := repo(t, files)
			git(t, dir, "worktree", "add", "-q", "-b", "feature", dir+"-wt")
			return dir + "-wt"
		},
		"sha256": func(t *testing.T) string {
			dir := plain(t, files)
			git(t, dir, "init", "-q", "--object-format=sha256")
			git(t, dir, "add", "-A")
			git(t, dir, "commit", "-qm", "x")
			return dir
		},
		"sparse": func(t *testing.T) string {
			dir := repo(t, files)
			git(t, dir, "sparse-checkout", "set", "--cone", "--sparse-index", "a")
			return dir
		},
		"split index, untracked cache": func(t *testing.T) string {
			dir := repo(t, files)
			git(t, dir, "update-index", "--split-index", "--untracked-cache")
			return dir
		},
		"no commit yet": func(t *testing.T) string {
			dir := plain(t, nil)
			git(t, dir, "init", "-q")
			put(t, dir, map[string]string{"t.txt": "one\ntwo\n"})
			return dir
		},
		"shallow, partly packed, alternates": func(t *testing.T) string {
			dir := repo(t, files)
			clone := filepath.Join(t.TempDir(), "clone")
			git(t, dir, "clone", "-q", "--shared", dir, clone)
			git(t, dir, "gc", "-q")
			return clone
		},
		"owned by somebody else": func(t *testing.T) string {
			dir := repo(t, files)
			if os.Getuid() == 0 { // only root can give files away
				check(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
					return errors.Join(err, os.Lchown(path, 65534, 65534))
				}))
			}
			return dir
		},
		"carriage returns by setting": func(t *testing.T) string {
			dir := repo(t, files)
			git(t, dir, "config", "core.autocrlf", "true")
			check(t, os.Remove(filepath.Join(dir, "t.txt")))
			git(t, dir, "checkout", "-q", "t.txt")
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := filepath.EvalSymlinks(prepare(t))
			check(t, err)
			text, err := os.ReadFile(filepath.Join(dir, "t.txt"))
			check(t, err)
			diff := captured(t, dir, Bounds{}, func() {
				put(t, dir, map[string]string{"t.txt": strings.Replace(string(text), "two", "three", 1), "n": "n\n"})
			})
			if got := stats(diff.Files); got != "add n +1-0 100644, update t.txt +1-1" {
				t.Errorf("files: %s\n%s", got, diff.Patch)
			}
			if want := name == "no commit yet"; diff.Dirty != want {
				t.Errorf("dirty %v", diff.Dirty)
			}
		})
	}
}

// What is denied to commands is denied to git too; that must not look like a
// change, and its content must not come into the patch.
func TestDeniedPaths(t *testing.T) {
	dir := repo(t, map[string]string{"a": "a\n", "private/key": "tok-123\n", ".env": "tok-123\n"})
	facts, err := Find(dir)
	check(t, err)
	d := Open(Options{
		Facts: facts, Private: filepath.Join(t.TempDir(), "p"), Env: os.Environ(),
		Spec: sandbox.Spec{Deny: []string{filepath.Join(dir, "private"), filepath.Join(dir, ".env")}},
	})
	check(t, d.Ready(t.Context()))
	put(t, dir, map[string]string{"a": "b\n", ".env": "tok-1234\n"})
	diff := d.Diff(t.Context())
	if diff.Error != "" || stats(diff.Files) != "update a +1-1" || diff.Dirty || strings.Contains(diff.Patch, "tok-123") {
		t.Errorf("%s %s dirty %v\n%s", diff.Error, stats(diff.Files), diff.Dirty, diff.Patch)
	}
	if len(diff.Omitted) != 1 || !strings.HasPrefix(diff.Omitted[0], ".env: ") {
		t.Errorf("omitted: %q", diff.Omitted)
	}
	check(t, d.Close())
}

func FuzzParseDiff(f *testing.F) {
	f.Add(":100644 100644 aaa bbb M\x00a\x00:000000 100644 0 c A\x00b\x001\t2\ta\x00-\t-\tb\x00")
	f.Add(":100644 100755 aaa bbb R100\x00a\x00b\x000\t0\t\x00a\x00b\x00")
	f.Add(":100644 100644 aaa bbb M\x00a\x001\t2\ta\x00\x00diff --git a/a b/a\n+zero \x00\n")
	f.Fuzz(func(t *testing.T, out string) {
		files, patch, err := parseDiff([]byte(out), "p/")
		for _, s := range files {
			if err == nil && !strings.HasPrefix(s.Path, "p/") {
				t.Errorf("path %q", s.Path)
			}
		}
		if err == nil && !strings.HasSuffix(out, string(patch)) {
			t.Errorf("%q is not the rest of %q", patch, out)
		}
	})
}
