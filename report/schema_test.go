package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

var update = flag.Bool("update", false, "rewrite schemas and golden files")

// The schemas are made from the Go types and their comments, so that neither
// can drift from what is written. -update rewrites them.
func TestSchemasFitTheTypes(t *testing.T) {
	docs := comments(t, ".", "../runner/event")
	for path, schema := range map[string]map[string]any{
		"schema/report.schema.json":   reportSchema(docs),
		"../runner/event/schema.json": eventSchema(t, docs),
	} {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", " ") // they are in the binary
		if err := enc.Encode(schema); err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		old, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(old, b.Bytes()) {
			t.Errorf("%s does not fit the types: run go test ./report -run Schemas -update", path)
		}
	}
}

const schemaBase = "https://github.com/nightshift-ci/nightshift/"

func reportSchema(docs map[string]string) map[string]any {
	s := &schemer{docs: docs, defs: map[string]any{}}
	root := s.object(reflect.TypeFor[Summary]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["$id"] = schemaBase + "report/schema/report.schema.json"
	root["title"] = "nightshift report"
	root["$defs"] = s.defs
	return root
}

// kinds pairs the event structs with the words of the wire.
var kinds = []event.Event{
	event.ThreadStarted{}, event.TurnStarted{}, event.ItemStarted{}, event.ItemUpdated{}, event.ItemCompleted{}, event.TurnCompleted{},
	event.TurnFailed{}, event.Error{}, event.RunStarted{}, event.SandboxEnforced{}, event.CredentialSelected{}, event.AuthRefreshed{},
	event.InstructionsLoaded{}, event.ServerStatus{}, event.ModelRequest{}, event.ModelResponse{}, event.ModelRetried{}, event.ModelFallback{},
	event.HistoryCompacted{}, event.PolicyDecision{}, event.ToolCompleted{}, event.HookCompleted{}, event.VerifyCompleted{}, event.SchemaChecked{},
	event.FindingReported{}, event.LimitReached{}, event.AgentEvent{}, event.Notice{}, event.DiffCaptured{}, event.TelemetryFlushed{}, event.RunCompleted{},
}

var itemTypes = []event.ItemDetails{
	event.AgentMessage{}, event.Reasoning{}, event.CommandExecution{}, event.FileChange{}, event.MCPToolCall{}, event.TodoList{}, event.CollabToolCall{},
}

func eventSchema(t *testing.T, docs map[string]string) map[string]any {
	s := &schemer{docs: docs, defs: map[string]any{}}
	known := map[string]bool{}
	var choices []any
	for _, e := range kinds {
		kind := string(event.KindOf(e))
		known[kind] = true
		choices = append(choices, when1("type", kind, s.ref(reflect.TypeOf(e))))
	}
	for name, kind := range docs {
		if strings.HasPrefix(name, "const Kind") && !known[kind] {
			t.Errorf("the schema does not know the kind %s", kind)
		}
	}
	var items []any
	for _, d := range itemTypes {
		items = append(items, when1("type", event.ItemType(d), s.ref(reflect.TypeOf(d))))
	}
	items = append(items, when1("type", "web_search", map[string]any{"type": "object", "required": []string{"item_id", "query", "action"}, "properties": map[string]any{
		"item_id": map[string]any{"type": "string", "description": "The item's own id; \"id\" is the id of the call."},
		"query":   map[string]any{"type": "string"}, "action": map[string]any{"type": "object"}}}))
	s.defs["ErrorItem"] = map[string]any{"type": "object", "required": []string{"message"}, "description": "A warning, or a call that has no item type of its own: then \"tool\" names it.",
		"properties": map[string]any{"message": stringSchema(), "tool": stringSchema(), "status": s.schema(reflect.TypeFor[event.Status]()), "denial": s.ref(reflect.TypeFor[event.Denial]())}}
	items = append(items, when1("type", "error", map[string]any{"$ref": "#/$defs/ErrorItem"}))
	s.defs["Item"] = map[string]any{"type": "object", "required": []string{"id", "type"}, "description": docs["event.Item"],
		"properties": map[string]any{"id": stringSchema(), "type": stringSchema()}, "allOf": items}
	return map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": schemaBase + "runner/event/schema.json",
		"title":       "One line of the nightshift event log",
		"description": "Kinds that are not listed here may appear in later versions; readers skip them. The stream of exec --json has no seq and no time.",
		"type":        "object", "required": []string{"type"},
		"properties": map[string]any{
			"seq":  map[string]any{"type": "integer", "minimum": 0, "description": "Number of the record, from 1 without gaps."},
			"time": map[string]any{"type": "string", "format": "date-time", "description": "UTC."},
			"type": map[string]any{"type": "string", "description": "The kind of event."},
		},
		"allOf": choices, "$defs": s.defs,
	}
}

