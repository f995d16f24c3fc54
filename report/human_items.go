package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// How the items of a run, what the model said and did, read as text.

func (h *Human) itemStarted(r event.Record, it event.Item) string {
	switch d := it.Details.(type) {
	case event.CommandExecution:
		h.started[it.ID] = r.Time
		h.begin(it.ID, "running "+PlainLine(d.Command, 60))
		return h.note("exec", "%s", PlainLine(d.Command, 2000))
	case event.MCPToolCall:
		h.started[it.ID] = r.Time
		h.begin(it.ID, "calling "+PlainLine(d.Server+"/"+d.Tool, 60))
	case event.FileChange:
		h.started[it.ID] = r.Time
	case event.TodoList:
		return h.plan(d)
	}
	return ""
}

func (h *Human) itemCompleted(r event.Record, it event.Item) string {
	h.end(it.ID)
	took := ""
	if at, ok := h.started[it.ID]; ok {
		took = " in " + round(max(0, r.Time.Sub(at))).String()
		delete(h.started, it.ID)
	}
	switch d := it.Details.(type) {
	case event.AgentMessage:
		if h.o.Brief {
			return ""
		}
		return h.paint(styleModel, "agent") + "\n" + h.block(d.Text)
	case event.Reasoning:
		if h.o.Brief || h.o.HideReasoning {
			return ""
		}
		return h.paint(styleDim, "reasoning") + "\n" + h.block(d.Text)
	case event.CommandExecution:
		return h.command(d, took)
	case event.FileChange:
		return h.patch(d)
	case event.MCPToolCall:
		return h.mcp(d, took)
	case event.WebSearch:
		return h.note("web search", "%s", PlainLine(d.Query, 300))
	case event.CollabToolCall:
		return h.note("agent", "%s %s", PlainLine(d.Tool, 40), d.Status)
	case event.ToolCall:
		if d.Denial != nil || d.Status == event.Declined {
			return h.denied(d.Tool+" "+d.Message, d.Denial)
		}
		return h.line(styleBad, PlainLine(d.Tool, 60), "%s", PlainLine(d.Message, 1000))
	case event.ErrorItem:
		if d.Message == h.warned {
			return "" // the wire stream has some of them twice, as the reference's
		}
		h.warned = d.Message
		return h.line(styleWarn, "warning", "%s", PlainLine(d.Message, 2000))
	case event.UnknownItem:
		return h.note(PlainLine(d.Type, 40), "an item this version does not know")
	}
	return ""
}

func (h *Human) command(d event.CommandExecution, took string) string {
	if d.Denial != nil || d.Status == event.Declined {
		return h.denied(d.Command, d.Denial)
	}
	code := "without an exit code"
	if d.ExitCode != nil {
		code = fmt.Sprint(*d.ExitCode)
	}
	if d.Status == event.Failed {
		return h.line(styleBad, "exited "+code, "%s%s", PlainLine(d.Command, 300), took) + h.output(d.AggregatedOutput)
	}
	if h.o.Brief {
		return ""
	}
	return h.line(styleGood, "succeeded", "%s%s", PlainLine(d.Command, 300), took) + h.output(d.AggregatedOutput)
}

func (h *Human) patch(d event.FileChange) string {
	if d.Denial != nil || d.Status == event.Declined {
		_, title, _, _ := describe(d)
		return h.denied("patch "+title, d.Denial)
	}
	var b strings.Builder
	if d.Status == event.Failed {
		b.WriteString(h.line(styleBad, "patch failed", "%s", PlainLine(d.Message, 1000)))
	} else {
		b.WriteString(h.note("patch", "applied"))
	}
	if h.o.Brief {
		return b.String()
	}
	for i, c := range d.Changes {
		if i == 50 {
			fmt.Fprintf(&b, "    … %d more\n", len(d.Changes)-i)
			break
		}
		fmt.Fprintf(&b, "    %s %s\n", PlainLine(c.Kind, 10), PlainLine(strings.TrimPrefix(c.Path, h.workdir+"/"), 500))
	}
	return b.String()
}

