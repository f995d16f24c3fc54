package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/nightshift-ci/nightshift/runner/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A reader that goes away is remembered: one failed write, no crash, and the
// run goes on.
func TestClosedPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	counted := &counter{w: w}
	wire := NewWire(counted)
	log := event.NewLog(nil, nil, wire)
	log.Emit(event.ThreadStarted{ThreadID: "x"})
	r.Close()
	for range 50 {
		log.Emit(event.TurnStarted{})
	}
	err = log.Finish(t.Context(), event.RunCompleted{})
	if !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the run says %v", err)
	}
	if counted.n != 2 {
		t.Errorf("%d writes, want the good one and the one that failed", counted.n)
	}
	w.Close()
}

type counter struct {
	w io.Writer
	n int
}

func (c *counter) Write(b []byte) (int, error) { c.n++; return c.w.Write(b) }

// Every record is one write of one line, so that a reader never sees half of
// one.
func TestOneWritePerLine(t *testing.T) {
	var lines []string
	j := NewJSONL(writerFunc(func(b []byte) (int, error) { lines = append(lines, string(b)); return len(b), nil }))
	log := event.NewLog(nil, nil, j)
	log.Emit(event.Notice{Message: "a\nb\x1b[0m\u2028"})
	log.Emit(event.Error{Message: "<x> & y"})
	for _, l := range lines {
		if strings.Count(l, "\n") != 1 || !strings.HasSuffix(l, "}\n") || strings.Contains(l, "\x1b") {
			t.Errorf("%q", l)
		}
	}
	if !strings.Contains(lines[1], `"<x> & y"`) {
		t.Errorf("text was escaped for HTML: %s", lines[1])
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// Kinds of later versions go through a log and its replay unchanged, and are
// not part of the wire stream.
func TestUnknownKinds(t *testing.T) {
	const line = `{"seq":7,"time":"2026-01-31T10:00:00Z","type":"future.kind","x":{"y":[1,"<"]}}` + "\n"
	var log, wire bytes.Buffer
	if err := Replay(t.Context(), strings.NewReader(line), NewJSONL(&log), NewWire(&wire)); err != nil {
		t.Fatal(err)
	}
	if log.String() != strings.ReplaceAll(line, "<", `\u003c`) && log.String() != line || wire.Len() != 0 {
		t.Errorf("%q %q", log.String(), wire.String())
	}
}

// The rules of -o FILE.
func TestLastMessage(t *testing.T) {
	say := func(text string) event.ItemCompleted {
		return event.ItemCompleted{Item: event.Item{ID: "item_0", Details: event.AgentMessage{Text: text}}}
	}
	for _, c := range []struct {
		name    string
		events  []event.Event
		want    string // content afterwards, when the file held "old" before
		fresh   bool   // whether a new file is made
		warning string
	}{
		{"completed", []event.Event{event.TurnStarted{}, say("one"), say("two\x00\x1b"), event.TurnCompleted{}}, "two\x00\x1b", true, ""},
		{"completed without a message", []event.Event{event.TurnStarted{}, event.TurnCompleted{}}, "", true, "no last agent message"},
		{"failed", []event.Event{event.TurnStarted{}, say("half"), event.TurnFailed{}}, "old", false, "was not written"},
		{"interrupted", []event.Event{event.TurnStarted{}, say("half")}, "old", false, "was not written"},
		{"nothing", nil, "old", false, "was not written"},
		{"a later turn without a message", []event.Event{event.TurnStarted{}, say("first"), event.TurnCompleted{}, event.TurnStarted{}, event.TurnCompleted{}}, "", true, "no last agent message"},
		{"an empty message", []event.Event{event.TurnStarted{}, say(""), event.TurnCompleted{}}, "", true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, old := range []bool{true, false} {
				path := filepath.Join(t.TempDir(), "last.txt")
				if old {
					if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				var warned string
				log := event.NewLog(nil, nil, NewLastMessage(path, replaceFile, func(s string) { warned += s }))
				for _, e := range c.events {
					log.Emit(e)
				}
				if err := log.Finish(t.Context(), event.RunCompleted{}); err != nil {
					t.Fatal(err)
				}
				got, err := os.ReadFile(path)
				if old && string(got) != c.want || !old && (err == nil) != c.fresh {
					t.Errorf("old %v: %q %v", old, got, err)
				}
				if !strings.Contains(warned, c.warning) || c.warning == "" && warned != "" {
					t.Errorf("warned %q", warned)
				}
			}
		})
	}
}

// replaceFile is a small Create: a file beside the target, renamed at the end.
func replaceFile(path string) (io.WriteCloser, error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return nil, err
	}
	return &replacing{f, path}, nil
}

type replacing struct {
	*os.File
	path string
}

func (r *replacing) Close() error {
	return errors.Join(r.File.Close(), os.Rename(r.Name(), r.path))
}

func (r *replacing) Abort() error { return errors.Join(r.File.Close(), os.Remove(r.Name())) }

func TestFinal(t *testing.T) {
	for want, events := range map[string][]event.Event{
		"answer\n": {event.TurnStarted{}, event.ItemCompleted{Item: event.Item{Details: event.AgentMessage{Text: "answer"}}}, event.TurnCompleted{}},
		"":         {event.TurnStarted{}, event.ItemCompleted{Item: event.Item{Details: event.AgentMessage{Text: "answer"}}}, event.TurnFailed{}},
		"\\u003a:add-mask::x\n{\"a\":\"#\\u0023[x]\"}\n": {event.TurnStarted{}, event.ItemCompleted{Item: event.Item{Details: event.AgentMessage{Text: "::add-mask::x\n{\"a\":\"##[x]\"}"}}}, event.TurnCompleted{}},
	} {
		var b bytes.Buffer
		log := event.NewLog(nil, nil, NewFinal(&b))
		for _, e := range events {
			log.Emit(e)
		}
		if err := log.Finish(t.Context(), event.RunCompleted{}); err != nil || b.String() != want {
			t.Errorf("%q %v, want %q", b.String(), err, want)
		}
	}
}

// While something works for long, a terminal sees one line that is drawn again
// and a CI log sees a line now and then; both end with the run.
func TestProgressAndHeartbeat(t *testing.T) {
	for name, o := range map[string]HumanOptions{"terminal": {Progress: true}, "CI": {Heartbeat: 30 * time.Second}, "neither": {}} {
		synctest.Test(t, func(t *testing.T) {
			var b bytes.Buffer
			h := NewHuman(&b, o)
			log := event.NewLog(nil, nil, h)
			log.Emit(event.TurnStarted{})
			log.Emit(event.ModelRequest{Request: 1, Model: "gpt-test"})
			log.Emit(event.ModelResponse{Request: 1, Model: "gpt-test"})
			id := log.Start(event.CommandExecution{Command: "make \x1b[31m all"})
			time.Sleep(65 * time.Second)
			code := 0
			log.Complete(id, event.CommandExecution{Command: "make all", ExitCode: &code, Status: event.Completed})
			time.Sleep(65 * time.Second)
			if err := log.Finish(t.Context(), event.RunCompleted{}); err != nil {
				t.Fatal(err)
			}
			out := b.String()
			switch name {
			case "CI":
				if strings.Count(out, "still running make") != 2 || !strings.Contains(out, "for 30s\n") {
					t.Errorf("%s: %q", name, out)
				}
			case "terminal":
				if n := strings.Count(out, "running make"); n < 60 || !strings.Contains(out, "\r\x1b[K") || strings.Contains(out, "\x1b[31m") {
					t.Errorf("%s: %d lines, %q", name, n, out)
				}
				if !strings.Contains(out, "\r\x1b[Ksucceeded") {
					t.Errorf("%s: the progress line was not removed: %q", name, out)
				}
			case "neither":
				if strings.Contains(out, "still") || strings.Contains(out, "\r") {
					t.Errorf("%s: %q", name, out)
				}
			}
		})
	}
}

// A file that cannot be made fails alone, nothing is made before the end, and
// an aborted report leaves the old file.
func TestReporterFailures(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "changes.patch")
	if err := os.WriteFile(old, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	var opened []string
	create := func(path string) (io.WriteCloser, error) {
		opened = append(opened, path)
		if strings.HasSuffix(path, "report.md") {
			return nil, syscall.ENOSPC
		}
		return replaceFile(path)
	}
	o := Options{Create: create}
	for _, out := range DirOutputs() {
		o.Outputs = append(o.Outputs, Output{out.Format, filepath.Join(dir, out.Path)})
	}
	r, err := NewReporter(o)
	if err != nil {
		t.Fatal(err)
	}
	log := event.NewLog(nil, nil, r)
	log.Emit(event.TurnStarted{})
	log.Emit(event.DiffCaptured{Error: "no room"})
	if len(opened) != 0 {
		t.Errorf("opened before the end: %v", opened)
	}
	err = log.Finish(t.Context(), event.RunCompleted{Outcome: "success"})
	if !errors.Is(err, syscall.ENOSPC) || !errors.Is(err, ErrNoDiff) {
		t.Errorf("%v", err)
	}
	got, _ := os.ReadFile(old)
	if string(got) != "old" {
		t.Errorf("the old patch became %q", got)
	}
	for _, name := range []string{"report.json", "report.html", "junit.xml", "sarif.json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	left, _ := filepath.Glob(filepath.Join(dir, ".new-*"))
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A write that fails half way aborts the file.
func TestFailedWriteLeavesTheOldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	create := func(p string) (io.WriteCloser, error) {
		f, err := replaceFile(p)
		return failing{f.(*replacing)}, err
	}
	s := scenarios()[0].summary(t)
	err := WriteAll([]*Summary{s}, &Options{Create: create, Outputs: []Output{{"json", path}}})
	if !errors.Is(err, syscall.EIO) {
		t.Errorf("%v", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "old" {
		t.Errorf("the old file became %q", got)
	}
}

type failing struct{ *replacing }

func (failing) Write([]byte) (int, error) { return 0, syscall.EIO }

func TestParseOutput(t *testing.T) {
	for arg, ok := range map[string]bool{"json=x": true, "junit=a=b": true, "json": false, "json=": false, "nope=x": false, "=x": false} {
		out, err := ParseOutput(arg)
		if (err == nil) != ok {
			t.Errorf("%s: %+v %v", arg, out, err)
		}
		var oe *OutputError
		if err != nil && (!errors.As(err, &oe) || !strings.Contains(oe.Hint(), "sarif")) {
			t.Errorf("%s: no hint in %v", arg, err)
		}
	}
	if out, _ := ParseOutput("junit=a=b"); out.Path != "a=b" {
		t.Errorf("%+v", out)
	}
}

// A log that breaks off inside a line gives what came before it, and says so.
func TestReplayOfBrokenLogs(t *testing.T) {
	whole := scenarios()[0].record(t)
	half := whole[:len(whole)/2]
	files, sinks := allSinks(t)
	err := Replay(t.Context(), bytes.NewReader(half), sinks...)
	if err == nil || !strings.Contains(err.Error(), "line ") {
		t.Errorf("%v", err)
	}
	if !strings.Contains(files["report.md"].String(), "incomplete log") {
		t.Error("the report does not say that the log is incomplete")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(syscall.EINTR)
	if err := Replay(ctx, bytes.NewReader(whole)); !errors.Is(err, syscall.EINTR) {
		t.Errorf("%v", err)
	}
}

// Some services take orders from the middle of a line of a job's log.
func TestWireGivesNoOrders(t *testing.T) {
	const text = "## a\n###[x] ##vso[task.complete] \\##teamcity[y] #[ok] ##"
	var b bytes.Buffer
	log := event.NewLog(nil, nil, NewWire(&b))
	log.Emit(event.ItemCompleted{Item: event.Item{Details: event.AgentMessage{Text: text}}})
	if err := log.Finish(t.Context(), event.RunCompleted{}); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"##[", "##vso[", "##teamcity["} {
		if strings.Contains(b.String(), word) {
			t.Errorf("%q in %s", word, b.String())
		}
	}
	var line struct{ Item struct{ Text string } }
	if err := json.Unmarshal(b.Bytes(), &line); err != nil || line.Item.Text != text {
		t.Errorf("%q, %v", line.Item.Text, err)
	}
}

// A configuration may leave the model's reasoning out of the text for people.
func TestHideReasoning(t *testing.T) {
	for _, hide := range []bool{false, true} {
		var b bytes.Buffer
		h := NewHuman(&b, HumanOptions{})
		if hide {
			h.HideReasoning()
		}
		log := event.NewLog(nil, nil, h)
		log.Complete("", event.Reasoning{Text: "a thought"})
		log.Complete("", event.AgentMessage{Text: "an answer"})
		if err := log.Finish(t.Context(), event.RunCompleted{}); err != nil {
			t.Fatal(err)
		}
		if out := b.String(); strings.Contains(out, "a thought") == hide || !strings.Contains(out, "an answer") {
			t.Errorf("hide %v: %q", hide, out)
		}
	}
}

// A log without times makes a suite without one, not one of the year 1.
func TestJUnitWithoutTimes(t *testing.T) {
	var b bytes.Buffer
	if err := renderJUnit(&b, []*Summary{{Outcome: "success"}}, &Options{}); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Contains(text, "timestamp") || !strings.Contains(text, "<testsuite ") {
		t.Error(text)
	}
}
