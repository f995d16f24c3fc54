package rollout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// The lock of a thread is the reference's own: an flock on
// CODEX_HOME/thread-writer-locks/ID.lock, made and removed while
// .coordination.lock is held, so that nobody locks a file that is being
// removed.
const (
	lockFolder       = "thread-writer-locks"
	coordination     = ".coordination.lock"
	defaultLockWait  = 2 * time.Second
	coordinationWait = 2 * time.Second // held for a few system calls only
	lockRetry        = 20 * time.Millisecond
)

// threadLock is a held lock.
type threadLock struct {
	dir  string
	file *flock.Flock
}

// lock takes the lock of a thread, waiting at most the store's bound.
func (s *Store) lock(ctx context.Context, id string) (*threadLock, error) {
	dir := filepath.Join(s.Home, lockFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	wait := s.LockWait
	if wait <= 0 {
		wait = defaultLockWait
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	l := &threadLock{dir: dir, file: newLock(filepath.Join(dir, id+".lock"))}
	for {
		ok, err := l.try(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, &BusyError{ID: id}
		}
		if err != nil {
			return nil, fmt.Errorf("lock of thread %s: %w", id, err)
		}
		if ok {
			return l, nil
		}
		select {
		case <-ctx.Done():
			return nil, &BusyError{ID: id}
		case <-time.After(lockRetry):
		}
	}
}

func newLock(path string) *flock.Flock {
	return flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
}

// try locks once. A file that its last holder removed in between does not
// count.
func (l *threadLock) try(ctx context.Context) (bool, error) {
	release, err := coordinate(ctx, l.dir)
	if err != nil {
		return false, err
	}
	defer release()
	sweepLocks(l.dir, l.file.Path())
	ok, err := l.file.TryLock()
	if err != nil || !ok {
		return false, err
	}
	held, err := l.file.Stat()
	if err == nil {
		var named fs.FileInfo
		if named, err = os.Stat(l.file.Path()); err == nil && os.SameFile(held, named) {
			return true, nil
		}
	}
	if e := l.file.Close(); e != nil {
		return false, e
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return false, nil
}

// maxSweptLocks bounds how many lock files one sweep looks at.
const maxSweptLocks = 64

// sweepLocks removes lock files that killed runners left, but for one. The
// caller holds the coordination lock, so nobody else makes or removes any. What
// cannot be removed does no harm.
func sweepLocks(dir, keep string) {
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer f.Close()
	names, _ := f.Readdirnames(maxSweptLocks) // those that could be read will do
	for _, name := range names {
		path := filepath.Join(dir, name)
		if name == coordination || path == keep || filepath.Ext(name) != ".lock" {
			continue
		}
		l := flock.New(path, flock.SetFlag(os.O_RDWR))
		if ok, err := l.TryLock(); err == nil && ok {
			_ = os.Remove(path)
		}
		_ = l.Close()
	}
}

// release removes the lock file and unlocks. Where the coordination lock
// cannot be had the file stays; that does no harm.
func (l *threadLock) release() error {
	ctx, cancel := context.WithTimeout(context.Background(), coordinationWait)
	defer cancel()
	if done, err := coordinate(ctx, l.dir); err == nil {
		defer done()
		if err := os.Remove(l.file.Path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(err, l.file.Close())
		}
	}
	return l.file.Close()
}

// coordinate takes the lock under which lock files are made and removed.
func coordinate(ctx context.Context, dir string) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, coordinationWait)
	defer cancel()
	c := newLock(filepath.Join(dir, coordination))
	if _, err := c.TryLockContext(ctx, lockRetry); err != nil {
		return nil, err
	}
	return func() { _ = c.Close() }, nil // closing a descriptor that was only locked cannot lose data
}
