package auth

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Values of auth_mode, case-sensitive.
const (
	fileAPIKey   = "apikey"
	fileChatGPT  = "chatgpt"
	fileExternal = "chatgptAuthTokens"
	fileAgent    = "agentIdentity"
	filePersonal = "personalAccessToken"
)

// bundle is what auth.json says. It is immutable.
type bundle struct {
	raw  []byte
	mode string // one of the constants above

	apiKey, personal         Secret
	idToken, access, refresh Secret
	account                  string    // account_id, else the claim of the id token
	fedRAMP                  bool      // the claim of the id token
	lastRefresh              time.Time // zero: not said
	spare                    string    // another credential in the file that lost
}

// parseBundle reads auth.json strictly. The error is the second half of a
// sentence that begins with the file's name; it never quotes the file.
func parseBundle(raw []byte) (*bundle, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, errors.New("is empty")
	}
	if bytes.HasPrefix(raw, []byte("\xef\xbb\xbf")) {
		return nil, errors.New("begins with a byte order mark; store it without one")
	}
	top, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	r := fieldReader{text: raw}
	b := &bundle{raw: raw}
	b.mode = r.str(top, "", "auth_mode")
	b.apiKey = NewSecret(strings.TrimSpace(r.str(top, "", "OPENAI_API_KEY")))
	b.personal = NewSecret(strings.TrimSpace(r.str(top, "", "personal_access_token")))
	last := r.str(top, "", "last_refresh")
	if tokens, ok := r.object(top, "tokens"); ok {
		b.idToken = NewSecret(r.str(tokens, "tokens.", "id_token"))
		b.access = NewSecret(r.str(tokens, "tokens.", "access_token"))
		b.refresh = NewSecret(r.str(tokens, "tokens.", "refresh_token"))
		b.account = r.str(tokens, "tokens.", "account_id")
	}
	if r.err != nil {
		return nil, r.err
	}
	if b.mode == "" {
		b.mode = impliedMode(b)
	}
	if last != "" {
		if b.lastRefresh, err = time.Parse(time.RFC3339, last); err != nil {
			return nil, errors.New("has a last_refresh that is not an RFC 3339 time")
		}
	}
	return b, b.check()
}

// impliedMode is the mode of a file without auth_mode.
func impliedMode(b *bundle) string {
	switch {
	case !b.apiKey.Empty():
		return fileAPIKey
	case !b.personal.Empty():
		return filePersonal
	}
	return fileChatGPT
}

// check tells what is missing for the mode. It establishes that the mode's
// credential is there and fits into an HTTP header.
func (b *bundle) check() error {
	var want []struct {
		name  string
		value Secret
	}
	need := func(name string, value Secret) {
		want = append(want, struct {
			name  string
			value Secret
		}{name, value})
	}
	switch b.mode {
	case fileAPIKey:
		need("OPENAI_API_KEY", b.apiKey)
		if !b.access.Empty() {
			b.spare = "the ChatGPT tokens of auth.json"
		}
	case filePersonal:
		need("personal_access_token", b.personal)
	case fileChatGPT, fileExternal:
		need("tokens.access_token", b.access)
		need("tokens.id_token", b.idToken)
		if !b.apiKey.Empty() {
			b.spare = "the OPENAI_API_KEY of auth.json"
		}
	case fileAgent:
		return nil // refused by the caller, with its own class
	default:
		// The value is not quoted: it may be a token in the wrong place.
		return errors.New("has an auth_mode that does not exist")
	}
	for _, w := range want {
		if w.value.Empty() {
			return fmt.Errorf("has no %s, which a login of mode %s needs", w.name, b.mode)
		}
		if !headerSafe(w.value) {
			return fmt.Errorf("has a %s with characters that a token cannot have", w.name)
		}
	}
	if b.mode != fileChatGPT && b.mode != fileExternal {
		return nil
	}
	id, ok := readJWT(b.idToken)
	if !ok {
		return errors.New("has a tokens.id_token that is not a JSON web token")
	}
	if b.fedRAMP = id.fedRAMP; b.account == "" {
		b.account = id.account
	}
	switch {
	case b.account == "":
		return errors.New("has no tokens.account_id, and its id token names no account either")
	case !headerSafe(NewSecret(b.account)):
		return errors.New("has a tokens.account_id with characters that an account id cannot have")
	case b.mode == fileChatGPT && b.lastRefresh.IsZero():
		return errors.New("has no last_refresh, which a login of mode chatgpt needs")
	}
	return nil
}

