//go:build linux

package sandbox

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// Every mistake is a clear error before anything runs, and leaves nothing.
func TestBadSpecs(t *testing.T) {
	dir, ws, out := world(t)
	put(t, ws+"/file", "x")
	if err := os.Symlink("nowhere", ws+"/dangling"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("loop", ws+"/loop"); err != nil {
		t.Fatal(err)
	}
	good := Spec{Mode: WorkspaceWrite, Workspace: ws}
	with := func(f func(*Spec)) Spec { s := good; f(&s); return s }
	for _, c := range []struct {
		name string
		spec Spec
		want []string
	}{
		{"no mode", with(func(s *Spec) { s.Mode = "" }), []string{`mode: "" is not one of read-only`}},
		{"unknown mode", with(func(s *Spec) { s.Mode = "write" }), []string{`"write" is not one of`}},
		{"missing workspace", with(func(s *Spec) { s.Workspace = "/no/such" }), []string{"workspace /no/such: does not exist"}},
		{"relative workspace", with(func(s *Spec) { s.Workspace = "ws" }), []string{"is not an absolute path"}},
		{"workspace is a file", with(func(s *Spec) { s.Workspace = ws + "/file" }), []string{"is a file, not a folder"}},
		{"missing root", with(func(s *Spec) { s.Write = []string{"/no/such"} }), []string{"writable root /no/such: does not exist"}},
		{"root is a file", with(func(s *Spec) { s.Write = []string{ws + "/file"} }), []string{"is a file, not a folder"}},
		{"root is a dangling link", with(func(s *Spec) { s.Write = []string{ws + "/dangling"} }), []string{"does not exist"}},
		{"root is a loop", with(func(s *Spec) { s.Write = []string{ws + "/loop"} }), []string{"too many links"}},
		{"root is /", with(func(s *Spec) { s.Write = []string{"/"} }), []string{"writable root /: would let commands change the system"}},
		{"root is /proc", with(func(s *Spec) { s.Write = []string{"/proc/sys"} }), []string{"would let commands change the system"}},
		{"root with a zero", with(func(s *Spec) { s.Write = []string{"/a\x00b"} }), []string{"zero byte"}},
		{"relative denied", with(func(s *Spec) { s.Deny = []string{"x"} }), []string{"denied path x: is not an absolute path"}},
		{"denied holds the workspace", with(func(s *Spec) { s.Deny = []string{dir} }), []string{"holds the writable root " + ws}},
		{"denied is the workspace", with(func(s *Spec) { s.Deny = []string{ws} }), []string{"holds the writable root " + ws}},
		{"no tmp", with(func(s *Spec) { s.TmpDir = "/no/such" }), []string{"tmp folder /no/such: does not exist"}},
		{"negative memory", with(func(s *Spec) { s.MemoryBytes = -1 }), []string{"limit of memory: -1 cannot work"}},
		{"tiny memory", with(func(s *Spec) { s.MemoryBytes = 1000 }), []string{"limit of memory: 1000 cannot work"}},
		{"one process", with(func(s *Spec) { s.Processes = 1 }), []string{"limit of processes: 1 cannot work"}},
		{"no files", with(func(s *Spec) { s.OpenFiles = 2 }), []string{"limit of open files: 2 cannot work"}},
		{"all at once", with(func(s *Spec) {
			s.Workspace, s.Write, s.Deny, s.Limits.Processes = "/no/such", []string{"rel", ws + "/file"}, []string{"also-rel"}, -3
		}), []string{"/no/such", "rel: is not an absolute", "is a file", "also-rel", "limit of processes"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Open(testContext(t), c.spec)
			if err == nil {
				t.Fatal("no error")
			}
			var se *SpecError
			if !errors.As(err, &se) {
				t.Errorf("%T: %v", err, err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
		})
	}
	if list, err := os.ReadDir(ws); err != nil || len(list) != 3 {
		t.Errorf("something was left: %v %v", list, err)
	}
	_ = out
}

func TestUnreadableFolders(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("nothing is unreadable to root")
	}
	dir, ws, _ := world(t)
	put(t, dir+"/locked/ws/f", "x")
	put(t, ws+"/dark/f", "x")
	for _, d := range []string{dir + "/locked", ws + "/dark"} {
		if err := os.Chmod(d, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Chmod(d, 0o755); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := Open(testContext(t), Spec{Mode: WorkspaceWrite, Workspace: dir + "/locked/ws"}); err == nil || !strings.Contains(err.Error(), "may not be read") {
		t.Errorf("%v", err)
	}
	// Unreadable parts of a workspace are no reason to refuse; they are reported.
	b := openBox(t, Spec{Workspace: ws, ProtectNames: protectNames, Deny: []string{ws + "/dark/f"}})
	tryAll(t, b, []attempt{{"echo x > f", "ok"}, {"cat dark/f", "denied"}})
	if notes := strings.Join(b.Report().Notes, "\n"); !strings.Contains(notes, ws) {
		t.Errorf("notes: %q", notes)
	}
}

func TestUnreadableWorkspaceEntriesAreNamed(t *testing.T) {
	_, ws, _ := world(t)
	if err := os.MkdirAll(ws+"/.codex", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", ws+"/.agents"); err != nil {
		t.Fatal(err)
	}
	_, err := Open(testContext(t), Spec{Mode: WorkspaceWrite, Workspace: ws, ProtectNames: protectNames})
	var ue *UnsupportedError
	if !errors.As(err, &ue) || !strings.Contains(err.Error(), ".agents is a symbolic link") || ue.Hint() == "" {
		t.Errorf("%v", err)
	}
	if exists(ws + "/.git") {
		t.Error("a placeholder was left")
	}
}
