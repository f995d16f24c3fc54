package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// TestPolicyCheckCases runs the table of command-rule decisions through
// `policy check`, under requirements that let allow rules leave the sandbox.
func TestPolicyCheckCases(t *testing.T) {
	data, err := os.ReadFile("../../policy/rules/testdata/cases.tsv")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("etc/requirements.toml", "[rules]\nallow_unsandboxed = true\n")
	write("home/config.toml", "")
	rulesets := map[string]string{}
	rows := 0
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# ruleset "); ok {
			name, rule, _ := strings.Cut(rest, ": ")
			rulesets[name] += rule + "\n"
		}
		row := strings.Split(line, "\t")
		if strings.HasPrefix(line, "#") || row[0] == "id" || len(row) < 8 {
			continue
		}
		rows++
		want := row[5]
		if row[7] != "" {
			want = row[7]
		}
		c := policyCheckCmd{JSON: true, ShellPath: "/bin/bash"}
		c.Rules = []string{write(row[2]+".rules", rulesets[row[2]])}
		command := strings.ReplaceAll(row[4], "<OUTSIDE>", "/var/outside")
		target := any(&c.Shell)
		if row[1] == "argv" {
			target = &c.Argv
		}
		if err := json.Unmarshal([]byte(command), target); err != nil {
			t.Fatal(err)
		}
		var stdout bytes.Buffer
		rt := &runtime{ctx: t.Context(), stdout: &stdout, stderr: &stdout, environ: []string{"CODEX_HOME=" + filepath.Join(dir, "home"), "HOME=" + dir}, cwd: dir, systemDir: filepath.Join(dir, "etc")}
		err := c.Run(rt)
		var coded exitError
		if err != nil && !errors.As(err, &coded) {
			t.Fatalf("%s: %v", row[0], err)
		}
		var got checked
		if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v in %s", row[0], err, stdout.String())
		}
		if (coded.code == 3) != (got.Outcome == "denied") {
			t.Errorf("%s: exit %d with outcome %s", row[0], coded.code, got.Outcome)
		}
		have := got.Decision
		if row[1] != "argv" {
			have = inWords(got)
		}
		if have != want {
			t.Errorf("%s %s: got %s, want %s: %s", row[0], command, have, want, stdout.String())
		}
	}
	if rows < 90 {
		t.Errorf("only %d rows", rows)
	}
}

// inWords is a decision in the words of the table.
func inWords(c checked) string {
	switch {
	case c.Outcome != "denied":
		return "ran-" + c.Outcome
	case c.Source == "danger":
		return "rejected-dangerous"
	case c.Decision == "prompt":
		return "rejected-prompt"
	}
	return "rejected-rule"
}

// machine is the folders of one real run.
type machine struct{ etc, home, work, base string }

func newMachine(t *testing.T) machine {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := machine{filepath.Join(base, "etc"), filepath.Join(base, "home"), filepath.Join(base, "work"), base}
	for _, d := range []string{m.etc, m.home, m.work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("git", "init", "-q", m.work).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	return m
}

func (m machine) write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(m.base, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// exec runs the program in the work folder and returns exit code, stdout and
// stderr.
func (m machine) exec(t *testing.T, args ...string) (int, string, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(t), append([]string{"exec"}, args...)...)
	cmd.Dir = m.work
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + m.base, "CODEX_HOME=" + m.home, "NIGHTSHIFT_TEST_SYSTEM_DIR=" + m.etc, "LANG=C.UTF-8", "TERM=dumb"}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode(), stdout.String(), stderr.String()
	case err != nil:
		t.Fatal(err)
	}
	return 0, stdout.String(), stderr.String()
}

// TestPolicyRequirementRuns plays the table of requirement cases with real runs:
// exit code, effective sandbox, and no model request where the run is refused.
func TestPolicyRequirementRuns(t *testing.T) {
	var table struct {
		Cases []struct {
			ID       string
			Layers   map[string]string
			Args     []string
			Trust    string `json:"project_trust"`
			Observed struct {
				Exit    int
				Sandbox string
				Notices []string
			}
		}
	}
	var ours struct {
		Usage []string
		Cases map[string]struct {
			Exit    int
			Sandbox string
		}
	}
	for name, to := range map[string]any{"requirements-cases.json": &table, "requirements-ours.json": &ours} {
		data, err := os.ReadFile("../../policy/testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, to); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range table.Cases {
		t.Run(c.ID, func(t *testing.T) {
			m := newMachine(t)
			for name, text := range c.Layers {
				m.write(t, name, text)
			}
			if c.Trust != "" {
				m.write(t, "home/config.toml", c.Layers["home/config.toml"]+"\n[projects.\""+m.work+"\"]\ntrust_level = \""+c.Trust+"\"\n")
			}
			script := m.write(t, "session.json", `{"model_script":[{"items":[{"message":"hello"}]}]}`)
			events := filepath.Join(m.base, "events.jsonl")
			mine := ours.Cases[c.ID]
			want, sandbox := mine.Exit, c.Observed.Sandbox
			switch {
			case slices.Contains(c.Args, "--approve-for-me"): // the policy knows the flag, the command does not offer it
				want = 2
			case want != 0:
			case c.Observed.Exit != 0 && slices.Contains(ours.Usage, c.ID):
				want = 2
			case c.Observed.Exit != 0:
				want = 3
			}
			if mine.Sandbox != "" {
				sandbox = mine.Sandbox
			}
			code, stdout, stderr := m.exec(t, append(c.Args, "--json", "--ephemeral", "--model-script", script, "--events", events, "hello")...)
			if code != want {
				t.Fatalf("exit %d, want %d\n%s%s", code, want, stdout, stderr)
			}
			if want != 0 {
				if strings.Contains(stdout, "turn.started") || !strings.Contains(stderr, "error:") {
					t.Errorf("a refused run went on, or said nothing:\n%s%s", stdout, stderr)
				}
				return
			}
			log, err := os.ReadFile(events)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(log), `"sandbox_mode":"`+sandbox+`"`) {
				t.Errorf("the log does not say %s:\n%s", sandbox, log)
			}
			if len(c.Observed.Notices) > 0 && !strings.Contains(stderr, "note:") {
				t.Errorf("nothing is said of %q:\n%s", c.Observed.Notices, stderr)
			}
		})
	}
}

