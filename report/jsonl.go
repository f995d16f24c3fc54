package report

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"sync"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// JSONL writes records as lines, each in one write. The first write that fails
// is remembered and returned by Handle and Close; nothing is written after it,
// so that a closed pipe costs one failed call and no signal storm.
type JSONL struct {
	w      io.Writer
	encode func(event.Record) ([]byte, error)
	err    error
}

// NewJSONL writes the whole log: every record with its number and time.
func NewJSONL(w io.Writer) *JSONL {
	return &JSONL{w: w, encode: func(r event.Record) ([]byte, error) { return encodeRecord(r) }}
}

// NewWire writes the stream of --json: wire kinds only, without number and
// time. The turn.failed of a run that a signal ended is left to the log: the
// reference's stream just stops there, and its SDK takes a turn.failed for the
// failure of the turn where its caller waits for its own abort. The error event
// before it tells readers of the stream.
//
// The stream is often the log of a CI job, and some services obey "##vso[…]" and
// "##[…]" in the middle of a line: one sign of such words is written as its JSON
// escape, which every reader of JSON takes for the same text.
func NewWire(w io.Writer) *JSONL {
	return &JSONL{w: w, encode: func(r event.Record) ([]byte, error) {
		if f, ok := r.Event.(event.TurnFailed); ok && f.Error.Class == "signal" || !r.Kind().IsWire() {
			return nil, nil
		}
		line, err := r.Wire()
		return serviceWord().ReplaceAll(line, []byte(`#\u0023$1`)), err
	}}
}

// serviceWord is what a CI service takes for an order anywhere in a line. In JSON
// it can only stand in a string.
var serviceWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`##([A-Za-z0-9._-]*\[)`) })

// encodeRecord is MarshalJSON without the second pass of json.Marshal, which
// would escape <, > and &.
func encodeRecord(r event.Record) ([]byte, error) {
	b, err := r.MarshalJSON()
	if err != nil {
		return nil, err
	}
	if _, unknown := r.Event.(event.Unknown); unknown { // kept verbatim, but one line
		return json.Marshal(json.RawMessage(b))
	}
	return b, nil
}

// Handle writes one line.
func (j *JSONL) Handle(r event.Record) error {
	if j.err != nil {
		return j.err
	}
	line, err := j.encode(r)
	if err != nil {
		return fmt.Errorf("encode event %d (%s): %w", r.Seq, r.Kind(), err)
	}
	if line == nil {
		return nil
	}
	if _, err := j.w.Write(append(line, '\n')); err != nil {
		j.err = fmt.Errorf("write the event log: %w", err)
	}
	return j.err
}

// Close returns the first write error; the file belongs to the caller unless it
// is an [io.Closer] given through [NewJSONLFile].
func (j *JSONL) Close(context.Context) error { return j.err }

// JSONLFile is the log file of --events, opened at the first record.
type JSONLFile struct {
	path string
	open Create
	w    io.WriteCloser
	out  *JSONL
}

// NewJSONLFile writes the whole log to path. open should make the file visible
// at once, so that it can be followed while the run goes on and is there after
// a kill.
func NewJSONLFile(path string, open Create) *JSONLFile { return &JSONLFile{path: path, open: open} }

// Handle writes one line.
func (f *JSONLFile) Handle(r event.Record) error {
	if f.out == nil {
		w, err := f.open(f.path)
		if err != nil {
			w = nil
			f.out = &JSONL{err: fmt.Errorf("write the event log %s: %w", f.path, err)}
			return f.out.err
		}
		f.w, f.out = w, NewJSONL(w)
	}
	return f.out.Handle(r)
}

// Close closes the file.
func (f *JSONLFile) Close(ctx context.Context) error {
	if f.out == nil {
		return nil
	}
	err := f.out.Close(ctx)
	if f.w != nil {
		if e := f.w.Close(); err == nil && e != nil {
			err = fmt.Errorf("write the event log %s: %w", f.path, e)
		}
	}
	return err
}
