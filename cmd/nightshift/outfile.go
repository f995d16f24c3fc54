package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"

	"github.com/nightshift-ci/nightshift/sandbox"
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
	// seen is what was there, when it is written in place.
	seen fs.FileInfo
}

// placeOf finds out where path leads. Links are followed, so that a report
// behind a link replaces the file and not the link.
func placeOf(path string) (place, error) {
	path = filepath.Clean(path)
	fi, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if link, err := os.Lstat(path); err == nil && link.Mode()&fs.ModeSymlink != 0 {
			return place{}, errors.New("it is a link that leads to nothing")
		}
		if special(path) {
			return place{}, fs.ErrNotExist
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return place{}, errText(err)
		}
		return place{path: filepath.Join(dir, filepath.Base(path)), mode: 0o644}, nil
	}
	if err != nil {
		return place{}, errText(err)
	}
	if fi.IsDir() {
		return place{}, errors.New("it is a folder")
	}
	if special(path) {
		return place{path: path, direct: true, seen: fi}, nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return place{}, errText(err)
	}
	return place{path: real, mode: fi.Mode().Perm(), direct: special(real) || !fi.Mode().IsRegular(), seen: fi}, nil
}

// special tells whether path lies where the system keeps devices and open
// files: nothing is made or moved there.
func special(path string) bool {
	return strings.HasPrefix(path, "/dev/") || strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/sys/")
}

// outFiles are the output files of one run. The runner writes them, and the
// runner is not confined, while commands may move, link and replace whatever
// lies in the workspace. So each place is looked up before the run, and its
// folder is held open: nothing that is made there later leads a write elsewhere.
type outFiles struct {
	// tree is the work tree by the names that paths may use for it. A link in it
	// may come from whoever wrote the repository, so none leads out.
	tree   []string
	ending *ending // when a pipe that nobody reads is given up
	held   map[string]*heldPlace
	tried  []fs.FileInfo // folders that can be written
}

// heldPlace is a place and its folder.
type heldPlace struct {
	place
	root *os.Root // nil: neither made nor moved, see special
}

// hold looks path up, finds out whether it can be written, and changes nothing.
func (o *outFiles) hold(path string) error {
	if o.held[path] != nil {
		return nil
	}
	at, err := placeOf(path)
	if err != nil {
		return fmt.Errorf("it cannot be written: %w", err)
	}
	h := &heldPlace{place: at}
	if !special(at.path) {
		if o.inTree(path) && !o.inTree(at.path) {
			return fmt.Errorf("it is a link in the workspace that leads out of it, to %s; name that path instead", at.path)
		}
		if h.root, err = os.OpenRoot(filepath.Dir(at.path)); err != nil {
			return errText(err)
		}
		if err := o.try(h); err != nil {
			return errors.Join(errText(err), h.root.Close())
		}
		h.sweep()
	}
	if o.held == nil {
		o.held = map[string]*heldPlace{}
	}
	o.held[path] = h
	return nil
}

// try finds out whether the place's folder can be written, once for each folder.
func (o *outFiles) try(h *heldPlace) error {
	if h.direct {
		return nil
	}
	folder, err := h.root.Stat(".")
	if err != nil || slices.ContainsFunc(o.tried, func(f fs.FileInfo) bool { return os.SameFile(f, folder) }) {
		return err
	}
	if err := h.probe(); err != nil {
		return err
	}
	o.tried = append(o.tried, folder)
	return nil
}

func (o *outFiles) inTree(path string) bool {
	return slices.ContainsFunc(o.tree, func(top string) bool { return sandbox.Within(path, top) })
}

// own lists the files by their real paths.
func (o *outFiles) own() []string {
	var out []string
	for _, h := range o.held {
		if !h.direct {
			out = append(out, h.path)
		}
	}
	slices.Sort(out)
	return out
}

// release closes the folders.
func (o *outFiles) release() error {
	var errs []error
	for _, h := range o.held {
		if h.root != nil {
			errs = append(errs, h.root.Close())
		}
	}
	return errors.Join(errs...)
}

