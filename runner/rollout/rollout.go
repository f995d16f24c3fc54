// Package rollout records threads and resumes them: one JSONL file per thread
// under CODEX_HOME/sessions, in the layout of the reference, so that each
// program resumes what the other has written.
//
// A [Store] finds threads; [Store.Create], [Store.Resume] and [Store.Fork] give
// a [Writer], which owns its thread until it is closed: a second writer, of
// either program, is a [*BusyError]. Each line reaches the file with one write
// and is forced to disk at the end of a turn, so that a killed run loses at
// most the line it was writing; the next Resume cuts a torn last line off and
// says so.
//
// Files are written in the reference's plain layout (no ordinals); its newer
// paginated layout, and forks that refer to their parent's file, are read too.
package rollout

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
)

// Masker removes secrets from encoded JSON; the result is valid JSON.
type Masker interface{ MaskJSON([]byte) []byte }

// Store is the sessions folder of one CODEX_HOME. Its methods may be called
// from any goroutine and any process.
type Store struct {
	Home string
	Now  func() time.Time // nil: time.Now
	Mask Masker           // nil: nothing is masked
	// LockWait bounds the wait for a thread that another process is writing;
	// 0: 2 s.
	LockWait time.Duration
}

// Meta opens a thread.
type Meta struct {
	ID           string // UUID; "" makes a new one
	Cwd          string
	Originator   string // "" = codex_exec
	Version      string
	Source       string // "" = exec
	ThreadSource string // "" = user
	Provider     string
	Model        string
	Base         string // base instructions
	Git          *event.GitState
	ParentID     string // thread of the parent, for a sub-agent's thread
}

// Info is a thread on disk.
type Info struct {
	ID, Path, Cwd, Name string
	Provider, Version   string
	Created, Updated    time.Time
	// Child tells that the thread belongs to a sub-agent or a review.
	Child bool
}

// History is what a thread holds.
type History struct {
	Info
	// Items are the history as it is sent to the model. Calls that were never
	// answered have the output "aborted".
	Items []model.Item
	Usage event.Usage // running total of the thread
	Last  event.Usage // of the last response
	Turns int
	// Base are base instructions that are kept beside the items. A thread of the
	// reference has them here and not among Items, so whoever goes on with it
	// must put base instructions of its own in front.
	Base string
	// Model, Effort and Sandbox are those of the last turn.
	Model, Effort, Sandbox string
	Notices                []event.Notice

	next *int64 // ordinal of the next line, in the paginated layout
}

// TurnContext is written at the beginning of each turn.
type TurnContext struct {
	TurnID, Cwd, Model, Effort, Summary, Approval, Sandbox string
	Writable                                               []string
	Network                                                bool
}

// NotFoundError is a thread that does not exist.
type NotFoundError struct {
	Ref string // id or name; "" when the newest one was asked for
	Cwd string
	// Archived is the file of the thread where the reference put it away.
	Archived string
}

// Error says what was looked for.
func (e *NotFoundError) Error() string {
	if e.Archived != "" {
		return fmt.Sprintf("thread %s is archived: %s", e.Ref, e.Archived)
	}
	if e.Ref != "" {
		return fmt.Sprintf("no thread has the id or name %q", e.Ref)
	}
	if e.Cwd != "" {
		return "no thread was recorded in " + e.Cwd
	}
	return "no thread was recorded yet"
}

// Hint tells how to find it.
func (e *NotFoundError) Hint() string {
	if e.Archived != "" {
		return "unarchive it with the program that archived it, or move the file below CODEX_HOME/sessions"
	}
	if e.Ref == "" && e.Cwd != "" {
		return "a thread belongs to the folder it was started in; use --all for those of other folders"
	}
	return "threads are kept under CODEX_HOME/sessions, unless they were run with --ephemeral"
}

// BusyError is a thread that another process is writing.
type BusyError struct{ ID string }

// Error names the thread.
func (e *BusyError) Error() string { return "thread " + e.ID + " already has an active writer" }

// Hint tells what to do.
func (e *BusyError) Hint() string {
	return "wait until the other run has ended, or use fork to go on with a copy"
}

// NewID returns a new thread id, a UUIDv7.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

func (s *Store) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}
