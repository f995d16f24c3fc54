package patch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// yard is a writable folder "ws" beside a folder "out" that is not.
func yard(t *testing.T) (ws, out string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ws, out = filepath.Join(base, "ws"), filepath.Join(base, "out")
	lay(t, base, map[string]string{"ws/a": "one\n", "out/victim": "keep\n"})
	return ws, out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const (
	changeA = "*** Begin Patch\n*** Update File: %s\n@@\n-%s\n+changed\n*** End Patch\n"
	addA    = "*** Begin Patch\n*** Add File: %s\n+changed\n*** End Patch\n"
	deleteA = "*** Begin Patch\n*** Delete File: %s\n*** End Patch\n"
	moveA   = "*** Begin Patch\n*** Update File: a\n*** Move to: %s\n@@\n-one\n+changed\n*** End Patch\n"
)

// TestEscapes tries every way out of the writable folder. Whatever the form,
// the answer is a rejection and neither side of the fence changes.
func TestEscapes(t *testing.T) {
	t.Parallel()
	ws, out := yard(t)
	must(t, os.Symlink("../out", filepath.Join(ws, "link")))
	must(t, os.Symlink(out, filepath.Join(ws, "abs-link")))
	must(t, os.Symlink("../out/victim", filepath.Join(ws, "file-link")))
	must(t, os.Symlink("../out/not-yet", filepath.Join(ws, "dangling")))
	must(t, os.Symlink("link", filepath.Join(ws, "link-to-link")))
	must(t, os.MkdirAll(filepath.Join(ws, "sub/deep"), 0o777))
	must(t, os.Symlink("sub/deep", filepath.Join(ws, "down")))
	targets := []string{
		"../out/victim", out + "/victim", "link/victim", "abs-link/victim", "file-link", "link-to-link/victim",
		"sub/../../out/victim", "./../out/victim", "missing/../../out/victim", "down/../../../out/victim",
		ws + "/../out/victim", "link/./victim", "dangling",
	}
	before := tree(t, filepath.Dir(ws))
	for _, target := range targets {
		for _, form := range []string{fmt.Sprintf(changeA, target, "keep"), fmt.Sprintf(addA, target), fmt.Sprintf(deleteA, target), fmt.Sprintf(moveA, target)} {
			got := apply(t, Request{Patch: form, Scope: Scope{Workdir: ws, Roots: []string{ws}}})
			if last := got[len(got)-1]; last.Class != ClassRejected || last.Reason != Outside {
				t.Errorf("%s\nwas answered %q %q: %s", form, last.Class, last.Reason, last.Message)
			}
		}
	}
	if d := cmp.Diff(before, tree(t, filepath.Dir(ws))); d != "" {
		t.Errorf("files changed:\n%s", d)
	}
}

// TestLinksInside: links that stay inside are followed; deleting one removes
// the link only.
func TestLinksInside(t *testing.T) {
	t.Parallel()
	ws, _ := yard(t)
	lay(t, ws, map[string]string{"real/f": "two\n"})
	must(t, os.Symlink("real", filepath.Join(ws, "rel")))
	must(t, os.Symlink(filepath.Join(ws, "real"), filepath.Join(ws, "abs")))
	must(t, os.Symlink("real/f", filepath.Join(ws, "f")))
	scope := Scope{Workdir: ws, Roots: []string{ws}}
	for i, name := range []string{"rel/f", "abs/f", "f", filepath.Join(ws, "rel/f")} {
		old := "two"
		if i > 0 {
			old = "changed"
		}
		got := apply(t, Request{Patch: fmt.Sprintf(changeA, name, old), Scope: scope})
		if last := got[len(got)-1]; last.Stage != Done {
			t.Errorf("%s: %s", name, last.Message)
		}
	}
	if fi, err := os.Lstat(filepath.Join(ws, "f")); err != nil || fi.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link was replaced by a file: %v %v", fi, err)
	}
	text := "*** Begin Patch\n*** Delete File: f\n*** Add File: f\n+own\n*** End Patch\n"
	got := apply(t, Request{Patch: text, Scope: scope})
	if last := got[len(got)-1]; last.Stage != Done {
		t.Fatal(last.Message)
	}
	want := map[string]string{"a": "one\n", "real/f": "changed\n", "f": "own\n", "rel": "", "abs": ""}
	for name, data := range want {
		if b, err := os.ReadFile(filepath.Join(ws, name)); data != "" && (err != nil || string(b) != data) {
			t.Errorf("%s holds %q, %v", name, b, err)
		}
	}
}

