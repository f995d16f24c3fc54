package event

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// MinSecret is the length in bytes below which a secret is not masked: a
// shorter one is too likely to be part of ordinary text, and a log full of
// holes hides what happened while three known letters hide nothing.
const MinSecret = 6

// Redactor masks secrets in text, in encoded records and in streams. It is the
// [Masker] of a [Log].
//
// Covered is every secret as one piece of text, wherever it stands, in these
// forms and in combinations of the first two:
//
//   - as it is;
//   - escaped as in JSON, in any style ("\/", "\u0041", "\x41", octal as git
//     prints it, a backslash before any character as a shell does), up to three
//     times over, so also as a string inside JSON that is itself a string;
//   - percent-encoded as in URLs and forms, any characters, upper or lower
//     case, "+" for a blank, up to twice;
//   - in base64, standard or URL alphabet, padded or not, alone or in the midst
//     of other encoded data, wrapped into lines or not;
//   - in hexadecimal, upper or lower case, with or without separators.
//
// Of a secret with several lines each long line is masked too; of a URL with a
// password also the password; of a JSON document also the values whose name
// says key, token, secret, password or credential.
//
// Not covered are parts of a secret, other encodings (compression, encryption,
// a character to a line), and a secret that is spread over several records or
// over several strings of one record: consecutive deltas are not joined. Text
// that arrives in pieces belongs through [Redactor.Writer] before it becomes
// events, and before it is cut to a length: a cut secret is no longer found.
//
// All methods may be called from any goroutine. A secret is masked in what is
// handed in after Add has returned. A nil Redactor masks nothing.
type Redactor struct {
	mu      sync.Mutex
	secrets []secret        // guarded by mu
	known   map[string]bool // guarded by mu; their values
	short   []string        // guarded by mu; names of the secrets that were refused
	watch   func([]string)  // guarded by mu

	current atomic.Pointer[matcher] // nil after Add, until the next use
	scratch sync.Pool               // of *scratch
}

type secret struct{ name, value string }

// NewRedactor returns a redactor that knows no secret.
func NewRedactor() *Redactor { return &Redactor{} }

// Add makes r mask value; name is shown in its place, as "[masked:NAME]".
// White space around the value does not count. Add tells whether the secret
// will be masked: one below [MinSecret] bytes is refused, see
// [Redactor.Notices].
func (r *Redactor) Add(value, name string) bool {
	masked, fresh, watch := r.register(strings.TrimSpace(value), name)
	if watch != nil && len(fresh) > 0 {
		watch(fresh)
	}
	return masked
}

func (r *Redactor) register(value, name string) (masked bool, fresh []string, watch func([]string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(value) < MinSecret {
		if !slices.Contains(r.short, name) {
			r.short = append(r.short, name)
		}
		return false, nil, nil
	}
	old := len(r.secrets)
	r.add(value, name)
	r.current.Store(nil)
	return true, values(r.secrets[old:]), r.watch
}

// Watch makes f hear of every secret that is masked from now on, and at once of
// those that are known; of one with secrets in it, of these too. Whoever asks
// handles secrets in plain: f is for a reader that masks them in its turn.
func (r *Redactor) Watch(f func(secrets []string)) {
	r.mu.Lock()
	known := values(r.secrets)
	r.watch = f
	r.mu.Unlock()
	if len(known) > 0 {
		f(known)
	}
}

func values(list []secret) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, s.value)
	}
	return out
}

// Notices are about the secrets that are too short to be masked, by name.
func (r *Redactor) Notices() []Notice {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Notice
	for _, name := range r.short {
		list = append(list, Notice{
			Class:   "secret_too_short",
			Message: "the value of " + name + " is shorter than 6 bytes and is not masked in the output",
			Hint:    "use a longer secret, or keep the variable out of the job",
		})
	}
	return list
}

