package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Init(nil)
	goleak.VerifyTestMain(m)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// git runs a real git outside the sandbox, as the user would.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		check(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

// repo makes a repository with one commit of files.
func repo(t *testing.T, files map[string]string) string {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	check(t, err)
	dir := filepath.Join(base, "ws")
	check(t, os.Mkdir(dir, 0o755))
	git(t, dir, "init", "-q", "-b", "main")
	put(t, dir, files)
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "first")
	return dir
}

// opened opens a workspace as a run would.
func opened(t *testing.T, dir string, b Bounds) *Dir {
	t.Helper()
	facts, err := Find(dir)
	check(t, err)
	d := Open(Options{Facts: facts, Private: filepath.Join(t.TempDir(), "private"), Env: os.Environ(), Bounds: b})
	t.Cleanup(func() { check(t, d.Close()) })
	return d
}

// shared opens a workspace with the sandbox of a run, as a run does, in which git
// can be a side command.
func shared(t *testing.T, dir string, o Options) (*Dir, *sandbox.Sandbox) {
	t.Helper()
	facts, err := Find(dir)
	check(t, err)
	o.Facts, o.Private = facts, filepath.Join(t.TempDir(), "private")
	check(t, os.Mkdir(o.Private, 0o700))
	if o.Env == nil {
		o.Env = os.Environ()
	}
	o.Spec.Mode, o.Spec.Workspace, o.Spec.Side = sandbox.WorkspaceWrite, facts.Dir, o.Private
	o.Spec.ProtectNames, o.Spec.Show = []string{".git"}, facts.GitFolders()
	box, err := sandbox.Open(t.Context(), o.Spec)
	check(t, err)
	t.Cleanup(func() { check(t, box.Close()) })
	d := Open(o)
	t.Cleanup(func() { check(t, d.Close()) })
	d.Share(box)
	return d, box
}

// sharedDiff is captured in the sandbox of a run.
func sharedDiff(t *testing.T, dir string, o Options, change func(*sandbox.Sandbox)) (event.DiffCaptured, *Dir) {
	t.Helper()
	d, box := shared(t, dir, o)
	check(t, d.Ready(t.Context()))
	change(box)
	check(t, box.Settle())
	return d.Diff(t.Context()), d
}

// captured runs change between baseline and diff.
func captured(t *testing.T, dir string, b Bounds, change func()) event.DiffCaptured {
	t.Helper()
	d := opened(t, dir, b)
	check(t, d.Ready(t.Context()))
	change()
	diff := d.Diff(t.Context())
	if diff.Error != "" {
		t.Fatal(diff.Error)
	}
	if want := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(diff.Patch))); diff.Digest != want {
		t.Errorf("digest %s, want %s", diff.Digest, want)
	}
	return diff
}

// state is the content of a folder: path to mode and content.
func state(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	check(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		check(t, err)
		if d.Name() == ".git" {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		check(t, err)
		info, err := d.Info()
		check(t, err)
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			check(t, err)
			all[rel] = "-> " + target
			return nil
		}
		b, err := os.ReadFile(path)
		check(t, err)
		all[rel] = fmt.Sprintf("%v %x", info.Mode().Perm()&0o100, b)
		return nil
	}))
	return all
}

// apply applies a patch to a copy of the folder as it was.
func apply(t *testing.T, dir, patch string) {
	t.Helper()
	if patch == "" {
		return
	}
	cmd := exec.Command("git", "apply", "--whitespace=nowarn", "-")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(patch)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v\n%s\n%s", err, out, patch)
	}
}

func copyTree(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	out, err := exec.Command("cp", "-a", from, to).CombinedOutput()
	if err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
	return to
}

