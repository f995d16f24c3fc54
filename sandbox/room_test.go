//go:build linux

package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWithinRoom(t *testing.T) {
	if n := withinRoom(0); n != 0 {
		t.Errorf("no limit became %d", n)
	}
	if n := tasksOf(os.Geteuid()); n < 1 {
		t.Errorf("%d threads of my own", n)
	}
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	before, had := processRoom(root, 100)
	for _, dir := range pidsGroups(root) {
		rel, err := filepath.Rel(root, dir)
		if err != nil {
			t.Fatal(err)
		}
		put(filepath.Join(rel, "pids.max"), "70\n")
		put(filepath.Join(rel, "pids.current"), "20\n")
		if n, ok := processRoom(root, 100); !ok || n > 50 || n != 50 && (!had || n != before) {
			t.Errorf("%s: room for %d (%v), before %d (%v)", rel, n, ok, before, had)
		}
		put(filepath.Join(rel, "pids.max"), "max\n")
		if n, ok := processRoom(root, 100); ok != had || n != before {
			t.Errorf("%s: without a limit room for %d (%v), before %d (%v)", rel, n, ok, before, had)
		}
	}
	for text, want := range map[string]int64{"Name:\tx\nUid:\t7\t8\t9\t9\nThreads:\t3\n": 7, "Uid:\n": -1, "": -1, "XUid:\t3\n": -1, "Uid:\tx\n": -1} {
		if got := statusField([]byte(text), "Uid:"); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
