package policy

import (
	"slices"
	"strings"
	"testing"
	"time"
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
		{"[mcp_servers.a]\ncommand = \"c\"\ntool_timeout_sec = inf", "must be a number, 0 or more, not inf"},
		{"[limits]\nmax_cost_usd = +inf", "must be a number, 0 or more, not +inf"},
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

// TestEndlessTimes: a time that a Duration cannot hold is as good as none; it
// does not turn negative.
func TestEndlessTimes(t *testing.T) {
	for _, n := range []string{"1e12", "10000000000", "9223372036854775807"} {
		c := load(t, map[string]string{"home/config.toml": "[mcp_servers.a]\ncommand = \"c\"\ntool_timeout_sec = " + n + "\n[agents]\njob_max_runtime_seconds = " + strings.Replace(n, "1e12", "1000000000000", 1) +
			"\n[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = \"command\"\ncommand = \"c\"\ntimeout = " + n}).Config()
		if got := []time.Duration{c.MCPServers["a"].ToolTimeout, c.Agents.JobMaxRuntime, c.Hooks[0].Timeout}; slices.Min(got) != longest {
			t.Errorf("%s: %v, want %v", n, got, longest)
		}
	}
	c := load(t, map[string]string{"home/config.toml": "[mcp_servers.a]\ncommand = \"c\"\nstartup_timeout_ms = 9223372036854775807"}).Config()
	if got := c.MCPServers["a"].StartupTimeout; got != longest {
		t.Errorf("startup_timeout_ms: %v, want %v", got, longest)
	}
}
