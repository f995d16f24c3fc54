package report

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// HumanOptions say how the text for people looks.
type HumanOptions struct {
	// Color allows ANSI colours. Text from outside never carries its own.
	Color bool
	// Progress draws one line, over and over, while the model or a command is
	// working: for terminals.
	Progress bool
	// Heartbeat writes a line that often while something is working, so that a
	// CI service does not take a long command for a hang; 0 writes none.
	Heartbeat time.Duration
	// Brief leaves out everything but warnings, denials, failures and the
	// outcome: for stderr under --json.
	Brief bool
	// OutputBytes caps the output shown of one command (0: 16 KiB, half from
	// either end). The event log has the rest.
	OutputBytes int
}

// Human writes the run as text, for stderr. Every byte from outside goes
// through [Plain], so nothing in it is obeyed by a terminal or a CI service.
//
// Progress and heartbeat lines come from a goroutine that starts with the first
// turn and is joined by Close; all other text depends on the records alone.
type Human struct {
	o HumanOptions

	mu      sync.Mutex
	w       io.Writer
	err     error
	started map[string]time.Time
	working []activity // what is going on, the newest last
	drawn   bool       // a progress line stands on the terminal
	failure string     // the last error that was told
	advice  string     // of the turn's failure, for the last line
	warned  string     // the last warning
	workdir string
	stop    chan struct{}
	done    chan struct{}
}

type activity struct {
	id    string
	label string
	since time.Time // by our clock, for progress only
}

// NewHuman returns a sink that writes to w.
func NewHuman(w io.Writer, o HumanOptions) *Human {
	if o.OutputBytes <= 0 {
		o.OutputBytes = 16 << 10
	}
	return &Human{o: o, w: w, started: map[string]time.Time{}}
}

// Handle writes what there is to say about the record.
func (h *Human) Handle(r event.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := h.say(r)
	if text != "" {
		h.erase()
		h.write(text)
	}
	return h.err
}

