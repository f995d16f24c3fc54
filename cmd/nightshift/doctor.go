package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// doctorCmd prints what this machine can guarantee, and whether that is enough
// for the configuration of the folder.
type doctorCmd struct {
	JSON         bool     `name:"json" help:"Print the report as JSON."`
	Mode         string   `name:"mode" aliases:"sandbox" short:"s" placeholder:"MODE" help:"Judge runs in this sandbox mode: read-only, workspace-write or danger-full-access. Without it, the configured one."`
	Dir          string   `name:"cd" short:"C" placeholder:"DIR" help:"Judge runs in DIR."`
	Config       []string `name:"config" short:"c" sep:"none" placeholder:"KEY=VALUE" help:"Override a configuration value. Repeatable."`
	Requirements []string `name:"requirements" sep:"none" placeholder:"FILE" help:"One more requirements.toml; it can only tighten. Repeatable."`
}

// diagnosis is what doctor found: the report of the machine, and what a run in
// this folder would come to.
type diagnosis struct {
	sandbox.Report
	// Required are the guarantees without which a run here does not start.
	Required []string `json:"required"`
	// Refused says that it would not, with exit code ExitCode and for the reason
	// Why.
	Refused  bool   `json:"refused"`
	ExitCode int    `json:"exit_code"`
	Why      string `json:"why,omitempty"`
	Hint     string `json:"hint,omitempty"`
}

// Run tries the sandbox and prints what it holds. The exit code is that of a run
// with this configuration which would be refused: 4 for a missing guarantee, 3
// or 2 for a policy that cannot be applied or read.
func (c *doctorCmd) Run(rt *runtime) error {
	d, refusal := c.diagnose(rt)
	if coded := (exitError{}); errors.As(refusal, &coded) {
		return refusal // a mistake in the flags: nothing was asked
	}
	if refusal != nil {
		d.Refused, d.Why, d.ExitCode = true, refusal.Error(), runner.Classify(refusal).ExitCode
		var hinted hinter
		if errors.As(refusal, &hinted) {
			d.Hint = hinted.Hint()
		}
	}
	var err error
	if c.JSON {
		err = writeJSON(rt.stdout, d)
	} else {
		_, err = io.WriteString(rt.stdout, doctorText(d))
	}
	if err != nil || !d.Refused {
		return err
	}
	return exitSilently(d.ExitCode)
}

// diagnose opens the sandbox that a run here would have, with whatever of it can
// be had. The error is why the run would be refused.
func (c *doctorCmd) diagnose(rt *runtime) (diagnosis, error) {
	s := rt.session(&runFlags{Sandbox: c.Mode, Cd: c.Dir, Config: c.Config, Requirements: c.Requirements, Color: "auto", NoGitHub: true}, job{mode: "doctor"})
	defer s.close()
	conf, err := s.confinement()
	if err != nil {
		d := diagnosis{Report: sandbox.Probe()}
		if missing := missingHere(d.Report, sandbox.DefaultRequire); len(missing) > 0 {
			err = &sandbox.UnsupportedError{Missing: missing} // whatever else there is
		}
		return d, err
	}
	spec := conf.Spec
	d := diagnosis{Required: names(spec.Require)}
	spec.Require = 0
	if spec.Mode == sandbox.FullAccess {
		// Such a run asks nothing of the machine; what it could give is still printed.
		d.Report = sandbox.Probe()
		d.Notes = append(d.Notes, "runs here are danger-full-access: commands are not confined at all")
		return d, nil
	}
	box, err := sandbox.Open(rt.ctx, spec)
	if err != nil {
		d.Report = sandbox.Probe()
		return d, err
	}
	d.Report = box.Report()
	if err := box.Close(); err != nil {
		return d, fmt.Errorf("closing the sandbox: %w", err)
	}
	if missing := missingHere(d.Report, conf.Spec.Require); len(missing) > 0 {
		return d, &sandbox.UnsupportedError{Missing: missing}
	}
	return d, nil
}

func missingHere(r sandbox.Report, require sandbox.Guarantee) []sandbox.Support {
	return slices.DeleteFunc(slices.Clone(r.Guarantees), func(s sandbox.Support) bool { return s.Held || require&s.Guarantee == 0 })
}

func names(g sandbox.Guarantee) []string {
	if g == 0 {
		return []string{}
	}
	return strings.Split(g.String(), ",")
}

// doctorText is the report for people.
func doctorText(d diagnosis) string {
	var b strings.Builder
	fmt.Fprintf(&b, "nightshift %s, sandbox level: %s\n\n", version, d.Level)
	hints := map[string]bool{}
	for _, s := range d.Guarantees {
		word := "yes"
		if !s.Held {
			word = "NO"
		}
		fmt.Fprintf(&b, "  %-3s %-18s %s\n", word, s.Name, s.Mechanism)
		if s.Why != "" {
			fmt.Fprintf(&b, "      %-18s because: %s\n", "", s.Why)
		}
		if s.Hint != "" && !s.Held {
			hints[s.Hint] = true
		}
	}
	for _, n := range d.Notes {
		fmt.Fprintf(&b, "\nnote: %s\n", n)
	}
	if d.Hint != "" {
		hints[d.Hint] = true
	}
	if len(hints) > 0 {
		b.WriteString("\nWhat to do:\n")
		for _, hint := range append(hintsOf(d.Guarantees), d.Hint) {
			if hints[hint] {
				delete(hints, hint)
				fmt.Fprintf(&b, "  - %s\n", hint)
			}
		}
	}
	switch {
	case !d.Refused:
		b.WriteString("\nRuns in this folder, with this configuration, are not refused for want of a guarantee.\n")
		if len(d.Required) > 0 {
			fmt.Fprintf(&b, "Required, and held: %s.\n", strings.Join(d.Required, ", "))
		}
	case d.ExitCode == runner.ExitSandbox:
		fmt.Fprintf(&b, "\nRuns are refused here (exit code 4): %s\n"+
			"A weaker mechanism counts only where sandbox.degrade names it; going without a guarantee needs\n"+
			"sandbox.may_drop in /etc/codex/requirements.toml.\n", d.Why)
	default:
		fmt.Fprintf(&b, "\nRuns are refused here (exit code %d), whatever the machine can do:\n%s\n", d.ExitCode, d.Why)
	}
	return b.String()
}

func hintsOf(list []sandbox.Support) []string {
	var out []string
	for _, s := range list {
		out = append(out, s.Hint)
	}
	return out
}
