package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestLint(t *testing.T) {
	for _, c := range []struct {
		kind, text string
		want       []string
	}{
		{"config", "modle = 1\nmodel = 2\n[mcp_servers.x]\n", []string{":1:1: unknown key", ":2:1: \"model\" must be a string", ":3:14: mcp_servers.x needs command or url"}},
		{"config", "model_provider = \"elsewhere\"\nmodel_instructions_file = \"elsewhere.md\"\n", nil},
		{"requirements", "allowed_sandbox_modes = [\"workspace-write\"]\nnosuch = 1\n[features]\nhoks = true\n[experimental_network]\nallowed_domains = [\"http://x\"]\n", []string{"must include \"read-only\"", ":2:1: unknown requirement \"nosuch\"", "unknown feature \"hoks\"", "is not a host name"}},
		{"requirements", "allowed_approval_policies = [\"on-request\"]\n", nil},
		{"rules", "prefix_rule(pattern=[])\nprefix_rule(pattern=[\"a\"], match=[\"b\"])\n", []string{":1:1: prefix_rule: pattern is empty", ":2:1: prefix_rule: match example"}},
	} {
		errs := Lint(c.kind, "policy/x", []byte(c.text))
		if len(errs) != len(c.want) {
			t.Errorf("%s %q: %v", c.kind, c.text, &Errors{List: errs})
			continue
		}
		for _, w := range c.want {
			if !slices.ContainsFunc(errs, func(e *Error) bool { return strings.Contains(e.Error(), w) }) {
				t.Errorf("%s %q: no %q in %v", c.kind, c.text, w, &Errors{List: errs})
			}
		}
	}
	for path, want := range map[string]string{"a/b.rules": "rules", "requirements.toml": "requirements", "x/prod.requirements.toml": "requirements", "config.toml": "config", "ci.config.toml": "config"} {
		if got := LintKind(path); got != want {
			t.Errorf("%s is taken for %s", path, got)
		}
	}
}

func TestCompare(t *testing.T) {
	a := "allowed_sandbox_modes = [\"read-only\", \"workspace-write\"]\nallowed_web_search_modes = [\"cached\"]\n[limits]\nmax_turns = 5\n[sandbox]\ndeny_read = [\"/a\"]\n[[rules.prefix_rules]]\npattern = [{ token = \"a\" }]\ndecision = \"prompt\"\n"
	b := "allowed_sandbox_modes = [\"read-only\"]\nallowed_web_search_modes = [\"cached\", \"live\"]\n[limits]\nmax_turns = 9\n[sandbox]\ndeny_read = [\"/a\", \"/b\"]\n[mcp_servers]\n[[rules.prefix_rules]]\npattern = [{ token = \"a\" }]\ndecision = \"forbidden\"\n"
	changes, err := Compare("a.toml", []byte(a), "b.toml", []byte(b))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changes {
		got = append(got, c.Key+" "+c.Effect)
	}
	want := []string{
		"allowed_sandbox_modes tighter",
		"allowed_web_search_modes looser",
		"limits.max_turns looser",
		"mcp_servers tighter",
		"rules.prefix_rules a tighter",
		"sandbox.deny_read tighter",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if changes, err := Compare("a.toml", []byte(a), "a.toml", []byte(a)); err != nil || changes != nil {
		t.Errorf("a file compared with itself: %v %v", changes, err)
	}
	if _, err := Compare("a.toml", []byte("nosuch = 1"), "b.toml", []byte(b)); err == nil {
		t.Error("a file with mistakes is compared")
	}
	x, y := load(t, nil), load(t, map[string]string{"etc/requirements.toml": "allow_login_shell = false\nallowed_web_search_modes = []"})
	diff := Differences(x, y)
	if len(diff) < 2 || diff[0].Key != "allow_login_shell" {
		t.Errorf("differences: %+v", diff)
	}
}
