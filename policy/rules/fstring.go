package rules

import (
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/syntax"
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
			literal, fields, bad := formatFields(src[at:end])
			if bad != "" {
				return "", &formatError{line, i - start + 1, bad}
			}
			if raw {
				out.WriteByte('r')
			}
			out.WriteString(literal)
			out.WriteString(".format(")
			for n, f := range fields {
				if n > 0 {
					out.WriteString(", ")
				}
				fmt.Fprintf(&out, "%s = %s", f.name, f.value)
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

// maxField bounds an expression in braces, for the parser is recursive.
const maxField = 1024

// field is what stands in braces of an f-string.
type field struct{ name, value string }

// formatFields turns the expressions in braces into names, each with its value.
// The literal keeps its text besides, and its number of lines together with the
// values: they stand behind it.
func formatFields(literal string) (text string, fields []field, bad string) {
	var out strings.Builder
	for i := 0; i < len(literal); {
		two := literal[i:min(i+2, len(literal))]
		switch {
		case two == "{{" || two == "}}":
			out.WriteString(two)
			i += 2
		case literal[i] == '}':
			return "", nil, "single } in f-string"
		case literal[i] != '{':
			out.WriteByte(literal[i])
			i++
		default:
			n := expressionEnd(literal[i+1:])
			if n < 0 {
				return "", nil, "{ without } in f-string"
			}
			value := strings.Trim(literal[i+1:i+1+n], " \t")
			if strings.TrimSpace(value) == "" {
				return "", nil, "empty {} in f-string"
			}
			f := field{value, value}
			if !isName(value) {
				if len(value) > maxField {
					return "", nil, fmt.Sprintf("f-string holds an expression of more than %d bytes", maxField)
				}
				if _, err := (&syntax.FileOptions{}).ParseExpr("", value, 0); err != nil || strings.ContainsAny(value, "#\\") {
					return "", nil, fmt.Sprintf("f-string holds %q: only names and expressions may stand in braces", value)
				}
				f.name = fmt.Sprintf("_%d", len(fields))
			}
			out.WriteString("{" + f.name + "}")
			if !slices.Contains(fields, f) {
				fields = append(fields, f)
			}
			i += n + 2
		}
	}
	return out.String(), fields, ""
}

// expressionEnd is the offset of the brace that ends an expression, or -1.
func expressionEnd(s string) int {
	depth := 0
	for i := 0; i < len(s); {
		switch s[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if s[i] == '}' && depth == 0 {
				return i
			}
			depth--
		case '"', '\'':
			end, closed := stringEnd(s, i)
			if !closed {
				return -1
			}
			i = end
			continue
		}
		i++
	}
	return -1
}

func isName(s string) bool {
	for i := range len(s) {
		if !isWordByte(s[i]) || i == 0 && s[0] >= '0' && s[0] <= '9' {
			return false
		}
	}
	return true
}
