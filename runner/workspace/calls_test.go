package workspace

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// countedGit puts a git before the real one that writes down how it was called,
// and gives the words of each call, the options before the command left out.
func countedGit(t *testing.T, private string) (env []string, calls func() []string) {
	t.Helper()
	real, err := exec.LookPath("git")
	check(t, err)
	bin, log := t.TempDir(), filepath.Join(private, "calls")
	script := "#!/bin/sh\n" + `for w; do case $w in ls-files|status|config|check-attr|update-index|write-tree|rev-parse|diff-*|hash-object) echo "$w" >> '` + log + `'; break; esac; done` +
		"\nexec " + real + ` "$@"` + "\n"
	check(t, os.WriteFile(filepath.Join(bin, "git"), []byte(script), 0o755))
	return append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+t.TempDir(), "XDG_CONFIG_HOME="), func() []string {
		b, err := os.ReadFile(log)
		check(t, err)
		return strings.Fields(string(b))
	}
}

// Each git call is a process in the sandbox and costs as much as a command of the
// model. In a plain repository few of them tell all there is to tell.
func TestFewGitCalls(t *testing.T) {
	many := map[string]string{"a": "a\n", "b/c": "c\n"}
	for _, c := range []struct {
		name, want string
		prepare    func(dir string)
		change     map[string]string
	}{
		{name: "read only", want: "status ls-files"},
		{name: "changed", change: map[string]string{"a": "b\n", "n": "n\n"}, want: "status ls-files update-index diff-index"},
		{name: "changed before", prepare: func(dir string) { put(t, dir, map[string]string{"a": "x\n"}) }, change: map[string]string{"a": "b\n"},
			want: "status ls-files update-index write-tree rev-parse ls-files update-index diff-index"},
		{name: "attributes", prepare: func(dir string) {
			put(t, dir, map[string]string{".gitattributes": "*.dat filter=lfs\n"})
			git(t, dir, "add", "-A")
			git(t, dir, "commit", "-qm", "attributes")
		}, change: map[string]string{"x.dat": "x\n", "n": "n\n"}, want: "status ls-files check-attr update-index diff-index"},
		{name: "included settings", prepare: func(dir string) { git(t, dir, "config", "include.path", "more") }, want: "config status ls-files"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := repo(t, many)
			if c.prepare != nil {
				c.prepare(dir)
			}
			facts, err := Find(dir)
			check(t, err)
			private := filepath.Join(t.TempDir(), "private")
			env, calls := countedGit(t, private)
			d := Open(Options{Facts: facts, Private: private, Env: env})
			defer func() { check(t, d.Close()) }()
			check(t, d.Ready(t.Context()))
			put(t, dir, c.change)
			if diff := d.Diff(t.Context()); diff.Error != "" {
				t.Fatal(diff.Error)
			}
			if got := strings.Join(calls(), " "); got != c.want {
				t.Errorf("git was called for\n%s, not\n%s", got, c.want)
			}
		})
	}
}

