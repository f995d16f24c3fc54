package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
)

// auth.json belongs to its owner and to other programs: what we do not know or
// do not change must stay byte for byte, key order and white space included.
// So the file is never decoded and encoded again; values are replaced where
// they stand.

// member is one key of an object, with offsets into the text.
type member struct {
	key                          string
	keyAt, keyEnd, valAt, valEnd int
}

// object is one JSON object in a text; at is the offset of its brace.
type object struct {
	at      int
	members []member
}

// errNotObject is a text whose top level is not an object.
var errNotObject = errors.New("is not a JSON object")

// parseObject finds the members of the top-level object of text.
func parseObject(text []byte) (object, error) {
	var syntax *json.SyntaxError
	var whole json.RawMessage
	switch err := json.Unmarshal(text, &whole); {
	case errors.As(err, &syntax):
		return object{}, fmt.Errorf("is not valid JSON (at byte %d)", syntax.Offset)
	case err != nil:
		return object{}, errors.New("is not valid JSON")
	}
	at := skipSpace(text, 0)
	if text[at] != '{' {
		return object{}, errNotObject
	}
	return scanObject(text, at), nil
}

// scanObject reads the object whose brace is at at. The text must be valid.
func scanObject(text []byte, at int) object {
	o := object{at: at}
	i := skipSpace(text, at+1)
	for text[i] != '}' {
		var m member
		m.keyAt = i
		m.keyEnd = skipValue(text, i)
		// Valid JSON text: a string always decodes.
		_ = json.Unmarshal(text[m.keyAt:m.keyEnd], &m.key)
		m.valAt = skipSpace(text, skipSpace(text, m.keyEnd)+1)
		m.valEnd = skipValue(text, m.valAt)
		o.members = append(o.members, m)
		if i = skipSpace(text, m.valEnd); text[i] == ',' {
			i = skipSpace(text, i+1)
		}
	}
	return o
}

// find returns the member called key, exactly so spelt. Two of them are an
// error: readers disagree about which one counts.
func (o object) find(key string) (member, bool, error) {
	var found member
	n := 0
	for _, m := range o.members {
		if m.key == key {
			found = m
			n++
		}
	}
	if n > 1 {
		return member{}, false, fmt.Errorf("has the key %q twice", key)
	}
	return found, n == 1, nil
}

// edit sets one member of an object to a value (JSON text).
type edit struct {
	in    object
	key   string
	value []byte
}

// applyEdits returns text with the edits made. A missing key is appended to its
// object in the style of the last member. Keys must not repeat.
func applyEdits(text []byte, edits []edit) ([]byte, error) {
	type splice struct {
		from, to int
		with     []byte
	}
	var splices []splice
	empty := map[int]bool{} // objects without members that got one
	for _, e := range edits {
		m, ok, err := e.in.find(e.key)
		switch {
		case err != nil:
			return nil, err
		case ok:
			splices = append(splices, splice{m.valAt, m.valEnd, e.value})
		case len(e.in.members) > 0:
			last := e.in.members[len(e.in.members)-1]
			with := append([]byte(","), leading(text, last.keyAt)...)
			with = append(with, quote(e.key)...)
			with = append(with, text[last.keyEnd:last.valAt]...)
			splices = append(splices, splice{last.valEnd, last.valEnd, append(with, e.value...)})
		default:
			var with []byte
			if empty[e.in.at] {
				with = append(with, ',')
			}
			empty[e.in.at] = true
			with = append(append(append(with, quote(e.key)...), ':'), e.value...)
			splices = append(splices, splice{e.in.at + 1, e.in.at + 1, with})
		}
	}
	sort.SliceStable(splices, func(i, j int) bool { return splices[i].from < splices[j].from })
	var out bytes.Buffer
	done := 0
	for _, s := range splices {
		out.Write(text[done:s.from])
		out.Write(s.with)
		done = s.to
	}
	out.Write(text[done:])
	return out.Bytes(), nil
}

// leading is the white space before at.
func leading(text []byte, at int) []byte {
	i := at
	for i > 0 && isSpace(text[i-1]) {
		i--
	}
	return text[i:at]
}

// quote encodes a string without the HTML escapes of json.Marshal: tokens keep
// their spelling.
func quote(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	// A string always encodes.
	_ = enc.Encode(s)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func skipSpace(text []byte, i int) int {
	for i < len(text) && isSpace(text[i]) {
		i++
	}
	return i
}

// skipValue returns the offset after the value at i of a valid text.
func skipValue(text []byte, i int) int {
	switch text[i] {
	case '"':
		for i++; text[i] != '"'; i++ {
			if text[i] == '\\' {
				i++
			}
		}
		return i + 1
	case '{', '[':
		for depth := 0; ; {
			switch text[i] {
			case '"':
				i = skipValue(text, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
	}
	for i < len(text) && !isSpace(text[i]) && text[i] != ',' && text[i] != '}' && text[i] != ']' {
		i++
	}
	return i
}
