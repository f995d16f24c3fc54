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
	live, err := newScratch(parent)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := newScratch(parent)
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