func (h *Human) mcp(d event.MCPToolCall, took string) string {
	name := d.Server + "/" + d.Tool
	switch {
	case d.Denial != nil || d.Status == event.Declined:
		return h.denied("mcp "+name, d.Denial)
	case d.Error != nil:
		return h.line(styleBad, "mcp failed", "%s%s: %s", PlainLine(name, 120), took, PlainLine(d.Error.Message, 1000))
	case d.Status == event.Failed:
		return h.line(styleBad, "mcp failed", "%s%s", PlainLine(name, 120), took)
	}
	return h.note("mcp", "%s%s", PlainLine(name, 120), took)
}

func (h *Human) plan(d event.TodoList) string {
	if h.o.Brief {
		return ""
	}
	var b strings.Builder
	b.WriteString(h.paint(styleBold, "plan") + "\n")
	for i, t := range d.Items {
		if i == 50 {
			fmt.Fprintf(&b, "    … %d more\n", len(d.Items)-i)
			break
		}
		mark := "•"
		if t.Completed {
			mark = "✓"
		}
		fmt.Fprintf(&b, "  %s %s\n", mark, PlainLine(t.Text, 500))
	}
	return b.String()
}

// denied is loud: a refused action must not be found by chance.
func (h *Human) denied(what string, d *event.Denial) string {
	var b strings.Builder
	b.WriteString(h.line(styleBad, "DENIED", "%s", PlainLine(what, 1000)))
	if d == nil {
		return b.String()
	}
	by := d.Source
	if d.Rule != "" {
		by += " " + d.Rule
	}
	if d.Origin != "" {
		by += " at " + d.Origin
	}
	if by = strings.TrimSpace(by); by != "" {
		fmt.Fprintf(&b, "    by %s\n", PlainLine(by, 500))
	}
	if d.Reason != "" {
		fmt.Fprintf(&b, "    because %s\n", PlainLine(d.Reason, 1000))
	}
	return b.String()
}

// agent tells what a sub-agent, or an agent of one, was refused; its other doings
// are the log's.
func (h *Human) agent(e event.AgentEvent) string {
	inner, _, id, err := e.Innermost()
	if err != nil {
		return "" // the log has it; there is nothing to tell
	}
	switch x := inner.Event.(type) {
	case event.ItemCompleted:
		if tool, title, status, denial := describe(x.Item.Details); denial != nil || status == event.Declined {
			return h.denied("agent "+id+": "+actionOf(tool)+" "+title, denial)
		}
	case event.PolicyDecision:
		if deniedAlone(x) {
			return h.denied("agent "+id+": "+x.Action+" "+x.Subject, denialIn(x))
		}
	}
	return ""
}

// deniedAlone tells whether no item says that this was refused.
func deniedAlone(e event.PolicyDecision) bool {
	return e.Outcome == "denied" && e.ItemID == "" && e.CallID == ""
}

func denialIn(e event.PolicyDecision) *event.Denial {
	return &event.Denial{Reason: e.Reason, Source: e.Source, Rule: e.Rule, Origin: e.Origin}
}

// block indents text of many lines and caps it.
func (h *Human) block(text string) string {
	return indent(Plain(strings.TrimRight(middle(text, 64<<10), "\n")), "  ")
}

func (h *Human) output(text string) string {
	if strings.TrimSpace(text) == "" {
		return ""
	}
	return indent(Plain(strings.TrimRight(middle(text, h.o.OutputBytes), "\n")), "    ")
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(text, "\n", "\n"+by) + "\n"
}

// middle leaves out the middle of a text that is longer than max bytes.
func middle(s string, max int) string {
	if len(s) <= max {
		return s
	}
	head, tail := s[:max/2], s[len(s)-max/2:]
	head, tail = strings.ToValidUTF8(head, ""), strings.ToValidUTF8(tail, "")
	return fmt.Sprintf("%s\n… [%d bytes not shown; the event log has them] …\n%s", head, len(s)-len(head)-len(tail), tail)
}

func round(d time.Duration) time.Duration {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond)
	case d < time.Minute:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}

func thousands(n int64) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
