package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// OwnKey ends the description of a key that the reference does not know.
const OwnKey = " Known to nightshift only."

// Schema is the JSON Schema (draft 2020-12) of config.toml or requirements.toml;
// name is "config" or "requirements".
func Schema(name string) ([]byte, error) {
	var root *schema
	var title string
	switch name {
	case "config":
		root, title = configSchema(), "config.toml"
	case "requirements":
		root, title = requirementSchema(), "requirements.toml"
	default:
		return nil, fmt.Errorf("there is no schema %q: schemas are config and requirements", name)
	}
	out := root.json()
	out["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	out["title"] = title
	data, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("schema %s: %w", name, err)
	}
	return append(data, '\n'), nil
}

func (s *schema) json() map[string]any {
	out := map[string]any{}
	if s.key != nil {
		out = typeSchema(s.key.typ)
		doc := s.key.doc
		if s.key.unused {
			doc = strings.TrimSpace("Without effect in an unattended run. " + doc)
		}
		if s.key.ours {
			doc += OwnKey
		}
		if doc != "" {
			out["description"] = doc
		}
		if s.key.def != nil {
			out["default"] = s.key.def
		}
	}
	if s.elem != nil {
		return map[string]any{"type": "array", "items": s.elem.json(), "description": out["description"]}
	}
	if len(s.children) == 0 && s.any == nil {
		return out
	}
	properties := map[string]any{}
	for name, child := range s.children {
		properties[name] = child.json()
	}
	table := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if s.any != nil {
		table["additionalProperties"] = s.any().json()
	}
	if s.key != nil && s.key.typ != "table" {
		// A word or a table.
		description := out["description"]
		delete(out, "description")
		if len(out) == 0 {
			return table
		}
		return map[string]any{"anyOf": []any{out, table}, "description": description}
	}
	if d := out["description"]; d != nil {
		table["description"] = d
	}
	return table
}

// typeSchema is the JSON Schema of a type word.
func typeSchema(typ string) map[string]any {
	name, arg, _ := strings.Cut(typ, ":")
	strs := map[string]any{"type": "array", "items": map[string]any{"type": "string"}}
	switch name {
	case "name":
		return map[string]any{"type": "string", "minLength": 1}
	case "string", "path":
		return map[string]any{"type": "string"}
	case "bool":
		return map[string]any{"type": "boolean"}
	case "int":
		return map[string]any{"type": "integer", "minimum": 0}
	case "number":
		return map[string]any{"type": "number", "minimum": 0}
	case "strings", "paths":
		return strs
	case "string|strings":
		return map[string]any{"anyOf": []any{map[string]any{"type": "string"}, strs}}
	case "strmap":
		return map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}}
	case "enum":
		return map[string]any{"enum": strings.Split(arg, "|")}
	case "enums":
		return map[string]any{"type": "array", "items": map[string]any{"enum": strings.Split(arg, "|")}}
	case "guarantees":
		return map[string]any{"type": "array", "items": map[string]any{"enum": guarantees[:]}}
	case "duration":
		return map[string]any{
			"anyOf": []any{
				map[string]any{"type": "string", "pattern": `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`},
				map[string]any{"type": "integer", "minimum": 0},
			},
		}
	case "size":
		return map[string]any{
			"anyOf": []any{
				map[string]any{"type": "string", "pattern": `^[0-9]+ *([KMGT]i?B?|kB|B)?$`},
				map[string]any{"type": "integer", "minimum": 0},
			},
		}
	case "approval", "approvals":
		granular := map[string]any{
			"type": "object",
			"properties": map[string]any{
				"granular": map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "boolean"}},
			},
			"required":             []string{"granular"},
			"additionalProperties": false,
		}
		one := map[string]any{"anyOf": []any{map[string]any{"enum": slices.Clone(ApprovalPolicies[:])}, granular}}
		if name == "approvals" {
			return map[string]any{"type": "array", "minItems": 1, "items": one}
		}
		return one
	case "feature":
		return map[string]any{"anyOf": []any{map[string]any{"type": "boolean"}, map[string]any{"type": "object"}}}
	case "exporter":
		return map[string]any{"enum": []string{"none", "statsig"}}
	case "table":
		return map[string]any{"type": "object"}
	case "tables":
		return map[string]any{"type": "array", "items": map[string]any{"type": "object"}}
	}
	return map[string]any{}
}
