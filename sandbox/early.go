//go:build linux

package sandbox

import (
	"context"
	"sync"
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
}

// usual is the Spec that an early init is started for, as far as its namespaces
// depend on one.
var usual = Spec{Mode: WorkspaceWrite}

// StartEarly begins. What is refused here is told by Open, as if it had tried.
func StartEarly() *Early {
	e := &Early{first: make(chan *ascent, 1)}
	first := e.first
	go func() {
		a := launchFirst(&usual)
		a.join()
		first <- a
	}()
	return e
}

// take gives the init to its one user; nil where there is none.
func (e *Early) take() *ascent {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	first := e.first
	e.first = nil
	e.mu.Unlock()
	if first == nil {
		return nil
	}
	return <-first
}

// Open is [Open], with the init that was started early where the Spec wants such
// a one. Only the first call gets it.
func (e *Early) Open(ctx context.Context, s Spec) (*Sandbox, error) {
	if s.Mode == FullAccess || cloneFlags(&s) != cloneFlags(&usual) {
		return Open(ctx, s)
	}
	return openFrom(ctx, e.take(), s)
}

// Close ends an init that nobody took.
func (e *Early) Close() error {
	if first := e.take(); first != nil {
		return first.discard()
	}
	return nil
}