func (o *outFiles) find(path string) (*heldPlace, error) {
	h := o.held[path]
	if h == nil {
		return nil, fmt.Errorf("%s was not prepared before the run", path)
	}
	return h, h.still()
}

// create opens a report: it replaces path in one step when it is closed.
func (o *outFiles) create(path string) (io.WriteCloser, error) {
	h, err := o.find(path)
	if err != nil {
		return nil, err
	}
	if h.direct {
		return h.openDirect(o.ending)
	}
	p, err := h.pending()
	if err != nil {
		return nil, err
	}
	return p, nil
}

// live opens a log that can be followed while it grows and is there after a
// kill: it replaces path at once by an empty file, instead of truncating what a
// reader of the old one has open. Closing it fails when path is another file by
// then.
func (o *outFiles) live(path string) (io.WriteCloser, error) {
	h, err := o.find(path)
	if err != nil {
		return nil, err
	}
	if h.direct {
		return h.openDirect(o.ending)
	}
	p, err := h.pending()
	if err != nil {
		return nil, err
	}
	if err := h.root.Rename(filepath.Base(p.file.Name()), h.base()); err != nil {
		return nil, errors.Join(errText(err), p.Abort())
	}
	if err := p.lock.Close(); err != nil { // the log's own descriptor stays open
		return nil, errors.Join(err, p.file.File.Close())
	}
	return &liveLog{p.file.File, h.path}, nil
}

func (h *heldPlace) base() string { return filepath.Base(h.path) }

// probePrefix begins the names of files that only tried whether a folder can be
// written.
const probePrefix = ".nightshift-probe-"

func (h *heldPlace) probe() error {
	name := probePrefix + rand.Text()
	f, err := h.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_ = tryLock(f) // against sweeps
	err = h.root.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // the sweep of another run was here between the two steps above
	}
	return errors.Join(f.Close(), err)
}

// maxSwept bounds how many names of a folder a sweep looks at; leastSuffix is the
// length of the number after the name of an unfinished file.
const (
	maxSwept    = 10_000
	leastSuffix = 12
)

// sweep removes unfinished files that killed runs left beside this place. Those
// of runs that live are locked. What cannot be removed does no harm.
func (h *heldPlace) sweep() {
	dir, err := h.root.Open(".")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxSwept) // those that could be read will do
	for _, name := range names {
		rest, unfinished := strings.CutPrefix(name, "."+h.base())
		if !strings.HasPrefix(name, probePrefix) && (!unfinished || len(rest) < leastSuffix || strings.Trim(rest, "0123456789") != "") {
			continue
		}
		f, err := h.root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		if fi, err := f.Stat(); err == nil && fi.Mode().IsRegular() && tryLock(f) == nil {
			_ = h.root.Remove(name)
		}
		_ = f.Close()
	}
}

// still makes sure that the folder is where it was: a report in a folder that
// was moved away would not be the one that is read afterwards.
func (h *heldPlace) still() error {
	if h.root == nil {
		return nil
	}
	now, err := os.Stat(filepath.Dir(h.path))
	if err != nil {
		return errText(err)
	}
	was, err := h.root.Stat(".")
	if err != nil {
		return errText(err)
	}
	if !os.SameFile(now, was) {
		return fmt.Errorf("%s was moved or replaced while the run went on", filepath.Dir(h.path))
	}
	return nil
}

func (h *heldPlace) pending() (*pending, error) {
	for tries := 0; ; tries++ {
		p, err := renameio.NewPendingFile(h.base(), renameio.WithRoot(h.root), renameio.WithPermissions(h.mode))
		if err != nil {
			return nil, errText(err)
		}
		if claimed(p.File) || tries == maxClaims {
			// Closing the file comes before moving it; its lock has to last longer.
			fd, err := syscall.Dup(int(p.Fd()))
			if err != nil {
				return nil, errors.Join(os.NewSyscallError("dup", err), p.Cleanup())
			}
			syscall.CloseOnExec(fd)
			return &pending{file: p, path: h.path, lock: os.NewFile(uintptr(fd), p.Name())}, nil
		}
		_ = p.Cleanup() // the sweep took it, or will
	}
}

// maxClaims bounds how often a file is made again that a sweep has taken.
const maxClaims = 10

