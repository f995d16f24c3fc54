package rules

import (
	"fmt"
	"strings"
)

// formatError is a mistake in an f-string.
type formatError struct {
	line, column int
	message      string
}

// rewriteFormats turns f-strings, which the reference's dialect has and this
// Starlark has not, into calls of format: f"a {x}" becomes "a {x}".format(x=x).
// Lines keep their numbers.
func rewriteFormats(src string) (string, *formatError) {
	var out strings.Builder
	line, start := 1, 0 // start: offset of the current line
	for i := 0; i < len(src); {
		switch c := src[i]; {
		case c == '#':
			end := strings.IndexByte(src[i:], '\n')
			if end < 0 {
				end = len(src) - i
			}
			out.WriteString(src[i : i+end])
			i += end
		case c == '"' || c == '\'':
			end, _ := stringEnd(src, i)
			out.WriteString(src[i:end])
			line, start = advance(src, i, end, line, start)
			i = end
		case c == 'f' && !wordBefore(src, i) && formatQuote(src[i+1:]):
			at := i + 1
			raw := src[at] == 'r'
			if raw {
				at++
			}
			end, closed := stringEnd(src, at)
			if !closed {
				return "", &formatError{line, i - start + 1, "the f-string does not end"}
			}
			names, bad := formatNames(src[at:end])
			if bad != "" {
				return "", &formatError{line, i - start + 1, bad}
			}
			if raw {
				out.WriteByte('r')
			}
			out.WriteString(src[at:end])
			out.WriteString(".format(")
			for n, name := range names {
				if n > 0 {
					out.WriteString(", ")
				}
				fmt.Fprintf(&out, "%s = %s", name, name)
			}
			out.WriteByte(')')
			line, start = advance(src, i, end, line, start)
			i = end
		default:
			if c == '\n' {
				line, start = line+1, i+1
			}
			out.WriteByte(c)
			i++
		}
	}
	return out.String(), nil
}

func advance(src string, from, to, line, start int) (int, int) {
	for i := from; i < to; i++ {
		if src[i] == '\n' {
			line, start = line+1, i+1
		}
	}
	return line, start
}

func isWordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

func wordBefore(src string, i int) bool { return i > 0 && isWordByte(src[i-1]) }

func formatQuote(rest string) bool {
	rest = strings.TrimPrefix(rest, "r")
	return rest != "" && (rest[0] == '"' || rest[0] == '\'')
}

// stringEnd is the offset after the literal whose quote is at i. A backslash
// keeps the next byte inside, in raw literals too.
func stringEnd(src string, i int) (end int, closed bool) {
	quote := src[i : i+1]
	if strings.HasPrefix(src[i:], strings.Repeat(quote, 3)) {
		quote = strings.Repeat(quote, 3)
	}
	for at := i + len(quote); at < len(src); {
		switch {
		case src[at] == '\\' && at+1 < len(src):
			at += 2
		case strings.HasPrefix(src[at:], quote):
			return at + len(quote), true
		case src[at] == '\n' && len(quote) == 1:
			return at, false
		default:
			at++
		}
	}
	return len(src), false
}

// formatNames lists the names in braces, each once.
func formatNames(literal string) (names []string, bad string) {
	text := strings.ReplaceAll(strings.ReplaceAll(literal, "{{", ""), "}}", "")
	for {
		before, rest, found := strings.Cut(text, "{")
		if strings.Contains(before, "}") {
			return nil, "single } in f-string"
		}
		if !found {
			return names, ""
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return nil, "{ without } in f-string"
		}
		for i := range len(name) {
			if !isWordByte(name[i]) || i == 0 && name[0] >= '0' && name[0] <= '9' {
				return nil, fmt.Sprintf("f-string holds %q: only names may stand in braces", name)
			}
		}
		if name == "" {
			return nil, "empty {} in f-string"
		}
		if !containsString(names, name) {
			names = append(names, name)
		}
		text = after
	}
}

func containsString(list []string, s string) bool {
	for _, one := range list {
		if one == s {
			return true
		}
	}
	return false
}
