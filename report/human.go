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
	// HideReasoning leaves out what the model says of its thinking.
	HideReasoning bool
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
	failure string     // the last error that was printed
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

// HideReasoning is the option of that name, for a configuration that is read
// after the first words were written.
func (h *Human) HideReasoning() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.o.HideReasoning = true
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
			return "" // the error has been printed, and the last line has class and hint
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
		if deniedAlone(e) {
			return h.denied(e.Action+" "+e.Subject, denialIn(e))
		}
		if e.Outcome == "unsandboxed" {
			return h.line(styleWarn, "outside the sandbox", "%s", PlainLine(e.Subject, 500))
		}
	case event.AgentEvent:
		return h.agent(e)
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
	var b strings.Builder
	for i, o := range e.Omitted { // whoever takes the patch alone must know
		if i == 10 {
			b.WriteString(h.line(styleWarn, "not in the patch", "%d more files", len(e.Omitted)-i))
			break
		}
		b.WriteString(h.line(styleWarn, "not in the patch", "%s", PlainLine(o, 500)))
	}
	if h.o.Brief || len(e.Files) == 0 {
		return b.String()
	}
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
