// Package rollout records threads and resumes them: one JSONL file per thread
// under CODEX_HOME/sessions, in the layout of the reference, so that each
// program resumes what the other has written.
package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
)

// Masker removes secrets from encoded JSON.
type Masker interface{ MaskJSON([]byte) []byte }

// Store is the sessions folder of one CODEX_HOME.
type Store struct {
	Home string
	Now  func() time.Time // nil: time.Now
	Mask Masker           // nil: nothing is masked
}

// Meta opens a thread.
type Meta struct {
	ID           string // UUIDv7; "" makes a new one
	Cwd          string
	Originator   string // codex_exec
	Version      string
	Source       string // exec
	ThreadSource string // user
	Provider     string
	Model        string
	Base         string // base instructions
	Git          *event.GitState
	ParentID     string // of a sub-agent's thread
}

// Info is a thread on disk.
type Info struct {
	ID, Path, Cwd, Name, Model, Provider string
	Created, Updated                     time.Time
}

// History is what a thread holds.
type History struct {
	Info
	Items   []model.Item
	Usage   event.Usage // running total of the thread
	Last    event.Usage // of the last response
	Turns   int
	Effort  string
	Sandbox string
	Notices []event.Notice
}

// TurnContext is written at the beginning of each turn.
type TurnContext struct {
	TurnID, Cwd, Model, Effort, Summary, Approval, Sandbox string
	Writable                                               []string
	Network                                                bool
}

// NotFoundError is a thread that does not exist.
type NotFoundError struct{ Ref, Cwd string }

// Error is the sentence for people.
func (e *NotFoundError) Error() string { return "no thread " + e.Ref }

// Hint tells what to do.
func (e *NotFoundError) Hint() string { return "" }

// BusyError is a thread that another process is writing.
type BusyError struct{ ID, Path string }

// Error is the sentence for people.
func (e *BusyError) Error() string { return "thread " + e.ID + " already has an active writer" }

var errRough = errors.New("rollout: not finished")

// Create opens a new thread for writing.
func (s *Store) Create(m Meta) (*Writer, error) { return nil, errRough }

// Find returns the thread with that id or name, or a *NotFoundError.
func (s *Store) Find(ref string) (Info, error) { return Info{}, errRough }

// Last returns the newest thread of cwd ("" = any), or a *NotFoundError.
func (s *Store) Last(cwd string) (Info, error) { return Info{}, errRough }

// List returns the newest threads first, at most limit (0: all).
func (s *Store) List(limit int) ([]Info, error) { return nil, errRough }

// Read loads a thread without locking it.
func (s *Store) Read(i Info) (History, error) { return History{}, errRough }

// Resume locks a thread, repairs its end and loads it. A thread that stays
// locked until ctx ends or a bound passes is a *BusyError.
func (s *Store) Resume(ctx context.Context, i Info) (*Writer, History, error) {
	return nil, History{}, errRough
}

// Fork starts a new thread with the history of i.
func (s *Store) Fork(ctx context.Context, i Info, m Meta) (*Writer, History, error) {
	return nil, History{}, errRough
}

// Writer appends to one thread. A nil *Writer writes nothing (an ephemeral
// thread). Its methods may be called from any goroutine; the first error is
// kept and returned by each later call and by Close.
type Writer struct{}

// ID is the thread id; Path the file.
func (w *Writer) ID() string   { return "" }
func (w *Writer) Path() string { return "" }

// Turn begins a turn.
func (w *Writer) Turn(t TurnContext) error { return errRough }

// Item appends one item of the history.
func (w *Writer) Item(it model.Item) error { return errRough }

// Usage appends the usage of one response and the totals.
func (w *Writer) Usage(responseID string, response, turn, thread event.Usage) error { return errRough }

// Compacted replaces the history before it.
func (w *Writer) Compacted(message string, items []model.Item) error { return errRough }

// Event appends an event_msg line: payload is an object with a "type".
func (w *Writer) Event(payload json.RawMessage) error { return errRough }

// EndTurn appends task_complete, or turn_aborted with a reason.
func (w *Writer) EndTurn(turnID, lastMessage, abortReason string) error { return errRough }

// Close flushes and unlocks.
func (w *Writer) Close() error { return errRough }
