package mcp

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nightshift-ci/nightshift/policy"
)

func TestToolList(t *testing.T) {
	cfg := fakeServer("list")
	cfg.DisabledTools = []string{"off"}
	s, rec := fixture(t, map[string]policy.MCPServer{"my server": cfg}, nil)
	check(t, s.Ready(t.Context()))
	specs := Specs(s.Tools())
	if len(specs) != 4 {
		t.Fatalf("%d specs", len(specs))
	}
	var ns struct {
		Type, Name, Description string
		Tools                   []struct {
			Type, Name, Description string
			Strict                  bool
			Parameters              json.RawMessage
		}
	}
	check(t, json.Unmarshal(specs[3], &ns))
	if ns.Type != "namespace" || ns.Name != "mcp__my_server" || ns.Description != "How to use it." {
		t.Errorf("namespace: %+v", ns)
	}
	got := map[string]string{}
	for _, f := range ns.Tools {
		got[f.Name] = string(f.Parameters)
		if f.Type != "function" || f.Strict || len(f.Description) > maxDescription {
			t.Errorf("function: %.200v", f)
		}
	}
	const empty = `{"type":"object","properties":{}}`
	want := map[string]string{
		"plain": `{"type":"object","properties":{"x":{"type":"string"}},"$defs":{}}`, "no_schema": empty, "nulls": empty, "listed": empty, "string": empty,
		"untyped": `{"properties":{"y":{}},"type":"object"}`, "noprops": `{"properties":{},"required":["z"],"type":"object"}`,
		hashedName("a.b", "a_b", 64): empty, hashedName("a b", "a_b", 64): empty, "a_b": empty, "c_d": empty,
		hashedName(strings.Repeat("n", 80), strings.Repeat("n", 80), 64): empty, "_": empty, "long": empty,
	}
	for name, schema := range want {
		if got[name] != schema {
			t.Errorf("%s: %s, want %s", name, got[name], schema)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d tools: %v", len(got), got)
	}
	for _, said := range []string{`"plain" twice`, "that cannot be read: null", "that cannot be read: 7", `"huge" of MCP server my server was left out`, `"string" of MCP server my server has a schema that describes no object`} {
		if !strings.Contains(rec.notices(), said) {
			t.Errorf("%q is not said in\n%s", said, rec.notices())
		}
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("l", 100)
	names := []string{"ok-1", "a.b", "a/b", "a_b", "x y", long, long + "2", ""}
	got := safeNames(names, "mcp__")
	seen := map[string]bool{}
	valid := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	for _, n := range names {
		if seen[got[n]] || !valid.MatchString(got[n]) {
			t.Errorf("%q became %q", n, got[n])
		}
		seen[got[n]] = true
	}
	if got["ok-1"] != "mcp__ok-1" || got["a_b"] != "mcp__a_b" || got["x y"] != "mcp__x_y" {
		t.Errorf("%v", got)
	}
	slices.Reverse(names)
	for n, safe := range safeNames(names, "mcp__") {
		if got[n] != safe {
			t.Errorf("the order changes %q", n)
		}
	}
}

func TestFilters(t *testing.T) {
	cfg := fakeServer("scales")
	cfg.EnabledTools, cfg.DisabledTools = []string{"weigh", "jam", "missing"}, []string{"jam"}
	s, rec := fixture(t, map[string]policy.MCPServer{"s": cfg, "p": fakeServer("paged")}, nil)
	check(t, s.Ready(t.Context()))
	var names []string
	for _, one := range s.Tools() {
		names = append(names, one.Name())
	}
	if got := strings.Join(names, " "); got != "list_mcp_resources list_mcp_resource_templates read_mcp_resource a b weigh" {
		t.Errorf("tools: %s", got)
	}
	if !strings.Contains(rec.notices(), `names "missing"`) {
		t.Errorf("notices: %s", rec.notices())
	}
	if got := len(Specs(s.Tools())); got != 5 {
		t.Errorf("%d specs", got)
	}
}
