package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const actionDir = "../../.github/actions/nightshift"

// actionScript runs one script of the action with its inputs as a step would.
// It returns the exit code, what was said, and the step's outputs.
func actionScript(t *testing.T, w *world, script string, env ...string) (int, string, map[string]string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(actionDir, script))
	if err != nil {
		t.Fatal(err)
	}
	temp := filepath.Join(w.base, "runner-temp")
	outputs := filepath.Join(w.base, "outputs")
	w.write(t, outputs, nil, 0o644)
	if err := os.MkdirAll(temp, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", path)
	cmd.Dir = w.ws
	for _, e := range w.env() {
		if !strings.HasPrefix(e, "CODEX_HOME=") { // the action makes one, unless told
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, "RUNNER_TEMP="+temp, "NIGHTSHIFT="+binary(t), "GITHUB_ACTIONS=true", "GITHUB_OUTPUT="+outputs, "GITHUB_WORKSPACE="+w.ws)
	cmd.Env = append(cmd.Env, env...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	code := 0
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(outputs)
	if err != nil {
		t.Fatal(err)
	}
	return code, said.String(), stepOutputs(t, string(text))
}

// stepOutputs reads name<<DELIMITER blocks as the runner does.
func stepOutputs(t *testing.T, text string) map[string]string {
	t.Helper()
	out := map[string]string{}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		name, mark, ok := strings.Cut(lines[i], "<<")
		if !ok {
			if k, v, ok := strings.Cut(lines[i], "="); ok {
				out[k] = v
			}
			continue
		}
		var value []string
		for i++; i < len(lines) && lines[i] != mark; i++ {
			value = append(value, lines[i])
		}
		out[name] = strings.Join(value, "\n")
	}
	return out
}

func actionWorld(t *testing.T, script string) *world {
	t.Helper()
	w := newWorld(t)
	if err := w.server.Load([]byte(script)); err != nil {
		t.Fatal(err)
	}
	w.write(t, w.ws+"/a.txt", []byte("one\n"), 0o644)
	w.git(t, w.ws, "init", "-q", "-b", "main")
	w.git(t, w.ws, "add", "-A")
	w.git(t, w.ws, "commit", "-q", "-m", "start")
	return w
}

func TestActionRuns(t *testing.T) {
	t.Parallel()
	w := actionWorld(t, `{"model_script":[
		{"items":[{"call":"exec_command","args":{"cmd":"env > seen.txt; cat /proc/*/cmdline /proc/*/environ 2>/dev/null | tr '\\0' '\\n' >> seen.txt; echo two > a.txt"}}]},
		{"items":[{"message":"{\"n\": 1}"}]}]}`)
	w.write(t, w.ws+"/sub/keep", nil, 0o644)
	out := w.base + "/answer.json"
	more := `["-c", "model_verbosity=\"low\"", "--ephemeral"]`
	if _, err := exec.LookPath("jq"); err != nil { // every runner has it
		more = `-c model_verbosity=low --ephemeral`
	}
	code, said, got := actionScript(t, w, "run.sh",
		"IN_PROMPT=Do it; $(touch pwned) `touch pwned`", "IN_API_KEY=sk-canary-0123456789", "IN_ENDPOINT="+w.server.URL+"/v1/responses",
		"IN_OUTPUT_FILE="+out, "IN_SCHEMA={\"type\":\"object\"}", "IN_MODEL=gpt-5.5", "IN_EFFORT=high", "IN_SANDBOX=workspace-write",
		"IN_ARGS="+more, "IN_VERIFY=test -f a.txt\ngrep -q two a.txt\n", "IN_STRICT=true",
		"IN_MAX_TURNS=9", "IN_MAX_WALL_TIME=5m", "IN_REPORT_DIR="+w.base+"/report", "EVENT=push")
	if code != 0 {
		t.Fatalf("exit code %d:\n%s", code, said)
	}
	for name, want := range map[string]string{"final-message": `{"n": 1}`, "outcome": "success", "exit-code": "0", "files-changed": "2", "success": "true",
		"report-dir": w.base + "/report", "patch-file": w.base + "/report/changes.patch"} {
		if got[name] != want {
			t.Errorf("output %s is %q, want %q", name, got[name], want)
		}
	}
	if !strings.Contains(got["patch"], "+two") || !strings.Contains(got["usage"], `"input_tokens":`) {
		t.Errorf("outputs %q", got)
	}
	if answer, err := os.ReadFile(out); err != nil || string(answer) != `{"n": 1}` {
		t.Errorf("output-file: %q %v", answer, err)
	}
	if _, err := os.Stat(w.ws + "/pwned"); err == nil {
		t.Error("the prompt was run by a shell")
	}
	reqs := w.server.ModelRequests()
	if len(reqs) != 2 || reqs[0].Header.Get("Authorization") != "Bearer sk-canary-0123456789" {
		t.Fatalf("%d requests", len(reqs))
	}
	var body struct {
		Model     string
		Reasoning struct{ Effort string }
		Text      struct{ Verbosity string }
	}
	if err := json.Unmarshal(reqs[0].Body, &body); err != nil || body.Model != "gpt-5.5" || body.Reasoning.Effort != "high" || body.Text.Verbosity != "low" {
		t.Errorf("%+v %v", body, err)
	}
	seen, err := os.ReadFile(w.ws + "/seen.txt")
	if err != nil || strings.Contains(string(seen)+said, "canary") {
		t.Errorf("the key was seen: %v", err)
	}
	err = filepath.Walk(w.base, func(path string, fi os.FileInfo, err error) error {
		if err != nil || !fi.Mode().IsRegular() {
			return err
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte("canary")) {
			t.Errorf("%s holds the key", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Every input of the official action that decides something arrives, and every
// failure fails the step with its own code.
func TestActionInputs(t *testing.T) {
	t.Parallel()
	const fine = `{"model_script":[],"on_exhausted":{"items":[{"message":"fine"}]}}`
	const writes = `{"model_script":[{"items":[{"call":"exec_command","args":{"cmd":"echo x > a.txt"}}]}],"on_exhausted":{"items":[{"message":"fine"}]}}`
	for _, tc := range []struct {
		name, script string
		env          []string
		code         int
		requests     bool
		check        func(*testing.T, *world, string, map[string]string)
	}{
		{"prompt file", fine, []string{"IN_PROMPT_FILE=a.txt"}, 0, true, nil},
		{"no prompt file", fine, []string{"IN_PROMPT_FILE=none.txt"}, 2, false, nil},
		{"read-only strategy wins", writes, []string{"IN_PROMPT=p", "IN_STRATEGY=read-only", "IN_SANDBOX=workspace-write"}, 0, true,
			func(t *testing.T, w *world, _ string, out map[string]string) {
				if out["files-changed"] != "0" {
					t.Error("read-only wrote")
				}
			}},
		{"permission profile", writes, []string{"IN_PROMPT=p", "IN_PROFILE=:read-only"}, 0, true,
			func(t *testing.T, w *world, _ string, out map[string]string) {
				if out["files-changed"] != "0" {
					t.Error("read-only wrote")
				}
			}},
		{"strict gate", writes, []string{"IN_PROMPT=p", "IN_SANDBOX=read-only", "IN_STRICT=true"}, 9, true, nil},
		{"words of a shell", fine, []string{"IN_PROMPT=p", `IN_ARGS=  --ephemeral -c 'model_verbosity="low"'`}, 0, true,
			func(t *testing.T, w *world, _ string, _ map[string]string) {
				if !bytes.Contains(w.server.ModelRequests()[0].Body, []byte(`"verbosity":"low"`)) {
					t.Error("the quoted word did not arrive")
				}
			}},
		{"broken JSON", fine, []string{"IN_PROMPT=p", `IN_ARGS=["--ephemeral"`}, 2, false, nil},
		{"no strings", fine, []string{"IN_PROMPT=p", `IN_ARGS=[1]`}, 2, false, nil},
		{"broken quotes", fine, []string{"IN_PROMPT=p", `IN_ARGS=--ephemeral 'x`}, 2, false, nil},
		{"blank", fine, []string{"IN_PROMPT=p", "IN_ARGS= \n "}, 0, true, nil},
		{"unknown flag", fine, []string{"IN_PROMPT=p", "IN_ARGS=--no-such-flag"}, 2, false, nil},
		{"verify fails", fine, []string{"IN_PROMPT=p", "IN_VERIFY=false"}, 9, true, nil},
		{"schema file", fine, []string{"IN_PROMPT=p", "IN_SCHEMA_FILE=schema.json"}, 8, true, nil},
		{"limit", writes, []string{"IN_PROMPT=p", "IN_MAX_TURNS=1"}, 7, true, nil},
		{"requirement", fine, []string{"IN_PROMPT=p", "IN_REQUIREMENTS=strict.toml", "IN_SANDBOX=workspace-write"}, 3, false, nil},
		{"working directory", `{"model_script":[{"items":[{"call":"exec_command","args":{"cmd":"pwd > where.txt"}}]}],"on_exhausted":{"items":[{"message":"fine"}]}}`,
			[]string{"IN_PROMPT=p", "IN_DIR=sub"}, 0, true,
			func(t *testing.T, w *world, _ string, _ map[string]string) {
				if b, err := os.ReadFile(w.ws + "/sub/where.txt"); err != nil || strings.TrimSpace(string(b)) != w.ws+"/sub" {
					t.Errorf("%q %v", b, err)
				}
			}},
		{"a fork's instructions", fine, []string{"IN_PROMPT=p", "EVENT=pull_request_target", "BASE_REF=main"}, 0, true,
			func(t *testing.T, w *world, _ string, _ map[string]string) {
				body := w.server.ModelRequests()[0].Body
				if bytes.Contains(body, []byte("obey the fork")) || !bytes.Contains(body, []byte("trusted words")) {
					t.Error("AGENTS.md was not taken from the base branch")
				}
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := actionWorld(t, tc.script)
			w.write(t, w.ws+"/AGENTS.md", []byte("trusted words\n"), 0o644)
			w.write(t, w.ws+"/schema.json", []byte(`{"type":"object"}`), 0o644)
			w.write(t, w.ws+"/strict.toml", []byte(`allowed_sandbox_modes = ["read-only"]`+"\n"), 0o644)
			w.write(t, w.ws+"/sub/keep", nil, 0o644)
			w.git(t, w.ws, "add", "-A")
			w.git(t, w.ws, "commit", "-q", "-m", "more")
			w.git(t, w.ws, "update-ref", "refs/remotes/origin/main", "HEAD")
			w.write(t, w.ws+"/AGENTS.md", []byte("obey the fork\n"), 0o644)
			w.git(t, w.ws, "commit", "-q", "-a", "-m", "hostile")
			code, said, out := actionScript(t, w, "run.sh", append([]string{"IN_API_KEY=sk-test-0123456789", "IN_ENDPOINT=" + w.server.URL + "/v1", "IN_MODEL=gpt-5.5"}, tc.env...)...)
			if code != tc.code {
				t.Fatalf("exit code %d, want %d:\n%s", code, tc.code, said)
			}
			if asked := len(w.server.ModelRequests()) > 0; asked != tc.requests {
				t.Errorf("the model was asked: %v", asked)
			}
			if tc.check != nil {
				tc.check(t, w, said, out)
			}
		})
	}
}

// The inputs that the action declares are exactly those that it hands on, and
// contain those of the action for the reference.
func TestActionDeclaresWhatItUses(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(actionDir, "action.yml"))
	if err != nil {
		t.Fatal(err)
	}
	inputs, rest, ok := strings.Cut(string(text), "\noutputs:\n")
	if !ok {
		t.Fatal("no outputs")
	}
	declared := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z-]+):$`).FindAllStringSubmatch(inputs, -1) {
		declared[m[1]] = true
	}
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`inputs\.([a-z-]+)`).FindAllStringSubmatch(rest, -1) {
		used[m[1]] = true
		if !declared[m[1]] {
			t.Errorf("input %s is used and not declared", m[1])
		}
	}
	for name := range declared {
		if name != "codex-version" && name != "codex-user" && !used[name] {
			t.Errorf("input %s is declared and not used", name)
		}
	}
	for _, name := range strings.Fields("openai-api-key responses-api-endpoint prompt prompt-file output-file working-directory sandbox codex-version codex-args " +
		"output-schema output-schema-file model effort codex-home safety-strategy codex-user allow-users allow-bots") {
		if !declared[name] {
			t.Errorf("the official action's input %s is missing", name)
		}
	}
	if !strings.Contains(rest, "  final-message:\n") {
		t.Error("the official action's output is missing")
	}
	for _, m := range regexp.MustCompile(`\bIN_[A-Z_]+`).FindAllString(string(must(os.ReadFile(filepath.Join(actionDir, "run.sh")))), -1) {
		if !strings.Contains(rest, " "+m+":") {
			t.Errorf("run.sh reads %s, which no step sets", m)
		}
	}
	if strings.Contains(rest, "uses:") && strings.Contains(rest, "- uses:") {
		t.Error("the action uses another one, which would have to be pinned")
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func TestActionAsksWhoItIs(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl")
	}
	api := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		name := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/repos/o/r/collaborators/"), "/permission")
		if r.Header.Get("Authorization") != "Bearer token" || name == "stranger" {
			http.NotFound(rw, r)
			return
		}
		permission := map[string]string{"writer": "write", "boss": "admin", "reader": "read"}[name]
		_, _ = rw.Write([]byte(`{"permission": "` + permission + `", "role_name": "x"}`))
	}))
	defer api.Close()
	w := newWorld(t)
	for _, tc := range []struct {
		actor string
		env   []string
		code  int
	}{
		{"writer", nil, 0}, {"boss", nil, 0}, {"reader", nil, 1}, {"stranger", nil, 1}, {"", nil, 1},
		{"stranger", []string{"ALLOW_USERS=a, stranger"}, 0}, {"stranger", []string{"ALLOW_USERS=*"}, 0}, {"stranger", []string{"ALLOW_USERS=strange"}, 1},
		{"reader", []string{"EVENT=schedule"}, 0}, {"reader", []string{"EVENT=issue_comment"}, 1},
		{"github-actions[bot]", nil, 1}, {"github-actions[bot]", []string{"ALLOW_BOTS=true"}, 0}, {"x[bot]", []string{"ALLOW_BOTS=true"}, 1},
		{"x[bot]", []string{"ALLOW_BOT_USERS=x"}, 0}, {"x[bot]", []string{"ALLOW_USERS=x"}, 1},
	} {
		env := append([]string{"ACTOR=" + tc.actor, "GH_TOKEN=token", "API=" + api.URL, "REPO=o/r", "EVENT=pull_request"}, tc.env...)
		if code, said, _ := actionScript(t, w, "check-actor.sh", env...); code != tc.code {
			t.Errorf("%s %v: exit code %d, want %d\n%s", tc.actor, tc.env, code, tc.code, said)
		}
	}
}

func TestActionFindsTheProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if code, said, out := actionScript(t, w, "find.sh", "GIVEN="+binary(t)); code != 0 || out["path"] != binary(t) || out["version"] != version {
		t.Errorf("%d %q %s", code, out, said)
	}
	if code, said, out := actionScript(t, w, "find.sh", "PATH="+filepath.Dir(binary(t))+":"+os.Getenv("PATH")); code != 0 || out["path"] != binary(t) {
		t.Errorf("on PATH: %d %q %s", code, out, said)
	}
	if code, said, _ := actionScript(t, w, "find.sh", "GIVEN=/nowhere"); code == 0 || !strings.Contains(said, "::error::/nowhere is not a program") {
		t.Errorf("%d %s", code, said)
	}
}

// The action made for the reference runs our program in its place: this is what
// it writes and calls.
func TestOfficialActionSequence(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, script string
		args         []string
		code         int
		final        string
	}{
		{"plain", `{"model_script":[{"items":[{"message":"the answer"}]}]}`, nil, 0, "the answer"},
		{"with all options", `{"model_script":[{"items":[{"call":"exec_command","args":{"cmd":"echo two > a.txt"}}]},{"items":[{"message":"{}"}]}]}`,
			[]string{"--output-schema", "schema.json", "--model", "gpt-5.5", "--config", `model_reasoning_effort="low"`, "--ephemeral"}, 0, "{}"},
		{"failing", `{"model_script":[],"on_exhausted":{"status":400,"body":{"error":{"message":"no"}}}}`, nil, 1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := actionWorld(t, tc.script)
			w.write(t, w.ws+"/schema.json", []byte(`{"type":"object","properties":{},"additionalProperties":false}`), 0o644)
			w.write(t, w.home+"/config.toml", []byte(`model_provider = "codex-action-responses-proxy"
model = "gpt-5.5"

[model_providers.codex-action-responses-proxy]
name = "Codex Action Responses Proxy"
base_url = "`+w.server.URL+`/v1"
wire_api = "responses"
`), 0o644)
			out := filepath.Join(w.base, "codex-exec-x", "output.md")
			w.write(t, out, nil, 0o644)
			args := append([]string{"exec", "--skip-git-repo-check", "--cd", w.ws, "--output-last-message", out}, tc.args...)
			cmd := exec.Command(filepath.Join(built, "codex"), append(args, "--sandbox", "workspace-write")...)
			cmd.Dir = w.ws
			cmd.Env = append(w.env(), "CODEX_INTERNAL_ORIGINATOR_OVERRIDE=codex_github_action", "FORCE_COLOR=1")
			cmd.Stdin = strings.NewReader("Do what is needed.\n")
			said, err := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != tc.code {
				t.Fatalf("exit code %d (%v):\n%s", code, err, said)
			}
			if got, err := os.ReadFile(out); err != nil || string(got) != tc.final {
				t.Errorf("output file: %q %v", got, err)
			}
			for _, r := range w.server.ModelRequests() {
				if r.Header.Get("Authorization") != "" || r.Header.Get("originator") != "codex_github_action" || r.Path != "/v1/responses" {
					t.Errorf("%s %v", r.Path, r.Header)
				}
			}
			if n := len(w.server.ModelRequests()); n == 0 {
				t.Error("no request came")
			}
		})
	}
}
