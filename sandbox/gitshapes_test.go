//go:build linux

package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

func TestGitShapes(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git here")
	}
	dir, ws, _ := world(t)
	main := filepath.Join(dir, "main")
	put(t, main+"/f", "one")
	gitIn(t, main, "init", "-q", "-b", "main", ".")
	gitIn(t, main, "add", "f")
	gitIn(t, main, "commit", "-qm", "one")
	gitIn(t, main, "worktree", "add", "-q", ws+"/wt", "-b", "side")
	put(t, main+"/sub/f", "sub")
	if err := os.MkdirAll(main+"/.git/modules", 0o755); err != nil {
		t.Fatal(err)
	}
	gitIn(t, main+"/sub", "init", "-q", "-b", "main", "--separate-git-dir", main+"/.git/modules/sub", ".")
	put(t, main+"/deep/er/nested/f", "nested")
	gitIn(t, main+"/deep/er/nested", "init", "-q", "-b", "main", ".")

	plant := func(gitDir string) string {
		return "exec 2>&1; mkdir -p " + gitDir + "/hooks; echo x > " + gitDir + "/hooks/pre-commit; echo x >> " + gitDir + "/config"
	}
	t.Run("linked worktree", func(t *testing.T) {
		b := openBox(t, Spec{Workspace: ws + "/wt", Write: []string{main}, ProtectNames: protectNames})
		tryAll(t, b, []attempt{{"git status && git log", "ok"}, {plant(main + "/.git/worktrees/wt"), readOnlyFS}, {plant(main + "/.git"), readOnlyFS},
			{"echo gitdir: /tmp > .git", readOnlyFS}, {"echo x > p; mv -f p .git", ""}, {"rm -f .git", ""}, {"git commit -q --allow-empty -m x", ""}})
	})
	t.Run("worktree that may commit", func(t *testing.T) {
		b := openBox(t, Spec{Workspace: ws + "/wt", Write: []string{main + "/.git"}, ProtectNames: protectNames})
		tryAll(t, b, []attempt{{"echo two > g && git add g && git -c user.name=a -c user.email=a@example.com commit -qm two && git log --oneline | grep -q two", "ok"}})
	})
	t.Run("submodule and nested", func(t *testing.T) {
		b := openBox(t, Spec{Workspace: main, ProtectNames: protectNames})
		tryAll(t, b, []attempt{{plant("sub/.git"), ""}, {plant(".git/modules/sub"), readOnlyFS}, {"echo x > sub/.git", readOnlyFS},
			{plant("deep/er/nested/.git"), readOnlyFS}, {"mv deep/er/nested/.git x", ""},
			{"git init -q own && echo x >> own/.git/config", "ok"}})
	})
	t.Run("none yet", func(t *testing.T) {
		plain := filepath.Join(dir, "plain")
		put(t, plain+"/f", "x")
		b := openBox(t, Spec{Workspace: plain, ProtectNames: protectNames})
		tryAll(t, b, []attempt{{"git init -q .", ""}, {"mkdir t && git init -q t && mv -T t/.git .git", ""}, {"echo gitdir: x > .git", ""}})
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		for _, n := range protectNames {
			if _, err := os.Lstat(filepath.Join(plain, n)); err == nil {
				t.Errorf("%s was left behind", n)
			}
		}
	})
	t.Run("symbolic link", func(t *testing.T) {
		linked := filepath.Join(dir, "linked")
		put(t, linked+"/real/config", "x")
		if err := os.Symlink("real", linked+"/.git"); err != nil {
			t.Fatal(err)
		}
		_, err := Open(testContext(t), Spec{Mode: WorkspaceWrite, Workspace: linked, ProtectNames: protectNames})
		if err == nil || !strings.Contains(err.Error(), "symbolic link") {
			t.Errorf("a linked .git: %v", err)
		}
		if list, err := os.ReadDir(linked); err != nil || len(list) != 2 {
			t.Errorf("the refusal left something: %v %v", list, err)
		}
	})
	t.Run("nested symbolic link", func(t *testing.T) {
		outer := filepath.Join(dir, "outer")
		put(t, outer+"/real/config", "x")
		put(t, outer+"/sub/f", "x")
		if err := os.Symlink("../real", outer+"/sub/.git"); err != nil {
			t.Fatal(err)
		}
		b := openBox(t, Spec{Workspace: outer, ProtectNames: protectNames})
		tryAll(t, b, []attempt{{plant("sub/.git"), readOnlyFS}, {plant("real"), readOnlyFS}, {"mv real r", ""}})
		if notes := strings.Join(b.Report().Notes, "\n"); !strings.Contains(notes, "sub/.git is a symbolic link") {
			t.Errorf("notes: %q", notes)
		}
	})
	t.Run("deep and in node_modules", func(t *testing.T) {
		outer := filepath.Join(dir, "far")
		far := strings.Repeat("d/", 40)
		put(t, outer+"/"+far+".git/config", "x")
		put(t, outer+"/node_modules/m/node_modules/n/.git/config", "x")
		b := openBox(t, Spec{Workspace: outer, ProtectNames: protectNames})
		tryAll(t, b, []attempt{{plant(far + ".git"), readOnlyFS}, {plant("node_modules/m/node_modules/n/.git"), readOnlyFS}})
		if notes := b.Report().Notes; len(notes) > 0 {
			t.Errorf("notes: %q", notes)
		}
	})
	for kind, make := range map[string]func(string) error{
		"pipe":   func(p string) error { return unix.Mkfifo(p, 0o644) },
		"socket": func(p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o644, 0) },
	} {
		t.Run(kind, func(t *testing.T) {
			odd := filepath.Join(dir, "odd-"+kind)
			put(t, odd+"/f", "x")
			if err := make(odd + "/.git"); err != nil {
				t.Fatal(err)
			}
			_, err := Open(testContext(t), Spec{Mode: WorkspaceWrite, Workspace: odd, ProtectNames: protectNames})
			var ue *UnsupportedError
			if !errors.As(err, &ue) || !strings.Contains(err.Error(), ".git is neither a file nor a folder") || ue.Hint() == "" {
				t.Errorf("%v", err)
			}
			// Where it does not count as the root's own, it is only in the way.
			b := openBox(t, Spec{Workspace: dir, ProtectNames: []string{".git"}, Write: nil, Deny: nil})
			tryAll(t, b, []attempt{{"ls odd-" + kind, "ok"}})
		})
	}
	t.Run("links inside", func(t *testing.T) {
		shared := filepath.Join(dir, "shared")
		put(t, shared+"/common/config", "x")
		put(t, shared+"/ws/.git/HEAD", "x")
		if err := os.Symlink("../../common/config", shared+"/ws/.git/config"); err != nil {
			t.Fatal(err)
		}
		b := openBox(t, Spec{Workspace: shared, Write: []string{shared + "/ws"}, ProtectNames: protectNames})
		tryAll(t, b, []attempt{{"echo x >> common/config", readOnlyFS}, {"echo x >> ws/.git/config", readOnlyFS}, {"echo x > common/other", "ok"}})
	})
}