func same(t *testing.T, got, want map[string]string, but ...string) {
	t.Helper()
	for name := range want {
		if got[name] != want[name] && !slices.Contains(but, name) {
			t.Errorf("%s is %.80q, want %.80q", name, got[name], want[name])
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok && !slices.Contains(but, name) {
			t.Errorf("%s should not be there", name)
		}
	}
}

func stats(files []event.FileStat) string {
	var list []string
	for _, f := range files {
		s := f.Kind + " " + f.Path
		if f.OldPath != "" {
			s += "<" + f.OldPath
		}
		if f.Binary {
			s += " bin"
		} else {
			s += fmt.Sprintf(" +%d-%d", f.Added, f.Deleted)
		}
		if f.Mode != "" {
			s += " " + f.Mode
		}
		list = append(list, s)
	}
	return strings.Join(list, ", ")
}

var twenty = strings.Repeat("a line of text\n", 20)

// Each row: what was there before the run (after the commit), and what the run
// does. The patch must turn the one into the other.
func TestDiffTurnsBeforeIntoAfter(t *testing.T) {
	sh := func(script string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			cmd := exec.Command("sh", "-ec", script)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
				"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", script, err, out)
			}
		}
	}
	commit := map[string]string{
		"a.txt": "one\ntwo\n", "b.txt": twenty, "sub/c.txt": "c\n", "bin": "\x00\x01\x02", "run.sh": "#!/bin/sh\n",
		".gitignore": "*.log\nout/\n", "crlf.txt": "x\r\ny\r\n", "name with blank\tand tab": "odd\n", "ü.txt": "ü\n", "noeol": "no newline",
	}
	for _, c := range []struct {
		name, before, during, want string
		dirty                      bool
		ignored                    []string // paths that may differ, since the patch leaves them out
	}{
		{name: "nothing", during: "true"},
		{name: "read only", during: "cat a.txt > /dev/null; touch a.txt"},
		{name: "edit", during: "echo three >> a.txt", want: "update a.txt +1-0"},
		{name: "add, delete, rename, mode, link", during: "echo n > new.txt; rm sub/c.txt; mv b.txt moved.txt; chmod +x a.txt; ln -s a.txt link",
			want: "mode a.txt +0-0 100755, add link +1-0 120000, rename moved.txt<b.txt +0-0, add new.txt +1-0 100644, delete sub/c.txt +0-1"},
		{name: "binary", during: `printf '\000\377\001' > bin; head -c 5000 /dev/zero > zeros`, want: "update bin bin, add zeros bin 100644"},
		{name: "ignored stay out", during: "echo x > a.log; mkdir out; echo x > out/f; echo y > b.log", ignored: []string{"a.log", "b.log", "out/f"}},
		{name: "file becomes folder", during: "rm a.txt; mkdir a.txt; echo x > a.txt/x", want: "delete a.txt +0-2, add a.txt/x +1-0 100644"},
		{name: "folder becomes file", during: "rm -r sub; echo x > sub", want: "add sub +1-0 100644, delete sub/c.txt +0-1"},
		{name: "file becomes link", during: "rm a.txt; ln -s b.txt a.txt", want: "update a.txt +1-2 120000"},
		{name: "odd names", during: `echo x >> 'name with blank	and tab'; echo x > "$(printf 'new\nline')"; echo x > '"q"'; echo x >> ü.txt; echo x > -dash; echo x > ' lead'; mkdir 'd '; echo x > 'd /f'`,
			want: "add  lead +1-0 100644, add \"q\" +1-0 100644, add -dash +1-0 100644, add d /f +1-0 100644, update name with blank\tand tab +1-0, add new\nline +1-0 100644, update ü.txt +1-0"},
		{name: "line ends", during: `printf 'x\r\nz\r\n' > crlf.txt; printf 'no newline now' > noeol`, want: "update crlf.txt +1-1, update noeol +1-1"},
		{name: "dirty before: only the run's part", before: "echo mine >> a.txt; echo mine > mine.txt; rm sub/c.txt; git add b.txt; echo s >> b.txt; git add b.txt; echo t >> b.txt",
			during: "echo run >> a.txt; echo run >> mine.txt; echo run >> b.txt", dirty: true,
			want: "update a.txt +1-0, update b.txt +1-0, update mine.txt +1-0"},
		{name: "dirty before, untouched", before: "echo mine >> a.txt; echo mine > mine.txt", during: "true", dirty: true},
		{name: "undo of what was dirty", before: "echo mine >> a.txt; echo mine > mine.txt", during: "git checkout -q a.txt; rm mine.txt", dirty: true,
			want: "update a.txt +0-1, delete mine.txt +0-1"},
		{name: "unmerged before", before: "git checkout -q -b x; echo x >> a.txt; git commit -qam x; git checkout -q main; echo m >> a.txt; git commit -qam m; git merge x || true",
			during: "printf 'merged\n' > a.txt; git add a.txt", dirty: true, want: "update a.txt +1-7"},
		{name: "commits", during: "echo three >> a.txt; echo n > n; git add -A; git commit -qm one; echo four >> a.txt; git commit -qam two; git checkout -q -b elsewhere",
			want: "update a.txt +2-0, add n +1-0 100644"},
		{name: "forced past ignore", during: "echo x > keep.log; git add -f keep.log; git commit -qm keep", want: "add keep.log +1-0 100644"},
		{name: "index only", during: "echo three >> a.txt; git add a.txt; git stash -q"},
		{name: "ignore rules change", before: "echo old > old.tmp", during: "echo '*.tmp' >> .gitignore; echo new >> old.tmp; echo n > n.tmp", dirty: true,
			want: "update .gitignore +1-0, update old.tmp +1-0", ignored: []string{"n.tmp"}},
		{name: "intent to add", before: "echo x > later; git add -N later", during: "echo y >> later", dirty: true, want: "update later +1-0"},
		{name: "hidden from git before", before: "git update-index --skip-worktree a.txt; git update-index --assume-unchanged b.txt", during: "echo n > n", want: "add n +1-0 100644"},
		{name: "hidden from git, and changed", before: "git update-index --skip-worktree a.txt; git update-index --assume-unchanged b.txt",
			during: "echo x >> a.txt; rm b.txt; echo y >> sub/c.txt", want: "update a.txt +1-0, delete b.txt +0-20, update sub/c.txt +1-0"},
		{name: "hidden from git because it was changed", before: "git update-index --skip-worktree a.txt; git update-index --assume-unchanged b.txt; echo mine >> a.txt; echo mine >> b.txt",
			during: "echo x >> a.txt; echo x >> b.txt", dirty: true, want: "update a.txt +1-0, update b.txt +1-0"},
		{name: "a part checked out", before: "git sparse-checkout set --no-cone '/*' '!/sub/'; test ! -e sub", during: "echo x >> a.txt; mkdir -p sub; echo n > sub/n",
			want: "update a.txt +1-0, add sub/n +1-0 100644"},
		{name: "index removed", during: "rm .git/index; echo n > n", want: "add n +1-0 100644"},
		{name: "same size and time", during: "printf 'one\nTWO\n' > a.txt; touch -d '2001-01-01' a.txt", want: "update a.txt +1-1"},
		{name: "a new repository inside", during: "mkdir lib; cd lib; git init -q; echo l > l.txt; git add -A; git commit -qm l; echo u > u.txt",
			want: "add lib/l.txt +1-0 100644, add lib/u.txt +1-0 100644"},
		{name: "an untracked repository that was there", before: "mkdir lib; cd lib; git init -q; echo l > l.txt; echo ig > .gitignore; git add -A; git commit -qm l; echo d >> l.txt",
			dirty: true, during: "echo r >> lib/l.txt; echo n > lib/n; echo g > lib/ig", want: "update lib/l.txt +1-0, add lib/n +1-0 100644", ignored: []string{"lib/ig"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := repo(t, commit)
			if c.before != "" {
				sh(c.before)(t, dir)
			}
			old := copyTree(t, dir)
			again := copyTree(t, dir) // for a run whose git works in the run's sandbox
			diff := captured(t, dir, Bounds{}, func() { sh(c.during)(t, dir) })
			if d, _ := sharedDiff(t, again, Options{}, func(*sandbox.Sandbox) { sh(c.during)(t, again) }); d.Error != "" || d.Patch != diff.Patch || d.Head != diff.Head {
				t.Errorf("in the sandbox of a run: %s\n%s", d.Error, d.Patch)
			}
			if got := stats(diff.Files); got != c.want {
				t.Errorf("files:\n got %s\nwant %s", got, c.want)
			}
			if diff.Dirty != c.dirty {
				t.Errorf("dirty %v", diff.Dirty)
			}
			if len(diff.Omitted) > 0 {
				t.Errorf("omitted: %q", diff.Omitted)
			}
			apply(t, old, diff.Patch)
			same(t, state(t, old), state(t, dir), c.ignored...)
			if c.dirty || diff.Base == "" {
				return
			}
			clean := filepath.Join(t.TempDir(), "clean")
			git(t, dir, "clone", "-q", "--no-checkout", dir, clean)
			git(t, clean, "checkout", "-q", diff.Base)
			apply(t, clean, diff.Patch)
			if c.before == "" {
				same(t, state(t, clean), state(t, dir), c.ignored...)
			}
		})
	}
}