// add records value and the secrets inside it.
func (r *Redactor) add(value, name string) {
	if len(value) < MinSecret || r.known[value] {
		return
	}
	if r.known == nil {
		r.known = map[string]bool{}
	}
	r.known[value] = true
	r.secrets = append(r.secrets, secret{name, value})
	for _, part := range parts(value) {
		r.add(part, name)
	}
}

const (
	// minPart keeps the harmless lines of a key file or a JSON document readable.
	minPart = 16
	// maxParts bounds what is made of one secret; a key file has some fifty lines.
	maxParts = 1000
)

// parts finds the secrets within a secret.
func parts(value string) []string {
	switch value[0] {
	case '{', '[':
		var doc any
		if json.Unmarshal([]byte(value), &doc) == nil {
			return namedSecrets(doc, false)
		}
	}
	if strings.Contains(value, "\n") {
		var lines []string
		for line := range strings.Lines(value) {
			line = strings.TrimSpace(line)
			if len(line) >= minPart && !strings.HasPrefix(line, "-----") && len(lines) < maxParts {
				lines = append(lines, line)
			}
		}
		return lines
	}
	if strings.Contains(value, "@") {
		if u, err := url.Parse(value); err == nil && u.User != nil {
			if password, ok := u.User.Password(); ok {
				return []string{password}
			}
		}
	}
	return nil
}

// namedSecrets collects the strings of a JSON document that stand under a name
// of a secret.
func namedSecrets(doc any, named bool) []string {
	var found []string
	switch v := doc.(type) {
	case string:
		if v = strings.TrimSpace(v); named && len(v) >= minPart {
			found = append(found, v)
		}
	case []any:
		for _, e := range v {
			found = append(found, namedSecrets(e, named)...)
		}
	case map[string]any:
		for name, e := range v {
			found = append(found, namedSecrets(e, named || soundsSecret(name))...)
		}
	}
	return found
}

func soundsSecret(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"key", "token", "secret", "password", "credential", "auth"} {
		// "key_id" and "auth_uri" tell where, not what.
		if strings.Contains(name, word) && !strings.HasSuffix(name, "_id") && !strings.HasSuffix(name, "uri") && !strings.HasSuffix(name, "url") {
			return true
		}
	}
	return false
}

// matcher returns the index over all secrets, or nil if there is none. A nil
// Redactor knows none.
func (r *Redactor) matcher() *matcher {
	if r == nil {
		return nil
	}
	if m := r.current.Load(); m != nil {
		return m.orNil()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.current.Load()
	if m == nil {
		m = newMatcher(r.secrets)
		r.current.Store(m)
	}
	return m.orNil()
}

// Mask masks in plain text.
func (r *Redactor) Mask(text string) string {
	m := r.matcher()
	if m == nil || len(text) < MinSecret {
		return text
	}
	s := r.borrow()
	defer r.scratch.Put(s)
	s.text = append(s.text[:0], text...)
	spans := m.find(s.text, textEscapes, s)
	if len(spans) == 0 {
		return text
	}
	return string(m.replace(nil, s.text, 0, len(s.text), spans))
}

// MaskJSON masks in one encoded JSON value: in every string, in names of
// members, and in numbers. The result is valid JSON of the same shape; a line
// without a secret is returned as it is. A line that is not JSON comes back as
// one JSON string, masked.
//
// The vocabulary of this package (names of fields, kinds of events, …) is never
// masked, even if somebody's password is "completed".
func (r *Redactor) MaskJSON(line []byte) []byte {
	m := r.matcher()
	if m == nil {
		return line
	}
	s := r.borrow()
	defer r.scratch.Put(s)
	// One more level than in plain text: the strings of the line are escaped.
	if !m.contains(line, textEscapes+1, s) {
		return line
	}
	return maskJSON(m, line, s)
}

func (r *Redactor) borrow() *scratch {
	if s, ok := r.scratch.Get().(*scratch); ok {
		return s
	}
	return &scratch{}
}
