package auth

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lock is the right to refresh the login in one auth.json, on this machine.
//
// Two locks are taken. The one on auth.json itself reaches every process that
// has the same file under any name: another home with a symbolic link, a bind
// mount in another container. The one on auth.json.lock beside it is where
// other programs look, and it exists before auth.json does; where the folder is
// read-only it is left out. Both are flock locks: the kernel drops them with
// their holder, however that ends.
type lock struct {
	beside diskFile // nil: the folder takes no lock file
	file   diskFile // nil: there is no auth.json yet
	target string
}

// release gives the locks up; closing the descriptors does that.
func (l *lock) release() {
	for _, f := range []diskFile{l.file, l.beside} {
		if f != nil {
			_ = f.Close() // nothing was written through it that close could lose
		}
	}
}

// lock waits for the locks until the context ends or the bound is reached.
func (s *store) lock(ctx context.Context) (*lock, *Error) {
	ctx, cancel := context.WithTimeout(ctx, s.bounds.lockWait)
	defer cancel()
	target, err := s.disk.Resolve(s.path)
	if err != nil {
		return nil, s.unreadable(err)
	}
	l := &lock{target: target}
	if e := s.lockBeside(ctx, l); e != nil {
		l.release()
		return nil, e
	}
	if e := s.lockFile(ctx, l); e != nil {
		l.release()
		return nil, e
	}
	return l, nil
}

func (s *store) lockBeside(ctx context.Context, l *lock) *Error {
	name := l.target + lockSuffix
	f, err := s.disk.Open(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		// Read-only folder, a lock file of another user, no space for a new name:
		// the lock on auth.json itself is enough.
		return nil
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		_ = f.Close()
		return nil
	}
	l.beside = f
	return s.waitFor(ctx, f, name)
}

// lockFile locks the inode that the name leads to at the moment the lock is
// held: a rename in between means starting over.
func (s *store) lockFile(ctx context.Context, l *lock) *Error {
	for {
		f, err := s.openForLock(l.target)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return s.unreadable(err)
		}
		if e := s.waitFor(ctx, f, l.target); e != nil {
			_ = f.Close()
			return e
		}
		if current(f, l.target) {
			l.file = f
			return nil
		}
		_ = f.Close()
		if ctx.Err() != nil {
			return s.lockTimeout(ctx, l.target)
		}
	}
}

// openForLock prefers a writable descriptor: over NFS flock needs one.
func (s *store) openForLock(path string) (diskFile, error) {
	f, err := s.disk.Open(path, os.O_RDWR, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.disk.Open(path, os.O_RDONLY, 0)
	}
	return f, err
}

// current tells whether the open file is still the one with this name.
func current(f diskFile, path string) bool {
	have, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(have, there)
}

// waitFor polls for the lock. flock has no waiting with a bound, and a poll of
// some milliseconds is nothing against a refresh.
func (s *store) waitFor(ctx context.Context, f diskFile, name string) *Error {
	pause := 2 * time.Millisecond
	for {
		err := s.disk.Flock(f)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return &Error{
				Class:   ClassLockUnavailable,
				Message: fmt.Sprintf("%s cannot be locked: %v; without a lock two runs could spend one refresh token, so none was spent", name, err),
				hint:    "keep CODEX_HOME on a local disk, or mount the network file system with locks; one run at a time may also refresh on another machine with `nightshift auth refresh`",
				cause:   err,
			}
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-ctx.Done():
			timer.Stop()
			return s.lockTimeout(ctx, name)
		case <-timer.C:
		}
		pause = min(2*pause, 50*time.Millisecond)
	}
}

func (s *store) lockTimeout(ctx context.Context, name string) *Error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return &Error{Class: ClassLockTimeout, Message: fmt.Sprintf("the wait for the lock on %s was given up: %v", name, context.Cause(ctx)), Retryable: true, cause: context.Cause(ctx)}
	}
	return &Error{
		Class:     ClassLockTimeout,
		Message:   fmt.Sprintf("another process held the lock on %s for more than %s", name, s.bounds.lockWait),
		Retryable: true,
		hint:      "look for a stopped process with `fuser " + name + "`; the lock goes away with it",
		cause:     context.DeadlineExceeded,
	}
}
