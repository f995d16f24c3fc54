package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