// Attributes count wherever they are written.
func TestFiltersAreFoundWhereverTheyAreNamed(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, dir, home string){
		"above the file": func(t *testing.T, dir, _ string) {
			put(t, dir, map[string]string{".gitattributes": "*.dat filter=lfs\n"})
		},
		"beside the file": func(t *testing.T, dir, _ string) {
			put(t, dir, map[string]string{"d/.gitattributes": "*.dat filter=lfs\n"})
		},
		"of the repository": func(t *testing.T, dir, _ string) {
			put(t, dir, map[string]string{".git/info/attributes": "*.dat filter=lfs\n"})
		},
		"of the user": func(t *testing.T, _, home string) {
			put(t, home, map[string]string{".config/git/attributes": "*.dat filter=lfs\n"})
		},
		"named by a setting": func(t *testing.T, dir, home string) {
			put(t, home, map[string]string{"elsewhere": "*.dat filter=lfs\n"})
			git(t, dir, "config", "core.attributesFile", filepath.Join(home, "elsewhere"))
		},
		"only in the index": func(t *testing.T, dir, _ string) {
			put(t, dir, map[string]string{".gitattributes": "*.dat filter=lfs\n"})
			git(t, dir, "add", ".gitattributes")
			git(t, dir, "commit", "-qm", "attributes")
			git(t, dir, "update-index", "--skip-worktree", ".gitattributes")
			check(t, os.Remove(filepath.Join(dir, ".gitattributes")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, home := repo(t, map[string]string{"a": "a\n", "d/x.dat": "x\n"}), t.TempDir()
			prepare(t, dir, home)
			facts, err := Find(dir)
			check(t, err)
			d := Open(Options{Facts: facts, Private: filepath.Join(t.TempDir(), "private"), Env: append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME=")})
			defer func() { check(t, d.Close()) }()
			check(t, d.Ready(t.Context()))
			put(t, dir, map[string]string{"d/x.dat": "y\n"})
			diff := d.Diff(t.Context())
			if diff.Error != "" || len(diff.Files) != 0 || len(diff.Omitted) != 1 || !strings.Contains(diff.Omitted[0], `filter "lfs"`) {
				t.Errorf("%s %s %q", diff.Error, stats(diff.Files), diff.Omitted)
			}
		})
	}
}

// reference is what plain git says about the state of a folder: its tree, the
// patch from another one, and whether that is the commit's.
func reference(t *testing.T, dir string) (tree string, patch func(from string) string) {
	t.Helper()
	index := filepath.Join(t.TempDir(), "index")
	if st, err := os.Stat(filepath.Join(dir, ".git/index")); err == nil {
		b, err := os.ReadFile(filepath.Join(dir, ".git/index"))
		check(t, err)
		check(t, os.WriteFile(index, b, 0o600))
		// Its time tells git which files may have changed within the clock's resolution.
		check(t, os.Chtimes(index, st.ModTime(), st.ModTime()))
	}
	run := func(args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_INDEX_FILE="+index)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %v: %v", args, err)
		}
		return string(out)
	}
	run("add", "-A")
	tree = strings.TrimSpace(run("write-tree"))
	return tree, func(from string) string {
		return run("-c", "core.compression=0", "diff-tree", "-r", "-M", "-l2000", "-p", "--binary", "--full-index", "--diff-algorithm=histogram", from, tree)
	}
}

// Whatever the changes are: tree, patch and the word about the state before are
// those of plain git.
func TestDiffIsThatOfGit(t *testing.T) {
	names := []string{"a", "a.b", "a-b", "d/x", "d/y", "d/e/z", "d.x", "d-", "ü", "q\"q", "big", "bin"}
	version := []string{"2", "3", "4"}
	const rounds = 12
	for seed := range uint64(rounds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			dir := repo(t, map[string]string{"a": "a\n", "d/x": twenty, "keep": "k\n"})
			git(t, dir, "config", "index.version", version[seed%3])
			scribble := func(n int) {
				for range n {
					path := filepath.Join(dir, names[r.IntN(len(names))])
					switch r.IntN(6) {
					case 0:
						check(t, os.RemoveAll(path))
					case 1:
						check(t, os.RemoveAll(path))
						_ = os.Symlink("a", path) // its folder may be missing
					default:
						if os.MkdirAll(filepath.Dir(path), 0o755) != nil {
							continue // a file is in the way
						}
						text := bytes.Repeat([]byte{byte('a' + r.IntN(3)), byte(r.IntN(2) * 10), '\n'}, 1+r.IntN(30))
						_ = os.WriteFile(path, text, 0o644|os.FileMode(r.IntN(2)*0o111))
					}
				}
			}
			scribble(20)
			git(t, dir, "add", "-A")
			git(t, dir, "commit", "-q", "--allow-empty", "-m", "second")
			if seed%2 == 1 {
				scribble(4)
			}
			before, _ := reference(t, dir)
			committed := git(t, dir, "rev-parse", "HEAD^{tree}")
			var diff event.DiffCaptured
			if seed%4 < 2 {
				diff = captured(t, dir, Bounds{}, func() { scribble(8) })
			} else {
				diff, _ = sharedDiff(t, dir, Options{}, func(*sandbox.Sandbox) { scribble(8) })
			}
			after, patch := reference(t, dir)
			if diff.Head != after {
				t.Errorf("tree %s, want %s", diff.Head, after)
			}
			if want := patch(before); diff.Patch != want {
				t.Errorf("patch\n%s\nwant\n%s", diff.Patch, want)
			}
			if diff.Dirty != (before != committed) {
				t.Errorf("dirty %v, trees %s %s", diff.Dirty, before, committed)
			}
		})
	}
}