// Without namespaces the same shapes hold, though nothing can be made at the top
// of a root.
func TestGitShapesByLandlockAlone(t *testing.T) {
	const signalABI = 6
	if r := Probe(); r.LandlockABI < signalABI {
		t.Skipf("Landlock version %d cannot stand alone", r.LandlockABI)
	}
	dir, _, _ := world(t)
	plant := func(gitDir string) string {
		return "(mkdir -p " + gitDir + "/hooks; echo x > " + gitDir + "/hooks/pre-commit) 2>/dev/null; (echo x >> " + gitDir + "/config) 2>/dev/null; mv " + gitDir + " moved 2>/dev/null; " +
			"cat " + gitDir + "/hooks/pre-commit " + gitDir + "/config 2>/dev/null | tr -d y"
	}
	shapes := map[string]func(ws string) string{ // returns what is attacked
		"a folder": func(ws string) string { put(t, ws+"/.git/config", "y"); return ".git" },
		"a file": func(ws string) string {
			put(t, ws+"/real/config", "y")
			put(t, ws+"/.git", "gitdir: real\n")
			return "real"
		},
		"missing": func(ws string) string { return ".git" },
		"nested":  func(ws string) string { put(t, ws+"/src/n/.git/config", "y"); return "src/n/.git" },
		"a submodule": func(ws string) string {
			put(t, ws+"/.git/modules/sub/config", "y")
			put(t, ws+"/sub/.git", "gitdir: ../.git/modules/sub\n")
			return ".git/modules/sub"
		},
		"a link in a nested one": func(ws string) string {
			put(t, ws+"/src/real/config", "y")
			put(t, ws+"/src/n/f", "y")
			if err := os.Symlink("../real", ws+"/src/n/.git"); err != nil {
				t.Fatal(err)
			}
			return "src/real"
		},
	}
	for name, make := range shapes {
		t.Run(name, func(t *testing.T) {
			ws := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			put(t, ws+"/src/f", "x")
			target := make(ws)
			b := openAlone(t, Spec{Mode: WorkspaceWrite, Workspace: ws, ProtectNames: protectNames, Degrade: []string{DegradeLandlock, DegradeOuterProc}})
			if got, _ := sh(t, b, plant(target)+"; (echo x > .codex/c; mkdir .codex; mkdir .agents) 2>/dev/null; ls -d .codex/c moved 2>/dev/null; echo done > src/f && cat src/f"); got != "done" {
				t.Errorf("%q", got)
			}
		})
	}
	t.Run("a worktree that may commit", func(t *testing.T) {
		if _, err := exec.LookPath("git"); err != nil {
			t.Skip("no git here")
		}
		main, wt := filepath.Join(dir, "main"), filepath.Join(dir, "wt")
		put(t, main+"/f", "one")
		gitIn(t, main, "init", "-q", "-b", "main", ".")
		gitIn(t, main, "add", "f")
		gitIn(t, main, "commit", "-qm", "one")
		gitIn(t, main, "worktree", "add", "-q", wt, "-b", "side")
		put(t, wt+"/f", "two")
		b := openAlone(t, Spec{Mode: WorkspaceWrite, Workspace: wt, Write: []string{main + "/.git"}, ProtectNames: protectNames, Degrade: []string{DegradeLandlock, DegradeOuterProc}})
		if out, x := sh(t, b, "exec 2>&1; git -c core.fsync=none -c user.name=a -c user.email=a@example.com commit -qam two && git log --oneline | grep -q two && echo committed; echo x > "+main+"/f"); x.Code == 0 || !strings.Contains(out, "committed") {
			t.Errorf("exit %d: %s", x.Code, out)
		}
		if got, err := os.ReadFile(main + "/f"); err != nil || string(got) != "one" {
			t.Errorf("%q %v", got, err)
		}
	})
}

// openAlone opens a sandbox as where there are no namespaces.
func openAlone(t *testing.T, s Spec) *Sandbox {
	t.Helper()
	b := &Sandbox{spec: s}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := b.prepare(&ascent{err: unix.EPERM}); err != nil {
		t.Fatal(err)
	}
	o := &outcome{plan: b.plan, failed: map[string]confine.LayerFailure{}}
	l, err := launch(0, nil)
	if !o.try(testContext(t), l, err, "") {
		t.Fatal(o.err)
	}
	b.init = o.conn
	b.report = b.makeReport(o)
	if missing := missingOf(b.report, DefaultRequire); len(missing) > 0 {
		t.Fatalf("%+v", missing)
	}
	return b
}
