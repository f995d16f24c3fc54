package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"
)

// What is not an ordinary file is never replaced. /dev/stdout is only looked
// at here: an earlier version moved a file over it.
func TestSpecialPlacesAreWrittenDirectly(t *testing.T) {
	for _, path := range []string{"/dev/stdout", "/dev/stderr", "/dev/null", "/proc/self/fd/1", "/dev/../dev/stdout"} {
		at, err := placeOf(path)
		if err != nil {
			continue // closed in this process
		}
		if !at.direct {
			t.Errorf("%s would be replaced: %+v", path, at)
		}
	}
	for _, path := range []string{"/dev/nightshift-no-such-thing", "/proc/self/nightshift-no-such-thing"} {
		if at, err := placeOf(path); err == nil {
			t.Errorf("%s would be made: %+v", path, at)
		}
	}
	// The same for a file that is open here, pipe or not.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out, err := createFile(fmt.Sprintf("/proc/self/fd/%d", w.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(out, "through the pipe"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(out.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "through the pipe" {
		t.Errorf("%q %v", got, err)
	}
	if at, err := placeOf(t.TempDir()); err == nil {
		t.Errorf("a folder would be written: %+v", at)
	}
}

// A named pipe without a reader is an error at once, and stays a pipe.
func TestNamedPipeWithoutReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := createFile(path); !errors.Is(err, syscall.ENXIO) {
		t.Errorf("%v", err)
	}
	if fi, err := os.Lstat(path); err != nil || fi.Mode()&fs.ModeNamedPipe == 0 {
		t.Errorf("the pipe became %v, %v", fi, err)
	}
}

// A report appears whole or not at all, behind a link too, with the mode of the
// file it replaces.
func TestReportsReplaceInOneStep(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "real.json"), filepath.Join(dir, "link.json")
	if err := os.WriteFile(file, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real.json", link); err != nil {
		t.Fatal(err)
	}
	out, err := createFile(link)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(out, "new"); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(file); string(got) != "old" {
		t.Errorf("before the end it is %q", got)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(file)
	fi, err := os.Stat(file)
	if string(got) != "new" || err != nil || fi.Mode().Perm() != 0o640 {
		t.Errorf("%q %v %v", got, fi.Mode(), err)
	}
	if fi, err := os.Lstat(link); err != nil || fi.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link became %v %v", fi, err)
	}
	out, err = createFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := out.(*pending).Abort(); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(file); string(got) != "new" {
		t.Errorf("after an abort it is %q", got)
	}
	if err := os.Symlink("nothing", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	if err := (&outFiles{}).hold(filepath.Join(dir, "dangling")); err == nil {
		t.Error("a link that leads to nothing was taken")
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}

// A log can be read while it grows, and does not change what an earlier reader
// has open.
func TestLiveFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	old, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	files := &outFiles{}
	if err := files.hold(path); err != nil {
		t.Fatal(err)
	}
	defer files.release()
	out, err := files.live(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := io.WriteString(out, "line\n"); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "line\n" {
		t.Errorf("while it grows: %q", got)
	}
	if got, _ := io.ReadAll(old); string(got) != "old" {
		t.Errorf("the reader of the old file sees %q", got)
	}
}

// What commands do in the workspace leads no write of the runner elsewhere: a
// link that is planted is replaced, a folder that is moved away is told.
func TestOutputsLeadNowhereElse(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	plant := func(path, target string) {
		t.Helper()
		if err := errors.Join(os.RemoveAll(path), os.Symlink(target, path)); err != nil {
			t.Fatal(err)
		}
	}
	write(victim, "old")
	tree, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(tree, "out")
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	last, log, deep, pipe := filepath.Join(tree, "last.txt"), filepath.Join(out, "events.jsonl"), filepath.Join(out, "report.json"), filepath.Join(tree, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	files := &outFiles{tree: []string{tree}}
	for _, path := range []string{last, log, deep, pipe} {
		if err := files.hold(path); err != nil {
			t.Fatal(err)
		}
	}
	live, err := files.live(log)
	if err != nil {
		t.Fatal(err)
	}

	// The commands' turn.
	plant(last, victim)
	plant(pipe, victim)
	if err := os.Rename(out, filepath.Join(tree, "away")); err != nil {
		t.Fatal(err)
	}
	plant(out, filepath.Dir(victim))

	w, err := files.create(last)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "answer"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(last); err != nil || string(got) != "answer" {
		t.Errorf("the output holds %q, %v", got, err)
	}
	for _, path := range []string{deep, pipe} {
		if w, err := files.create(path); err == nil {
			t.Errorf("%s was written", path)
			w.Close()
		}
	}
	if err := live.Close(); err == nil {
		t.Error("a log that is no longer at its place was not told")
	}
	if got, err := os.ReadFile(victim); err != nil || string(got) != "old" {
		t.Errorf("a file outside holds %q, %v", got, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(victim)); err != nil || len(entries) != 1 {
		t.Errorf("files outside: %v, %v", entries, err)
	}
	if err := files.release(); err != nil {
		t.Error(err)
	}

	// Neither does a link that the repository brought along, while one inside the
	// work tree, or outside of it, is followed.
	write(filepath.Join(tree, "real.json"), "old")
	outside := filepath.Join(filepath.Dir(victim), "link")
	for path, target := range map[string]string{filepath.Join(tree, "in"): "real.json", filepath.Join(tree, "leaves"): victim, outside: victim} {
		plant(path, target)
	}
	for path, fine := range map[string]bool{"in": true, "leaves": false, "out/x": false} {
		if err := files.hold(filepath.Join(tree, path)); (err == nil) != fine {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := files.hold(outside); err != nil {
		t.Error(err)
	}
}

// TestOutputSweptByOthers writes one path from many runs that look for leftovers
// of each other at the same time.
func TestOutputSweptByOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.txt")
	var g errgroup.Group
	for range 8 {
		g.Go(func() error {
			for range 60 {
				w, err := createFile(path)
				if err != nil {
					return err
				}
				if _, err := io.WriteString(w, "whole\n"); err != nil {
					return err
				}
				if err := w.Close(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("left in the folder: %v (%v)", left, err)
	}
}

// Each folder is tried once, however many files are to lie in it: making and
// removing files is slow where many runs do it.
func TestFoldersAreTriedOnce(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(one, link); err != nil {
		t.Fatal(err)
	}
	var o outFiles
	for _, path := range []string{one + "/a", one + "/b", link + "/c", two + "/a", "/dev/null"} {
		if err := o.hold(path); err != nil {
			t.Fatal(err)
		}
	}
	if len(o.tried) != 2 {
		t.Errorf("%d folders were tried, not 2", len(o.tried))
	}
	if err := o.release(); err != nil {
		t.Error(err)
	}
	if os.Geteuid() == 0 {
		return // who may write everywhere
	}
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o555); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := o.hold(closed + "/a"); err == nil {
			t.Error("a file in a folder that cannot be written is promised")
		}
	}
}
