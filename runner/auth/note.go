package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// note is what one process leaves for the next in the lock file: without it,
// thirty jobs with one dead login ask the token endpoint thirty times.
type note struct {
	// Token is a digest of the refresh token that the rest is about.
	Token     string    `json:"token,omitempty"`
	Class     string    `json:"class,omitempty"`
	Message   string    `json:"message,omitempty"`
	Retryable bool      `json:"retryable,omitempty"`
	Until     time.Time `json:"until,omitzero"`
	// Unsent is the digest of a bundle that has not reached the write-back yet.
	// If auth.json holds another one, the debt is somebody else's.
	Unsent string `json:"writeback_pending,omitempty"`
}

// maxNote bounds the lock file, in bytes.
const maxNote = 64 << 10

// tokenDigest names a token without telling it.
func tokenDigest(s Secret) string {
	sum := sha256.Sum256([]byte(s.Reveal()))
	return hex.EncodeToString(sum[:8])
}

// readNote reads the note of the lock's holder. A torn or foreign one is empty:
// notes save requests, nothing depends on them.
func (l *lock) readNote() note {
	if l.beside == nil {
		return note{}
	}
	b, err := readAll(l.beside, maxNote)
	if err != nil {
		return note{}
	}
	return parseNote(b)
}

func parseNote(b []byte) note {
	var n note
	if json.Unmarshal(b, &n) != nil {
		return note{}
	}
	return n
}

// writeNote replaces the note.
func (l *lock) writeNote(n note) {
	if l.beside == nil {
		return
	}
	b, err := json.Marshal(n)
	if err != nil {
		return
	}
	if n == (note{}) {
		b = nil
	}
	// A note that cannot be written costs a request later; nothing else.
	if _, err := l.beside.WriteAt(b, 0); err == nil {
		_ = l.beside.Truncate(int64(len(b)))
	}
}

// failure returns the error that the note holds about token, if it is fresh.
func (n note) failure(token Secret, now time.Time) *Error {
	if n.Token != tokenDigest(token) || !now.Before(n.Until) || n.Class == "" {
		return nil
	}
	return &Error{
		Class:     n.Class,
		Message:   n.Message + " (another run on this machine was told so; not asked again before " + n.Until.UTC().Format(time.RFC3339) + ")",
		Retryable: n.Retryable,
		hint:      reseedUnless(n.Retryable),
	}
}

func reseedUnless(retryable bool) string {
	if retryable {
		return "the login itself may be good: run again later"
	}
	return reseedHint
}