// TestPolicyRuleRuns plays the shell rows of the table of command rules in one
// real run: each command is a call of the scripted model.
func TestPolicyRuleRuns(t *testing.T) {
	data, err := os.ReadFile("../../policy/rules/testdata/cases.tsv")
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t)
	outside := filepath.Join(m.base, "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	ruleset := ""
	var steps []string
	var ids, wants, commands []string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# ruleset R2: "); ok {
			ruleset += rest + "\n"
		}
		row := strings.Split(line, "\t")
		if strings.HasPrefix(line, "#") || len(row) < 8 || row[1] != "shell" {
			continue
		}
		want := row[5]
		if row[7] != "" {
			want = row[7]
		}
		command := strings.ReplaceAll(row[4], "<OUTSIDE>", outside)
		ids, wants, commands = append(ids, row[0]), append(wants, want), append(commands, command)
		steps = append(steps, `{"items":[{"call":"exec_command","args":{"cmd":`+command+`}}]}`)
	}
	steps = append(steps, `{"items":[{"message":"done"}]}`)
	m.write(t, "home/rules/r2.rules", ruleset)
	m.write(t, "etc/requirements.toml", "[rules]\nallow_unsandboxed = true\n")
	script := m.write(t, "session.json", `{"model_script":[`+strings.Join(steps, ",\n")+`]}`)
	events := filepath.Join(m.base, "events.jsonl")
	code, stdout, stderr := m.exec(t, "--json", "--ephemeral", "-s", "read-only", "--model-script", script, "--events", events, "work")
	if code != 0 {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	log, err := os.Open(events)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var decisions []event.PolicyDecision
	seen := map[string]bool{}
	for rec, err := range event.Decode(log) {
		if err != nil {
			t.Fatal(err)
		}
		// What the sandbox refused later has a record of its own for the same call.
		if d, ok := rec.Event.(event.PolicyDecision); ok && d.Action == "command" && !seen[d.CallID] {
			seen[d.CallID] = true
			decisions = append(decisions, d)
		}
	}
	if len(decisions) != len(ids) {
		t.Fatalf("%d decisions for %d commands", len(decisions), len(ids))
	}
	for i, d := range decisions {
		if got := inWords(checked{Outcome: d.Outcome, Source: d.Source, Decision: d.Decision}); got != wants[i] {
			t.Errorf("%s %s: got %s, want %s (%s)", ids[i], commands[i], got, wants[i], d.Reason)
		}
	}
}

// TestPolicyCheckFlags: a flag that was mistyped does not become the command.
func TestPolicyCheckFlags(t *testing.T) {
	m := newMachine(t)
	rules := m.write(t, "ci.rules", "prefix_rule(pattern=[\"git\", \"push\"], decision=\"forbidden\")\nprefix_rule(pattern=[\"--rulez\"], decision=\"forbidden\")\n")
	for _, c := range []struct {
		args string
		want int
	}{
		{"--rules FILE -- git push", 3},
		{"-r FILE -- git push", 3},
		{"-r FILE git push", 3},
		{"-r FILE -- git pull", 0},
		{"-r FILE -- --rulez", 3},
		{"--rulez FILE -- git push", 2},
		{"--rulez -- git push", 2},
		{"-x git push", 2},
	} {
		cmd := exec.Command(binary(t), append([]string{"policy", "check"}, strings.Fields(strings.ReplaceAll(c.args, "FILE", rules))...)...)
		cmd.Dir = m.work
		cmd.Env = []string{"HOME=" + m.base, "CODEX_HOME=" + m.home, "NIGHTSHIFT_TEST_SYSTEM_DIR=" + m.etc}
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != c.want {
			t.Errorf("%s: exit %d, want %d: %v: %s", c.args, code, c.want, err, out)
		}
	}
}
