package tool

import (
	"fmt"
	"strings"
	"unicode"
)

// displayCommand joins argv as the reference shows commands: each word in the
// fewest quotes that hold it.
func displayCommand(argv []string) string {
	words := make([]string, len(argv))
	for i, w := range argv {
		words[i] = displayWord(w)
	}
	return strings.Join(words, " ")
}

// displayWord cuts a word greedily: at each place the style that holds the
// longest run wins, bare before single before double quotes on a tie.
func displayWord(w string) string {
	if w == "" {
		return "''"
	}
	var b strings.Builder
	for w != "" {
		bare, single, double := runOf(w, bareByte), singleRun(w), runOf(w, doubleByte)
		switch {
		case bare >= single && bare >= double:
			b.WriteString(w[:bare])
			w = w[bare:]
		case single >= double:
			b.WriteString("'" + w[:single] + "'")
			w = w[single:]
		default:
			b.WriteByte('"')
			b.WriteString(strings.NewReplacer(`"`, `\"`, `\`, `\\`).Replace(w[:double]))
			b.WriteByte('"')
			w = w[double:]
		}
	}
	return b.String()
}

func bareByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("+-./:@]_", c) >= 0
}

func doubleByte(c byte) bool { return strings.IndexByte("`$!^", c) < 0 }

// singleRun is the run that single quotes hold: "^" only as its first byte.
func singleRun(w string) int {
	for i := 0; i < len(w); i++ {
		if c := w[i]; c == '\'' || c == '\\' || c == '^' && i > 0 {
			return i
		}
	}
	return len(w)
}

func runOf(w string, holds func(byte) bool) int {
	for i := 0; i < len(w); i++ {
		if !holds(w[i]) {
			return i
		}
	}
	return len(w)
}

// startFailure is the text for a command that was not started. The reference
// prints a nested debug form of its own types, and callers look for it.
func startFailure(message string) string {
	return "exec_command failed: CreateProcess { message: " + debugString("Rejected("+debugString(message)+")") + " }"
}

// debugString quotes as the reference's language prints strings for debugging.
func debugString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == 0:
			b.WriteString(`\0`)
		case !unicode.IsPrint(r) && r != ' ':
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
