package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/event"
)

// policyReplayCmd decides recorded calls again.
type policyReplayCmd struct {
	policyFlags
	JSON   bool   `name:"json" help:"Print as JSON."`
	Events string `arg:"" help:"Event log of a run (--events or events.jsonl of a report folder); - is stdin."`
}

// redecided is one recorded decision and what it would be now.
type redecided struct {
	Seq     uint64 `json:"seq"`
	Action  string `json:"action"`
	Subject string `json:"subject"`
	Before  string `json:"before"`
	After   string `json:"after"`
	Reason  string `json:"reason,omitempty"`
	Rule    string `json:"rule,omitempty"`
	Origin  string `json:"origin,omitempty"`
}

// replayed is the JSON of a replay.
type replayed struct {
	Decided int         `json:"decided"`
	Skipped int         `json:"skipped"` // kinds of calls that cannot be decided again
	Changed []redecided `json:"changed"`
}

// Run prints the calls that would be decided differently.
func (c *policyReplayCmd) Run(rt *runtime) error {
	p, err := c.load(rt)
	if err != nil {
		return err
	}
	in, err := rt.openInput(c.Events)
	if err != nil {
		return usageError("cannot read the event log: %v", err)
	}
	defer in.Close()
	out := replayed{Changed: []redecided{}}
	refused := false
	for rec, err := range event.Decode(in) {
		if err != nil {
			return usageError("%s: %w", c.Events, err)
		}
		e, ok := rec.Event.(event.PolicyDecision)
		if !ok {
			continue
		}
		now, decided := decideAgain(p, e)
		if !decided {
			out.Skipped++
			continue
		}
		out.Decided++
		if now.After == e.Outcome {
			continue
		}
		now.Seq, now.Action, now.Subject, now.Before = rec.Seq, e.Action, e.Subject, e.Outcome
		out.Changed = append(out.Changed, now)
		refused = refused || now.After == policy.Denied
	}
	if c.JSON {
		err = writeJSON(rt.stdout, out)
	} else {
		err = printReplayed(rt.stdout, out)
	}
	if err == nil && refused {
		return exitSilently(runner.ExitPolicy)
	}
	return err
}

// decideAgain decides one recorded call; false for calls whose decision depends
// on more than the record holds.
func decideAgain(p *policy.Policy, e event.PolicyDecision) (redecided, bool) {
	verdict := func(v policy.Verdict) (redecided, bool) {
		return redecided{After: v.Outcome, Reason: v.Reason, Rule: v.Rule, Origin: v.Origin}, true
	}
	switch {
	case e.Action == "command" && len(e.Argv) == 3 && e.Shell != "":
		return verdict(p.Shell(e.Shell, e.Argv[0], strings.Contains(e.Argv[1], "l")))
	case e.Action == "command" && e.Shell != "":
		return verdict(p.Shell(e.Shell, "/bin/bash", p.Config().AllowLoginShell))
	case e.Action == "command" && len(e.Argv) > 0:
		return verdict(p.Command(e.Argv))
	case e.Action == "escalation" && e.Shell != "":
		return verdict(p.Escalation(e.Shell, "/bin/bash", p.Config().AllowLoginShell))
	case e.Action == "network":
		host, port, ok := strings.Cut(e.Subject, ":")
		n, err := strconv.Atoi(port)
		if !ok || err != nil {
			return redecided{}, false
		}
		method := "CONNECT"
		if n == 80 {
			method = "GET"
		}
		d := p.Host(host, n, method)
		r := redecided{After: policy.Denied, Reason: d.Reason, Rule: d.Rule, Origin: d.Origin}
		if d.Allowed {
			r.After = policy.Allowed
		}
		return r, true
	}
	return redecided{}, false
}

func printReplayed(w io.Writer, out replayed) error {
	var b strings.Builder
	for _, r := range out.Changed {
		fmt.Fprintf(&b, "%d %s %s: %s -> %s", r.Seq, r.Action, visible(r.Subject), r.Before, r.After)
		if r.Reason != "" {
			fmt.Fprintf(&b, " (%s)", visible(r.Reason))
		}
		if r.Origin != "" {
			fmt.Fprintf(&b, " [%s]", r.Origin)
		}
		b.WriteByte('\n')
	}
	decisions := "decisions"
	if out.Decided == 1 {
		decisions = "decision"
	}
	fmt.Fprintf(&b, "%d %s made again, %d different", out.Decided, decisions, len(out.Changed))
	if out.Skipped > 0 {
		fmt.Fprintf(&b, ", %d of kinds that cannot be decided again", out.Skipped)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}
