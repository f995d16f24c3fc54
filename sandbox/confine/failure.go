//go:build linux

package confine

import (
	"errors"

	"golang.org/x/sys/unix"
)

// layerError is a refused step of one layer.
type layerError struct {
	layer, op string
	err       error
}

func (e *layerError) Error() string { return e.layer + ": " + e.op + ": " + e.err.Error() }
func (e *layerError) Unwrap() error { return e.err }

func atMount(op, what string, err error) error {
	if err == nil {
		return nil
	}
	if what != "" {
		op += " " + what
	}
	return &layerError{LayerMount, op, err}
}

// Errno digs the kernel's number out of an error; 0 if there is none.
func Errno(err error) unix.Errno {
	var e unix.Errno
	errors.As(err, &e)
	return e
}

// fail records a refused step; the first of a layer is kept.
func (f *Facts) fail(err error) {
	var le *layerError
	if !errors.As(err, &le) {
		le = &layerError{"sandbox", "setting up", err}
	}
	if f.Failed == nil {
		f.Failed = map[string]LayerFailure{}
	}
	if _, ok := f.Failed[le.layer]; !ok {
		f.Failed[le.layer] = LayerFailure{Op: le.op, Errno: int(Errno(le.err)), Text: le.err.Error()}
	}
}
