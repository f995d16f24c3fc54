package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// How a bundle was stored: values of event.AuthRefreshed.Persisted.
const (
	byRename   = "rename"
	inPlace    = "in_place"
	byRecovery = "recovery_file"
	byCommand  = "writeback"
	nowhere    = "none"
)

// slot is a place for a new auth.json that was shown to be writable, with the
// space for it taken, before anything is spent. The lock must be held from
// prepare to commit or abort.
//
// Three ways lead to a new auth.json:
//
//  1. rename: the copy beside it takes its name. Default.
//  2. in place, with the copy beside it until the write is done. Where a rename
//     cannot work or would break something: a bind-mounted file, hard links, an
//     owner that the new file could not have.
//  3. in place, with a journal at the end of the file itself. Where the folder
//     is read-only but the file is not, as in a container with a read-only root
//     and one mounted file.
//
// On each of them a kill at any instant leaves the old bundle or the new one
// for the next start (see recover.go).
type slot struct {
	s    *store
	snap *snapshot

	reserve     diskFile // nil: way 3
	reservePath string
	main        diskFile // nil: way 1
	padded      bool     // main was made longer with padding
}

// slack is how much longer than the old bundle a new one may be, in bytes,
// without leaving the reserved space.
const slack = 16 << 10

// padding fills reserved space in auth.json itself: white space, so that the
// file stays the same JSON for every reader.
const padding = '\t'

// prepare finds the way for the file as it is in snap and reserves the space.
func (s *store) prepare(snap *snapshot) (*slot, *Error) {
	if snap.traits.frozen {
		return nil, s.notWritable(snap.target, errFrozen)
	}
	size := len(snap.raw) + slack
	l := &slot{s: s, snap: snap}
	owned, err := l.reserveBeside(size)
	if err != nil && !errors.Is(err, unix.EROFS) && !errors.Is(err, fs.ErrPermission) {
		return nil, s.notWritable(snap.target, err)
	}
	if l.reserve != nil && owned && !s.renameBarred(snap) {
		return l, nil
	}
	if err := l.openMain(size); err != nil {
		l.abort()
		if l.reserve != nil && !owned {
			return nil, &Error{
				Class:   ClassWrongOwner,
				Message: fmt.Sprintf("%s belongs to uid %d and this process runs as uid %d: it could only be replaced by a file of another owner, so no refresh token was spent", snap.target, snap.traits.uid, os.Geteuid()),
				hint:    "run as the owner of auth.json, or give it a CODEX_HOME of its own",
				cause:   err,
			}
		}
		return nil, s.notWritable(snap.target, err)
	}
	return l, nil
}

// errFrozen is said of a file with chattr +i or +a.
var errFrozen = errors.New("it is marked immutable or append-only")

// renameBarred tells that a rename over the file fails, or would part it from
// its other names.
func (s *store) renameBarred(snap *snapshot) bool {
	if snap.traits.mountRoot || snap.traits.links > 1 {
		return true
	}
	dir, err := s.disk.Traits(filepath.Dir(snap.target))
	me := os.Geteuid()
	return err == nil && dir.sticky && me != 0 && me != dir.uid && me != snap.traits.uid
}

// reserveBeside makes the copy beside auth.json, filled with zeros. owned is
// false if the copy cannot have the owner of auth.json.
func (l *slot) reserveBeside(size int) (owned bool, err error) {
	path := l.snap.target + recoverySuffix + digest(l.snap.raw)
	if err := l.s.disk.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	f, err := l.s.disk.Open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return false, err
	}
	l.reserve, l.reservePath = f, path
	if _, err = f.WriteAt(make([]byte, size), 0); err == nil {
		err = f.Sync()
	}
	if err != nil {
		l.abort()
		l.reserve = nil
		return false, err
	}
	return l.takeOwner(), nil
}

// takeOwner gives the copy the owner of auth.json.
func (l *slot) takeOwner() bool {
	want := l.snap.traits
	have, err := l.s.disk.Traits(l.reservePath)
	if err != nil {
		return false
	}
	if have.uid == want.uid && have.gid == want.gid {
		return true
	}
	if l.reserve.Chown(want.uid, want.gid) == nil {
		return true
	}
	// Another group does not matter while the group has no rights.
	return have.uid == want.uid && want.mode&0o070 == 0
}

