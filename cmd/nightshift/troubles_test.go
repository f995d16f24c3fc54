package main

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// trouble is one way to a non-zero exit code, with the sentence that the manual
// quotes for it.
type trouble struct {
	code   int
	quote  string
	args   []string
	script string // replies of the model, one a line
	config string // of the user
	system string // requirements of the machine
}

const (
	done = `{"items":[{"message":"done"}]}`
	call = `{"items":[{"call":"exec_command","args":{"cmd":"exit 3"}}]}`
)

var troubles = []trouble{
	{code: 1, quote: "the model ended the turn without an answer [empty_answer]", script: `{"items":[]}`},
	{code: 2, quote: "--max-wall-time: a time needs a unit", args: []string{"--max-wall-time", "15"}, script: done},
	{code: 2, quote: `config.toml:2:1: "sandbox_mode" must be one of "read-only", "workspace-write", "danger-full-access", not "workspace"`,
		config: "model = \"m\"\nsandbox_mode = \"workspace\"\n", script: done},
	{code: 3, quote: `-s: sandbox mode "workspace-write" is not allowed by requirements: allowed_sandbox_modes is [read-only] (set by /etc/codex/requirements.toml:1)`,
		args: []string{"-s", "workspace-write"}, system: "allowed_sandbox_modes = [\"read-only\"]\n", script: done},
	{code: 5, quote: "there is no credential for the provider openai: no CODEX_API_KEY, no CODEX_ACCESS_TOKEN and no /root/.codex/auth.json"},
	{code: 6, quote: "Connection failed: dial tcp 127.0.0.1:9: connect: connection refused [network]",
		config: "model_provider = \"x\"\n[model_providers.x]\nbase_url = \"http://127.0.0.1:9/v1\"\nrequest_max_retries = 0\nstream_max_retries = 0\n"},
	{code: 6, quote: "Quota exceeded. Check your plan and billing details. [quota]",
		script: `{"status":429,"body":{"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"You exceeded your quota"}}}`},
	{code: 7, quote: "limit reached: max_turns is 1, used 1", args: []string{"--max-turns", "1"}, script: call + "\n" + done},
	{code: 8, quote: "the final answer does not fit the output schema:", args: []string{"--output-schema", "schema.json"}, script: done + "\n" + done},
	{code: 8, quote: "/repo/ci/out was moved or replaced while the run went on", args: []string{"-s", "workspace-write", "--report-dir", "ci/out"},
		script: `{"items":[{"call":"exec_command","args":{"cmd":"mv ci away && mkdir -p ci/out"}}]}` + "\n" + done},
	{code: 9, quote: "verification failed after 2 rounds: false [verify_failed]", args: []string{"--verify", "false", "--verify-rounds", "1"}, script: done + "\n" + done},
	{code: 9, quote: "--strict: 0 denied and 1 failed tool calls", args: []string{"--strict"}, script: call + "\n" + done},
}

// newTrouble prepares the run; its folders are named in the output as in the
// manual.
func newTrouble(t *testing.T, c trouble) (*exec.Cmd, *strings.Replacer) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	repo, home, etc := filepath.Join(base, "repo"), filepath.Join(base, "user"), filepath.Join(base, "etc")
	args := append([]string{"exec", "--json"}, c.args...)
	files := map[string]string{
		filepath.Join(home, ".codex/config.toml"): c.config, filepath.Join(etc, "requirements.toml"): c.system,
		filepath.Join(repo, "schema.json"): `{"type":"object"}`, filepath.Join(base, "script.jsonl"): c.script,
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if text == "" {
			continue
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if c.script != "" {
		args = append(args, "--model-script", filepath.Join(base, "script.jsonl"))
	}
	if out, err := exec.Command("git", "-C", repo, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("git: %v: %s", err, out)
	}
	cmd := exec.Command(binary(t), append(args, "x")...)
	cmd.Dir = repo
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TERM=dumb", "NIGHTSHIFT_TEST_SYSTEM_DIR=" + etc}
	return cmd, strings.NewReplacer(repo, "/repo", home, "/root", etc, "/etc/codex")
}

// What the manual quotes for each exit code is what the program says.
func TestTroubleshootingIsTrue(t *testing.T) {
	page := section(readText(t, "README.md"), "Troubleshooting by exit code")
	for _, c := range troubles {
		t.Run(strings.Fields(c.quote)[0], func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(page, c.quote) {
				t.Errorf("the manual does not quote %q", c.quote)
			}
			cmd, names := newTrouble(t, c)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			err := cmd.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != c.code {
				t.Errorf("ended with %v, want %d", err, c.code)
			}
			said := names.Replace(stderr.String())
			if !strings.Contains(said, c.quote) {
				t.Errorf("it does not say %q:\n%s", c.quote, said)
			}
			plain := strings.Contains(c.quote, "must be one of") || strings.Contains(c.quote, "moved or replaced") // these say it themselves
			if !plain && !strings.Contains(said, "hint: ") {
				t.Errorf("it does not say what to do:\n%s", said)
			}
		})
	}
}

// A cancelled job ends with 128+n and says so.
func TestTroubleshootingSignal(t *testing.T) {
	const quote = "interrupted by SIGTERM"
	if !strings.Contains(section(readText(t, "README.md"), "Troubleshooting by exit code"), quote) {
		t.Errorf("the manual does not quote %q", quote)
	}
	cmd, _ := newTrouble(t, trouble{script: `{"items":[{"call":"exec_command","args":{"cmd":"sleep 600","yield_time_ms":30000}}]}`})
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), "item.started") {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Errorf("ended with %v", cmd.ProcessState)
	}
	if !strings.Contains(stderr.String(), quote) {
		t.Errorf("it does not say %q:\n%s", quote, stderr.String())
	}
}
