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
	if err := out.(pending).Abort(); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(file); string(got) != "new" {
		t.Errorf("after an abort it is %q", got)
	}
	if err := os.Symlink("nothing", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	if err := writableFile(filepath.Join(dir, "dangling")); err == nil {
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
	out, err := liveFile(path)
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
