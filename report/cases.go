package report

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// testCase is one thing of a run that passed or failed: what JUnit and CTRF
// show. A CI user wants to see in the list of tests whether the agent ended
// well, whether the project's own checks passed, and what was refused.
type testCase struct {
	class  string // nightshift.run, .verify, .schema, .denial, .tool, .limit
	name   string
	failed bool
	kind   string // why: a stable word
	text   string // one line
	detail string
	took   time.Duration
}

// casesOf lists the cases of a run: its outcome, then the checks, then what was
// refused or failed. Failed tool calls are part of an agent's ordinary work (it
// runs a test, sees it fail, repairs the code), so they stand in the detail
// of the outcome and fail nothing by themselves.
func casesOf(s *Summary) []testCase {
	cases := []testCase{outcomeCase(s)}
	for _, v := range lastRounds(s.Verify) {
		c := testCase{class: "nightshift.verify", name: v.Command, failed: !v.Passed, took: millis(v.DurationMS), detail: v.Output}
		if c.failed {
			c.kind, c.text = "verify_failed", fmt.Sprintf("exited %d in round %d", v.ExitCode, v.Round)
		}
		cases = append(cases, c)
	}
	if n := len(s.SchemaChecks); n > 0 {
		last := s.SchemaChecks[n-1]
		c := testCase{class: "nightshift.schema", name: "the final answer fits the schema", failed: !last.Valid}
		if c.failed {
			c.kind, c.text, c.detail = "schema_mismatch", "the final answer does not fit", strings.Join(last.Errors, "\n")
		}
		cases = append(cases, c)
	}
	for _, l := range s.Limits {
		cases = append(cases, testCase{class: "nightshift.limit", name: l.Limit, failed: true, kind: "limit",
			text: fmt.Sprintf("%s used of %s", l.Used, l.Max)})
	}
	for _, d := range s.Denials {
		cases = append(cases, testCase{class: "nightshift.denial", name: d.Action + ": " + d.Subject, failed: true,
			kind: "denied", text: cmp.Or(d.Reason, "refused"), detail: denialDetail(d)})
	}
	return cases
}

func outcomeCase(s *Summary) testCase {
	c := testCase{class: "nightshift.run", name: "outcome: " + cmp.Or(s.Run.Task, s.Run.Mode, "run"), failed: !s.Success(), took: millis(s.DurationMS)}
	var b strings.Builder
	for _, a := range s.Attention {
		fmt.Fprintf(&b, "%s: %s\n", a.Class, a.Message)
	}
	for _, t := range s.FailedTools {
		fmt.Fprintf(&b, "failed tool: %s: %s\n", t.Tool, PlainLine(t.Title, 300))
	}
	c.detail = b.String()
	if c.failed {
		c.kind = cmp.Or(s.Class, s.Outcome)
		c.text = cmp.Or(s.Message, s.Outcome)
		if s.Hint != "" {
			c.detail = "hint: " + s.Hint + "\n" + c.detail
		}
	}
	return c
}

func denialDetail(d Denial) string {
	var b strings.Builder
	for _, kv := range [][2]string{{"action", d.Action}, {"subject", d.Subject}, {"source", d.Source}, {"rule", d.Rule},
		{"origin", d.Origin}, {"reason", d.Reason}, {"item", d.ItemID}, {"agent", d.AgentID}} {
		if kv[1] != "" {
			fmt.Fprintf(&b, "%s: %s\n", kv[0], kv[1])
		}
	}
	return b.String()
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// title names the suite of a run, one of so many. It is the same for every run of
// a job, so that services can follow its cases over time.
func title(s *Summary, of int) string {
	switch {
	case s.Run.Task != "":
		return "nightshift task " + s.Run.Task
	case of > 1:
		return "nightshift: " + runName(s)
	}
	return strings.TrimSpace("nightshift " + s.Run.Mode)
}
