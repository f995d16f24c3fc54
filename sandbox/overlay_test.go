//go:build linux

package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A cache begins with the user's content; changes, deletions and new files stay
// private, on this side and on the other.
func TestOverlay(t *testing.T) {
	dir, ws, _ := world(t)
	lower, at, private := filepath.Join(dir, "cache"), filepath.Join(ws, "cache"), filepath.Join(dir, "changes")
	for _, d := range []string{lower, at, private} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []string{"kept", "removed"} {
		if err := os.WriteFile(filepath.Join(lower, n), []byte(n), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := Open(t.Context(), Spec{Mode: WorkspaceWrite, Workspace: ws, Write: []string{ws}, Require: WritesConfined,
		Overlays: []Overlay{{At: at, Lower: lower, Private: private}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	out, x := sh(t, b, "cd cache && cat kept removed && rm removed && echo new > made && echo more >> kept && ls")
	if slices.ContainsFunc(b.Report().Notes, func(n string) bool { return strings.Contains(n, "overlay") }) {
		t.Skipf("no overlay in this kernel: %v", b.Report().Notes)
	}
	if x.Code != 0 || !strings.Contains(out, "keptremoved") || !strings.Contains(out, "made") {
		t.Fatalf("exit %d: %s", x.Code, out)
	}
	if got, err := os.ReadFile(filepath.Join(lower, "kept")); err != nil || string(got) != "kept" {
		t.Errorf("the user's file is %q, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(lower, "removed")); err != nil {
		t.Errorf("the user's file is gone: %v", err)
	}
	if left, err := os.ReadDir(at); err != nil || len(left) != 0 {
		t.Errorf("outside, the folder holds %v, %v", left, err)
	}
}

// What is denied where it is, is denied where an overlay shows it, also when it
// comes to be while the sandbox is open.
func TestOverlayHidesWhatIsDenied(t *testing.T) {
	dir, ws, _ := world(t)
	lower, at, whole := filepath.Join(dir, "cache"), filepath.Join(ws, "cache"), filepath.Join(ws, "whole")
	put(t, lower+"/kept", "kept")
	put(t, lower+"/in/secret", "DENIED")
	put(t, dir+"/closed/secret", "DENIED")
	for _, d := range []string{at, whole, dir + "/changes", dir + "/more"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b := openBox(t, Spec{Workspace: ws, Deny: []string{lower + "/in/secret", lower + "/late", dir + "/closed"},
		Overlays: []Overlay{{At: at, Lower: lower, Private: dir + "/changes"}, {At: whole, Lower: dir + "/closed", Private: dir + "/more"}}})
	if slices.ContainsFunc(b.Report().Notes, func(n string) bool { return strings.Contains(n, "lays no overlay") }) {
		t.Skipf("no overlay in this kernel: %v", b.Report().Notes)
	}
	out, _ := sh(t, b, "cat cache/kept cache/in/secret whole/secret 2>/dev/null; mv cache/in cache/moved 2>/dev/null; cat cache/moved/secret 2>/dev/null; ls -A whole; echo own > cache/late; cat cache/late")
	if out != "keptown" {
		t.Errorf("%q", out)
	}
	if out, _ := sh(t, b, "cat cache/late"); out != "own" {
		t.Errorf("what a command made itself: %q", out)
	}
	put(t, lower+"/late", "DENIED")
	if out, _ := sh(t, b, "rm -f cache/late; cat cache/late "+lower+"/late 2>/dev/null"); strings.Contains(out, "DENIED") {
		t.Errorf("%q", out)
	}
	if strings.Contains(strings.Join(b.Report().Denied, " "), at) {
		t.Errorf("the report lists %v", b.Report().Denied)
	}
}
