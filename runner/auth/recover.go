package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// journalMark begins what stands between the old bundle and the new one in a
// file that is written with a journal.
const journalMark = `{"nightshift_journal":`

// journal is the rest of that line.
type journal struct {
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// writeJournaled overwrites the file in place so that a kill at any instant
// leaves a complete bundle in it: the new text is appended first, with its
// length and hash, and only then written over the old one.
func writeJournaled(f diskFile, old int, text []byte) error {
	sum := sha256.Sum256(text)
	line, err := json.Marshal(journal{len(text), hex.EncodeToString(sum[:])})
	if err != nil {
		return err
	}
	entry := []byte(journalMark + string(line) + "}\n")
	entry = append(entry, text...)
	at := max(old, len(text))
	if _, err := f.WriteAt(entry, int64(at)); err != nil {
		return err
	}
	if err := f.Truncate(int64(at + len(entry))); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return overwriteTorn(f, text)
}

// overwriteTorn replaces the content of auth.json in place. From its first step
// to its last the file begins with a byte that no JSON text begins with: half
// of a new bundle and half of an old one may well be valid JSON together, and
// nobody must take that for a login.
func overwriteTorn(f diskFile, text []byte) error {
	if _, err := f.WriteAt([]byte{tornMark}, 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if _, err := f.WriteAt(text[1:], 1); err != nil {
		return err
	}
	// The end goes last, since a journal may stand there.
	if err := f.Sync(); err != nil {
		return err
	}
	if _, err := f.WriteAt(text[:1], 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Truncate(int64(len(text))); err != nil {
		return err
	}
	return f.Sync()
}

// tornMark is the first byte of an auth.json that is being written in place.
const tornMark = '#'

// readJournal returns the bundle that an interrupted writeJournaled left: the
// new text if its entry is complete, else the untouched old one; nil if raw
// does not look like one.
func readJournal(raw []byte) []byte {
	if i := bytes.LastIndex(raw, []byte(journalMark)); i >= 0 {
		rest := raw[i+len(journalMark):]
		var j journal
		dec := json.NewDecoder(bytes.NewReader(rest))
		if dec.Decode(&j) == nil {
			text := rest[dec.InputOffset():]
			text, ok := bytes.CutPrefix(text, []byte("}\n"))
			if ok && j.Bytes > 0 && j.Bytes <= len(text) {
				text = text[:j.Bytes]
				if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) == j.SHA256 {
					return text
				}
			}
		}
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	var first json.RawMessage
	if dec.Decode(&first) != nil {
		return nil
	}
	rest := strings.TrimLeft(string(raw[dec.InputOffset():]), " \t\r\n")
	head, _, _ := strings.Cut(rest, "\n")
	head = strings.TrimRight(head, " \t")
	if strings.HasPrefix(head, journalMark) || (head != "" && strings.HasPrefix(journalMark, head)) {
		return bytes.TrimRight(raw[:len(raw)-len(rest)], string(rune(padding)))
	}
	return nil
}

// settle reads auth.json and finishes what an interrupted write left. A missing
// file is fs.ErrNotExist wrapped in an *Error of class missing.
func (s *store) settle(ctx context.Context) (*snapshot, []event.Notice, *Error) {
	snap, err := s.read()
	if err != nil {
		return nil, nil, s.unreadable(err)
	}
	if !s.unsettled(snap) {
		return snap, nil, nil
	}
	l, e := s.lock(ctx)
	if e != nil {
		if snap.bundle != nil {
			return snap, []event.Notice{{Class: "auth_unsettled", Message: "a recovery copy beside " + snap.target + " could not be looked at: " + e.Message, Hint: e.hint}}, nil
		}
		return nil, nil, e
	}
	defer l.release()
	return s.settleLocked()
}

// unsettled tells whether there may be something to finish.
func (s *store) unsettled(snap *snapshot) bool {
	if snap.bad != nil {
		return true
	}
	found, _, err := s.recoveries(snap.target)
	if err != nil {
		return false // a folder that cannot be listed holds no copy of ours
	}
	want := digest(snap.raw)
	for _, r := range found {
		if r.replaces == want || bytes.Equal(trimPadding(r.bundle.raw), trimPadding(snap.raw)) {
			return true
		}
	}
	return false
}

// settleLocked finishes an interrupted write; the lock must be held.
func (s *store) settleLocked() (*snapshot, []event.Notice, *Error) {
	snap, err := s.read()
	if err != nil {
		return nil, nil, s.unreadable(err)
	}
	found, junk, err := s.recoveries(snap.target)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return nil, nil, s.unreadable(err)
	}
	for _, path := range junk {
		_ = s.disk.Remove(path) // zeros; the next refresh tries again
	}
	if pick := pickRecovery(snap, found); pick != nil {
		return s.finish(snap, *pick)
	}
	if snap.bad != nil {
		if text := readJournal(snap.raw); text != nil {
			if b, err := parseBundle(text); err == nil {
				return s.finish(snap, recovery{bundle: b})
			}
		}
		return nil, nil, s.corrupt(snap.bad)
	}
	var notices []event.Notice
	for _, r := range found {
		if bytes.Equal(trimPadding(r.bundle.raw), trimPadding(snap.raw)) {
			_ = s.disk.Remove(r.path) // a second copy of what is stored
			continue
		}
		notices = append(notices, event.Notice{
			Class: "auth_recovery_copy", Origin: r.path,
			Message: fmt.Sprintf("%s holds another login than auth.json and is not used", r.path),
			Hint:    "remove it if auth.json works; it was kept because it may be the only copy of a newer login",
		})
	}
	return snap, notices, nil
}

// pickRecovery chooses the copy that continues snap: the one made from it, or
// the newest where auth.json was torn in the middle of being written.
func pickRecovery(snap *snapshot, found []recovery) *recovery {
	want := digest(snap.raw)
	var newest *recovery
	if len(trimPadding(snap.raw)) == 0 {
		return nil // emptied by somebody: no write of ours leaves that
	}
	for i, r := range found {
		if r.replaces == want && !bytes.Equal(trimPadding(r.bundle.raw), trimPadding(snap.raw)) {
			return &found[i]
		}
		if snap.bad != nil && (newest == nil || r.bundle.lastRefresh.After(newest.bundle.lastRefresh)) {
			newest = &found[i]
		}
	}
	return newest
}

// finish makes the recovered bundle auth.json. If that is impossible it is used
// all the same, and stays where it is.
func (s *store) finish(snap *snapshot, r recovery) (*snapshot, []event.Notice, *Error) {
	text := r.bundle.raw
	err := s.install(snap, r, text)
	from := r.path
	if from == "" {
		from = "its own journal"
	}
	n := event.Notice{
		Class: "auth_recovered", Origin: snap.target,
		Message: fmt.Sprintf("%s was completed from %s: an earlier run was stopped while it stored a refreshed login", snap.target, from),
	}
	if err != nil {
		n.Message = fmt.Sprintf("the login is read from %s: an earlier run was stopped while it stored it, and it cannot be moved to %s now (%v)", from, snap.target, reason(err))
	}
	after, readErr := s.read()
	if readErr != nil || err != nil || after.bundle == nil {
		after = &snapshot{target: snap.target, raw: text, traits: snap.traits, bundle: r.bundle}
	}
	return after, []event.Notice{n}, nil
}

func (s *store) install(snap *snapshot, r recovery, text []byte) error {
	if r.path != "" && !s.renameBarred(snap) && s.sameOwner(snap, r.path) {
		if err := s.finishCopy(snap, r.path, text); err != nil {
			return err
		}
		return errors.Join(s.disk.Rename(r.path, snap.target), s.disk.SyncDir(filepath.Dir(snap.target)))
	}
	f, err := s.disk.Open(snap.target, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if bytes.HasPrefix(snap.raw, text) { // the old bundle, never touched
		return errors.Join(f.Truncate(int64(len(text))), f.Sync())
	}
	if err := overwriteTorn(f, text); err != nil || r.path == "" {
		return err
	}
	if err := s.disk.Remove(r.path); err != nil {
		return err
	}
	return s.disk.SyncDir(filepath.Dir(snap.target))
}

// sameOwner tells whether a rename of the copy keeps the owner of auth.json.
func (s *store) sameOwner(snap *snapshot, path string) bool {
	t, err := s.disk.Traits(path)
	return err == nil && t.uid == snap.traits.uid
}

// finishCopy drops the reserved space that was not used yet from the copy, and
// gives it the mode of auth.json.
func (s *store) finishCopy(snap *snapshot, path string, text []byte) error {
	f, err := s.disk.Open(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(int64(len(text))); err != nil {
		return err
	}
	if err := f.Chmod(snap.traits.mode); err != nil {
		return err
	}
	return f.Sync()
}
