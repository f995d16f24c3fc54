package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nightshift-ci/nightshift/policy/rules"
)

// maxListed bounds the entries of one list in the text for the model.
const maxListed = 40

// PermissionsText tells the model in plain words what it may do, so that it does
// not spend turns on what will be refused.
func (p *Policy) PermissionsText() string {
	c := &p.config
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("This run is unattended. Nobody reads along, and nobody can be asked: approval_policy is `never`. " +
		"Whatever would need approval is refused at once; do not ask for it and do not retry it, " +
		"choose another way or say in your final answer what could not be done.")
	switch c.SandboxMode {
	case "danger-full-access":
		line("sandbox_mode is `danger-full-access`: commands run without a sandbox and can change the whole machine.")
	case "workspace-write":
		line("sandbox_mode is `workspace-write`: commands can read most files and write only below:")
		p.list(&b, p.write)
		line("Inside these folders %s stay read-only. /tmp is private to the run.", strings.Join(slices.Concat(protectedNames, p.protect), ", "))
	default:
		line("sandbox_mode is `read-only`: commands can read most files and write none, but for a private /tmp.")
	}
	if c.SandboxMode != "danger-full-access" {
		line("Requests to run a command outside the sandbox are refused.")
		if len(c.Sandbox.DenyRead) > 0 {
			line("These paths cannot be read:")
			p.list(&b, c.Sandbox.DenyRead)
		}
		line("Credentials of the user and of the machine (keys, tokens, login files) cannot be read either.")
	}
	p.networkText(&b)
	switch c.WebSearch {
	case "disabled":
		line("Web search is off.")
	case "live":
		line("Web search is on.")
	default:
		line("Web search is on and answers from an index (`%s`).", c.WebSearch)
	}
	p.rulesText(&b)
	return b.String()
}

func (p *Policy) list(b *strings.Builder, entries []string) {
	for i, e := range entries {
		if i == maxListed {
			fmt.Fprintf(b, "- and %d more\n", len(entries)-i)
			return
		}
		fmt.Fprintf(b, "- %s\n", e)
	}
}

func (p *Policy) networkText(b *strings.Builder) {
	n := p.config.Sandbox.Network
	switch p.networkMode() {
	case "off":
		b.WriteString("The network of commands is off: downloads and package installs that need it fail.\n")
	case "host":
		b.WriteString("Commands have network access.\n")
	case "proxy":
		b.WriteString("Commands reach the network through a proxy (HTTP_PROXY and HTTPS_PROXY are set)")
		if n.Mode == "limited" {
			b.WriteString(", only with GET, HEAD and OPTIONS over plain HTTP")
		}
		if len(n.AllowedDomains) == 0 {
			b.WriteString("; no host is allowed.\n")
			return
		}
		b.WriteString(", and only these hosts:\n")
		p.list(b, n.AllowedDomains)
		if len(n.DeniedDomains) > 0 {
			b.WriteString("These are always refused:\n")
			p.list(b, n.DeniedDomains)
		}
	}
}

// rulesText names the commands that will be refused.
func (p *Policy) rulesText(b *strings.Builder) {
	var entries []string
	for _, r := range p.rules.Rules() {
		if r.Level <= rules.Allow {
			continue
		}
		entry := "`" + r.String() + "`"
		if r.Level == rules.Prompt {
			entry += " (needs approval)"
		}
		if r.Justification != "" {
			entry += ": " + r.Justification
		}
		entries = append(entries, entry)
	}
	if len(entries) > 0 {
		b.WriteString("Commands that start with one of these are refused, however they are written or wrapped:\n")
		p.list(b, unique(entries))
		b.WriteString("Write commands plainly: a command whose words only exist at run time is refused too.\n")
	}
	b.WriteString("`rm` with -f is refused unless a rule allows it; use rm without -f on named files.\n")
}
