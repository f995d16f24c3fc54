package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// shape describes the JSON a tool takes. Arguments are checked against it
// before they are decoded, since callers know the reference's messages, which
// name the field, the line and the column.
type shape struct {
	kind   kind
	fields []field  // of an object
	elem   *shape   // of a list
	words  []string // of a string: the only values
}

type field struct {
	name     string
	shape    shape
	required bool
}

type kind int

const (
	text kind = iota
	number
	boolean
	list
	object
	anything
)

func (k kind) String() string {
	return [...]string{"a string", "u64", "a boolean", "a sequence", "a map", "any value"}[k]
}

// decodeArgs checks raw against s and decodes it into v. The error is the text
// for the model.
func decodeArgs(raw json.RawMessage, s shape, v any) error {
	c := checker{data: raw, dec: json.NewDecoder(bytes.NewReader(raw))}
	c.dec.UseNumber()
	err := c.value(s)
	if err == nil {
		if rest := bytes.TrimLeft(raw[c.dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
			err = c.failAt(int64(len(raw)-len(rest))+1, "trailing characters")
		}
	}
	if err == nil {
		err = json.Unmarshal(raw, v)
	}
	if err != nil {
		return fmt.Errorf("failed to parse function arguments: %w", err)
	}
	return nil
}

type checker struct {
	data []byte
	dec  *json.Decoder
}

// fail reports at the last byte that was read.
func (c *checker) fail(format string, args ...any) error {
	return c.failAt(c.dec.InputOffset(), format, args...)
}

func (c *checker) failAt(offset int64, format string, args ...any) error {
	read := c.data[:min(int(offset), len(c.data))]
	line := bytes.Count(read, []byte("\n")) + 1
	column := len(read) - (bytes.LastIndexByte(read, '\n') + 1)
	return fmt.Errorf("%s at line %d column %d", fmt.Sprintf(format, args...), line, column)
}

// token reads one token; what cannot be read is reported in the reference's
// words where they are clear.
func (c *checker) token() (json.Token, error) {
	tok, err := c.dec.Token()
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return tok, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, c.failAt(int64(len(c.data)), "EOF while parsing a value")
	case errors.As(err, &syntax):
		if strings.Contains(syntax.Error(), "unexpected end") {
			return nil, c.failAt(int64(len(c.data)), "EOF while parsing a value")
		}
		return nil, c.failAt(syntax.Offset, "invalid JSON: %s", strings.TrimPrefix(syntax.Error(), "json: "))
	}
	return nil, c.fail("invalid JSON: %s", err)
}

func (c *checker) value(s shape) error {
	tok, err := c.token()
	if err != nil {
		return err
	}
	return c.checked(tok, s)
}

// checked takes the value that begins with tok.
func (c *checker) checked(tok json.Token, s shape) error {
	if s.kind == anything {
		return c.skip(tok)
	}
	switch t := tok.(type) {
	case string:
		if s.kind != text {
			return c.wrong("string "+strconv.Quote(t), s)
		}
		return c.word(t, s)
	case json.Number:
		if s.kind != number {
			return c.wrong(numberWord(t)+" `"+t.String()+"`", s)
		}
		if f, err := t.Float64(); err != nil || f < 0 {
			return c.fail("invalid value: %s `%s`, expected %s", numberWord(t), t, s.kind)
		}
	case bool:
		if s.kind != boolean {
			return c.wrong("boolean `"+strconv.FormatBool(t)+"`", s)
		}
	case nil:
		return c.wrong("null", s)
	case json.Delim:
		switch {
		case t == '[' && s.kind == list:
			return c.list(s)
		case t == '{' && s.kind == object:
			return c.object(s)
		case t == '[':
			return c.wrong("sequence", s)
		}
		return c.wrong("map", s)
	}
	return nil
}

func (c *checker) wrong(got string, s shape) error {
	return c.fail("invalid type: %s, expected %s", got, s.kind)
}

func numberWord(n json.Number) string {
	if strings.ContainsAny(n.String(), ".eE") {
		return "floating point"
	}
	return "integer"
}

func (c *checker) word(got string, s shape) error {
	if s.words == nil {
		return nil
	}
	for _, w := range s.words {
		if w == got {
			return nil
		}
	}
	if len(s.words) == 2 {
		return c.fail("unknown variant `%s`, expected `%s` or `%s`", got, s.words[0], s.words[1])
	}
	return c.fail("unknown variant `%s`, expected one of `%s`", got, strings.Join(s.words, "`, `"))
}

func (c *checker) list(s shape) error {
	for c.dec.More() {
		if err := c.value(*s.elem); err != nil {
			return err
		}
	}
	_, err := c.token()
	return err
}

func (c *checker) object(s shape) error {
	seen := map[string]bool{}
	for c.dec.More() {
		key, err := c.token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		if err := c.member(name, s, seen); err != nil {
			return err
		}
	}
	if _, err := c.token(); err != nil {
		return err
	}
	for _, f := range s.fields {
		if f.required && !seen[f.name] {
			return c.fail("missing field `%s`", f.name)
		}
	}
	return nil
}

// member reads the value of one key. Unknown keys are passed over, and null
// stands for a missing optional one.
func (c *checker) member(name string, s shape, seen map[string]bool) error {
	for _, f := range s.fields {
		if f.name != name {
			continue
		}
		if seen[name] {
			return c.fail("duplicate field `%s`", name)
		}
		seen[name] = true
		tok, err := c.token()
		if err != nil || tok == nil && !f.required {
			return err
		}
		return c.checked(tok, f.shape)
	}
	tok, err := c.token()
	if err != nil {
		return err
	}
	return c.skip(tok)
}

// skip passes over the value that begins with tok.
func (c *checker) skip(tok json.Token) error {
	depth := 0
	for {
		if d, ok := tok.(json.Delim); ok {
			if d == '[' || d == '{' {
				depth++
			} else {
				depth--
			}
		}
		if depth == 0 {
			return nil
		}
		var err error
		if tok, err = c.token(); err != nil {
			return err
		}
	}
}

// parameters is the JSON Schema of an object shape.
func (s shape) parameters(docs map[string]string) map[string]any {
	switch s.kind {
	case text:
		if s.words != nil {
			return map[string]any{"type": "string", "enum": s.words}
		}
		return map[string]any{"type": "string"}
	case number:
		return map[string]any{"type": "number"}
	case boolean:
		return map[string]any{"type": "boolean"}
	case list:
		return map[string]any{"type": "array", "items": s.elem.parameters(nil)}
	case anything:
		return map[string]any{}
	}
	props, required := map[string]any{}, []string{}
	for _, f := range s.fields {
		p := f.shape.parameters(nil)
		if doc := docs[f.name]; doc != "" {
			p["description"] = doc
		}
		props[f.name] = p
		if f.required {
			required = append(required, f.name)
		}
	}
	out := map[string]any{"type": "object", "properties": props, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}
