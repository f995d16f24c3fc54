package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// TestScratch: a sweep removes what dead runs left, whatever they made of it,
// and nothing else.
func TestScratch(t *testing.T) {
	parent := t.TempDir()
	live, err := newScratch(parent, "")
	if err != nil {
		t.Fatal(err)
	}
	dead, err := newScratch(parent, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dead.dir+"/caches/mod", 0o755); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "kept")
	for path, err := range map[string]error{
		"file":    os.WriteFile(dead.dir+"/caches/mod/file", []byte("x"), 0o400),
		"link":    os.Symlink(outside, dead.dir+"/caches/link"),
		"outside": os.WriteFile(outside, []byte("x"), 0o644),
		"mode":    os.Chmod(dead.dir+"/caches/mod", 0o500),
		"dead":    dead.lock.Close(), // as the kernel does for a killed process
		"other":   os.MkdirAll(parent+"/nightshift-other/x", 0o755),
		"strange": os.MkdirAll(parent+"/strange", 0o755),
	} {
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	sweepScratch(ended, parent)
	if _, err := os.Stat(dead.dir + "/caches/mod/file"); err != nil {
		t.Errorf("a sweep without time removed something: %v", err)
	}
	sweepScratch(t.Context(), parent)
	for path, want := range map[string]bool{live.dir: true, live.dir + "/.lock": true, dead.dir: false, outside: true, parent + "/nightshift-other/x": true, parent + "/strange": true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", path, err, want)
		}
	}
	live.remove()
	if _, err := os.Stat(live.dir); err == nil {
		t.Error("the own folder is still there")
	}
	sweepScratch(t.Context(), parent+"/missing")
}

// TestSweepOfReports: unfinished reports of dead runs go, those of live ones and
// files that only look alike stay.
func TestSweepOfReports(t *testing.T) {
	dir := t.TempDir()
	first := &outFiles{}
	if err := first.hold(dir + "/report.json"); err != nil {
		t.Fatal(err)
	}
	live, err := first.create(dir + "/report.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".report.json1234567890123", ".nightshift-probe-DEAD", ".report.json1", ".report.json123456789012x", ".other.json1234567890123"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	second := &outFiles{}
	if err := second.hold(dir + "/report.json"); err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left[e.Name()] = true
	}
	if left[".report.json1234567890123"] || left[".nightshift-probe-DEAD"] || len(left) != 4 {
		t.Errorf("there are %v", left)
	}
	if err := live.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir + "/report.json"); err != nil {
		t.Error(err)
	}
	for _, o := range []*outFiles{first, second} {
		if err := o.release(); err != nil {
			t.Error(err)
		}
	}
}
