//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

// A protected name that does not exist must not be creatable. One cannot mount
// on nothing, so the runner makes an empty folder there, which the init covers.
//
// Removing the folder on the host also removes every mount on it, in every
// namespace, without a word. So each sandbox that uses it holds a shared lock on
// the folder itself, and it is removed only by who gets an exclusive one: that
// works across processes and after a crash, and what a killed runner left behind
// is taken over by the next.

// placeholders are the ones held by a sandbox.
type placeholders struct{ held []placeholder }

type placeholder struct {
	path string
	dir  *os.File
}

// hold makes or joins the placeholders. What is there by now and is none is
// returned as found: it must be protected instead.
func (ps *placeholders) hold(paths []string) (held, found []string, err error) {
	for _, p := range paths {
		f, isPlaceholder, err := holdOne(p)
		switch {
		case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EPERM):
			continue // not even the runner can create it
		case err != nil:
			return held, found, fmt.Errorf("sandbox: reserving %s: %w", p, err)
		case !isPlaceholder:
			found = append(found, p)
			continue
		}
		ps.held = append(ps.held, placeholder{p, f})
		held = append(held, p)
	}
	return held, found, nil
}

// holdTries bounds the race with runners that remove theirs.
const holdTries = 100

func holdOne(p string) (f *os.File, isPlaceholder bool, err error) {
	for range holdTries {
		if err := os.Mkdir(p, confine.PlaceholderMode); err == nil {
			// The umask may have taken bits away.
			if err := os.Chmod(p, confine.PlaceholderMode); err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, false, err
			}
		} else if !errors.Is(err, os.ErrExist) {
			return nil, false, err
		}
		f, err := os.OpenFile(p, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue // removed between
		case errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
			return nil, false, nil
		case err != nil:
			return nil, false, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
			// Somebody is just removing it.
			if cerr := f.Close(); cerr != nil {
				return nil, false, cerr
			}
			continue
		}
		same, empty := stillAt(f, p), isPlaceholderFolder(f)
		if same && empty {
			return f, true, nil
		}
		if err := f.Close(); err != nil {
			return nil, false, err
		}
		if same {
			return nil, false, nil // a real folder by now
		}
	}
	return nil, false, errors.New("other runners keep removing it")
}

// stillAt tells whether the open folder is the one at p.
func stillAt(f *os.File, p string) bool {
	a, err1 := f.Stat()
	b, err2 := os.Lstat(p)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

func isPlaceholderFolder(f *os.File) bool {
	fi, err := f.Stat()
	if err != nil || fi.Mode().Perm() != confine.PlaceholderMode {
		return false
	}
	names, err := f.Readdirnames(1)
	if _, serr := f.Seek(0, 0); serr != nil {
		return false
	}
	return len(names) == 0 && err != nil
}

// leftBehind tells whether an existing path is a placeholder of a runner that
// was killed, or of one that runs now.
func leftBehind(p string) bool {
	f, err := os.OpenFile(p, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return isPlaceholderFolder(f)
}

// release removes the placeholders that nobody else uses.
func (ps *placeholders) release() error {
	var errs []error
	for _, h := range ps.held {
		// Upgrading the lock fails while others hold theirs: the last one removes.
		if unix.Flock(int(h.dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && stillAt(h.dir, h.path) {
			if err := unix.Rmdir(h.path); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTEMPTY) {
				errs = append(errs, fmt.Errorf("sandbox: removing %s: %w", filepath.Base(h.path), err))
			}
		}
		errs = append(errs, h.dir.Close())
	}
	ps.held = nil
	return errors.Join(errs...)
}
