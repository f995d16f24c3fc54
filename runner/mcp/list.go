package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// Bounds of what a server may offer: everything here is part of every request
// to the model.
const (
	maxPages       = 100
	maxTools       = 500
	maxSchema      = 64 << 10
	maxDescription = 16 << 10
)

// offered is one tool as a server describes it.
type offered struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Annotations struct {
		ReadOnly    bool  `json:"readOnlyHint"`
		Destructive *bool `json:"destructiveHint"`
	} `json:"annotations"`
}

// listTools asks for all tools and keeps those the configuration wants, in
// order of their names.
func (s *server) listTools(ctx context.Context) error {
	all, err := s.pages(ctx, "tools/list", "tools", maxTools)
	if err != nil {
		return err
	}
	byName := map[string]offered{}
	var names []string
	for _, raw := range all {
		var t offered
		if err := json.Unmarshal(raw, &t); err != nil || t.Name == "" {
			s.notice("mcp_tool_invalid", fmt.Sprintf("MCP server %s offers a tool that cannot be read: %.100s", s.cfg.Name, s.set.o.Mask.MaskJSON(raw)))
			continue
		}
		if !s.wanted(t.Name) {
			continue
		}
		if _, ok := byName[t.Name]; ok {
			s.notice("mcp_tool_invalid", fmt.Sprintf("MCP server %s offers the tool %q twice; the second one was left out", s.cfg.Name, t.Name))
			continue
		}
		byName[t.Name] = t
		names = append(names, t.Name)
	}
	slices.Sort(names)
	safe := safeNames(names, "")
	for _, name := range names {
		t := byName[name]
		schema, why := objectSchema(t.InputSchema)
		if why != "" {
			s.notice("mcp_tool_schema", fmt.Sprintf("the tool %q of MCP server %s %s", name, s.cfg.Name, why))
		}
		if schema == nil {
			continue
		}
		s.tools = append(s.tools, &remote{
			server: s, name: safe[name], remoteName: name, description: clip(t.Description, maxDescription), schema: schema,
			readOnly: t.Annotations.ReadOnly, destructive: t.Annotations.Destructive != nil && *t.Annotations.Destructive,
		})
	}
	for _, name := range s.cfg.EnabledTools {
		if _, ok := byName[name]; !ok && !slices.Contains(s.cfg.DisabledTools, name) {
			s.notice("mcp_tool_missing", fmt.Sprintf("enabled_tools of MCP server %s names %q, which the server does not offer", s.cfg.Name, name))
		}
	}
	return nil
}

// wanted applies enabled_tools and disabled_tools.
func (s *server) wanted(name string) bool {
	if s.cfg.EnabledTools != nil && !slices.Contains(s.cfg.EnabledTools, name) {
		return false
	}
	return !slices.Contains(s.cfg.DisabledTools, name)
}

func (s *server) notice(class, message string) {
	if s.set.o.Log != nil {
		s.set.o.Log.Emit(event.Notice{Class: class, Message: message, Origin: s.cfg.Origin})
	}
}

// pages follows a list to its end: at most maxPages pages, no page twice.
func (s *server) pages(ctx context.Context, method, field string, max int) ([]json.RawMessage, error) {
	var all []json.RawMessage
	p := &rawParams{}
	seen := map[string]bool{}
	for range maxPages {
		items, next, err := s.page(ctx, method, field, p)
		if err != nil {
			return nil, err
		}
		if all = append(all, items...); len(all) > max {
			return nil, fmt.Errorf("its answer to %s holds more than %d entries", method, max)
		}
		if next == "" {
			return all, nil
		}
		if seen[next] {
			return nil, fmt.Errorf("its answer to %s leads back to an earlier page", method)
		}
		seen[next] = true
		p = &rawParams{Cursor: next}
	}
	return nil, fmt.Errorf("its answer to %s has more than %d pages", method, maxPages)
}

func (s *server) page(ctx context.Context, method, field string, p *rawParams) (items []json.RawMessage, next string, err error) {
	raw, err := s.request(ctx, method, p)
	if err != nil {
		return nil, "", err
	}
	var answer map[string]json.RawMessage
	bad := fmt.Errorf("its answer to %s is not a list", method)
	if json.Unmarshal(raw, &answer) != nil {
		return nil, "", bad
	}
	if list, ok := answer[field]; ok && json.Unmarshal(list, &items) != nil {
		return nil, "", bad
	}
	if cursor, ok := answer["nextCursor"]; ok && json.Unmarshal(cursor, &next) != nil {
		return nil, "", bad
	}
	return items, next, nil
}

// objectSchema makes a schema the service takes: an object with properties. It
// says what was wrong with the server's; nil means that the tool cannot be
// offered.
func objectSchema(raw json.RawMessage) (json.RawMessage, string) {
	empty := json.RawMessage(`{"type":"object","properties":{}}`)
	if len(raw) > maxSchema {
		return nil, fmt.Sprintf("was left out: its schema is larger than %d bytes", maxSchema)
	}
	var fields map[string]json.RawMessage
	if len(raw) == 0 || json.Unmarshal(raw, &fields) != nil || fields == nil {
		return empty, "has no schema of its arguments; it is offered without arguments"
	}
	var kind string
	switch t, ok := fields["type"]; {
	case !ok:
		fields["type"] = json.RawMessage(`"object"`)
	case json.Unmarshal(t, &kind) != nil || kind != "object":
		return empty, "has a schema that describes no object; it is offered without arguments"
	}
	var properties map[string]json.RawMessage
	if p, ok := fields["properties"]; !ok || json.Unmarshal(p, &properties) != nil || properties == nil {
		fields["properties"] = json.RawMessage(`{}`)
	} else if fields["type"] != nil && bytes.Equal(bytes.TrimSpace(fields["type"]), []byte(`"object"`)) && hasType(raw) {
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err == nil {
			return compact.Bytes(), "" // as the server wrote it
		}
	}
	out, err := event.Marshal(fields)
	if err != nil {
		return empty, "has a schema that cannot be written; it is offered without arguments"
	}
	return out, ""
}

// hasType tells whether the schema itself, not only our copy, names its type.
func hasType(raw json.RawMessage) bool {
	var own struct {
		Type json.RawMessage `json:"type"`
	}
	return json.Unmarshal(raw, &own) == nil && own.Type != nil
}

// clip shortens s to at most max bytes at a character border.
func clip(s string, max int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= max {
		return s
	}
	return strings.ToValidUTF8(s[:max], "")
}

// errText is an error as the reference words it to the model.
func errText(server, toolName string, err error, bound error) string {
	cause := readable(err).Error()
	if bound != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, bound)) {
		cause = bound.Error()
	}
	return fmt.Sprintf("tool call error: tool call failed for `%s/%s`\n\nCaused by:\n    %s", server, toolName, cause)
}
