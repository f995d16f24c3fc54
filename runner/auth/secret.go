package auth

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted is what every way of printing a [Secret] gives.
const redacted = "[redacted]"

// Secret is a token or key that does not print. No verb of package fmt, no
// JSON encoder and no structured logger shows it, also when it is an unexported
// field of a struct: fmt calls no methods there, so the text hides behind a
// pointer. Only [Secret.Reveal] gives it.
//
// The zero value is the empty secret.
type Secret struct{ text *string }

// NewSecret hides text.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{&text}
}

// Reveal returns the text. Every call is a place to look at in review.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Empty tells whether there is no secret.
func (s Secret) Empty() bool { return s.text == nil }

// Equal compares the texts.
func (s Secret) Equal(t Secret) bool { return s.Reveal() == t.Reveal() }

// String hides the text.
func (s Secret) String() string { return redacted }

// Format hides the text whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) {
	// A formatter cannot report an error; the state never returns one.
	_, _ = io.WriteString(f, redacted)
}

// MarshalText hides the text from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue hides the text from log/slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
