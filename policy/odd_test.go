package policy

import (
	"strings"
	"testing"
)

// TestOddValues: what is written and cannot be meant is an error that says so.
func TestOddValues(t *testing.T) {
	for _, c := range []struct{ config, want string }{
		{"[agents]\nmax_threads = 0", "agents.max_threads must be at least 1"},
		{"[model_providers.openai]\nbase_url = \"http://127.0.0.1:1\"", "model_providers.openai: the name is built in"},
		{"[permissions.mine]\nextends = \":workspace\"", `permission profile "mine" is defined, and default_permissions does not choose one`},
		{"sandbox_mode = \"read-only\"\n[permissions.mine]\nextends = \":workspace\"", ""},
		{"default_permissions = \":workspace\"\n[permissions.mine]\nextends = \":workspace\"", ""},
		{"[permissions.network]\nenabled = true", ""},
	} {
		_, err := Load(inMemory(map[string]string{"/work/repo/.git/HEAD": "x", places.Replace("home/config.toml"): c.config}).sources())
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%q: %v", c.config, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%q: %v, want %q", c.config, err, c.want)
		}
	}
	if got := load(t, map[string]string{"home/config.toml": "[agents]\nmax_depth = 0"}).Config().Agents.MaxDepth; got != -1 {
		t.Errorf("max_depth = 0 is read as %d, want -1", got)
	}
}

// TestOverrideQuotes: a value that is no TOML loses the quotes around it.
func TestOverrideQuotes(t *testing.T) {
	for text, want := range map[string]string{`"Say "hi" now"`: `Say "hi" now`, `'it's'`: "it's", `""a""`: "a", `"a`: `"a`, `a"`: `a"`, `"`: `"`, `'a"`: `'a"`} {
		p := load(t, nil, func(s *Sources) {
			s.Overrides = []Override{{Key: "developer_instructions", Value: text, Flag: "-c developer_instructions"}}
		})
		if got := p.Config().DeveloperInstructions; got != want {
			t.Errorf("%s is read as %s, want %s", text, got, want)
		}
	}
}
