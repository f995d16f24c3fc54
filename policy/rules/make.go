package rules

import (
	"slices"
	"strings"
)

// makeValues are options of make with a value in the next word.
var makeValues = []string{
	"-C", "--directory", "-f", "--file", "--makefile", "-I", "--include-dir", "-o", "--old-file", "--assume-old", "-W",
	"--what-if", "--new-file", "--assume-new", "-E", "--eval",
}

// make runs each of its targets: options before a target do not hide it, and
// neither do other targets.
func (u *unwrapper) make(words []word, k kind) {
	for i := 1; i < len(words); i++ {
		w := words[i]
		switch {
		case !w.known && !w.many && (strings.HasPrefix(w.head, "-") || strings.Contains(w.head, "=")):
		case !w.known:
			u.derive([]word{fixedWord(words[0].base()), w}, k)
		case slices.Contains(makeValues, w.text):
			i++
		case strings.HasPrefix(w.text, "-") && w.text != "-", strings.Contains(w.text, "="):
		default:
			u.derive([]word{fixedWord(words[0].base()), w}, k)
		}
	}
}
