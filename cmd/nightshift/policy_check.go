package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/policy/rules"
	"github.com/nightshift-ci/nightshift/runner"
)

// policyCheckCmd decides on one command.
type policyCheckCmd struct {
	policyFlags
	JSON      bool     `name:"json" help:"Print the decision as JSON."`
	Shell     string   `placeholder:"STRING" help:"Check this shell text instead of an argument list."`
	ShellPath string   `default:"/bin/bash" placeholder:"PATH" help:"Shell that would run the text."`
	Argv      []string `arg:"" optional:"" passthrough:"" help:"The program and its arguments, after --."`
}

// checked is the JSON of a decision.
type checked struct {
	Decision string        `json:"decision"`
	Outcome  string        `json:"outcome"`
	Reason   string        `json:"reason,omitempty"`
	Source   string        `json:"source,omitempty"`
	Rule     string        `json:"rule,omitempty"`
	Origin   string        `json:"origin,omitempty"`
	Matches  []rules.Match `json:"matches"`
	Commands [][]string    `json:"commands"`
	Opaque   []string      `json:"opaque"`
	// Plain: only simple commands with fixed words.
	Plain  bool   `json:"plain"`
	Digest string `json:"policy_digest"`
}

// Run prints the decision and ends with its code.
func (c *policyCheckCmd) Run(rt *runtime) error {
	argv, err := programLine("policy check", c.Argv)
	if err != nil {
		return err
	}
	switch {
	case c.Shell != "" && len(argv) > 0:
		return usageError("policy check: give either --shell or an argument list")
	case c.Shell == "" && len(argv) == 0:
		return usageError("policy check: no command given; use `nightshift policy check -- CMD…` or --shell STRING")
	}
	p, err := c.load(rt)
	if err != nil {
		return err
	}
	var v policy.Verdict
	if c.Shell != "" {
		v = p.Shell(c.Shell, c.ShellPath, p.Config().AllowLoginShell)
	} else {
		v = p.Command(argv)
	}
	if c.JSON {
		out := checked{Decision: v.Level.String(), Outcome: v.Outcome, Reason: v.Reason, Source: v.Source, Rule: v.Rule, Origin: v.Origin,
			Matches: v.Matches, Commands: v.Commands, Opaque: v.Opaque, Plain: v.Plain, Digest: p.Digest()}
		if out.Matches == nil {
			out.Matches = []rules.Match{}
		}
		if out.Commands == nil {
			out.Commands = [][]string{}
		}
		if out.Opaque == nil {
			out.Opaque = []string{}
		}
		if err := writeJSON(rt.stdout, out); err != nil {
			return err
		}
	} else if err := printVerdict(rt.stdout, v); err != nil {
		return err
	}
	if v.Outcome == policy.Denied {
		return exitSilently(runner.ExitPolicy)
	}
	return nil
}

func printVerdict(w io.Writer, v policy.Verdict) error {
	var b strings.Builder
	if v.Level == rules.None {
		fmt.Fprintf(&b, "%s: no rule matches\n", v.Outcome)
	} else {
		fmt.Fprintf(&b, "%s: the rules say %s\n", v.Outcome, v.Level)
	}
	if v.Reason != "" {
		fmt.Fprintf(&b, "  %s\n", visible(v.Reason))
	}
	for _, m := range v.Matches {
		fmt.Fprintf(&b, "  %s matches %s rule `%s` (%s)", quoteArgv(m.Command), m.Decision, strings.Join(m.Prefix, " "), m.Origin)
		if m.Justification != "" {
			fmt.Fprintf(&b, ": %s", visible(m.Justification))
		}
		b.WriteByte('\n')
	}
	for _, argv := range v.Commands {
		fmt.Fprintf(&b, "  read as %s\n", quoteArgv(argv))
	}
	for _, o := range v.Opaque {
		fmt.Fprintf(&b, "  not readable: %s\n", visible(o))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// quoteArgv shows an argument list on one line.
func quoteArgv(argv []string) string {
	out := make([]string, len(argv))
	for i, a := range argv {
		out[i] = a
		if a == "" || strings.ContainsAny(a, " \t\n'\"\\$`|&;<>(){}*?[]#~") || visible(a) != a {
			out[i] = strconv.Quote(a)
		}
	}
	return strings.Join(out, " ")
}

// visible escapes what a terminal would act on.
func visible(s string) string {
	quoted := strconv.Quote(s)
	inner := quoted[1 : len(quoted)-1]
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(inner)
}
