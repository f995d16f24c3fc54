package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"
)

// Output files that the user asked for. An ordinary file is made beside its
// place and moved there when it is complete; whatever is not an ordinary file
// (a pipe, a terminal, /dev/stdout) is written where it is and never replaced.

// place is where an output goes.
type place struct {
	path string
	mode fs.FileMode
	// direct: written in place. Moving a file over /dev/stdout would take it
	// from every program of the machine.
	direct bool
}

// placeOf finds out where path leads. Links are followed, so that a report
// behind a link replaces the file and not the link.
func placeOf(path string) (place, error) {
	path = filepath.Clean(path)
	fi, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if link, err := os.Lstat(path); err == nil && link.Mode()&fs.ModeSymlink != 0 {
			return place{}, errors.New("a link that leads to nothing")
		}
		if special(path) {
			return place{}, fs.ErrNotExist
		}
		return place{path: path, mode: 0o644}, nil
	}
	if err != nil {
		return place{}, errText(err)
	}
	if fi.IsDir() {
		return place{}, errors.New("a folder")
	}
	if !fi.Mode().IsRegular() || special(path) {
		return place{path: path, direct: true}, nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return place{}, errText(err)
	}
	return place{path: real, mode: fi.Mode().Perm(), direct: special(real)}, nil
}

// special tells whether path lies where the system keeps devices and open
// files: nothing is made or moved there.
func special(path string) bool {
	return strings.HasPrefix(path, "/dev/") || strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/sys/")
}

// createFile opens a report: it replaces path in one step when it is closed.
func createFile(path string) (io.WriteCloser, error) {
	at, err := placeOf(path)
	if err != nil {
		return nil, err
	}
	if at.direct {
		return openDirect(at.path)
	}
	return newPending(at)
}

// liveFile opens a log that can be followed while it grows and is there after a
// kill: it replaces path at once by an empty file, instead of truncating what a
// reader of the old one has open.
func liveFile(path string) (io.WriteCloser, error) {
	at, err := placeOf(path)
	if err != nil {
		return nil, err
	}
	if at.direct {
		return openDirect(at.path)
	}
	p, err := newPending(at)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(p.Name(), at.path); err != nil {
		return nil, errors.Join(errText(err), p.Abort())
	}
	return p.File, nil
}

// openDirect opens what is there. A named pipe that nobody reads is an error at
// once: waiting for a reader could last for ever.
func openDirect(path string) (io.WriteCloser, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK, 0)
}

// pending is a file that appears when it is closed.
type pending struct{ *renameio.PendingFile }

func newPending(at place) (pending, error) {
	p, err := renameio.NewPendingFile(at.path, renameio.WithPermissions(at.mode), renameio.WithTempDir(filepath.Dir(at.path)))
	return pending{p}, err
}

// Close replaces the old file.
func (p pending) Close() error { return p.CloseAtomicallyReplace() }

// Abort leaves the old file as it was.
func (p pending) Abort() error { return p.Cleanup() }

// appendFile opens a file of the CI service.
func appendFile(path string) (io.WriteCloser, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// writableFile finds out before the run whether a report can be written after
// it, and changes nothing.
func writableFile(path string) error {
	at, err := placeOf(path)
	if err != nil {
		return fmt.Errorf("cannot be written: %w", err)
	}
	if at.direct {
		return nil
	}
	probe, err := os.CreateTemp(filepath.Dir(at.path), ".nightshift-probe-")
	if err != nil {
		return errText(err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}