// A repository in the index counts as one, also where no .gitmodules names it.
func TestDiffOfLinkedRepository(t *testing.T) {
	dir := repo(t, map[string]string{"a.txt": "one\n", "lib/l.txt": "l\n"})
	lib := filepath.Join(dir, "lib")
	git(t, dir, "rm", "-rq", "--cached", "lib")
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"commit", "-qm", "l"}} {
		git(t, lib, args...)
	}
	git(t, dir, "add", "lib")
	git(t, dir, "commit", "-qm", "lib")
	old := copyTree(t, dir)
	diff := captured(t, dir, Bounds{}, func() { put(t, lib, map[string]string{"l.txt": "l\nr\n", "n": "n\n"}) })
	if got, want := stats(diff.Files), "update lib/l.txt +1-0, add lib/n +1-0 100644"; got != want || len(diff.Omitted) > 0 {
		t.Errorf("files: got %s, want %s; omitted %q", got, want, diff.Omitted)
	}
	apply(t, old, diff.Patch)
	same(t, state(t, old), state(t, dir))
}

// Looking must leave no trace: the user's index and objects stay as they are.
func TestDiffLeavesTheRepositoryAlone(t *testing.T) {
	dir := repo(t, map[string]string{"a": "a\n"})
	put(t, dir, map[string]string{"a": "changed\n", "new": "n\n"})
	before := gitFiles(t, dir)
	d := opened(t, dir, Bounds{})
	check(t, d.Ready(t.Context()))
	put(t, dir, map[string]string{"a": "again\n", "new": "m\n"})
	if diff := d.Diff(t.Context()); diff.Error != "" || stats(diff.Files) != "update a +1-1, update new +1-1" {
		t.Errorf("%s %+v", diff.Error, diff.Files)
	}
	check(t, d.Close())
	if after := gitFiles(t, dir); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if _, err := os.Stat(d.o.Private); !os.IsNotExist(err) {
		t.Errorf("the private folder is left: %v", err)
	}
}