// claimed locks f, so that the sweeps of other runs leave it alone; false if one of
// them removed it before it was locked. Where the file system has no locks nothing
// is swept.
func claimed(f *os.File) bool {
	if errors.Is(tryLock(f), syscall.EWOULDBLOCK) {
		return false
	}
	fi, err := f.Stat()
	if err != nil {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return !ok || st.Nlink > 0
}

// openDirect opens what is there, if it is what was there before the run. A
// named pipe that nobody reads is an error at once: waiting for a reader could
// last for ever.
func (h *heldPlace) openDirect(end *ending) (io.WriteCloser, error) {
	const flags = os.O_WRONLY | os.O_APPEND | syscall.O_NONBLOCK
	if h.root == nil {
		f, err := os.OpenFile(h.path, flags, 0)
		if err != nil {
			return nil, err
		}
		return end.outlet(f), nil
	}
	f, err := h.root.OpenFile(h.base(), flags, 0)
	if err != nil {
		return nil, err
	}
	if fi, err := f.Stat(); err != nil || !os.SameFile(fi, h.seen) {
		return nil, errors.Join(fmt.Errorf("%s was replaced while the run went on", h.path), err, f.Close())
	}
	return end.outlet(f), nil
}

// createFile opens a report of a command that runs nothing: the place is looked
// up now.
func createFile(path string) (io.WriteCloser, error) {
	o := &outFiles{}
	if err := o.hold(path); err != nil {
		return nil, err
	}
	w, err := o.create(path)
	if p, ok := w.(*pending); ok {
		p.release = o.release
		return p, err
	}
	return w, errors.Join(err, o.release())
}

// pending is a file that appears when it is closed. If it could not be written
// whole, Close returns an error and the old file stays.
type pending struct {
	file    *renameio.PendingFile
	path    string
	lock    *os.File // the file again
	release func() error
	failed  error
}

// Write adds to the new file. Errors name the file that was asked for.
func (p *pending) Write(b []byte) (int, error) {
	n, err := p.file.Write(b)
	if err != nil {
		p.failed = atPath(err, p.path)
	}
	return n, p.failed
}

// Close replaces the old file.
func (p *pending) Close() error {
	if p.failed != nil {
		return errors.Join(p.failed, p.Abort())
	}
	err := atPath(p.file.CloseAtomicallyReplace(), p.path)
	if err != nil {
		err = errors.Join(err, p.file.Cleanup())
	}
	return p.end(err)
}

// Abort leaves the old file as it was.
func (p *pending) Abort() error { return p.end(p.file.Cleanup()) }

func (p *pending) end(err error) error {
	err = errors.Join(err, p.lock.Close())
	if p.release == nil {
		return err
	}
	return errors.Join(err, p.release())
}

// atPath is err with path in the place of the temporary name.
func atPath(err error, path string) error {
	var pe *os.PathError
	if !errors.As(err, &pe) {
		return err
	}
	return &os.PathError{Op: pe.Op, Path: path, Err: pe.Err}
}

// liveLog is a log that grows where it lies.
type liveLog struct {
	*os.File
	path string
}

// Write appends to the log. Errors name it as it was asked for.
func (l *liveLog) Write(b []byte) (int, error) {
	n, err := l.File.Write(b)
	return n, atPath(err, l.path)
}

// Close makes sure that the log is the file at its path.
func (l *liveLog) Close() error {
	mine, err := l.File.Stat()
	if err := errors.Join(err, l.File.Close()); err != nil {
		return err
	}
	now, err := os.Lstat(l.path)
	if err != nil {
		return fmt.Errorf("the log was removed while the run went on: %w", errText(err))
	}
	if !os.SameFile(mine, now) {
		return fmt.Errorf("%s was replaced while the run went on; it is not the log", l.path)
	}
	return nil
}

// appendFile opens a file of the CI service.
func appendFile(path string) (io.WriteCloser, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// appendable finds out whether appendFile would succeed. It makes no file.
func appendable(path string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(filepath.Dir(path))
		return err
	}
	if err != nil {
		return err
	}
	return f.Close()
}
