package report

import (
	"fmt"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// attention lists what a reader should not miss. Every line is a fact of the
// log; nothing that went wrong is left to be found by chance.
func attention(s *Summary, truncated int) []Attention {
	var out []Attention
	say := func(class string, n int, format string, args ...any) {
		if n > 0 {
			out = append(out, Attention{class, n, fmt.Sprintf(format, args...)})
		}
	}
	if !s.Complete {
		say("incomplete_log", 1, "the log ends before run.completed: the run was killed, or this is not the whole log")
	}
	sandboxAttention(s, say)
	say("denial", s.Totals.Denials, "%s refused", plural(s.Totals.Denials, "action was", "actions were"))
	say("failed_tool", s.Totals.FailedTools, "%s failed", plural(s.Totals.FailedTools, "tool call", "tool calls"))
	failed := 0
	for _, v := range lastRounds(s.Verify) {
		if !v.Passed {
			failed++
		}
	}
	say("verify_failed", failed, "%s did not pass in the last round", plural(failed, "verify command", "verify commands"))
	if n := len(s.SchemaChecks); n > 0 && !s.SchemaChecks[n-1].Valid {
		say("schema_mismatch", 1, "the final answer does not fit the schema")
	}
	for _, l := range s.Limits {
		say("limit", 1, "stopped by the limit %s: %s used of %s", l.Limit, l.Used, l.Max)
	}
	say("retry", s.Totals.ModelRetries, "the model was asked again after a failure %s", plural(s.Totals.ModelRetries, "time", "times"))
	for _, fb := range s.Fallbacks {
		say("fallback", 1, "the model was changed from %s to %s (%s)", fb.From, fb.To, fb.Class)
	}
	say("compaction", s.Totals.Compactions, "earlier history was replaced by a summary %s", plural(s.Totals.Compactions, "time", "times"))
	say("truncated_instructions", truncated, "%s cut to the budget", plural(truncated, "instruction file was", "instruction files were"))
	say("hook_failed", s.Totals.HookFailures, "%s failed", plural(s.Totals.HookFailures, "hook", "hooks"))
	say("refresh_failed", countRefreshFailures(s), "refreshing the login failed %s", plural(countRefreshFailures(s), "time", "times"))
	for _, srv := range s.Servers {
		if srv.Status == "failed" || srv.Status == "died" {
			say("mcp_server", 1, "MCP server %s: %s", srv.Server, srv.Status)
		}
	}
	if s.Changes.Error != "" {
		say("diff_failed", 1, "the changes of the run could not be captured")
	}
	say("patch_incomplete", len(s.Changes.NotInPatch), "%s not in the patch", plural(len(s.Changes.NotInPatch), "changed file is", "changed files are"))
	if s.Changes.Dirty && s.Changes.Bytes > 0 {
		say("patch_base_dirty", 1, "the folder had changes before the run: the patch applies to that state, not to the commit")
	}
	if t := s.Telemetry; t != nil && t.Lost > 0 {
		say("telemetry_lost", int(t.Lost), "%d of %d telemetry records were lost", t.Lost, t.Lost+t.Exported)
	}
	for _, m := range s.Unpriced {
		say("unpriced_model", 1, "no price is known for model %s: its tokens are not in the cost", m)
	}
	omitted := 0
	for _, n := range s.Omitted {
		omitted += n
	}
	say("report_cut", omitted, "%s left out of this report; the event log has them", plural(omitted, "entry was", "entries were"))
	return out
}

func sandboxAttention(s *Summary, say func(string, int, string, ...any)) {
	if s.Sandbox == nil {
		return
	}
	missing := 0
	for _, g := range s.Sandbox.Guarantees {
		if !g.Held {
			missing++
		}
	}
	switch s.Sandbox.Level {
	case "none":
		say("sandbox_none", 1, "commands ran without a sandbox")
	case "external":
		say("sandbox_external", 1, "confinement was left to the surroundings")
	}
	say("sandbox_guarantee", missing, "%s not enforced", plural(missing, "sandbox guarantee was", "sandbox guarantees were"))
}

func countRefreshFailures(s *Summary) int {
	n := 0
	for _, r := range s.Auth.Refreshes {
		if r.Outcome == "failed" {
			n++
		}
	}
	return n
}

// lastRounds keeps the last result of each verify command, in order of first
// appearance.
func lastRounds(all []event.VerifyCompleted) []event.VerifyCompleted {
	at := map[string]int{}
	var out []event.VerifyCompleted
	for _, v := range all {
		if i, ok := at[v.Command]; ok {
			out[i] = v
			continue
		}
		at[v.Command] = len(out)
		out = append(out, v)
	}
	return out
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