// accounts are the ids this login answers to: the field and the claims of both
// tokens, which should be the same.
func (b *bundle) accounts() []string {
	list := []string{b.account}
	for _, t := range []Secret{b.idToken, b.access} {
		if is, _ := readJWT(t); is.account != "" && !slices.Contains(list, is.account) {
			list = append(list, is.account)
		}
	}
	return list
}

// user is the id of the person whose login this is, "" if no token names it.
func (b *bundle) user() string {
	id, _ := readJWT(b.idToken)
	access, _ := readJWT(b.access)
	return cmp.Or(id.user, access.user)
}

// renewed is an answer of the token endpoint; empty secrets were not sent.
type renewed struct{ idToken, access, refresh Secret }

// with returns the text of auth.json with the new tokens and time in it, all
// other bytes as they were.
func (b *bundle) with(n renewed, now time.Time) ([]byte, error) {
	raw := dropReserved(b.raw)
	top, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	r := fieldReader{text: raw}
	tokens, ok := r.object(top, "tokens")
	if !ok {
		return nil, errors.Join(r.err, errors.New("has no tokens"))
	}
	var edits []edit
	for _, e := range []struct {
		key   string
		value Secret
	}{{"id_token", n.idToken}, {"access_token", n.access}, {"refresh_token", n.refresh}} {
		if !e.value.Empty() {
			edits = append(edits, edit{tokens, e.key, quote(e.value.Reveal())})
		}
	}
	if !n.access.Empty() {
		edits = append(edits, edit{top, "last_refresh", quote(now.UTC().Format(time.RFC3339Nano))})
	}
	return applyEdits(raw, edits)
}

// dropReserved drops the padding that an interrupted refresh left at the end;
// nobody else ends a file with so many tabs.
func dropReserved(raw []byte) []byte {
	text := bytes.TrimRight(raw, string(rune(padding)))
	if len(raw)-len(text) < 64 {
		return raw
	}
	return text
}

// digest names a bundle in file names and notes. It is taken over the text
// without trailing padding, and says nothing about the tokens.
func digest(raw []byte) string {
	sum := sha256.Sum256(trimPadding(raw))
	return hex.EncodeToString(sum[:8])
}

// trimPadding drops what a reserved but not yet written file ends with.
func trimPadding(raw []byte) []byte { return bytes.TrimRight(raw, " \t\r\n\x00") }

// headerSafe tells whether s can stand in a header: visible ASCII only.
func headerSafe(s Secret) bool {
	for _, c := range []byte(s.Reveal()) {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// fieldReader reads strings out of an object and keeps the first error.
type fieldReader struct {
	text []byte
	err  error
}

// str returns a string member; absent and null give "".
func (r *fieldReader) str(o object, prefix, key string) string {
	m, ok, err := o.find(key)
	if err != nil {
		r.fail(err)
		return ""
	}
	if !ok || string(r.text[m.valAt:m.valEnd]) == "null" {
		return ""
	}
	var s string
	if json.Unmarshal(r.text[m.valAt:m.valEnd], &s) != nil {
		r.fail(fmt.Errorf("has a %s%s that is not a string", prefix, key))
	}
	return s
}

// object returns an object member; absent and null give false.
func (r *fieldReader) object(o object, key string) (object, bool) {
	m, ok, err := o.find(key)
	switch {
	case err != nil:
		r.fail(err)
		return object{}, false
	case !ok || string(r.text[m.valAt:m.valEnd]) == "null":
		return object{}, false
	case r.text[m.valAt] != '{':
		r.fail(fmt.Errorf("has a %s that is not an object", key))
		return object{}, false
	}
	return scanObject(r.text, m.valAt), true
}

func (r *fieldReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}
