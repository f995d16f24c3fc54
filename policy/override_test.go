package policy

import (
	"slices"
	"testing"
)

func TestKeyPath(t *testing.T) {
	for key, want := range map[string][]string{
		"a": {"a"}, "a.b": {"a", "b"}, `projects."/a.b/c".trust_level`: {"projects", "/a.b/c", "trust_level"}, `'a.b'.c`: {"a.b", "c"}, ` a . b `: {"a", "b"}, `"a\"b"`: {`a"b`},
		"": nil, ".": nil, "a.": nil, ".a": nil, "a..b": nil, `"a`: nil, `'a`: nil, `"a"b`: nil, `'a'b`: nil,
	} {
		got, err := keyPath(key)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %q %v, want %q", key, got, err, want)
		}
	}
}

// FuzzOverride: -c is read or refused, and what is read can be set and explained.
func FuzzOverride(f *testing.F) {
	for _, s := range []string{"model=x", `projects."/a".trust_level="trusted"`, "a.b.c=[1, {x = 2}]", "limits.max_turns=3", "x", "=", "a..b=1", "model=\"\"\"a\nb\"\"\"", "permissions.network.domains.\"*\"=\"allow\"", "mcp_servers.a={command=\"x\"}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := ParseOverride(text)
		if err != nil {
			return
		}
		src := inMemory(nil).sources()
		src.Overrides = []Override{o}
		p, err := Load(src)
		if err != nil {
			return
		}
		for _, k := range p.Keys() {
			p.Explain(k)
		}
	})
}