func stringSchema() map[string]any { return map[string]any{"type": "string"} }

func when1(key, value string, then map[string]any) map[string]any {
	return map[string]any{"if": map[string]any{"properties": map[string]any{key: map[string]any{"const": value}}}, "then": then}
}

// schemer turns types into schemas; structs become definitions.
type schemer struct {
	docs map[string]string
	defs map[string]any
}

func (s *schemer) ref(t reflect.Type) map[string]any {
	if _, ok := s.defs[t.Name()]; !ok {
		s.defs[t.Name()] = nil // breaks cycles
		s.defs[t.Name()] = s.object(t)
	}
	return map[string]any{"$ref": "#/$defs/" + t.Name()}
}

func (s *schemer) schema(t reflect.Type) map[string]any {
	switch t {
	case reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return map[string]any{}
	case reflect.TypeFor[event.Status]():
		return map[string]any{"type": "string", "enum": []string{"in_progress", "completed", "failed", "declined"}}
	case reflect.TypeFor[event.Item]():
		return map[string]any{"$ref": "#/$defs/Item"}
	}
	switch t.Kind() {
	case reflect.String:
		return stringSchema()
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return map[string]any{"type": "integer"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Pointer:
		return s.schema(t.Elem())
	case reflect.Slice:
		return map[string]any{"type": "array", "items": s.schema(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": s.schema(t.Elem())}
	case reflect.Struct:
		return s.ref(t)
	}
	panic("no schema for " + t.String())
}

func (s *schemer) object(t reflect.Type) map[string]any {
	props := map[string]any{}
	var required []string
	s.fields(t, props, &required)
	out := map[string]any{"type": "object", "properties": props}
	if len(required) > 0 {
		out["required"] = required
	}
	if d := s.docs[t.String()]; d != "" {
		out["description"] = d
	}
	return out
}

func (s *schemer) fields(t reflect.Type, props map[string]any, required *[]string) {
	for f := range t.Fields() {
		if f.Anonymous {
			s.fields(f.Type, props, required)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		p := s.schema(f.Type)
		optional := strings.Contains(options, "omitempty")
		if !optional {
			*required = append(*required, name)
			switch f.Type.Kind() {
			case reflect.Pointer, reflect.Slice, reflect.Map: // encoded as null when there is none
				if t.PkgPath() == reflect.TypeFor[event.Record]().PkgPath() && len(p) > 0 {
					p = map[string]any{"anyOf": []any{p, map[string]any{"type": "null"}}}
				}
			}
		}
		if d := s.docs[t.String()+"."+f.Name]; d != "" {
			if _, isRef := p["$ref"]; isRef {
				p = map[string]any{"allOf": []any{p}}
			}
			p["description"] = d
		}
		props[name] = p
	}
}

// comments reads the comments of types and fields, and the constants Kind….
func comments(t *testing.T, dirs ...string) map[string]string {
	out := map[string]string{}
	line := func(g *ast.CommentGroup) string { return strings.Join(strings.Fields(g.Text()), " ") }
	for _, dir := range dirs {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), dir+"/"+f.Name(), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			pkg := file.Name.Name + "."
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GenDecl:
					for _, spec := range n.Specs {
						if ts, ok := spec.(*ast.TypeSpec); ok && n.Doc != nil {
							out[pkg+ts.Name.Name] = line(n.Doc)
						}
					}
				case *ast.ValueSpec:
					if strings.HasPrefix(n.Names[0].Name, "Kind") && len(n.Values) == 1 {
						if lit, ok := n.Values[0].(*ast.BasicLit); ok {
							out["const "+n.Names[0].Name], _ = strconv.Unquote(lit.Value)
						}
					}
				case *ast.TypeSpec:
					if st, ok := n.Type.(*ast.StructType); ok {
						for _, field := range st.Fields.List {
							text := line(field.Doc)
							if text == "" {
								text = line(field.Comment)
							}
							for _, name := range field.Names {
								if text != "" {
									out[pkg+n.Name.Name+"."+name.Name] = text
								}
							}
						}
					}
				}
				return true
			})
		}
	}
	return out
}
