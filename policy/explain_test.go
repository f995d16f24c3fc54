package policy

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDigest(t *testing.T) {
	base := load(t, nil).Digest()
	if !strings.HasPrefix(base, "sha256:") || len(base) != 71 {
		t.Errorf("digest %q", base)
	}
	if other := load(t, map[string]string{"home/config.toml": "[tui]\ntheme = \"x\"\n# comment\n"}).Digest(); other != base {
		t.Error("a setting without effect changes the digest")
	}
	moved := load(t, map[string]string{"/other/repo/.git/HEAD": "x"}, func(s *Sources) { s.Cwd, s.GitRoot = "/other/repo", "" }).Digest()
	if moved != base {
		t.Error("the working folder changes the digest")
	}
	for name, text := range map[string]string{"home/config.toml": "sandbox_mode = \"workspace-write\"", "home/rules/x.rules": "prefix_rule(pattern=[\"a\"])", "etc/requirements.toml": "[experimental_network]\nallowed_domains = [\"x.example\"]"} {
		if load(t, map[string]string{name: text}).Digest() == base {
			t.Errorf("%s does not change the digest", name)
		}
	}
	secret := func(value string) string {
		return load(
			t,
			map[string]string{
				"home/config.toml": "model_provider = \"m\"\n[model_providers.m]\nbase_url = \"http://x\"\nexperimental_bearer_token = \"" + value + "\"\nhttp_headers = { A = \"" + value + "\" }\n",
			},
		).Digest()
	}
	if secret("one") != secret("two") {
		t.Error("a secret's value changes the digest")
	}
}

func TestExplain(t *testing.T) {
	p := load(t, map[string]string{
		"etc/config.toml": "web_search = \"cached\"", "home/config.toml": "web_search = \"live\"\nsandbox_mode = \"workspace-write\"\n[model_providers.m]\nbase_url = \"http://x\"\nexperimental_bearer_token = \"secret\"\nhttp_headers = { Authorization = \"secret\" }\n[projects.\"/work/repo\"]\ntrust_level = \"trusted\"\n",
		"work/.codex/config.toml": "sandbox_mode = \"danger-full-access\"\n",
		"etc/requirements.toml":   "allowed_web_search_modes = [\"cached\"]\nallowed_sandbox_modes = [\"read-only\"]\n",
	})
	e := p.Explain("web_search")
	if e.Value != "cached" || len(e.Layers) != 2 || len(e.Constraint) != 1 || e.Constraint[0].Origin != "/etc/codex/requirements.toml:1" {
		t.Errorf("web_search: %+v", e)
	}
	e = p.Explain("sandbox_mode")
	if e.Value != "read-only" || len(e.Layers) != 2 || e.Layers[1].Ignored == "" || e.Layers[0].Value != "workspace-write" {
		t.Errorf("sandbox_mode: %+v", e)
	}
	if e := p.Explain("sandbox_mod"); e.Known || !strings.Contains(e.Suggestion, "sandbox_mode") {
		t.Errorf("a misspelt key: %+v", e)
	}
	if e := p.Explain("tui.theme"); e.Use != "unused" {
		t.Errorf("a key without effect: %+v", e)
	}
	for _, key := range []string{"model_providers", "model_providers.m", "model_providers.m.experimental_bearer_token", "model_providers.m.http_headers"} {
		e := p.Explain(key)
		data, err := json.Marshal(e)
		if err != nil || strings.Contains(string(data), "secret") || strings.Contains(e.String(), "secret") {
			t.Errorf("%s shows a secret: %s", key, data)
		}
	}
	if got := p.Origins()["sandbox_mode"]; got != "/etc/codex/requirements.toml:2" {
		t.Errorf("origin of the sandbox mode: %q", got)
	}
}
