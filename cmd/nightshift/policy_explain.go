package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner"
)

// policyExplainCmd shows where values come from.
type policyExplainCmd struct {
	policyFlags
	JSON bool   `name:"json" help:"Print as JSON."`
	Key  string `arg:"" optional:"" help:"A dotted key, as sandbox_mode; without one, every value that is not a default."`
}

// Run prints one explanation, or all.
func (c *policyExplainCmd) Run(rt *runtime) error {
	p, err := c.load(rt)
	if err != nil {
		return err
	}
	if c.Key != "" {
		e := p.Explain(c.Key)
		if c.JSON {
			if err := writeJSON(rt.stdout, e); err != nil {
				return err
			}
		} else if _, err := io.WriteString(rt.stdout, e.String()); err != nil {
			return err
		}
		if !e.Known {
			return exitSilently(runner.ExitUsage)
		}
		return nil
	}
	if c.JSON {
		return writeJSON(rt.stdout, overview(p))
	}
	return printOverview(rt.stdout, p)
}

// policyOverview is the JSON of a whole policy.
type policyOverview struct {
	Digest  string               `json:"policy_digest"`
	Layers  []policy.Layer       `json:"layers"`
	Values  []policy.Explanation `json:"values"`
	Notices []noticeJSON         `json:"notices"`
	Rules   int                  `json:"command_rules"`
	Hosts   int                  `json:"network_rules"`
}

type noticeJSON struct {
	Class   string `json:"class"`
	Message string `json:"message"`
	Origin  string `json:"origin,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

func overview(p *policy.Policy) policyOverview {
	o := policyOverview{Digest: p.Digest(), Layers: p.Layers(), Values: []policy.Explanation{}, Notices: []noticeJSON{}, Rules: len(p.Rules().Rules()), Hosts: len(p.Rules().Network())}
	for _, k := range overviewKeys(p) {
		o.Values = append(o.Values, p.Explain(k))
	}
	for _, n := range p.Notices() {
		o.Notices = append(o.Notices, noticeJSON{n.Class, n.Message, n.Origin, n.Hint})
	}
	return o
}

// overviewKeys are the values that are set, and those everybody asks about. What
// stands inside a list is shown with the list.
func overviewKeys(p *policy.Policy) []string {
	keys := slices.DeleteFunc(slices.Clone(p.Keys()), func(k string) bool { return strings.Contains(k, "].") })
	for _, k := range []string{"allow_login_shell", "approval_policy", "model", "sandbox_mode", "sandbox_workspace_write.network_access", "web_search"} {
		if _, set := p.Origins()[k]; !set {
			keys = append(keys, k)
		}
	}
	return keys
}

func printOverview(w io.Writer, p *policy.Policy) error {
	var b strings.Builder
	for _, k := range overviewKeys(p) {
		e := p.Explain(k)
		value, err := jsonText(e.Value)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s = %s  (%s)\n", k, value, e.Origin)
		for _, c := range e.Constraint {
			bound, err := jsonText(c.Value)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "    bound by %s %s  (%s)\n", c.Requirement, bound, c.Origin)
		}
	}
	fmt.Fprintf(&b, "\n%d rules on commands, %d on hosts\npolicy digest %s\n", len(p.Rules().Rules()), len(p.Rules().Network()), p.Digest())
	for _, n := range p.Notices() {
		fmt.Fprintf(&b, "notice: %s\n", n.Message)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
