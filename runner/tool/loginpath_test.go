package tool

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Real login shells, with profiles that set PATH anew, add to it, keep it, or
// forbid to change it.
func TestLoginPath(t *testing.T) {
	const given = "/it's a/tool:/usr/bin:/bin"
	for name, c := range map[string]struct{ profile, want string }{
		"anew":      {"PATH=/bin:/usr/bin", given + ":/bin:/usr/bin"},
		"adds":      {"PATH=/own:" + `"/it's a/tool:/usr/bin:/bin":/more`, "/own:" + given + ":/more"},
		"keeps":     {`PATH="/it's a/tool:/usr/bin:/bin"`, given},
		"unset":     {"unset PATH", given},
		"read-only": {"PATH=/bin:/usr/bin; readonly PATH", "/bin:/usr/bin"},
	} {
		home := t.TempDir()
		if err := os.WriteFile(filepath.Join(home, ".bash_profile"), []byte(c.profile+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		env := []string{"PATH=/elsewhere", "HOME=" + home, "PATH=" + given}
		argv := LoginPath([]string{"/bin/bash", "-lc", "set -u; echo \"$PATH\"\nno-such-command\nexit 3"}, env)
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		lines := strings.Split(string(out), "\n")
		i := slices.Index(lines, c.want)
		if i < 0 || !strings.Contains(string(out), "line 2: no-such-command") || cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 3 {
			t.Errorf("%s: %v, want %q:\n%s", name, err, c.want, out)
		}
	}
	for _, argv := range [][]string{{"/bin/bash", "-lc", strings.Repeat("x", 32*4096-20)}, {"/bin/bash", "-c", "x"}, {"/usr/bin/fish", "-lc", "x"}, {"ls", "-l"}} {
		if got := LoginPath(argv, []string{"PATH=/x"}); !slices.Equal(got, argv) {
			t.Errorf("%q became %q", argv, got)
		}
	}
	if argv := []string{"/bin/bash", "-lc", "x"}; !slices.Equal(LoginPath(argv, []string{"HOME=/"}), argv) {
		t.Error("a command without PATH is changed")
	}
}