func gitFiles(t *testing.T, dir string) string {
	t.Helper()
	var b bytes.Buffer
	check(t, filepath.WalkDir(filepath.Join(dir, ".git"), func(path string, e fs.DirEntry, err error) error {
		check(t, err)
		info, err := e.Info()
		check(t, err)
		if e.IsDir() {
			fmt.Fprintln(&b, path)
			return nil
		}
		text, err := os.ReadFile(path)
		check(t, err)
		fmt.Fprintf(&b, "%s %v %x\n", path, info.ModTime(), sha256.Sum256(text))
		return nil
	}))
	return b.String()
}

// Whatever the repository's configuration and attributes name, none of it runs.
func TestDiffRunsNothingOfTheRepository(t *testing.T) {
	for name, diffOf := range map[string]func(string, func()) event.DiffCaptured{
		"own sandbox": func(dir string, change func()) event.DiffCaptured { return captured(t, dir, Bounds{}, change) },
		"the run's sandbox": func(dir string, change func()) event.DiffCaptured {
			diff, _ := sharedDiff(t, dir, Options{}, func(*sandbox.Sandbox) { change() })
			return diff
		},
	} {
		t.Run(name, func(t *testing.T) { runsNothing(t, diffOf) })
	}
}

func runsNothing(t *testing.T, diffOf func(string, func()) event.DiffCaptured) {
	dir := repo(t, map[string]string{"a": "a\n", "x.dat": "x\n", ".gitattributes": "*.dat diff=evil filter=evil merge=evil\n"})
	mark := filepath.Join(t.TempDir(), "mark")
	program := filepath.Join(t.TempDir(), "evil.sh")
	check(t, os.WriteFile(program, []byte("#!/bin/sh\necho \"$0 $*\" >> "+mark+"\ncat\n"), 0o755))
	for _, key := range []string{"core.fsmonitor", "diff.external", "core.pager", "core.editor", "core.sshCommand", "core.askPass",
		"filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.evil.textconv", "diff.evil.command", "gpg.program", "alias.diff-tree", "alias.ls-files"} {
		git(t, dir, "config", key, program)
	}
	hooks := filepath.Join(dir, ".git/hooks")
	for _, name := range []string{"post-index-change", "fsmonitor-watchman", "reference-transaction", "pre-commit"} {
		check(t, os.MkdirAll(hooks, 0o755))
		check(t, os.WriteFile(filepath.Join(hooks, name), []byte("#!/bin/sh\n"+program+" "+name+"\n"), 0o755))
	}
	diff := diffOf(dir, func() { put(t, dir, map[string]string{"a": "b\n", "x.dat": "y\n", "new.dat": "n\n"}) })
	if got := stats(diff.Files); got != "update a +1-1" {
		t.Errorf("files: %s", got)
	}
	if len(diff.Omitted) != 2 || !strings.Contains(diff.Omitted[0], `through the filter "evil"`) {
		t.Errorf("omitted: %q", diff.Omitted)
	}
	if b, err := os.ReadFile(mark); err == nil {
		t.Errorf("git ran\n%s", b)
	}
}

func TestWithoutReadyNothingStarts(t *testing.T) {
	d := opened(t, repo(t, nil), Bounds{})
	diff := d.Diff(t.Context())
	if diff.Error != "" || len(diff.Files) != 0 || diff.Base == "" || diff.Digest == "" {
		t.Errorf("%+v", diff)
	}
	if _, err := os.Stat(d.o.Private); !os.IsNotExist(err) {
		t.Error("something was started")
	}
	check(t, d.Close())
	check(t, d.Close())
}

func TestReadyEndsWithItsContext(t *testing.T) {
	d := opened(t, repo(t, nil), Bounds{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Ready(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Ready: %v", err)
	}
	check(t, d.Ready(t.Context())) // somebody else may still wait for it
}