// openMain opens auth.json for writing and takes the space in it.
func (l *slot) openMain(size int) error {
	f, err := l.s.disk.Open(l.snap.target, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	l.main = f
	if l.reserve == nil {
		size = 2*size + len(journalMark) + 128
	}
	have := len(l.snap.raw)
	if have >= size {
		return nil
	}
	pad := make([]byte, size-have)
	for i := range pad {
		pad[i] = padding
	}
	l.padded = true
	if _, err = f.WriteAt(pad, int64(have)); err == nil {
		err = f.Sync()
	}
	return err
}

// abort undoes prepare; nothing was spent.
func (l *slot) abort() {
	// What cannot be undone here is harmless: the copy holds zeros and the
	// padding is white space; both go away with the next refresh.
	if l.main != nil {
		if l.padded {
			_ = l.main.Truncate(int64(len(l.snap.raw)))
		}
		_ = l.main.Close()
	}
	if l.reserve != nil {
		_ = l.reserve.Close()
		_ = l.s.disk.Remove(l.reservePath)
	}
}

// stored says where a bundle is.
type stored struct {
	how  string
	path string
	// err is why the bundle is not in auth.json itself (how is byRecovery or
	// nowhere), or, with the other ways, that a step after it failed which only
	// a power cut could make matter.
	err error
}

// commit stores text, which must be a bundle. It returns when text is on disk,
// or when every way to get it there has failed.
func (l *slot) commit(text []byte) stored {
	defer l.close()
	kept := l.writeReserve(text)
	if kept == nil && l.main == nil {
		err := l.s.disk.Rename(l.reservePath, l.snap.target)
		if err == nil {
			return stored{byRename, l.snap.target, l.s.disk.SyncDir(filepath.Dir(l.snap.target))}
		}
		// Not foreseen by prepare, so try the other way before giving up.
		if l.main, kept = l.reopenMain(err); l.main == nil {
			return stored{byRecovery, l.reservePath, kept}
		}
	}
	if l.main == nil {
		var err error
		if l.main, err = l.reopenMain(kept); l.main == nil {
			return stored{nowhere, "", err}
		}
	}
	if kept != nil || l.reserve == nil {
		if err := writeJournaled(l.main, len(l.snap.raw), text); err != nil {
			return stored{nowhere, "", err}
		}
		if l.reserve == nil {
			return stored{inPlace, l.snap.target, nil}
		}
		return stored{inPlace, l.snap.target, l.dropReserve()}
	}
	if err := overwriteTorn(l.main, text); err != nil {
		return stored{byRecovery, l.reservePath, err}
	}
	return stored{inPlace, l.snap.target, l.dropReserve()}
}

// writeReserve fills the copy beside auth.json; nil means that a kill can no
// longer lose the bundle, or that there is no copy on this way.
func (l *slot) writeReserve(text []byte) error {
	if l.reserve == nil {
		return nil
	}
	err := overwrite(l.reserve, text)
	if err == nil && l.main == nil && l.snap.traits.mode != 0o600 {
		// Tightening the mode is the user's decision; see Tighten.
		err = l.reserve.Chmod(l.snap.traits.mode)
	}
	if err == nil {
		err = l.s.disk.SyncDir(filepath.Dir(l.reservePath))
	}
	return err
}

// reopenMain opens auth.json for the second attempt; why is what went wrong in
// the first.
func (l *slot) reopenMain(why error) (diskFile, error) {
	f, err := l.s.disk.Open(l.snap.target, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(why, err)
	}
	return f, nil
}

func (l *slot) dropReserve() error {
	if err := l.s.disk.Remove(l.reservePath); err != nil {
		return err
	}
	return l.s.disk.SyncDir(filepath.Dir(l.reservePath))
}

func (l *slot) close() {
	for _, f := range []diskFile{l.main, l.reserve} {
		if f != nil {
			_ = f.Close() // everything that counts was synced
		}
	}
}

// overwrite replaces the content of a file that nobody reads yet, and waits
// until it is on disk.
func overwrite(f diskFile, text []byte) error {
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	if err := f.Truncate(int64(len(text))); err != nil {
		return err
	}
	return f.Sync()
}

// notWritable makes an error of a place that takes no new bundle.
func (s *store) notWritable(target string, err error) *Error {
	e := &Error{
		Class:   ClassNotWritable,
		Message: fmt.Sprintf("a refreshed login could not be stored in %s: %v; so no refresh token was spent", target, reason(err)),
		hint:    "make auth.json and its folder writable, or set auth.read_only_ok together with --auth-writeback if the new login is stored elsewhere",
		cause:   err,
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		e.hint = "free some space; a login needs a few thousand bytes"
		e.Retryable = true
	}
	return e
}
