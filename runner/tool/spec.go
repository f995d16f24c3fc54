package tool

import (
	"encoding/json"
	"fmt"
	"strings"
)

// functionSpec makes the spec of a function tool. The description file holds
// what the tool does, then one "## name" section for each parameter; a
// parameter without a section, or a section without a parameter, is a bug.
func functionSpec(name, description string, s shape) json.RawMessage {
	about, docs := sections(description)
	for _, f := range s.fields {
		if docs[f.name] == "" {
			panic(fmt.Sprintf("tool %s: parameter %s has no description", name, f.name))
		}
	}
	if len(docs) != len(s.fields) {
		panic(fmt.Sprintf("tool %s: a description has no parameter", name))
	}
	return encode(map[string]any{"type": "function", "name": name, "description": about, "strict": false, "parameters": s.parameters(docs)})
}

// sections splits a description file.
func sections(md string) (about string, docs map[string]string) {
	parts := strings.Split("\n"+md, "\n## ")
	docs = map[string]string{}
	for _, p := range parts[1:] {
		name, body, _ := strings.Cut(p, "\n")
		docs[strings.TrimSpace(name)] = oneLine(body)
	}
	return strings.TrimSpace(parts[0]), docs
}

// oneLine joins the lines of a paragraph.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // specs are made of strings and maps only
	}
	return b
}
