package model

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// ScriptOptions of NewScript.
type ScriptOptions struct {
	// Emit takes the same records as Options.Emit, and a notice for the first
	// divergence from the recorded session.
	Emit func(event.Event)
}

// Script plays a recorded session with no network. It implements Streamer.
type Script struct{}

// NewScript parses data; name is its file name, for messages.
func NewScript(name string, data []byte, o ScriptOptions) (*Script, error) {
	return nil, errors.New("not yet")
}

// Stream answers with the next reply of the script.
func (s *Script) Stream(ctx context.Context, r Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) { yield(Delta{}, errors.New("not yet")) }
}

// Divergence tells the first place where the session left the recording, ""
// when it did not.
func (s *Script) Divergence() string { return "" }

// Recorder wraps a Streamer and writes a script of what it answers, one line
// per response, each flushed to the disk before the response is handed on.
type Recorder struct{}

// NewRecorder records inner to w, masked with m (nil: nothing is masked). If w
// has a Sync method, it is called after each line.
func NewRecorder(inner Streamer, w io.Writer, m event.Masker) *Recorder { return &Recorder{} }

// Stream passes r on and records the response.
func (r *Recorder) Stream(ctx context.Context, q Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) { yield(Delta{}, errors.New("not yet")) }
}

// Err is the first error of writing the recording.
func (r *Recorder) Err() error { return nil }
