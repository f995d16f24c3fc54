package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// A run keeps its private files in a folder that it removes at the end. One that
// is killed cannot, so every run holds a lock in its folder, and each new run
// removes the folders beside its own whose lock nobody holds.

const (
	scratchPrefix = "nightshift-"
	scratchLock   = ".lock"
)

// scratch is the private folder of one run.
type scratch struct {
	dir  string
	lock *os.File
}

// newScratch makes a folder in parent, a real path. A fixed name is used if it
// is free: nothing waits for one.
func newScratch(parent, fixed string) (*scratch, error) {
	dir := filepath.Join(parent, scratchPrefix+fixed)
	if fixed == "" || os.Mkdir(dir, 0o700) != nil {
		var err error
		if dir, err = os.MkdirTemp(parent, scratchPrefix); err != nil {
			return nil, err
		}
	}
	var err error
	s := &scratch{dir: dir}
	if s.lock, err = lockFile(filepath.Join(dir, scratchLock)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// lockFile makes a locked file. It gets its name when it is locked: a sweep
// never sees an unlocked one of a run that lives.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(tryLock(f), os.Rename(f.Name(), path)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func tryLock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// remove deletes the folder. What cannot be deleted is reported on stderr: it is
// no reason to fail a run that is over.
func (s *scratch) remove() {
	removeAll(s.dir)
	_ = s.lock.Close() // only a lock
}

// sweepScratch removes what killed runs of this user left in parent, until ctx
// ends; the next run goes on then. Errors are left to that one, too.
func sweepScratch(ctx context.Context, parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return
		}
		if e.IsDir() && strings.HasPrefix(e.Name(), scratchPrefix) {
			_ = sweepOne(ctx, filepath.Join(parent, e.Name()))
		}
	}
}

func sweepOne(ctx context.Context, dir string) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() || fi.Mode().Perm()&0o077 != 0 {
		return nil // somebody else's, or not one of ours
	}
	path := filepath.Join(dir, scratchLock)
	lock, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := tryLock(lock); err != nil {
		return err // its run lives
	}
	// The lock goes last: what is left without one is never swept.
	if err := removeUntil(ctx, dir, scratchLock); err != nil {
		return err
	}
	return errors.Join(os.Remove(path), os.Remove(dir))
}

// removeUntil empties dir, but for one name, until ctx ends.
func removeUntil(ctx context.Context, dir, keep string) error {
	if err := os.Chmod(dir, 0o700); err != nil { // tools make read-only folders
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return fmt.Errorf("removing %s: %w", dir, context.Cause(ctx))
		}
		if e.Name() == keep {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			if err := removeUntil(ctx, path, ""); err != nil {
				return err
			}
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// removeAll removes a private folder. What is left behind is no reason to fail.
func removeAll(dir string) {
	if err := sandbox.RemoveTree(dir); err != nil {
		fmt.Fprintf(os.Stderr, "notice: %s could not be removed: %v\n", dir, err)
	}
}
