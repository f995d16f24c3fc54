package policy

import (
	"slices"
	"strings"
	"testing"
)

// TestVerdicts: what the rules say becomes the outcome of an unattended run.
func TestVerdicts(t *testing.T) {
	files := map[string]string{
		"home/rules/u.rules":        "prefix_rule(pattern=[\"make\"])\nprefix_rule(pattern=[\"git\", \"fetch\"], decision=\"prompt\", justification=\"Ask.\")\nprefix_rule(pattern=[\"curl\"], decision=\"forbidden\", justification=\"No.\")\n",
		"work/.codex/rules/p.rules": "prefix_rule(pattern=[\"npm\"])\nprefix_rule(pattern=[\"rm\"])\n",
		"home/config.toml":          "[projects.\"/work/repo\"]\ntrust_level = \"trusted\"\n",
	}
	system := map[string]string{
		"etc/requirements.toml": "[rules]\nallow_unsandboxed = true\n[[rules.prefix_rules]]\npattern = [{ token = \"nc\" }]\ndecision = \"forbidden\"\n",
	}
	for name, text := range files {
		system[name] = text
	}
	plain, granting := load(t, files), load(t, system)
	full := load(t, map[string]string{"home/rules/u.rules": files["home/rules/u.rules"]}, func(s *Sources) { s.Flags.Sandbox = "danger-full-access" })
	for _, c := range []struct {
		p                       *Policy
		script, outcome, source string
	}{
		{plain, "make x", Sandboxed, "rule"}, {granting, "make x", Unsandboxed, "rule"}, {granting, "make > x", Sandboxed, "rule"}, {granting, "npm ci", Sandboxed, "rule"}, {granting, "make && npm ci", Sandboxed, "rule"},
		{plain, "ls", Sandboxed, ""}, {plain, "git fetch", Denied, "approval"}, {plain, "curl x", Denied, "rule"}, {granting, "nc x", Denied, "requirement"}, {plain, "rm -rf x", Denied, "danger"}, {plain, "$X", Denied, "rule"},
		{full, "ls", Unsandboxed, ""}, {full, "curl x", Denied, "rule"}, {full, "rm -f x", Denied, "danger"},
	} {
		v := c.p.Shell(c.script, "/bin/bash", true)
		if v.Outcome != c.outcome || v.Source != c.source || v.Outcome == Denied && v.Reason == "" {
			t.Errorf("%q: %s by %q (%s), want %s by %q", c.script, v.Outcome, v.Source, v.Reason, c.outcome, c.source)
		}
	}
	for _, c := range []struct {
		p               *Policy
		script, outcome string
		source          string
	}{
		{plain, "ls", Denied, "approval"}, {plain, "make", Denied, "approval"}, {granting, "make", Unsandboxed, "rule"}, {granting, "ls", Denied, "approval"}, {full, "ls", Denied, "approval"}, {plain, "curl x", Denied, "rule"},
	} {
		if v := c.p.Escalation(c.script, "/bin/bash", true); v.Outcome != c.outcome || v.Source != c.source {
			t.Errorf("escalation of %q: %s by %q, want %s by %q", c.script, v.Outcome, v.Source, c.outcome, c.source)
		}
	}
	v := plain.Command([]string{"curl", "x"})
	if v.Rule != "curl" || v.Origin != "/home/u/.codex/rules/u.rules:3" || !strings.Contains(v.Reason, "No.") {
		t.Errorf("where a command was refused: %+v", v)
	}
	noLogin := load(t, map[string]string{"etc/requirements.toml": "allow_login_shell = false"})
	if v := noLogin.Shell("ls", "/bin/bash", true); v.Outcome != Denied || v.Source != "requirement" || v.Origin == "" {
		t.Errorf("a login shell: %+v", v)
	}
	if v := noLogin.Shell("ls", "/bin/bash", false); v.Outcome != Sandboxed {
		t.Errorf("a plain shell: %+v", v)
	}
	if got := granting.ForbiddenExecutables(); !slices.Equal(got, []string{"curl", "nc"}) {
		t.Errorf("forbidden executables: %q", got)
	}
}

func TestPermissionsText(t *testing.T) {
	p := load(t, map[string]string{
		"home/config.toml":   "sandbox_mode = \"workspace-write\"\n[sandbox_workspace_write]\nwritable_roots = [\"/data\"]\n[sandbox]\ndeny_read = [\"/opt/secret\"]\n[permissions.network]\nenabled = true\nallowed_domains = [\"pkg.example\"]\n",
		"home/rules/u.rules": "prefix_rule(pattern=[\"git\", [\"push\", \"fetch\"]], decision=\"forbidden\", justification=\"No pushes from CI.\")\nprefix_rule(pattern=[\"npm\", \"publish\"], decision=\"prompt\")\n",
	})
	text := p.PermissionsText()
	for _, part := range []string{"`workspace-write`", "`never`", "/work/repo", "/data", "/opt/secret", "pkg.example", "git {push,fetch}", "No pushes from CI.", "npm publish", "needs approval", ".git"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in the text for the model:\n%s", part, text)
		}
	}
	if text := load(t, nil).PermissionsText(); !strings.Contains(text, "`read-only`") || !strings.Contains(text, "network of commands is off") {
		t.Errorf("text of the default policy:\n%s", text)
	}
	if text := load(t, nil, func(s *Sources) { s.Flags.Bypass = true }).PermissionsText(); !strings.Contains(text, "`danger-full-access`") {
		t.Errorf("text without a sandbox:\n%s", text)
	}
}
