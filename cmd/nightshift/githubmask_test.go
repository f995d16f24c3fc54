package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGitHubMasks: secrets are told to GitHub's runner where it is the reader of
// stderr, and to nobody else whatever the variables say.
func TestGitHubMasks(t *testing.T) {
	if _, err := os.Stat("/bin/bash"); err != nil {
		t.Skip("no /bin/bash to be the runner")
	}
	const secret, password = "sesame-open-1234", "hunter-two-5678"
	const reading = `coproc { RUN; }; exec 4<&"${COPROC[0]}"; cat <&4`
	run := `"$0" exec -C "$1/ws" --model-script "$1/script.json" --ephemeral FLAGS "say $SECRET_TOKEN"`
	for _, c := range []struct {
		name, as, script, flags, actions string
		want                             bool
	}{
		{"the runner reads", "Runner.Worker", strings.Replace(reading, "RUN", run+" 2>&1 >/dev/null", 1), "", "true", true},
		{"switched off", "Runner.Worker", strings.Replace(reading, "RUN", run+" 2>&1 >/dev/null", 1), "--no-github", "true", false},
		{"not GitHub", "Runner.Worker", strings.Replace(reading, "RUN", run+" 2>&1 >/dev/null", 1), "", "", false},
		{"another program reads", "worker", strings.Replace(reading, "RUN", run+" 2>&1 >/dev/null", 1), "", "true", false},
		{"a program in between", "Runner.Worker", strings.Replace(reading, "RUN", run+" 2>&1 >/dev/null | cat", 1), "", "true", false},
		{"a file", "Runner.Worker", run + ` 2>"$1/err"; cat "$1/err"`, "", "true", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, d := range []string{"ws", "home"} {
				if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			script := `{"model_script":[{"items":[{"message":"done"}]}]}`
			if err := os.WriteFile(filepath.Join(dir, "script.json"), []byte(script), 0o644); err != nil {
				t.Fatal(err)
			}
			// A program that this process had open for writing could be refused: a
			// process that another test starts meanwhile holds the file, too.
			if out, err := exec.Command("cp", "/bin/bash", filepath.Join(dir, c.as)).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			text := strings.Replace(c.script, "FLAGS", "--skip-git-repo-check "+c.flags, 1)
			cmd := exec.Command(filepath.Join(dir, c.as), "-c", text, filepath.Join(built, "nightshift"), dir)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir + "/home", "SECRET_TOKEN=" + secret, "DB_PASSWORD=\n" + password + "\n", "GITHUB_ACTIONS=" + c.actions}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			var rest []string
			told := 0
			for line := range strings.Lines(string(out)) {
				if line == "::add-mask::"+secret+"\n" || line == "::add-mask::"+password+"\n" {
					told++
				} else {
					rest = append(rest, line)
				}
			}
			if want := map[bool]int{true: 2}[c.want]; told != want {
				t.Errorf("%d masks, want %d:\n%s", told, want, out)
			}
			if s := strings.Join(rest, ""); strings.Contains(s, secret) || strings.Contains(s, password) || !strings.Contains(s, "say [masked:SECRET_TOKEN]") {
				t.Errorf("the rest:\n%s", s)
			}
		})
	}
}