// Close ends the progress line.
func (h *Human) Close(context.Context) error {
	h.mu.Lock()
	stop := h.stop
	h.stop = nil
	h.mu.Unlock()
	if stop != nil {
		close(stop)
		<-h.done
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.erase()
	return h.err
}

func (h *Human) write(text string) {
	if h.err == nil {
		_, h.err = io.WriteString(h.w, text)
	}
}

func (h *Human) erase() {
	if h.drawn {
		h.write("\r\x1b[K")
		h.drawn = false
	}
}

func (h *Human) say(r event.Record) string {
	switch e := r.Event.(type) {
	case event.RunStarted:
		return h.banner(e)
	case event.SandboxEnforced:
		return h.sandbox(e)
	case event.TurnStarted:
		h.watch()
		return ""
	case event.ModelRequest:
		h.begin(fmt.Sprintf("request %d", e.Request), "waiting for "+e.Model)
	case event.ModelResponse:
		h.end(fmt.Sprintf("request %d", e.Request))
	case event.ModelRetried:
		wait := time.Duration(e.DelayMS) * time.Millisecond
		return h.line(styleWarn, "retry", "attempt %d of %d in %s: %s", e.Attempt+1, e.Max+1, wait, PlainLine(e.Message, 300))
	case event.ItemStarted:
		return h.itemStarted(r, e.Item)
	case event.ItemCompleted:
		return h.itemCompleted(r, e.Item)
	case event.ItemUpdated:
		if d, ok := e.Item.Details.(event.TodoList); ok {
			return h.plan(d)
		}
	case event.Error:
		if strings.HasPrefix(e.Message, "Reconnecting...") {
			return "" // model.retried has said it
		}
		h.failure = e.Message
		return h.line(styleBad, "error", "%s", PlainLine(e.Message, 2000))
	case event.TurnFailed:
		h.working, h.advice = nil, e.Error.Hint
		if e.Error.Message == h.failure {
			return "" // the error was told, and the last line tells class and hint
		}
		return h.line(styleBad, "turn failed", "%s", PlainLine(withClass(e.Error.Message, e.Error.Class), 2000))
	case event.TurnCompleted:
		h.working = nil
	case event.RunCompleted:
		return h.outcome(e)
	default:
		return h.sayOurs(r)
	}
	return ""
}

// sayOurs tells of events that the wire stream does not have.
func (h *Human) sayOurs(r event.Record) string {
	switch e := r.Event.(type) {
	case event.PolicyDecision:
		if e.Outcome == "denied" && e.ItemID == "" && e.CallID == "" { // a call has an item, which says it
			return h.denied(e.Action+" "+e.Subject, &event.Denial{Reason: e.Reason, Source: e.Source, Rule: e.Rule, Origin: e.Origin})
		}
		if e.Outcome == "unsandboxed" {
			return h.line(styleWarn, "outside the sandbox", "%s", PlainLine(e.Subject, 500))
		}
	case event.ModelFallback:
		return h.line(styleWarn, "model", "%s is used instead of %s: %s", PlainLine(e.To, 80), PlainLine(e.From, 80), PlainLine(e.Reason, 300))
	case event.HistoryCompacted:
		return h.note("history", "%d items became %d (%s)", e.ItemsBefore, e.ItemsAfter, PlainLine(e.Trigger, 40))
	case event.InstructionsLoaded:
		if e.LostBytes > 0 {
			return h.line(styleWarn, "instructions", "%s was cut: %d of %d bytes are missing", PlainLine(e.Path, 300), e.LostBytes, e.Bytes+e.LostBytes)
		}
	case event.AuthRefreshed:
		if e.Outcome == "failed" {
			return h.line(styleBad, "login", "refresh failed: %s", PlainLine(withClass(e.Message, e.Class), 500))
		}
	case event.ServerStatus:
		if e.Status != "ready" && e.Status != "disabled" {
			return h.line(styleWarn, "mcp", "%s %s: %s", PlainLine(e.Server, 80), PlainLine(e.Status, 20), PlainLine(e.Message, 500))
		}
	case event.HookCompleted:
		if e.Outcome != "completed" && e.Outcome != "skipped" {
			return h.line(styleWarn, "hook", "%s %s: %s", PlainLine(e.Hook, 200), PlainLine(e.Outcome, 20), PlainLine(e.Message, 500))
		}
	case event.VerifyCompleted:
		return h.verify(e)
	case event.SchemaChecked:
		if !e.Valid {
			return h.line(styleWarn, "schema", "the answer does not fit: %s", PlainLine(strings.Join(e.Errors, "; "), 1000))
		}
	case event.FindingReported:
		return h.line(styleWarn, "finding", "%s: %s (%s:%d)", PlainLine(e.Severity, 20), PlainLine(e.Title, 200), PlainLine(e.Path, 200), e.StartLine)
	case event.LimitReached:
		return h.line(styleBad, "limit", "%s: %s used of %s", e.Limit, PlainLine(e.Used, 40), PlainLine(e.Max, 40))
	case event.Notice:
		return h.line(styleWarn, "note", "%s", PlainLine(e.Message, 2000)) + h.hint(e.Hint)
	case event.DiffCaptured:
		return h.changes(e)
	case event.TelemetryFlushed:
		if e.Lost > 0 {
			return h.line(styleWarn, "telemetry", "%d of %d records were lost: %s", e.Lost, e.Lost+e.Exported, PlainLine(e.Message, 300))
		}
	}
	return ""
}

func (h *Human) banner(e event.RunStarted) string {
	h.workdir = e.Workdir
	if h.o.Brief {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n--------\n", h.paint(styleBold, "nightshift "+PlainLine(e.Version, 60)))
	for _, kv := range [][2]string{
		{"workdir", e.Workdir}, {"model", e.Model}, {"provider", e.Provider}, {"approval", e.Approval},
		{"sandbox", e.Sandbox}, {"network", e.Network}, {"reasoning effort", cmp.Or(e.Effort, "default")},
		{"session id", e.ThreadID},
	} {
		fmt.Fprintf(&b, "%s %s\n", h.paint(styleBold, kv[0]+":"), PlainLine(kv[1], 500))
	}
	b.WriteString("--------\n")
	if e.Prompt != "" {
		b.WriteString(h.paint(styleGood, "user") + "\n" + h.block(e.Prompt))
	}
	return b.String()
}

func (h *Human) sandbox(e event.SandboxEnforced) string {
	var b strings.Builder
	if e.Level == "full" {
		b.WriteString(h.note("confined", "%s, all guarantees hold", PlainLine(e.Mode, 40)))
	} else {
		b.WriteString(h.line(styleBad, "sandbox", "%s, level %s", PlainLine(e.Mode, 40), PlainLine(e.Level, 20)))
	}
	for _, g := range e.Guarantees {
		if !g.Held {
			b.WriteString(h.line(styleWarn, "not enforced", "%s: %s", PlainLine(g.Name, 60), PlainLine(g.Why, 300)))
			b.WriteString(h.hint(g.Hint))
		}
	}
	return b.String()
}

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
		took = " in " + round(r.Time.Sub(at)).String()
		delete(h.started, it.ID)
	}
	switch d := it.Details.(type) {
	case event.AgentMessage:
		if h.o.Brief {
			return ""
		}
		return h.paint(styleModel, "agent") + "\n" + h.block(d.Text)
	case event.Reasoning:
		if h.o.Brief {
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

func (h *Human) verify(e event.VerifyCompleted) string {
	took := round(time.Duration(e.DurationMS) * time.Millisecond)
	if e.Passed {
		return h.note("verify", "passed in %s: %s", took, PlainLine(e.Command, 300))
	}
	return h.line(styleBad, "verify", "exited %d in %s, round %d: %s", e.ExitCode, took, e.Round, PlainLine(e.Command, 300)) + h.output(e.Output)
}

func (h *Human) changes(e event.DiffCaptured) string {
	if e.Error != "" {
		return h.line(styleBad, "changes", "could not be captured: %s", PlainLine(e.Error, 1000))
	}
	if h.o.Brief || len(e.Files) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(h.paint(styleBold, "changed") + "\n")
	for i, f := range e.Files {
		if i == 100 {
			fmt.Fprintf(&b, "    … %d more files\n", len(e.Files)-i)
			break
		}
		name := f.Path
		if f.OldPath != "" && f.OldPath != f.Path {
			name = f.OldPath + " → " + f.Path
		}
		if f.Binary {
			fmt.Fprintf(&b, "  %s %s (binary)\n", PlainLine(f.Kind, 10), PlainLine(name, 500))
			continue
		}
		fmt.Fprintf(&b, "  %s %s %s %s\n", PlainLine(f.Kind, 10), PlainLine(name, 500),
			h.paint(styleGood, fmt.Sprintf("+%d", f.Added)), h.paint(styleBad, fmt.Sprintf("-%d", f.Deleted)))
	}
	return b.String()
}

func (h *Human) outcome(e event.RunCompleted) string {
	var b strings.Builder
	u := e.Usage
	if !h.o.Brief {
		b.WriteString(h.paint(styleBold, "tokens used") + "\n" + thousands(u.Input-u.CachedInput+u.Output))
		if u.CachedInput > 0 || u.Reasoning > 0 {
			fmt.Fprintf(&b, " (%s cached, %s reasoning)", thousands(u.CachedInput), thousands(u.Reasoning))
		}
		if e.CostUSD > 0 {
			fmt.Fprintf(&b, ", %.4f USD", e.CostUSD)
		}
		b.WriteByte('\n')
	}
	switch {
	case e.ExitCode != 0:
		b.WriteString(h.line(styleBad, "failed", "%s (exit code %d)", PlainLine(withClass(cmp.Or(e.Message, e.Outcome), e.Class), 2000), e.ExitCode))
		b.WriteString(h.hint(cmp.Or(e.Hint, h.advice)))
	case e.Totals.Denials > 0:
		b.WriteString(h.line(styleWarn, "done", "but %s refused", plural(e.Totals.Denials, "action was", "actions were")))
	}
	return b.String()
}

func withClass(message, class string) string {
	if class == "" || strings.Contains(message, class) {
		return message
	}
	return message + " [" + class + "]"
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
