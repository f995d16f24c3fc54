package auth

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// What [Import] did.
const (
	Imported  = "imported"  // there was no auth.json
	Replaced  = "replaced"  // there was one, and force was given
	Kept      = "kept"      // there is one; nothing was written
	Unchanged = "unchanged" // there is one with the same content
)

// Import seeds auth.json in home with bundle, only if it is missing; force
// replaces one that is there. A runner that keeps its disk has a newer login
// than the seed, so an auth.json that is there is normally the better one.
//
// An auth.json that is there and is no login is an error without force. Of
// several processes that import at once, one does.
func Import(ctx context.Context, home string, bundle []byte, force bool) (did string, err error) {
	return importBundle(ctx, osDisk{}, home, bundle, force)
}

func importBundle(ctx context.Context, d disk, home string, text []byte, force bool) (string, error) {
	if e := checkSeed(text); e != nil {
		return "", e
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return "", &Error{Class: ClassNotWritable, Message: fmt.Sprintf("%s cannot be made: %v", home, reason(err)), cause: err}
	}
	st := &store{path: filepath.Join(home, fileName), disk: d, bounds: bounds{}.orDefault()}
	l, e := st.lock(ctx)
	if e != nil {
		return "", e
	}
	defer l.release()
	snap, err := st.read()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := st.create(text); err != nil {
			return "", err
		}
		return Imported, nil
	case err != nil:
		return "", st.unreadable(err)
	case bytes.Equal(snap.raw, text):
		return Unchanged, nil
	case !force && snap.bad != nil:
		e := st.corrupt(snap.bad)
		e.hint = "give --force to replace it"
		return "", e
	case !force:
		return Kept, nil
	}
	slot, e := st.prepare(snap)
	if e != nil {
		return "", e
	}
	if at := slot.commit(text); at.how != byRename && at.how != inPlace {
		return "", &Error{Class: ClassNotStored, Message: fmt.Sprintf("%s could not be replaced: %v", st.path, reason(at.err)), cause: at.err}
	}
	l.writeNote(note{})
	return Replaced, nil
}

// checkSeed refuses what could not be used as auth.json.
func checkSeed(text []byte) *Error {
	b, err := parseBundle(text)
	if err == nil && b.mode == fileAgent {
		err = errors.New("holds an agent identity, which is not supported")
	}
	if err == nil {
		return nil
	}
	e := &Error{
		Class:   ClassCorrupt,
		Message: fmt.Sprintf("the login on stdin %v", err),
		hint:    "give the whole auth.json of a signed-in machine on stdin",
	}
	if plain, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(text))); err == nil {
		if _, err := parseBundle(plain); err == nil {
			e.hint = "it is base64; decode it first: `base64 -d | nightshift auth import`"
		}
	}
	return e
}

// create makes auth.json where there is none; the lock is held.
func (s *store) create(text []byte) error {
	target, err := s.disk.Resolve(s.path)
	if err != nil {
		return s.unreadable(err)
	}
	fresh := target + recoverySuffix + "new"
	if err := s.disk.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.notCreated(err)
	}
	f, err := s.disk.Open(fresh, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return s.notCreated(err)
	}
	err = errors.Join(overwrite(f, text), f.Close())
	if err == nil {
		err = s.disk.Rename(fresh, target)
	}
	if err != nil {
		_ = s.disk.Remove(fresh) // nothing that anybody waits for
		return s.notCreated(err)
	}
	if err := s.disk.SyncDir(filepath.Dir(target)); err != nil {
		return s.notCreated(err)
	}
	return nil
}

func (s *store) notCreated(err error) *Error {
	return &Error{
		Class:   ClassNotWritable,
		Message: fmt.Sprintf("%s could not be written: %v", s.path, reason(err)),
		hint:    "make the folder writable, or set CODEX_HOME to one that is",
		cause:   err,
	}
}
