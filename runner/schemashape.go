package runner

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// The library reads a schema without judging it: a misspelt type fits nothing,
// and a reference that leads back to itself never ends. So the shape is checked
// first.

// drafts maps the known values of $schema to the rules that read them.
var drafts = map[string]string{
	"": "", "json-schema.org/schema": "",
	"json-schema.org/draft/2020-12/schema": "https://json-schema.org/draft/2020-12/schema",
	"json-schema.org/draft/2019-09/schema": "https://json-schema.org/draft/2020-12/schema",
	"json-schema.org/draft-07/schema":      "http://json-schema.org/draft-07/schema#",
	"json-schema.org/draft-06/schema":      "http://json-schema.org/draft-07/schema#",
	"json-schema.org/draft-04/schema":      "http://json-schema.org/draft-07/schema#",
}

var (
	// schemaTypes are the values of "type".
	schemaTypes = []string{"null", "boolean", "object", "array", "number", "integer", "string"}
	// schemaCounts are the keywords whose value is a count.
	schemaCounts = []string{"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"}
	// inPlace are the keywords whose schemas judge the same value as the schema
	// they stand in; one schema, a list, or a table of them.
	inPlace = []string{"not", "if", "then", "else", "allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies"}
	// ofParts are those whose schemas judge a part of the value.
	ofParts = []string{"items", "prefixItems", "additionalItems", "contains", "properties", "patternProperties", "additionalProperties",
		"propertyNames", "unevaluatedItems", "unevaluatedProperties", "$defs", "definitions"}
	// tables are those of both kinds that hold schemas by name.
	tables = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
	// distant are references that are not pointers into the same document.
	distant = []string{"$dynamicRef", "$recursiveRef"}
)

// schemaWalk visits the schemas of one document by their JSON pointers.
type schemaWalk struct {
	doc   any
	state map[string]visit
	later []subschema // schemas that judge a part of the value
}

type subschema struct {
	at     string
	schema any
}

type visit int

const (
	visiting visit = iota + 1 // and what judges the same value
	visited
)

// checkSchema says what is wrong with a schema document.
func checkSchema(doc any) error {
	w := &schemaWalk{doc: doc, state: map[string]visit{}, later: []subschema{{"", doc}}}
	for len(w.later) > 0 {
		next := w.later[len(w.later)-1]
		w.later = w.later[:len(w.later)-1]
		if err := w.schema(next.at, next.schema); err != nil {
			return err
		}
	}
	return nil
}

func (w *schemaWalk) schema(at string, v any) error {
	m, ok := v.(map[string]any)
	if !ok || w.state[at] == visited {
		return nil // true, false, or whatever the library refuses
	}
	if w.state[at] == visiting {
		return fmt.Errorf("%s: the reference leads back to itself", cmp.Or(at, "/"))
	}
	w.state[at] = visiting
	if err := keywords(at, m); err != nil {
		return err
	}
	if ref, ok := m["$ref"].(string); ok {
		target, v, err := w.follow(at, ref)
		if err != nil {
			return err
		}
		if err := w.schema(target, v); err != nil {
			return err
		}
	}
	for _, k := range inPlace {
		for _, p := range schemasOf(at, k, m[k]) {
			if err := w.schema(p.at, p.schema); err != nil {
				return err
			}
		}
	}
	w.state[at] = visited
	for _, k := range ofParts {
		w.later = append(w.later, schemasOf(at, k, m[k])...)
	}
	return nil
}

// schemasOf lists the schemas that are the value of a keyword.
func schemasOf(at, keyword string, v any) []subschema {
	at += "/" + keyword
	var out []subschema
	switch v := v.(type) {
	case []any:
		for i, e := range v {
			out = append(out, subschema{at + "/" + strconv.Itoa(i), e})
		}
	case map[string]any:
		if !slices.Contains(tables, keyword) {
			return []subschema{{at, v}}
		}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out = append(out, subschema{at + "/" + escapePointer(k), v[k]})
		}
	}
	return out
}

// follow finds what a reference names.
func (w *schemaWalk) follow(at, ref string) (string, any, error) {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok || pointer != "" && pointer[0] != '/' {
		return "", nil, fmt.Errorf("%s/$ref: %q is not a pointer into this schema, as #/$defs/name", at, ref)
	}
	pointer, err := url.PathUnescape(pointer)
	if err != nil {
		return "", nil, fmt.Errorf("%s/$ref: %q: %w", at, ref, err)
	}
	v := w.doc
	if pointer == "" {
		return "", v, nil
	}
	for _, name := range strings.Split(pointer[1:], "/") {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		var found bool
		switch parent := v.(type) {
		case map[string]any:
			v, found = parent[name]
		case []any:
			i, err := strconv.Atoi(name)
			if found = err == nil && i >= 0 && i < len(parent); found {
				v = parent[i]
			}
		}
		if !found {
			return "", nil, fmt.Errorf("%s/$ref: nothing is at %q", at, ref)
		}
	}
	return pointer, v, nil
}

// keywords checks the values that the library takes as they are.
func keywords(at string, m map[string]any) error {
	types, list := m["type"].([]any)
	if one, ok := m["type"]; ok && !list {
		types = []any{one}
	}
	for _, t := range types {
		if name, ok := t.(string); !ok || !slices.Contains(schemaTypes, name) {
			return fmt.Errorf("%s/type: %v is not one of %s", at, t, strings.Join(schemaTypes, ", "))
		}
	}
	for _, k := range schemaCounts {
		if n, ok := m[k].(json.Number); ok {
			if f, err := n.Float64(); err != nil || f < 0 {
				return fmt.Errorf("%s/%s: %s is not a count", at, k, n)
			}
		}
	}
	if n, ok := m["multipleOf"].(json.Number); ok {
		if f, err := n.Float64(); err != nil || f <= 0 {
			return fmt.Errorf("%s/multipleOf: %s is not above zero", at, n)
		}
	}
	for _, k := range distant {
		if _, ok := m[k]; ok {
			return fmt.Errorf("%s/%s: only $ref is followed, to a pointer into this schema", at, k)
		}
	}
	if _, ok := m["$id"]; ok && at != "" {
		return fmt.Errorf("%s/$id: a schema inside a schema has no name of its own here", at)
	}
	return nil
}

func escapePointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
