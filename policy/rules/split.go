package rules

import (
	"errors"
	"strings"
)

// splitWords splits text as a shell splits a simple command: blanks separate,
// quotes and backslashes join. Nothing is expanded.
func splitWords(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord := false
	flush := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case ' ', '\t', '\n', '\r':
			flush()
		case '\'':
			end := strings.IndexByte(text[i+1:], '\'')
			if end < 0 {
				return nil, errors.New("a single quote is not closed")
			}
			word.WriteString(text[i+1 : i+1+end])
			i += end + 1
			inWord = true
		case '"':
			closed := false
			for i++; i < len(text); i++ {
				if text[i] == '"' {
					closed = true
					break
				}
				if text[i] == '\\' && i+1 < len(text) && strings.IndexByte("\\\"$`\n", text[i+1]) >= 0 {
					if i++; text[i] == '\n' {
						continue
					}
				}
				word.WriteByte(text[i])
			}
			if !closed {
				return nil, errors.New("a double quote is not closed")
			}
			inWord = true
		case '\\':
			if i+1 >= len(text) {
				return nil, errors.New("a backslash ends the text")
			}
			if i++; text[i] == '\n' {
				continue // a line goes on
			}
			word.WriteByte(text[i])
			inWord = true
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	flush()
	return words, nil
}
