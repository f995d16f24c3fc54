//go:build linux

package sandbox

import (
	"context"
	"os"
	"sync"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

// Early is the start of a sandbox whose Spec is not known yet. The init is a
// process of its own that needs some milliseconds to be up; they pass while the
// caller still reads its configuration. Nothing is confined and nothing decided
// before [Early.Open].
//
// Its methods may be called concurrently, and on nil.
type Early struct {
	mu    sync.Mutex
	first chan *ascent // gets one value; nil once it was taken
	gone  chan error   // the result of ending what could not be used
}

// usual is the Spec that an early init is started for, as far as its namespaces
// depend on one.
var usual = Spec{Mode: WorkspaceWrite}

// StartEarly begins; nil in a program that this package started itself. An error
// here is returned by Open, as if Open had met it.
func StartEarly() *Early {
	if len(os.Args) > 0 && os.Args[0] == confine.HelperName {
		return nil
	}
	e := &Early{first: make(chan *ascent, 1)}
	first := e.first
	go func() { first <- launchInGroup(&usual) }()
	return e
}

// take gives the init to its one user; nil where there is none.
func (e *Early) take() chan *ascent {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	first := e.first
	e.first = nil
	return first
}

// Open is [Open] with the init that was started early, if the Spec can use it;
// otherwise that init is ended. Only the first call gets it.
func (e *Early) Open(ctx context.Context, s Spec) (*Sandbox, error) {
	first := e.take()
	if first == nil {
		return Open(ctx, s)
	}
	if s.Mode == FullAccess || cloneFlags(&s) != cloneFlags(&usual) {
		e.end(first)
		return Open(ctx, s)
	}
	return openFrom(ctx, <-first, s)
}

// end gives up what was begun, in a goroutine that Close waits for.
func (e *Early) end(first chan *ascent) {
	gone := make(chan error, 1)
	e.mu.Lock()
	e.gone = gone
	e.mu.Unlock()
	go func() { gone <- (<-first).discard() }()
}

// Close ends what nobody took and waits until it is gone. It may be called more
// than once.
func (e *Early) Close() error {
	if first := e.take(); first != nil {
		return (<-first).discard()
	}
	if e == nil {
		return nil
	}
	e.mu.Lock()
	gone := e.gone
	e.gone = nil
	e.mu.Unlock()
	if gone == nil {
		return nil
	}
	return <-gone
}
