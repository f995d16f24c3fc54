package runner

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schema is an output schema, checked before the run and applied to the final
// answer.
type Schema struct {
	JSON json.RawMessage
	// Unsupported are keywords that the service's strict mode does not accept,
	// each with its JSON pointer.
	Unsupported []string
	resolved    *jsonschema.Resolved
}

// ParseSchema compiles a JSON Schema of draft 2020-12 or 7, or an earlier one
// that these can read. References to files or the network are refused: a schema
// is data, not a reason to read anything.
func ParseSchema(name string, data []byte) (*Schema, error) {
	doc, err := decodeOne(data)
	if err != nil {
		return nil, fmt.Errorf("output schema file %s is not valid JSON: %w", name, jsonPosition(data, err))
	}
	s := &Schema{JSON: bytes.TrimSpace(data)}
	switch doc.(type) {
	case map[string]any, bool:
	default:
		return nil, fmt.Errorf("output schema file %s is not a JSON schema: a schema is an object or a boolean", name)
	}
	if bad := extremeNumber(doc, ""); bad != "" {
		return nil, fmt.Errorf("output schema file %s is not usable: %s", name, bad)
	}
	if s.resolved, err = resolveSchema(data, doc); err != nil {
		return nil, fmt.Errorf("output schema file %s is not a valid JSON schema: %w", name, err)
	}
	s.Unsupported = unsupported(doc, "")
	return s, nil
}

// decodeOne reads data as one JSON value; numbers keep their digits.
func decodeOne(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows the value")
	}
	return v, nil
}

func resolveSchema(data []byte, doc any) (*jsonschema.Resolved, error) {
	if err := checkSchema(doc); err != nil {
		return nil, err
	}
	var schema jsonschema.Schema
	var wrong *json.UnmarshalTypeError
	if err := json.Unmarshal(data, &schema); errors.As(err, &wrong) {
		return nil, fmt.Errorf("/%s: the keyword cannot be a %s", strings.ReplaceAll(wrong.Field, ".", "/"), wrong.Value)
	} else if err != nil {
		return nil, err
	}
	draft, ok := drafts[strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(schema.Schema, "http://"), "https://"), "#")]
	if !ok {
		return nil, fmt.Errorf("/$schema: %q is not a draft of JSON Schema that nightshift knows", schema.Schema)
	}
	schema.Schema = draft
	return schema.Resolve(nil)
}

// Bounds of a number in a schema or an answer. They are far beyond what any
// reader of the answer can hold; the exact arithmetic of a validation would take
// all memory for 1e999999999.
const (
	maxDigits   = 1000
	maxExponent = 400
)

// extremeNumber says which number in v is out of bounds, or nothing.
func extremeNumber(v any, at string) string {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if bad := extremeNumber(e, at+"/"+k); bad != "" {
				return bad
			}
		}
	case []any:
		for i, e := range v {
			if bad := extremeNumber(e, fmt.Sprintf("%s/%d", at, i)); bad != "" {
				return bad
			}
		}
	case json.Number:
		digits, exponent, _ := strings.Cut(strings.ToLower(v.String()), "e")
		n := 0
		var err error
		if exponent != "" {
			n, err = strconv.Atoi(exponent)
		}
		if err != nil || n > maxExponent || n < -maxExponent || len(digits) > maxDigits {
			return fmt.Sprintf("%s: a number of %d characters is out of range", cmp.Or(at, "/"), len(v))
		}
	}
	return ""
}

// jsonPosition adds line and column to a syntax error.
func jsonPosition(data []byte, err error) error {
	var syn *json.SyntaxError
	at := len(data)
	switch {
	case errors.As(err, &syn):
		at = min(max(int(syn.Offset)-1, 0), at) // the offset counts the character that is wrong
	case !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	}
	before := data[:at]
	line := bytes.Count(before, []byte("\n")) + 1
	col := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Errorf("%d:%d: %w", line, col, err)
}

// strictRefuses are the keywords that the service's strict mode refuses.
var strictRefuses = map[string]bool{
	"allOf": true, "not": true, "if": true, "then": true, "else": true, "dependentRequired": true,
	"dependentSchemas": true, "patternProperties": true, "unevaluatedProperties": true, "propertyNames": true,
	"minProperties": true, "maxProperties": true, "unevaluatedItems": true, "contains": true, "minContains": true,
	"maxContains": true, "uniqueItems": true, "oneOf": true,
}

func unsupported(v any, at string) []string {
	var out []string
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			inNames := strings.HasSuffix(at, "/properties") || strings.HasSuffix(at, "/$defs") || strings.HasSuffix(at, "/definitions")
			if strictRefuses[k] && !inNames {
				out = append(out, at+"/"+k)
			}
			if k != "enum" && k != "const" && k != "default" && k != "examples" {
				out = append(out, unsupported(v[k], at+"/"+k)...)
			}
		}
	case []any:
		for i, e := range v {
			out = append(out, unsupported(e, fmt.Sprintf("%s/%d", at, i))...)
		}
	}
	return out
}

// Check returns what is wrong with answer, nil when it fits.
func (s *Schema) Check(answer []byte) []string {
	doc, err := decodeOne(answer)
	if err != nil {
		return []string{"the answer is not one JSON value: " + err.Error()}
	}
	if bad := extremeNumber(doc, ""); bad != "" {
		return []string{bad}
	}
	var plain any // the library takes a number that keeps its digits for a string
	if err := json.Unmarshal(answer, &plain); err != nil {
		return []string{"the answer cannot be read: " + err.Error()}
	}
	if err = s.resolved.Validate(plain); err != nil {
		return []string{problem(err)}
	}
	return nil
}

// problem is the innermost place and the reason of a violation. The library
// names every schema on the way there.
func problem(err error) string {
	text := err.Error()
	at := "/"
	for {
		rest, ok := strings.CutPrefix(text, "validating ")
		if !ok {
			break
		}
		place, rest, ok := strings.Cut(rest, ": ")
		if !ok {
			break
		}
		if place != "root" {
			at = place
		}
		text = rest
	}
	const most = 4096 // a reason may quote the answer
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return at + ": " + text
}
