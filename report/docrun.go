package report

import (
	"fmt"
	"strings"
)

func sandboxFacts(s *Summary) facts {
	b := s.Sandbox
	if b == nil {
		return nil
	}
	out := facts{{"Mode", outside(b.Mode)}, {"Level", judged(b.Level, b.Level == "full")}, {"Network", outside(s.Run.Network)},
		{"Landlock ABI", plain("%d", b.LandlockABI)}}
	for _, kv := range []struct {
		name  string
		paths []string
	}{{"Writable", b.Writable}, {"Protected", b.Protected}, {"Denied", b.Denied}} {
		if len(kv.paths) > 0 {
			out = append(out, fact{kv.name, outside(strings.Join(kv.paths, "  "))})
		}
	}
	if len(b.Caches) > 0 {
		out = append(out, fact{"Private caches", outside(strings.Join(sortedKeys(b.Caches), "  "))})
	}
	return out
}

func guaranteeTable(s *Summary) table {
	t := table{head: []string{"Guarantee", "Enforced", "Required", "Mechanism", "Why not", "What to do"}}
	if s.Sandbox == nil {
		return t
	}
	for _, g := range s.Sandbox.Guarantees {
		t.rows = append(t.rows, []words{outside(g.Name), judged(yesNo(g.Held), g.Held), plain("%s", yesNo(g.Required)), outside(g.Mechanism), outside(g.Why), outside(g.Hint)})
	}
	return t
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func policyItems(s *Summary) items {
	var out items
	if s.Policy.Digest != "" {
		out = append(out, []words{plain("Digest "), outside(s.Policy.Digest)})
	}
	for _, k := range sortedKeys(s.Policy.Origins) {
		out = append(out, []words{outside(k), plain(" from "), outside(s.Policy.Origins[k])})
	}
	return out
}

func loginItems(s *Summary) items {
	var out items
	if c := s.Auth.Credential; c != nil {
		line := []words{plain("Credential "), outside(c.Source), plain(", mode "), outside(c.Mode)}
		if len(c.Ignored) > 0 {
			line = append(line, plain(", not used: "), outside(strings.Join(c.Ignored, ", ")))
		}
		out = append(out, line)
	}
	for _, r := range s.Auth.Refreshes {
		line := []words{plain("Refresh ("), outside(r.Reason), plain("): "), judged(r.Outcome, r.Outcome != "failed"), plain(" in %s", round(millis(r.DurationMS)))}
		line = append(line, optional(", class ", r.Class)...)
		line = append(line, optional(", kept by ", r.Persisted)...)
		line = append(line, optional(", write-back ", r.Writeback)...)
		out = append(out, append(line, optional(": ", r.Message)...))
	}
	return out
}

func instructionItems(s *Summary) items {
	var out items
	for _, i := range s.Instructions {
		line := []words{outside(i.Path), plain(" %d bytes", i.Bytes)}
		if i.LostBytes > 0 {
			line = append(line, judged(fmt.Sprintf(", cut: %d bytes are missing", i.LostBytes), false))
		}
		out = append(out, append(line, optional(" from ", i.Ref)...))
	}
	return out
}

func serverItems(s *Summary) items {
	var out items
	for _, m := range s.Servers {
		line := []words{plain("MCP server "), outside(m.Server), plain(": "), judged(m.Status, m.Status == "ready" || m.Status == "disabled"), plain(", %s", plural(len(m.Tools), "tool", "tools"))}
		out = append(out, append(line, optional(": ", m.Message)...))
	}
	return out
}

func courseItems(s *Summary) items {
	var out items
	for _, r := range s.Retries {
		line := []words{plain("Request %d, attempt %d of %d failed (", r.Request, r.Attempt, r.Max+1), outside(r.Class)}
		if r.Status != 0 {
			line = append(line, plain(", HTTP %d", r.Status))
		}
		line = append(line, plain("), again after %s", round(millis(r.DelayMS))))
		out = append(out, append(line, optional(": ", r.Message)...))
	}
	for _, f := range s.Fallbacks {
		line := []words{plain("Model "), outside(f.From), plain(" replaced by "), outside(f.To), plain(" ("), outside(f.Class), plain(")")}
		out = append(out, append(line, optional(": ", f.Reason)...))
	}
	for _, c := range s.Compactions {
		out = append(out, []words{plain("History replaced by a summary: %d items became %d, %d bytes became %d (", c.ItemsBefore, c.ItemsAfter, c.BytesBefore, c.BytesAfter), outside(c.Trigger), plain(")")})
	}
	for _, l := range s.Limits {
		out = append(out, []words{judged("Limit ", false), outside(l.Limit), plain(": "), outside(l.Used), plain(" used of "), outside(l.Max)})
	}
	return out
}

func hookItems(s *Summary) items {
	var out items
	for _, h := range s.Hooks {
		line := []words{plain("Hook "), outside(h.Event), plain(" "), outside(h.Hook), plain(": "), judged(h.Outcome, h.Outcome == "completed" || h.Outcome == "skipped"), plain(" in %s", round(millis(h.DurationMS)))}
		out = append(out, append(line, optional(": ", h.Message)...))
	}
	return out
}

func agentItems(s *Summary) items {
	var out items
	for _, a := range s.Agents {
		out = append(out, []words{plain("Sub-agent "), outside(a.ID), plain(": "), outside(a.Outcome), plain(", %s, %d failed, %s, %s tokens",
			plural(a.ToolCalls, "tool call", "tool calls"), a.FailedTools, plural(a.Denials, "denial", "denials"), thousands(a.Usage.Total()))})
	}
	return out
}

func noticeItems(s *Summary) items {
	var out items
	for _, n := range s.Notices {
		line := []words{strong(n.Class + " "), outside(n.Message)}
		line = append(line, optional(" at ", n.Origin)...)
		out = append(out, append(line, optional(" hint: ", n.Hint)...))
	}
	for _, w := range s.Warnings {
		out = append(out, []words{strong("warning "), outside(w)})
	}
	if t := s.Telemetry; t != nil {
		out = append(out, []words{strong("telemetry "), plain("%d records delivered, ", t.Exported), judged(fmt.Sprintf("%d lost", t.Lost), t.Lost == 0)})
		if t.Message != "" {
			out[len(out)-1] = append(out[len(out)-1], optional(": ", t.Message)...)
		}
	}
	for _, k := range sortedKeys(s.Omitted) {
		out = append(out, []words{strong("left out "), plain("%d of %s", s.Omitted[k], k)})
	}
	return out
}

func runFacts(s *Summary) facts {
	r := s.Run
	out := facts{{"Version", outside(r.Version)}, {"Mode", outside(r.Mode)}, {"Thread", outside(r.ThreadID)}}
	for _, kv := range [][2]string{{"Parent thread", r.ParentID}, {"Provider", r.Provider}, {"Effort", r.Effort}, {"Workdir", r.Workdir},
		{"Sandbox mode", r.Sandbox}, {"Approval policy", r.Approval}, {"Network", r.Network}, {"Requester", r.Requester}, {"Job", r.Job}, {"Task", r.Task}} {
		if kv[1] != "" {
			out = append(out, fact{kv[0], outside(kv[1])})
		}
	}
	if g := s.Git; g != nil {
		state := "clean"
		if g.Dirty {
			state = "dirty"
		}
		out = append(out, fact{"Repository", outside(strings.TrimSpace(g.Remote + " " + g.Branch + " " + g.Commit))}, fact{"Working tree before", plain("%s", state)})
	}
	if s.Changes.Digest != "" {
		out = append(out, fact{"Patch digest", outside(s.Changes.Digest)})
	}
	return append(out, fact{"Started", plain("%s", when(s.StartedAt))}, fact{"Ended", plain("%s", when(s.EndedAt))}, fact{"Log records", plain("%d", s.Records)})
}
