package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// A doc is a report for people before it has a format: Markdown and HTML are
// two renderings of it, so that neither says more than the other. Texts in it
// are raw; the renderer makes them inert.
type doc struct {
	title    string
	ok       bool
	sections []section
}

type section struct {
	title  string // "" continues the title of the document
	blocks []block
}

// block is one of facts, table, items, code, message, diff, timeline.
type block interface{ isBlock() }

type (
	facts []fact
	table struct {
		head []string
		rows [][]words
	}
	items   [][]words
	code    struct{ text string }
	message struct{ text string }  // written by the model, in Markdown
	diff    struct{ patch string } // unified, as git writes it
	// timeline shows the turns, model calls and tool calls over time; Markdown
	// leaves it out, since the tables say the same.
	timeline struct{ s *Summary }
)

func (facts) isBlock()    {}
func (table) isBlock()    {}
func (items) isBlock()    {}
func (code) isBlock()     {}
func (message) isBlock()  {}
func (diff) isBlock()     {}
func (timeline) isBlock() {}

type fact struct {
	name  string
	value words
}

// words are a piece of a line. Look says how it is shown; outside text is
// always lookCode.
type words struct {
	text string
	look look
}

type look int

const (
	lookPlain look = iota // our own words
	lookCode              // text from outside
	lookStrong
	lookGood
	lookBad
)

func plain(format string, args ...any) words { return words{fmt.Sprintf(format, args...), lookPlain} }
func outside(s string) words                 { return words{s, lookCode} }
func strong(s string) words                  { return words{s, lookStrong} }
func judged(s string, good bool) words {
	if good {
		return words{s, lookGood}
	}
	return words{s, lookBad}
}

// runName is what a person calls a run: its task, what was asked, or at worst its
// thread.
func runName(s *Summary) string {
	asked, _, _ := strings.Cut(strings.TrimSpace(s.Run.Prompt), "\n")
	return cmp.Or(s.Run.Task, PlainLine(asked, 80), s.Run.ThreadID, s.Run.Mode)
}

// documentOf is document, with a title that tells the run from others beside it.
func documentOf(s *Summary, of int) doc {
	d := document(s)
	if of > 1 {
		d.title = "nightshift: " + PlainLine(runName(s), 100) + ": " + headline(s)
	}
	return d
}

// document builds the report of one run: the outcome and what needs attention
// first, details after.
func document(s *Summary) doc {
	d := doc{title: "nightshift: " + headline(s), ok: s.Success()}
	if s.Run.Task != "" {
		d.title = "nightshift: " + PlainLine(s.Run.Task, 100) + ": " + headline(s)
	}
	add := func(title string, blocks ...block) {
		var kept []block
		for _, b := range blocks {
			if !empty(b) {
				kept = append(kept, b)
			}
		}
		if len(kept) > 0 {
			d.sections = append(d.sections, section{title, kept})
		}
	}
	add("", outcomeFacts(s))
	add("Attention", attentionItems(s))
	add("Final message", message{s.FinalMessage})
	add("Changes", changeItems(s), diff{s.patch})
	add("Denials", denialItems(s))
	add("Failed tools", failedItems(s))
	add("Verification", verifyBlocks(s)...)
	add("Findings", findingItems(s)...)
	add("Timeline", timeline{s})
	add("Usage", modelTable(s), turnTable(s), costItems(s))
	add("Tools", toolTable(s))
	add("Sandbox", sandboxFacts(s), guaranteeTable(s))
	add("Policy", policyItems(s))
	add("Login", loginItems(s))
	add("Instructions and servers", instructionItems(s), serverItems(s))
	add("Retries and changes of course", courseItems(s))
	add("Hooks and sub-agents", hookItems(s), agentItems(s))
	add("Notices", noticeItems(s))
	add("Prompt", code{s.Run.Prompt})
	add("Run", runFacts(s))
	return d
}

func empty(b block) bool {
	switch b := b.(type) {
	case facts:
		return len(b) == 0
	case table:
		return len(b.rows) == 0
	case items:
		return len(b) == 0
	case code:
		return strings.TrimSpace(b.text) == ""
	case message:
		return strings.TrimSpace(b.text) == ""
	case diff:
		return b.patch == ""
	case timeline:
		return b.s.StartedAt.IsZero() || len(b.s.ModelCalls)+len(b.s.ToolCalls) == 0
	}
	return false
}

