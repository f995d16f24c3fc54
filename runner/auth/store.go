package auth

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Names beside auth.json.
const (
	fileName       = "auth.json"
	lockSuffix     = ".lock"
	recoverySuffix = ".recovery-" // followed by the digest of the bundle it replaces
)

// maxBundle bounds auth.json, in bytes. Real ones have a few thousand.
const maxBundle = 1 << 20

// bounds are the longest waits. Each one ends by itself.
type bounds struct {
	// lockWait is longer than spend, so that a waiter outlives an honest holder.
	lockWait time.Duration
	// spend is the time from the first request to the token endpoint to the
	// stored answer, retries included.
	spend time.Duration
	// attempt is one request to the token endpoint.
	attempt time.Duration
	// pause is the first wait between two attempts.
	pause time.Duration
	// cooling is the first time without attempts after a transient failure.
	cooling time.Duration
	// writeback is one call of the write-back.
	writeback time.Duration
}

func (b bounds) orDefault() bounds {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&b.spend, 60*time.Second)
	def(&b.lockWait, b.spend+30*time.Second)
	def(&b.attempt, 25*time.Second)
	def(&b.pause, 500*time.Millisecond)
	def(&b.cooling, 30*time.Second)
	def(&b.writeback, 60*time.Second)
	return b
}

// store is one auth.json on disk.
type store struct {
	path   string // as named, symbolic links not followed
	disk   disk
	bounds bounds
}

// snapshot is auth.json at one moment.
type snapshot struct {
	target string // the real file
	raw    []byte
	traits traits
	bundle *bundle // nil if raw is not a bundle
	bad    error   // why raw is not a bundle
}

// read reads auth.json. A missing file is fs.ErrNotExist; a file that is no
// bundle is not an error here.
func (s *store) read() (*snapshot, error) {
	target, err := s.disk.Resolve(s.path)
	if err != nil {
		return nil, err
	}
	raw, err := s.readFile(target)
	if err != nil {
		return nil, err
	}
	snap := &snapshot{target: target, raw: raw}
	if snap.traits, err = s.disk.Traits(target); err != nil {
		return nil, err
	}
	snap.bundle, snap.bad = parseBundle(raw)
	if snap.bad != nil {
		snap.bundle = nil
	}
	return snap, nil
}

// readFile reads a regular file. A name that is replaced while it is read gives
// the old or the new content, never a mixture.
func (s *store) readFile(path string) ([]byte, error) {
	f, err := s.disk.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errNotRegular}
	}
	return readAll(f, maxBundle)
}

var errNotRegular = errors.New("is not a regular file")

// unreadable makes an error of a file that cannot be read.
func (s *store) unreadable(err error) *Error {
	e := &Error{Class: ClassUnreadable, Message: fmt.Sprintf("%s cannot be read: %v", s.path, reason(err)), cause: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Class = ClassMissing
		e.Message = fmt.Sprintf("%s does not exist", s.path)
		e.hint = reseedHint
	case errors.Is(err, fs.ErrPermission):
		e.hint = fmt.Sprintf("this process runs as uid %d; give it the file, or run as its owner", os.Geteuid())
	case errors.Is(err, errTooLong), errors.Is(err, errNotRegular):
		e.Class = ClassCorrupt
		e.hint = reseedHint
	case errors.Is(err, unix.ELOOP):
		e.hint = "the symbolic link leads in a circle"
	}
	return e
}

// reason drops the path of an error: the sentence has it already.
func reason(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// reseedHint is what to do when only a new login helps.
const reseedHint = "sign in on a workstation with `codex login`, then store its auth.json again: `nightshift auth import --force < auth.json`"

// corrupt makes an error of a file that is not a login.
func (s *store) corrupt(problem error) *Error {
	return &Error{Class: ClassCorrupt, Message: fmt.Sprintf("%s %v", s.path, problem), hint: reseedHint}
}

// recovery is a copy that an interrupted write left beside auth.json.
type recovery struct {
	path     string
	replaces string // digest of the bundle it was made from
	bundle   *bundle
}

// recoveries lists the copies beside target, and the files of that name that
// hold no bundle: space that was reserved and never filled.
func (s *store) recoveries(target string) (found []recovery, junk []string, err error) {
	dir, base := filepath.Dir(target), filepath.Base(target)
	names, err := s.disk.List(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range names {
		replaces, ok := strings.CutPrefix(n, base+recoverySuffix)
		if !ok {
			continue
		}
		path := filepath.Join(dir, n)
		raw, err := s.readFile(path)
		if err != nil {
			continue // gone meanwhile, or not ours to read
		}
		raw = bytes.TrimRight(raw, "\x00")
		if b, err := parseBundle(raw); err == nil {
			found = append(found, recovery{path, replaces, b})
		} else {
			junk = append(junk, path)
		}
	}
	return found, junk, nil
}
