package patch

import (
	"regexp"
	"strings"
)

// FromShell takes the patch out of a script that does nothing but apply it:
//
//	apply_patch <<'EOF'
//	…
//	EOF
//
// optionally with variables set for it, with - as its argument, or after "cd DIR &&", with "applypatch" as another spelling and the
// end word bare or quoted. dir is DIR, "" without one. Any other script, however
// close, is not ok and is for the shell to run.
func FromShell(script string) (dir, patch string, ok bool) {
	s := strings.TrimLeft(script, " \t\n\r")
	if rest, cd := cutWord(s, "cd"); cd {
		if dir, rest, ok = folder(rest); !ok {
			return "", "", false
		}
		rest, ok = strings.CutPrefix(strings.TrimLeft(rest, " \t"), "&&")
		if !ok {
			return "", "", false
		}
		s = strings.TrimLeft(rest, " \t\n")
	}
	rest, found := cutWord(pastAssignments(s), "apply_patch")
	if !found {
		if rest, found = cutWord(pastAssignments(s), "applypatch"); !found {
			return "", "", false
		}
	}
	if stdin, dash := strings.CutPrefix(rest, "-"); dash {
		rest = strings.TrimLeft(stdin, " \t")
	}
	rest, found = strings.CutPrefix(rest, "<<")
	if !found {
		return "", "", false
	}
	rest, tabs := strings.CutPrefix(rest, "-")
	word, rest, found := endWord(strings.TrimLeft(rest, " \t"))
	if !found {
		return "", "", false
	}
	rest, found = strings.CutPrefix(strings.TrimLeft(rest, " \t\r"), "\n")
	if !found {
		return "", "", false
	}
	if tabs { // of the lines and of the end word
		rest = leadingTabs.ReplaceAllString(rest, "")
	}
	body, after, found := until(rest, word)
	if !found || strings.TrimSpace(after) != "" {
		return "", "", false
	}
	return dir, body, true
}

// leadingTabs are what "<<-" takes from each line.
var leadingTabs = regexp.MustCompile(`(?m)^\t+`)

// assignment is a variable set for one command, without anything to expand.
var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=[A-Za-z0-9/._:@%,+-]*[ \t]+`)

func pastAssignments(s string) string {
	for {
		at := assignment.FindString(s)
		if at == "" {
			return s
		}
		s = s[len(at):]
	}
}

// cutWord drops a leading command word and the blanks after it.
func cutWord(s, word string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(s, word)
	if !ok {
		return s, false
	}
	trimmed := strings.TrimLeft(rest, " \t")
	if trimmed == rest && !strings.HasPrefix(rest, "<<") {
		return s, false
	}
	return trimmed, true
}

// folder reads the argument of cd: one word in which nothing is expanded.
func folder(s string) (dir, rest string, ok bool) {
	if s == "" {
		return "", "", false
	}
	switch q := s[0]; q {
	case '\'', '"':
		dir, rest, ok = strings.Cut(s[1:], string(q))
		if !ok || q == '"' && strings.ContainsAny(dir, "$`\\!") {
			return "", "", false
		}
		if rest != "" && !strings.ContainsAny(rest[:1], " \t&") {
			return "", "", false // goes on as a longer word
		}
	default:
		end := strings.IndexFunc(s, func(r rune) bool { return !plainPathRune(r) })
		if end < 0 {
			return "", "", false
		}
		dir, rest = s[:end], s[end:]
		if !strings.ContainsAny(rest[:1], " \t&") {
			return "", "", false
		}
	}
	if dir == "" || dir[0] == '-' || strings.Contains(dir, "\n") {
		return "", "", false
	}
	return dir, rest, true
}

// plainPathRune tells whether a shell takes r as itself anywhere in a word.
func plainPathRune(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r > 0x7f:
		return true
	}
	return strings.ContainsRune("/._-+:@%,=", r)
}

// endWord reads the end word of a here-document.
func endWord(s string) (word, rest string, ok bool) {
	if s == "" {
		return "", "", false
	}
	switch s[0] {
	case '\'', '"':
		word, rest, ok = strings.Cut(s[1:], s[:1])
		return word, rest, ok && word != "" && !strings.ContainsAny(word, "\n\r\\$`\"'")
	case '\\':
		s = s[1:]
		fallthrough
	default:
		end := strings.IndexFunc(s, func(r rune) bool { return !nameRune(r) })
		if end < 0 {
			return "", "", false
		}
		word, rest, ok = s[:end], s[end:], true
	}
	// "<<-" is another operator, not a word.
	return word, rest, ok && word != "" && word[0] != '-' && strings.IndexFunc(word, func(r rune) bool { return !nameRune(r) }) < 0
}

func nameRune(r rune) bool {
	return r == '_' || r == '-' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// until cuts s at the line that is word.
func until(s, word string) (body, after string, ok bool) {
	for at := 0; at <= len(s); {
		line, _, more := strings.Cut(s[at:], "\n")
		if strings.TrimSuffix(line, "\r") == word {
			if more {
				after = s[at+len(line)+1:]
			}
			return s[:at], after, true
		}
		if !more {
			break
		}
		at += len(line) + 1
	}
	return "", "", false
}