func headline(s *Summary) string {
	switch {
	case !s.Complete:
		return "incomplete log"
	case s.Success():
		return "success"
	case s.Class != "" && s.Class != s.Outcome:
		return PlainLine(s.Outcome, 60) + " (" + PlainLine(s.Class, 60) + ")"
	}
	return PlainLine(s.Outcome, 60)
}

func outcomeFacts(s *Summary) facts {
	out := facts{{"Outcome", judged(headline(s), s.Success())}}
	if s.Complete {
		out = append(out, fact{"Exit code", plain("%d", s.ExitCode)})
	}
	if s.Message != "" {
		out = append(out, fact{"Message", outside(s.Message)})
	}
	if s.Hint != "" {
		out = append(out, fact{"Hint", outside(s.Hint)})
	}
	out = append(out, fact{"Duration", plain("%s", round(millis(s.DurationMS)))},
		fact{"Model", outside(s.Run.Model)},
		fact{"Tokens", plain("%s in (%s cached), %s out (%s reasoning)", thousands(s.Usage.Input), thousands(s.Usage.CachedInput),
			thousands(s.Usage.Output), thousands(s.Usage.Reasoning))})
	if s.CostUSD > 0 {
		out = append(out, fact{"Cost", plain("%.4f USD", s.CostUSD)})
	}
	if s.Sandbox != nil {
		out = append(out, fact{"Sandbox", judged(fmt.Sprintf("%s, level %s", s.Sandbox.Mode, s.Sandbox.Level), s.Sandbox.Level == "full")})
	}
	return append(out, fact{"Changes", plain("%s, +%d −%d", plural(len(s.Changes.Files)+s.Omitted["changes.files"], "file", "files"), s.Changes.Added, s.Changes.Deleted)})
}

func attentionItems(s *Summary) items {
	var out items
	for _, a := range s.Attention {
		out = append(out, []words{strong(a.Class), plain(": %s", a.Message)})
	}
	return out
}

func changeItems(s *Summary) items {
	var out items
	if s.Changes.Error != "" {
		out = append(out, []words{judged("not captured: ", false), outside(s.Changes.Error)})
	}
	for _, f := range s.Changes.Files {
		line := []words{plain("%s ", f.Kind), outside(f.Path)}
		if f.OldPath != "" && f.OldPath != f.Path {
			line = append(line, plain(" from "), outside(f.OldPath))
		}
		if f.Binary {
			line = append(line, plain(" (binary)"))
		} else {
			line = append(line, words{fmt.Sprintf(" +%d", f.Added), lookGood}, words{fmt.Sprintf(" −%d", f.Deleted), lookBad})
		}
		out = append(out, line)
	}
	if s.patch == "" && s.Changes.Bytes > 0 { // read from a report.json
		out = append(out, []words{plain("the patch itself, %s, is in the event log", plural(s.Changes.Bytes, "byte", "bytes"))})
	}
	for _, f := range s.Changes.NotInPatch {
		out = append(out, []words{judged("not in the patch: ", false), outside(f)})
	}
	if n := s.Omitted["changes.files"]; n > 0 {
		out = append(out, []words{plain("and %d more files", n)})
	}
	return out
}

func denialItems(s *Summary) items {
	var out items
	for _, d := range s.Denials {
		line := []words{strong(cmp.Or(d.Action, "action")), plain(" "), outside(d.Subject)}
		line = append(line, optional(" by ", d.Source)...)
		line = append(line, optional(" rule ", d.Rule)...)
		line = append(line, optional(" at ", d.Origin)...)
		line = append(line, optional(" because ", d.Reason)...)
		line = append(line, optional(" agent ", d.AgentID)...)
		out = append(out, line)
	}
	return out
}

func optional(label, value string) []words {
	if value == "" {
		return nil
	}
	return []words{plain("%s", label), outside(value)}
}

