package rules

import (
	"slices"
	"strings"
	"testing"
)

// FuzzSplitWords: words that are quoted come back as they were.
func FuzzSplitWords(f *testing.F) {
	for _, s := range []string{"", "a b", `a "b c" 'd e'`, `\`, `'`, `"`, `"\"`, "a\\\nb", "a\tb\r\nc", `""`, `a''b`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		words, err := splitWords(text)
		if err != nil {
			return
		}
		var quoted []string
		for _, w := range words {
			quoted = append(quoted, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
		}
		if again, err := splitWords(strings.Join(quoted, " ")); err != nil || !slices.Equal(again, words) {
			t.Errorf("%q is %q, then %q (%v)", text, words, again, err)
		}
	})
}
