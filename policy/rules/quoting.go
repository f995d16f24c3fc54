package rules

import "strings"

// unescapeQuoted resolves the backslashes of double quotes.
func unescapeQuoted(text string) string { return unescape(text, "$`\"\\") }

// unescape removes backslashes in front of the special bytes, and with the
// newline after them.
func unescape(text, special string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			switch next := text[i+1]; {
			case next == '\n':
				i++
				continue
			case strings.IndexByte(special, next) >= 0:
				i++
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// ansiC decodes the escapes of $'…'. A NUL ends the value, as in bash.
func ansiC(text string) string {
	var b strings.Builder
	simple := map[byte]byte{'a': 7, 'b': 8, 'e': 27, 'E': 27, 'f': 12, 'n': 10, 'r': 13, 't': 9, 'v': 11, '\\': '\\', '\'': '\'', '"': '"', '?': '?'}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 >= len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		c := text[i]
		var value rune
		var used int
		switch {
		case simple[c] != 0:
			b.WriteByte(simple[c])
			continue
		case c == 'x':
			value, used = number(text[i+1:], 16, 2)
			i += used
			value &= 0xff
		case c == 'u' || c == 'U':
			width := 4
			if c == 'U' {
				width = 8
			}
			value, used = number(text[i+1:], 16, width)
			i += used
			if used > 0 && value != 0 {
				b.WriteRune(value)
				continue
			}
		case c >= '0' && c <= '7':
			value, used = number(text[i:], 8, 3)
			i += used - 1
			value &= 0xff
		case c == 'c' && i+1 < len(text):
			i++
			value, used = rune(text[i]&0x1f), 1
		}
		switch {
		case used == 0:
			b.WriteByte('\\')
			b.WriteByte(c)
		case value == 0:
			return b.String()
		default:
			b.WriteByte(byte(value))
		}
	}
	return b.String()
}

func number(text string, base rune, width int) (value rune, used int) {
	for used < width && used < len(text) {
		var digit rune
		switch c := text[used]; {
		case c >= '0' && c <= '9':
			digit = rune(c - '0')
		case c >= 'a' && c <= 'f':
			digit = rune(c-'a') + 10
		case c >= 'A' && c <= 'F':
			digit = rune(c-'A') + 10
		default:
			digit = base
		}
		if digit >= base {
			break
		}
		value = value*base + digit
		used++
	}
	return value, used
}