func failedItems(s *Summary) items {
	var out items
	for _, c := range s.FailedTools {
		line := []words{outside(c.Tool), plain(" "), outside(c.Title)}
		if c.ExitCode != nil {
			line = append(line, plain(" exited %d", *c.ExitCode))
		}
		line = append(line, plain(" after %s", round(millis(c.DurationMS))))
		line = append(line, optional(": ", c.Message)...)
		if c.Resources != nil {
			line = append(line, optional(", killed: ", c.Resources.Killed)...)
		}
		out = append(out, append(line, optional(" agent ", c.AgentID)...))
	}
	return out
}

func verifyBlocks(s *Summary) []block {
	var list items
	var blocks []block
	for _, v := range s.Verify {
		verdict := judged("passed ", true)
		if !v.Passed {
			verdict = judged(fmt.Sprintf("exited %d ", v.ExitCode), false)
		}
		list = append(list, []words{verdict, outside(v.Command), plain(" round %d, %s", v.Round, round(millis(v.DurationMS)))})
	}
	for _, c := range s.SchemaChecks {
		line := []words{judged("the answer fits the schema", true)}
		if !c.Valid {
			line = []words{judged("the answer does not fit the schema: ", false), outside(strings.Join(c.Errors, "; "))}
		}
		list = append(list, append(line, plain(" round %d", c.Round)))
	}
	blocks = append(blocks, list)
	for _, v := range lastRounds(s.Verify) {
		if !v.Passed {
			blocks = append(blocks, code{v.Output})
		}
	}
	return blocks
}

func findingItems(s *Summary) []block {
	var blocks []block
	for _, f := range s.Findings {
		blocks = append(blocks, items{{strong(f.Severity + " "), outside(f.Title), plain(" "), outside(fmt.Sprintf("%s:%d-%d", f.Path, f.StartLine, f.EndLine)),
			plain(" confidence %.2f", f.Confidence)}}, code{f.Body})
	}
	return blocks
}

func modelTable(s *Summary) table {
	t := table{head: []string{"Model", "Requests", "Responses", "Retries", "Input", "Cached", "Output", "Reasoning", "Cost USD"}}
	for _, m := range s.Models {
		t.rows = append(t.rows, append([]words{outside(m.Model), plain("%d", m.Requests), plain("%d", m.Responses), plain("%d", m.Retries)}, usageCells(m.Usage, m.CostUSD, m.Priced)...))
	}
	return t
}

func turnTable(s *Summary) table {
	t := table{head: []string{"Turn", "Status", "Duration", "Responses", "Tool calls", "Input", "Cached", "Output", "Reasoning", "Cost USD"}}
	for _, u := range s.Turns {
		t.rows = append(t.rows, append([]words{plain("%d", u.Number), judged(u.Status, u.Status == "completed"), plain("%s", round(millis(u.DurationMS))),
			plain("%d", u.Responses), plain("%d", u.ToolCalls)}, usageCells(u.Usage, u.CostUSD, s.Prices != nil)...))
	}
	return t
}

func usageCells(u event.Usage, cost float64, priced bool) []words {
	price := plain("–")
	if priced {
		price = plain("%.4f", cost)
	}
	return []words{plain("%s", thousands(u.Input)), plain("%s", thousands(u.CachedInput)), plain("%s", thousands(u.Output)), plain("%s", thousands(u.Reasoning)), price}
}

func costItems(s *Summary) items {
	var out items
	if s.ThreadUsage != s.Usage {
		out = append(out, []words{plain("Thread so far: %s in, %s out", thousands(s.ThreadUsage.Input), thousands(s.ThreadUsage.Output))})
	}
	if s.Prices != nil && s.Prices.Date != "" {
		out = append(out, []words{plain("Prices of "), outside(s.Prices.Date)})
	}
	return out
}

func toolTable(s *Summary) table {
	t := table{head: []string{"Tool", "Calls", "Failed", "Declined", "Time"}}
	for _, u := range s.Tools {
		t.rows = append(t.rows, []words{outside(u.Tool), plain("%d", u.Calls), plain("%d", u.Failed), plain("%d", u.Declined), plain("%s", round(millis(u.DurationMS)))})
	}
	return t
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func when(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}