// TestGuarded: protected names and paths under every spelling.
func TestGuarded(t *testing.T) {
	t.Parallel()
	ws, _ := yard(t)
	lay(t, ws, map[string]string{".git/config": "one\n", "nested/.git/config": "one\n", "keep/x": "one\n", ".agents/open/x": "one\n"})
	must(t, os.Symlink(".git", filepath.Join(ws, "g")))
	scope := Scope{Workdir: ws, Roots: []string{ws, filepath.Join(ws, ".agents/open")}, ProtectNames: []string{".git", ".codex", ".agents"},
		Protected: []string{filepath.Join(ws, "keep"), filepath.Join(ws, ".agents")}}
	for _, name := range []string{".git/config", "./.git/config", "g/config", "nested/.git/config", "keep/x", "keep/../keep/x", ".codex/new", "nested/../.codex/new",
		".agents/new", ".git", ".codex", "keep", filepath.Join(ws, ".git/config")} {
		for _, form := range []string{fmt.Sprintf(changeA, name, "one"), fmt.Sprintf(addA, name), fmt.Sprintf(deleteA, name), fmt.Sprintf(moveA, name)} {
			got := apply(t, Request{Patch: form, Scope: scope})
			if last := got[len(got)-1]; last.Class != ClassRejected || last.Reason != Guarded {
				t.Errorf("%s\nwas answered %q %q: %s", form, last.Class, last.Reason, last.Message)
			}
		}
	}
	for _, name := range []string{".agents/open/x", "nested/.codex/x", "nested/.gitignore"} {
		got := apply(t, Request{Patch: fmt.Sprintf(addA, name), Scope: scope})
		if last := got[len(got)-1]; last.Stage != Done {
			t.Errorf("%s: %s", name, last.Message)
		}
	}
	got := apply(t, Request{Patch: fmt.Sprintf(addA, "new"), Scope: Scope{Workdir: ws}})
	if last := got[len(got)-1]; last.Reason != NoWriting {
		t.Errorf("without roots: %+v", last)
	}
}

// TestSpecialFiles: what is not a plain file, or a file of others too, is refused
// without waiting and without a change.
func TestSpecialFiles(t *testing.T) {
	t.Parallel()
	ws, out := yard(t)
	must(t, syscall.Mkfifo(filepath.Join(ws, "pipe"), 0o666))
	must(t, os.Link(filepath.Join(out, "victim"), filepath.Join(ws, "hard")))
	must(t, os.Symlink("loop", filepath.Join(ws, "loop")))
	names := []string{"pipe", "hard", "loop"}
	if err := syscall.Mknod(filepath.Join(ws, "dev"), syscall.S_IFCHR|0o666, 1<<8|3); err == nil {
		names = append(names, "dev")
	}
	for _, name := range names {
		for _, form := range []string{fmt.Sprintf(changeA, name, "keep"), fmt.Sprintf(addA, name), fmt.Sprintf(deleteA, name), fmt.Sprintf(moveA, name)} {
			got := apply(t, Request{Patch: form, Scope: Scope{Workdir: ws, Roots: []string{ws}}})
			if last := got[len(got)-1]; last.Class != ClassVerify || last.Message == "" {
				t.Errorf("%s\nwas answered %q: %s", form, last.Class, last.Message)
			}
		}
	}
	if b, err := os.ReadFile(filepath.Join(out, "victim")); err != nil || string(b) != "keep\n" {
		t.Errorf("the outside file holds %q, %v", b, err)
	}
}

// TestModeAndOwner: an executable stays one, also when it is moved.
func TestModeAndOwner(t *testing.T) {
	t.Parallel()
	ws, _ := yard(t)
	a := filepath.Join(ws, "a")
	must(t, os.Chmod(a, 0o751))
	root := os.Getuid() == 0
	if root {
		must(t, os.Chown(a, 1234, 2345))
	}
	scope := Scope{Workdir: ws, Roots: []string{ws}}
	for _, step := range []struct{ patch, file string }{
		{fmt.Sprintf(changeA, "a", "one"), a},
		{"*** Begin Patch\n*** Update File: a\n*** Move to: d/b\n@@\n-changed\n+moved\n*** End Patch\n", filepath.Join(ws, "d/b")},
		{fmt.Sprintf(addA, "d/b"), filepath.Join(ws, "d/b")},
	} {
		if last := apply(t, Request{Patch: step.patch, Scope: scope}); last[len(last)-1].Stage != Done {
			t.Fatal(last[len(last)-1].Message)
		}
		fi, err := os.Stat(step.file)
		must(t, err)
		if fi.Mode().Perm() != 0o751 {
			t.Errorf("%s: mode %o", step.file, fi.Mode().Perm())
		}
		if o := ownerOf(fi); root && (o.uid != 1234 || o.gid != 2345) {
			t.Errorf("%s: owner %+v", step.file, o)
		}
	}
}

