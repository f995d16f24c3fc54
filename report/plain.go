package report

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Plain makes text from outside inert for terminals and CI logs: nothing in it
// is obeyed, nothing is hidden. What would act is shown as a \uXXXX escape:
//
//   - control characters (ANSI sequences, NUL, backspace), except newline and
//     tab; a carriage return ends the line, as CRLF or alone
//   - characters that reorder or hide text: bidirectional controls, zero-width
//     ones that are not joiners, line and paragraph separators
//   - "::" at the start of a line (GitHub Actions), "##[" and "##word[" anywhere
//     (GitHub, Azure Pipelines, TeamCity), "section_start:" and "section_end:"
//     (GitLab)
//   - bytes that are not UTF-8 become U+FFFD
//
// Plain of valid JSON is JSON of the same value, and Plain(Plain(s)) is
// Plain(s).
func Plain(s string) string {
	if isPlain(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	plainInto(&b, s)
	return b.String()
}

// isPlain is the fast path: ordinary ASCII without the characters that begin a
// command.
func isPlain(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= utf8.RuneSelf || c < ' ' && c != '\n' && c != '\t' || c == 0x7f || c == '#' || c == ':' {
			return false
		}
	}
	return true
}

func plainInto(b *strings.Builder, s string) {
	lineStart := true // only blanks so far in this line
	for i := 0; i < len(s); {
		if n := commandAt(s, i, lineStart); n > 0 {
			escapeRune(b, rune(s[i+n-1]), s[i:i+n-1])
			i += n
			lineStart = false
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\n':
			b.WriteByte('\n')
			lineStart = true
		case r == '\r':
			if i+1 >= len(s) || s[i+1] != '\n' {
				b.WriteByte('\n')
			}
			lineStart = true
		case r == utf8.RuneError && size == 1:
			b.WriteRune(utf8.RuneError)
			lineStart = false
		case r == '\t' || !acts(r):
			b.WriteString(s[i : i+size])
			lineStart = lineStart && (unicode.IsSpace(r) || unicode.Is(unicode.Cf, r))
		default:
			escapeRune(b, r, "")
			lineStart = false
		}
		i += size
	}
}

// commandAt returns how many bytes at s[i:] begin a workflow command, up to and
// including the one to escape; 0 if none does.
func commandAt(s string, i int, lineStart bool) int {
	switch s[i] {
	case ':':
		if lineStart && strings.HasPrefix(s[i:], "::") {
			return 1
		}
	case '#':
		if !strings.HasPrefix(s[i:], "##") {
			return 0
		}
		for j := i + 2; j < len(s); j++ {
			switch c := s[j]; {
			case c == '[':
				return 2
			case c == '#' || c|0x20 < 'a' || c|0x20 > 'z':
				return 0
			}
		}
	case 's', 'S':
		for _, w := range [...]string{"section_start:", "section_end:"} {
			if len(s)-i >= len(w) && strings.EqualFold(s[i:i+len(w)], w) {
				return len(w)
			}
		}
	}
	return 0
}

func acts(r rune) bool {
	if r < 0x20 || r >= 0x7f && r < 0xa0 {
		return true
	}
	switch {
	case r == 0x061c, r >= 0x200e && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f: // bidi, separators, invisible operators
		return true
	case r == 0x200b, r == 0xfeff, r == 0x00ad, r == 0x180e, r >= 0xfff0 && r <= 0xfffb: // invisible
		return true
	case r == 0x115f, r == 0x1160, r == 0x3164, r == 0xffa0: // fillers: letters that show nothing
		return true
	case r >= 0xe0000 && r <= 0xe0fff: // tags and more variation selectors: text that people do not see and models do
		return true
	}
	return false
}

const hexDigits = "0123456789abcdef"

func escapeRune(b *strings.Builder, r rune, before string) {
	b.WriteString(before)
	if r > 0xffff { // the JSON way: a surrogate pair
		r -= 0x10000
		escapeRune(b, 0xd800+(r>>10), "")
		escapeRune(b, 0xdc00+(r&0x3ff), "")
		return
	}
	b.WriteString(`\u`)
	for shift := 12; shift >= 0; shift -= 4 {
		b.WriteByte(hexDigits[(r>>shift)&0xf])
	}
}

// PlainLine is Plain for one line: newlines become spaces and the text is cut
// to max characters, with the number of those left out.
func PlainLine(s string, max int) string {
	if len(s) > 4*max+64 { // no need to look at the whole of a 10 MB line
		s = cut(s, 4*max)
	}
	s = strings.Join(strings.Fields(Plain(s)), " ")
	if utf8.RuneCountInString(s) <= max {
		return s
	}
	runes := []rune(s)
	return string(runes[:max]) + "… [" + strconv.Itoa(len(runes)-max) + " more]"
}
