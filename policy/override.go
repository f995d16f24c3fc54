package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ParseOverride reads the argument of -c: key=value. The error is an [*Error] of
// KindUsage.
func ParseOverride(text string) (Override, error) {
	key, value, found := strings.Cut(text, "=")
	key = strings.TrimSpace(key)
	switch {
	case !found:
		return Override{}, &Error{Key: "-c", Message: fmt.Sprintf("-c %s: there is no = in it", text), HintText: "write -c key=value"}
	case key == "":
		return Override{}, &Error{Key: "-c", Message: fmt.Sprintf("-c %s: the key is empty", text), HintText: "write -c key=value"}
	}
	if _, err := keyPath(key); err != nil {
		return Override{}, &Error{
			Key:      "-c",
			Message:  fmt.Sprintf("-c %s: %v", text, err),
			HintText: "write -c key=value; quote parts that hold a dot",
		}
	}
	return Override{Key: key, Value: strings.TrimSpace(value), Flag: "-c " + key}, nil
}

// label is how the override is named in messages, without its value, which may
// be a secret.
func (o Override) label() string {
	if o.Flag != "" {
		return o.Flag
	}
	return "-c " + o.Key
}

// keyPath splits a dotted key; parts may be quoted as in TOML.
func keyPath(key string) ([]string, error) {
	var parts []string
	rest := key
	for {
		rest = strings.TrimLeft(rest, " \t")
		var part string
		switch {
		case rest == "":
			return nil, errors.New("a part of the key is empty")
		case rest[0] == '"':
			quoted, err := strconv.QuotedPrefix(rest)
			if err == nil {
				part, err = strconv.Unquote(quoted)
			}
			if err != nil {
				return nil, errors.New("a quoted part of the key is not closed or has a bad escape")
			}
			rest = strings.TrimLeft(rest[len(quoted):], " \t")
		case rest[0] == '\'':
			end := strings.IndexByte(rest[1:], '\'')
			if end < 0 {
				return nil, errors.New("a quote in the key is not closed")
			}
			part, rest = rest[1:1+end], strings.TrimLeft(rest[2+end:], " \t")
		default:
			end := strings.IndexByte(rest, '.')
			if end < 0 {
				end = len(rest)
			}
			part, rest = strings.TrimRight(rest[:end], " \t"), rest[end:]
			if part == "" {
				return nil, errors.New("a part of the key is empty")
			}
		}
		parts = append(parts, part)
		switch {
		case rest == "":
			return parts, nil
		case rest[0] != '.':
			return nil, errors.New("text follows a quoted part of the key")
		}
		rest = rest[1:]
	}
}

// parseValue reads a value as TOML, or takes it as a string.
func parseValue(l *layer, text string) *node {
	if !strings.ContainsAny(text, "\n\r") || strings.Contains(text, `"""`) || strings.Contains(text, "'''") || strings.HasPrefix(text, "[") {
		file := &layer{name: l.name, flag: l.flag, explicit: l.explicit}
		if root, bad := parseTOML(file, []byte("value = "+text), KindUsage); bad == nil && len(root.keys) == 1 {
			v := root.fields["value"]
			relabel(v, l)
			return v
		}
	}
	return &node{kind: kString, text: unquoted(text), layer: l}
}

// unquoted takes away the pairs of quotes around a text that is no TOML, as in
// -c key='it's'.
func unquoted(text string) string {
	for len(text) >= 2 && (text[0] == '"' || text[0] == '\'') && text[len(text)-1] == text[0] {
		text = text[1 : len(text)-1]
	}
	return text
}

// relabel gives a value and its parts to a layer; their places in the helper
// text mean nothing.
func relabel(n *node, l *layer) {
	n.layer, n.line, n.column = l, 0, 0
	for _, i := range n.items {
		relabel(i, l)
	}
	for _, f := range n.fields {
		relabel(f, l)
	}
}
