package policy

import (
	"fmt"
	"strings"

	"github.com/nightshift-ci/nightshift/policy/rules"
)

// Command decides on one program with its arguments.
func (p *Policy) Command(argv []string) Verdict { return p.verdict(p.rules.Command(argv)) }

// Shell decides on a script that shellPath will run; login tells whether it is
// a login shell.
func (p *Policy) Shell(script, shellPath string, login bool) Verdict {
	v := p.verdict(p.rules.Shell(script, shellPath, login))
	if login && !p.config.AllowLoginShell && v.Outcome != Denied {
		v.Outcome, v.Source, v.Rule = Denied, "rule", "allow_login_shell"
		v.Reason = "login shells are not allowed here; run the command with login = false"
		v.Origin = p.origins["allow_login_shell"]
		if p.needs.noLogin != nil {
			v.Source, v.Origin = "requirement", p.needs.noLogin.origin()
		}
	}
	return v
}

// Escalation decides on a script for which the model asks to leave the sandbox.
// Nobody can grant it, so it is refused, unless the policy itself lets the
// command run outside.
func (p *Policy) Escalation(script, shellPath string, login bool) Verdict {
	v := p.Shell(script, shellPath, login)
	if v.Outcome == Denied || v.Outcome == Unsandboxed && p.config.SandboxMode != "danger-full-access" {
		return v
	}
	v.Outcome, v.Source, v.Rule = Denied, "approval", "approval_policy"
	v.Reason = "leaving the sandbox needs approval, and nobody can be asked in an unattended run"
	v.Origin = p.origins["approval_policy"]
	return v
}

// verdict turns a decision of the rules into the outcome of an unattended run.
func (p *Policy) verdict(d rules.Decision) Verdict {
	v := Verdict{Decision: d, Outcome: Sandboxed}
	if p.config.SandboxMode == "danger-full-access" {
		v.Outcome = Unsandboxed
	}
	m := d.Strictest()
	if m != nil {
		v.Rule, v.Origin, v.Source = strings.Join(m.Prefix, " "), m.Origin, "rule"
		if m.Layer == rules.Requirement {
			v.Source = "requirement"
		}
	}
	switch d.Level {
	case rules.Forbidden:
		v.Outcome = Denied
		v.Reason = p.forbiddenReason(d, m)
		if m == nil {
			v.Source, v.Rule = "rule", "opaque command"
			if d.Danger != "" {
				v.Source, v.Rule = "danger", "rm -f"
			}
		}
	case rules.Prompt:
		v.Outcome, v.Source = Denied, "approval"
		what := "a command that cannot be read with certainty"
		if m != nil {
			what = "commands starting with `" + v.Rule + "`"
		}
		v.Reason = fmt.Sprintf("policy asks for approval of %s, and nobody can be asked in an unattended run", what)
		if m != nil && m.Justification != "" {
			v.Reason += ": " + m.Justification
		}
		if m == nil {
			v.Rule = "opaque command"
			v.Reason += ": " + strings.Join(d.Opaque, "; ")
		}
	case rules.Allow:
		if p.config.Sandbox.AllowUnsandboxed && d.Plain && !byProject(d) {
			v.Outcome = Unsandboxed
		}
	}
	return v
}

func (p *Policy) forbiddenReason(d rules.Decision, m *rules.Match) string {
	switch {
	case m != nil && m.Justification != "":
		return fmt.Sprintf("policy forbids `%s`: %s", strings.Join(m.Prefix, " "), m.Justification)
	case m != nil:
		return fmt.Sprintf("policy forbids commands starting with `%s`", strings.Join(m.Prefix, " "))
	case d.Danger != "":
		return d.Danger + ", which is not permitted; delete named files without -f"
	}
	return "the command cannot be read with certainty, and policy forbids some commands: " + strings.Join(d.Opaque, "; ")
}

// byProject tells whether some command is allowed by a project's rule only.
func byProject(d rules.Decision) bool {
	allowed := map[string]bool{}
	for _, m := range d.Matches {
		if m.Level == rules.Allow && m.Layer != rules.Project {
			allowed[strings.Join(m.Command, "\x00")] = true
		}
	}
	for _, c := range d.Commands {
		if !allowed[strings.Join(c, "\x00")] {
			return true
		}
	}
	return false
}
