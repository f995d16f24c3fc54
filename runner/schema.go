package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Schema is an output schema, checked before the run and applied to the final
// answer.
type Schema struct {
	JSON json.RawMessage
	// Unsupported are keywords that the service's strict mode does not accept,
	// each with its JSON pointer.
	Unsupported []string
	compiled    *jsonschema.Schema
}

// ParseSchema compiles a JSON Schema. References to files or the network are
// refused: a schema is data, not a reason to read anything.
func ParseSchema(name string, data []byte) (*Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("output schema file %s is not valid JSON: %w", name, jsonPosition(data, err))
	}
	s := &Schema{JSON: bytes.TrimSpace(data)}
	switch doc.(type) {
	case map[string]any, bool:
	default:
		return nil, fmt.Errorf("output schema file %s is not a JSON schema: a schema is an object or a boolean", name)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	const url = "mem:///schema.json"
	if err := c.AddResource(url, doc); err != nil {
		return nil, fmt.Errorf("output schema file %s: %w", name, err)
	}
	if s.compiled, err = c.Compile(url); err != nil {
		return nil, fmt.Errorf("output schema file %s is not a valid JSON schema: %w", name, err)
	}
	s.Unsupported = unsupported(doc, "")
	return s, nil
}

// jsonPosition adds line and column to a syntax error.
func jsonPosition(data []byte, err error) error {
	var syn *json.SyntaxError
	if !errors.As(err, &syn) {
		return err
	}
	before := data[:min(int(syn.Offset), len(data))]
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
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(answer))
	if err != nil {
		return []string{"the answer is not one JSON value: " + err.Error()}
	}
	err = s.compiled.Validate(doc)
	if err == nil {
		return nil
	}
	var ve *jsonschema.ValidationError
	if !errors.As(err, &ve) {
		return []string{err.Error()}
	}
	var out []string
	leaves(ve, &out)
	return out
}

// leaves collects the innermost violations with their place in the answer.
func leaves(e *jsonschema.ValidationError, out *[]string) {
	if len(e.Causes) == 0 {
		at := "/" + strings.Join(e.InstanceLocation, "/")
		*out = append(*out, at+": "+e.ErrorKind.LocalizedString(message.NewPrinter(language.English)))
		return
	}
	for _, c := range e.Causes {
		leaves(c, out)
	}
}
