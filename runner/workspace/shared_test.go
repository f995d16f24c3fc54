package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// needsSide skips where no view can be narrowed.
func needsSide(t *testing.T, d *Dir) {
	t.Helper()
	if !d.Shared() {
		t.Skip("this machine cannot narrow a sandbox")
	}
}

// git costs no sandbox of its own where it would see the same.
func TestGitUsesTheSandboxOfTheRun(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir, home string)
		own     bool
	}{
		"plain": {func(*testing.T, string, string) {}, false},
		"settings that are not plain": {func(t *testing.T, dir, _ string) {
			git(t, dir, "config", "include.path", "more")
		}, true},
		"settings in a folder that is replaced": {func(t *testing.T, _, home string) {
			put(t, home, map[string]string{".gitconfig": "[core]\n\tautocrlf = false\n"})
		}, true},
		"ignored by a file in a folder that is replaced": {func(t *testing.T, _, home string) {
			put(t, home, map[string]string{".config/git/ignore": "made\n"})
		}, true},
		"another repository inside": {func(t *testing.T, dir, _ string) {
			git(t, dir, "init", "-q", "inside")
			git(t, filepath.Join(dir, "inside"), "commit", "-q", "--allow-empty", "-m", "x")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, home := repo(t, map[string]string{"a": "a\n"}), t.TempDir()
			if !strings.HasPrefix(home, "/tmp/") {
				t.Skip("the home of this test lies in no folder that is replaced")
			}
			c.prepare(t, dir, home)
			diff, d := sharedDiff(t, dir, Options{Env: append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME=")}, func(*sandbox.Sandbox) {
				put(t, dir, map[string]string{"a": "b\n", "made": "m\n"})
			})
			needsSide(t, d)
			if diff.Error != "" || !strings.HasPrefix(stats(diff.Files), "update a +1-1") {
				t.Errorf("%s %s", diff.Error, stats(diff.Files))
			}
			if ignored := name == "ignored by a file in a folder that is replaced"; strings.Contains(diff.Patch, "made") == ignored {
				t.Errorf("ignored files:\n%s", diff.Patch)
			}
			if own := d.box != nil; own != c.own {
				t.Errorf("a sandbox of its own: %v", own)
			}
		})
	}
}

// Commands cannot reach what git keeps, and what they leave running ends before
// git looks.
func TestCommandsCannotReachTheBaseline(t *testing.T) {
	dir := repo(t, map[string]string{"a": "a\n"})
	d, box := shared(t, dir, Options{})
	needsSide(t, d)
	check(t, d.Ready(t.Context()))
	p, err := box.Start(t.Context(), sandbox.Command{Dir: dir, Env: os.Environ(), Argv: []string{"sh", "-c",
		"cd $0 || ls $0 || rm -rf $0/* $0 || echo x > $0/git0/index || echo closed; echo b > a; echo begun; sleep 60; echo c > a", d.o.Private}})
	check(t, err)
	var said strings.Builder
	for buf := make([]byte, 1024); !strings.Contains(said.String(), "begun"); {
		n, err := p.Output().Read(buf)
		said.Write(buf[:n])
		check(t, err)
	}
	if !strings.Contains(said.String(), "closed\n") {
		t.Errorf("a command got at the private folder:\n%s", &said)
	}
	check(t, box.Settle())
	select {
	case <-p.Done():
	default:
		t.Error("the command still runs")
	}
	if diff := d.Diff(t.Context()); diff.Error != "" || stats(diff.Files) != "update a +1-1" {
		t.Errorf("%s %s", diff.Error, stats(diff.Files))
	}
}

// A git that was killed in the run's sandbox, whose memory commands share, works
// in one of its own.
func TestDiffSurvivesAKilledGit(t *testing.T) {
	dir := repo(t, map[string]string{"a": "a\n"})
	real, err := exec.LookPath("git")
	check(t, err)
	// What tells the sandboxes apart: the host's /tmp is seen in git's own only.
	marker := filepath.Join(t.TempDir(), "marker")
	if !strings.HasPrefix(marker, "/tmp/") {
		t.Skip("this test needs a folder below /tmp")
	}
	put(t, filepath.Dir(marker), map[string]string{"marker": ""})
	bin := filepath.Join(dir, ".git/bin")
	check(t, os.MkdirAll(bin, 0o755))
	script := "#!/bin/sh\n[ -e '" + marker + "' ] || case \"$*\" in *update-index*) : > \"$GIT_INDEX_FILE.lock\"; kill -9 $$;; esac\nexec " + real + ` "$@"` + "\n"
	check(t, os.WriteFile(filepath.Join(bin, "git"), []byte(script), 0o755))
	diff, d := sharedDiff(t, dir, Options{Env: append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME=/nowhere", "XDG_CONFIG_HOME=")}, func(*sandbox.Sandbox) {
		put(t, dir, map[string]string{"a": "b\n"})
	})
	needsSide(t, d)
	if diff.Error != "" || stats(diff.Files) != "update a +1-1" {
		t.Errorf("%s %s", diff.Error, stats(diff.Files))
	}
	if d.box == nil {
		t.Error("git was not killed in the run's sandbox")
	}
}
