package mcp

import (
	"encoding/json"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/tool"
)

// namespaced is a tool that lives in a namespace. A tool may also describe its
// namespace.
type namespaced interface{ Namespace() string }

type describer interface{ NamespaceDescription() string }

// Specs makes the tool list of a request: plain tools as they are, then one
// {"type":"namespace"} object for each namespace, in order of first
// appearance.
func Specs(tools []tool.Tool) []json.RawMessage {
	type group struct {
		Type        string            `json:"type"`
		Name        string            `json:"name"`
		Description string            `json:"description"`
		Tools       []json.RawMessage `json:"tools"`
	}
	var specs []json.RawMessage
	groups := map[string]*group{}
	var order []*group
	for _, t := range tools {
		n, ok := t.(namespaced)
		if !ok || n.Namespace() == "" {
			if spec := t.Spec(); spec != nil { // a nil one is answered, not offered
				specs = append(specs, spec)
			}
			continue
		}
		g := groups[n.Namespace()]
		if g == nil {
			g = &group{Type: "namespace", Name: n.Namespace()}
			if d, ok := t.(describer); ok {
				g.Description = d.NamespaceDescription()
			}
			if g.Description == "" {
				g.Description = "Tools in the " + n.Namespace() + " namespace."
			}
			groups[n.Namespace()] = g
			order = append(order, g)
		}
		g.Tools = append(g.Tools, t.Spec())
	}
	for _, g := range order {
		if spec, err := event.Marshal(g); err == nil { // fails only if a Spec is not JSON
			specs = append(specs, spec)
		}
	}
	return specs
}