// TestWriteErrorKeepsPrefix: a write that fails in the middle reports what was
// changed before it, and leaves nothing of its own.
func TestWriteErrorKeepsPrefix(t *testing.T) {
	t.Parallel()
	ws, _ := yard(t)
	long := strings.Repeat("n", 300) // no file system takes such a name
	text := "*** Begin Patch\n*** Add File: first\n+1\n*** Update File: a\n@@\n-one\n+ONE\n*** Add File: new/" + long + "\n+x\n*** Add File: last\n+2\n*** End Patch\n"
	got := apply(t, Request{Patch: text, Scope: Scope{Workdir: ws, Roots: []string{ws}}})
	if len(got) == 2 {
		last := got[1]
		if last.Class != ClassWrite || last.Headline != "Failed to write file "+filepath.Join(ws, "new", long) {
			t.Errorf("%+v", last)
		}
		if d := cmp.Diff([]string{"A first", "M a"}, last.Summary); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff(map[string]string{"a": "ONE\n", "first": "1\n"}, tree(t, ws)); d != "" {
			t.Error(d)
		}
	} else if got[0].Class != ClassVerify {
		// A file system may refuse the name before anything is written.
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(filepath.Join(ws, "new")); err == nil {
		t.Error("the folder of the failed file stays")
	}
}

// TestUnwritableFolder: where no new file can be made, the old one is written
// in place.
func TestUnwritableFolder(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 {
		t.Skip("root may write anywhere")
	}
	ws, _ := yard(t)
	must(t, os.Chmod(ws, 0o555))
	t.Cleanup(func() { os.Chmod(ws, 0o777) })
	got := apply(t, Request{Patch: fmt.Sprintf(changeA, "a", "one"), Scope: Scope{Workdir: ws, Roots: []string{ws}}})
	if last := got[len(got)-1]; last.Stage != Done {
		t.Error(last.Message)
	}
	got = apply(t, Request{Patch: fmt.Sprintf(addA, "new"), Scope: Scope{Workdir: ws, Roots: []string{ws}}})
	if last := got[len(got)-1]; last.Class != ClassWrite {
		t.Errorf("%+v", last)
	}
}

// TestLargeFile: a sparse file does not fill the memory.
func TestLargeFile(t *testing.T) {
	t.Parallel()
	ws, _ := yard(t)
	must(t, os.Truncate(filepath.Join(ws, "a"), 1<<40))
	got := apply(t, Request{Patch: fmt.Sprintf(changeA, "a", "one"), Scope: Scope{Workdir: ws, Roots: []string{ws}}})
	if last := got[len(got)-1]; last.Class != ClassVerify || !strings.Contains(last.Message, "larger than") {
		t.Errorf("%+v", last)
	}
}

// TestCheckOnly writes nothing.
func TestCheckOnly(t *testing.T) {
	t.Parallel()
	ws, _ := yard(t)
	before := tree(t, ws)
	got := apply(t, Request{Check: true, Patch: fmt.Sprintf(changeA, "a", "one"), Scope: Scope{Workdir: ws, Roots: []string{ws}}})
	if len(got) != 1 || got[0].Stage != Verified || got[0].Changes[0] != (PathChange{Path: filepath.Join(ws, "a"), Kind: Update}) {
		t.Errorf("%+v", got)
	}
	if d := cmp.Diff(before, tree(t, ws)); d != "" {
		t.Error(d)
	}
}

// What is told of a file is what became of it.
func TestOneChangePerPath(t *testing.T) {
	for kinds, want := range map[string]Kind{
		"add": Add, "add update": Add, "update update": Update, "delete add": Update, "delete add update": Update,
		"update delete": Delete, "update delete add": Update, "delete": Delete,
	} {
		var list []PathChange
		for _, k := range strings.Fields(kinds) {
			list = append(list, PathChange{Path: "/f", Kind: Kind(k)})
		}
		if got := onePerPath(list); len(got) != 1 || got[0].Kind != want {
			t.Errorf("%s: %+v", kinds, got)
		}
	}
}
