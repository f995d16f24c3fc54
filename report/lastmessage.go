package report

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// LastMessage writes the last message of a completed turn to a file, without a
// newline: -o FILE. A completed turn without any message leaves an empty file
// and a warning. When the turn failed or the run was interrupted, the file is
// not touched: an older one keeps its content and none is made, and warn says
// so, since an old answer is easily taken for a new one.
type LastMessage struct {
	path string
	open Create
	warn func(string)
	last lastMessage
}

// NewLastMessage returns the sink of -o path; warn takes sentences for people
// and may be nil.
func NewLastMessage(path string, open Create, warn func(string)) *LastMessage {
	if warn == nil {
		warn = func(string) {}
	}
	return &LastMessage{path: path, open: open, warn: warn}
}

// lastMessage follows the last message of a turn and whether the turn was
// completed.
type lastMessage struct {
	text      string
	any       bool
	completed bool
}

func (l *lastMessage) see(r event.Record) {
	switch e := r.Event.(type) {
	case event.TurnStarted:
		*l = lastMessage{}
	case event.ItemCompleted:
		if m, ok := e.Item.Details.(event.AgentMessage); ok {
			l.text, l.any = m.Text, true
		}
	case event.TurnCompleted:
		l.completed = true
	case event.TurnFailed:
		l.completed = false
	}
}

// Handle remembers the message.
func (l *LastMessage) Handle(r event.Record) error { l.last.see(r); return nil }

// Close writes the file.
func (l *LastMessage) Close(context.Context) error {
	if !l.last.completed {
		l.warn(fmt.Sprintf("the turn was not completed: %s was not written", l.path))
		return nil
	}
	if !l.last.any {
		l.warn("no last agent message; wrote empty content to " + l.path)
	}
	f := &lazyFile{open: l.open, path: l.path}
	_, err := io.WriteString(f, l.last.text)
	if err == nil {
		err = f.close()
	} else {
		err = errors.Join(err, f.abort())
	}
	if err != nil {
		return fmt.Errorf("write the last message to %s: %w", l.path, err)
	}
	return nil
}

// Final prints the last message of a completed turn and a newline: stdout
// without --json. The text is made inert ([Plain]), since stdout of a CI job is
// a log that the service obeys; -o FILE has the exact bytes.
type Final struct {
	w    io.Writer
	last lastMessage
}

// NewFinal returns a sink that prints to w.
func NewFinal(w io.Writer) *Final { return &Final{w: w} }

// Handle remembers the message.
func (f *Final) Handle(r event.Record) error { f.last.see(r); return nil }

// Close prints it.
func (f *Final) Close(context.Context) error {
	if !f.last.completed || !f.last.any {
		return nil
	}
	if _, err := io.WriteString(f.w, Plain(f.last.text)+"\n"); err != nil {
		return fmt.Errorf("write the final message: %w", err)
	}
	return nil
}
