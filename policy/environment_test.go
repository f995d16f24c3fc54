package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestEnvironment(t *testing.T) {
	environ := []string{
		"PATH=/bin",
		"HOME=/h",
		"LANG=C",
		"LC_ALL=C",
		"TZ=UTC",
		"FOO=1",
		"Foo_Bar=2",
		"AWS_SECRET_ACCESS_KEY=s",
		"MY_TOKEN=s",
		"db_password=s",
		"GITHUB_ENV=/x",
		"GITHUB_SHA=abc",
		"ACTIONS_RUNTIME_URL=u",
		"OPENAI_API_KEY=s",
		"CODEX_API_KEY=s",
		"MOCK=s",
		"SSH_AUTH_SOCK=/s",
		"KEYBOARD=us",
		"EMPTY=",
		"=x",
		"nonsense",
	}
	for _, c := range []struct{ name, config, want string }{
		{"default", "", "PATH HOME LANG LC_ALL TZ FOO Foo_Bar GITHUB_SHA EMPTY"},
		{"core", "[shell_environment_policy]\ninherit = \"core\"", "PATH HOME LANG LC_ALL"},
		{"none", "[shell_environment_policy]\ninherit = \"none\"\nset = { A = \"1\" }", "A"},
		{"no default excludes", "[shell_environment_policy]\nignore_default_excludes = true", "PATH HOME LANG LC_ALL TZ FOO Foo_Bar AWS_SECRET_ACCESS_KEY MY_TOKEN db_password GITHUB_SHA KEYBOARD EMPTY"},
		{"exclude without case", "[shell_environment_policy]\nexclude = [\"foo*\", \"t?\"]", "PATH HOME LANG LC_ALL GITHUB_SHA EMPTY"},
		{"include only", "[shell_environment_policy]\ninclude_only = [\"P*\", \"foo\"]\nset = { Pet = \"1\", OTHER = \"2\" }", "PATH FOO Pet"},
		{"set goes before excludes", "[shell_environment_policy]\nset = { MY_KEY = \"1\", FOO = \"2\" }", "PATH HOME LANG LC_ALL TZ FOO Foo_Bar GITHUB_SHA EMPTY MY_KEY"},
		{"set cannot bring back the runner's", "[shell_environment_policy]\nset = { OPENAI_API_KEY = \"1\", ACTIONS_X = \"2\" }", "PATH HOME LANG LC_ALL TZ FOO Foo_Bar GITHUB_SHA EMPTY"},
		{"filters", "[shell_environment_policy.filters]\n\"FOO*\" = \"exclude\"\n\"*A*\" = \"include\"", "PATH LANG LC_ALL GITHUB_SHA"},
	} {
		p := load(
			t,
			map[string]string{
				"home/config.toml": c.config + "\n[model_providers.m]\nbase_url = \"http://x\"\nenv_key = \"MOCK\"\n",
				"etc/config.toml":  "model_provider = \"m\"",
			},
		)
		var names []string
		for _, pair := range p.Environment(environ) {
			name, _, _ := strings.Cut(pair, "=")
			names = append(names, name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s: got %s\nwant %s", c.name, got, c.want)
		}
	}
	p := load(t, map[string]string{"home/config.toml": "[shell_environment_policy]\nset = { FOO = \"new\" }"})
	if got := p.Environment([]string{"FOO=a", "FOO=b"}); !slices.Equal(got, []string{"FOO=new"}) {
		t.Errorf("a name given twice: %q", got)
	}
}

// FuzzEnvironment: no runner's secret passes, whatever the patterns.
func FuzzEnvironment(f *testing.F) {
	f.Add("A_*", "*", "NAME", "all")
	f.Add("[", "?", "openai_api_key", "core")
	f.Fuzz(func(t *testing.T, exclude, include, name, inherit string) {
		if strings.ContainsAny(name, "=\x00") || name == "" {
			t.Skip()
		}
		p := &Policy{
			config: Config{
				Environment: EnvironmentPolicy{
					Inherit:               inherit,
					Exclude:               []string{exclude},
					IncludeOnly:           []string{include},
					Set:                   map[string]string{name: "v"},
					IgnoreDefaultExcludes: true,
				},
			},
			secretVariables: []string{"MOCK_KEY"},
		}
		for _, pair := range p.Environment([]string{"MOCK_KEY=secret", "mock_key=secret", "CODEX_API_KEY=secret", "ACTIONS_RUNTIME_TOKEN=secret", "GITHUB_ENV=secret", "Openai_Api_Key=secret", name + "=x"}) {
			if strings.HasSuffix(pair, "=secret") {
				t.Errorf("%q passes with exclude %q, include %q, inherit %q", pair, exclude, include, inherit)
			}
		}
	})
}

// A credential does not need a telling name.
func TestSecretInGitSettings(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"GIT_CONFIG_KEY_0", "safe.directory", ""},
		{"git_config_key_12", "user.name", ""},
		{"GIT_CONFIG_KEY_X", "abc", "abc"},
		{"GIT_CONFIG_KEY_0", "url.https://u:pass-1@h/.insteadOf", "pass-1"},
		{"GIT_CONFIG_KEY_0", "url.https://aaaa1111bbbb2222@h/.insteadOf", "aaaa1111bbbb2222"},
		{"GIT_CONFIG_VALUE_0", "AUTHORIZATION: basic Zm9v", "Zm9v"},
		{"GIT_CONFIG_VALUE_0", "Authorization: Bearer tok en", "tok en"},
		{"GIT_CONFIG_VALUE_0", "X-Key:abc", "abc"},
		{"GIT_CONFIG_VALUE_0", "https://example.com/", ""},
		{"GIT_CONFIG_VALUE_0", "git@example.com:a/b", ""},
		{"GIT_CONFIG_VALUE_0", "*", ""},
		{"OTHER", "X-Key: abc", ""},
	} {
		if got := SecretIn(c.name, c.value); got != c.want {
			t.Errorf("%s=%s: %q, want %q", c.name, c.value, got, c.want)
		}
	}
}

func TestSecretIn(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"DATABASE_URL", "postgres://app:fake-pw-1@db:5432/x?y=z", "fake-pw-1"},
		{"REDIS_URL", "redis://:fake-pw-2@h", "fake-pw-2"},
		{"HTTPS_PROXY", "http://u:pw@proxy.example.com", ""},
		{"REPO", "https://git@example.com/r.git", ""},
		{"SITE", "https://example.com/a:b@c", ""},
		{"CONN", "Server=tcp:x;User ID=a;Password=fake-pw-3;Encrypt=true", "fake-pw-3"},
		{"STORE", "DefaultEndpointsProtocol=https;AccountKey=ZmFrZQ==;x", "ZmFrZQ=="},
		{"JAVA_OPTS", "-Xmx1g -Djavax.net.ssl.trustStorePassword=changeit", ""},
		{"DEPLOY", "-----BEGIN OPENSSH PRIVATE KEY-----\nx", "-----BEGIN OPENSSH PRIVATE KEY-----\nx"},
		{"BOT", "use ghp_" + strings.Repeat("a1", 18), "ghp_" + strings.Repeat("a1", 18)},
		{"ID", "eyJhbGciOiJub25l.eyJzdWIiOiJmYWtl.c2ln", "eyJhbGciOiJub25l.eyJzdWIiOiJmYWtl.c2ln"},
		{"MYSQL_PWD", "x", "x"}, {"DB_PASS", "x", "x"}, {"GH_PAT", "x", "x"}, {"NPM_CONFIG__AUTH", "x", "x"}, {"SENTRY_DSN", "x", "x"},
		{"PWD", "/w", ""}, {"OLDPWD", "/w", ""}, {"PATH", "/bin", ""}, {"GOPRIVATE", "example.com/*", ""}, {"GIT_AUTHOR_NAME", "a", ""},
		{"COMPASS", "x", ""}, {"PATTERN", "x", ""}, {"MY_KEY", "", ""}, {"FLAGS", "a=b&token_kind=c", ""},
	} {
		if got := SecretIn(c.name, c.value); got != c.want {
			t.Errorf("%s=%s: %q, want %q", c.name, c.value, got, c.want)
		}
	}
	p := load(t, map[string]string{"home/config.toml": ""})
	if got := p.Environment([]string{"A=1", "DATABASE_URL=postgres://a:b@c/d", "HTTP_PROXY=http://u:p@h"}); strings.Join(got, " ") != "A=1 HTTP_PROXY=http://u:p@h" {
		t.Errorf("%q", got)
	}
	p = load(t, map[string]string{"home/config.toml": "[shell_environment_policy]\nignore_default_excludes = true"})
	if got := p.Environment([]string{"DATABASE_URL=postgres://a:b@c/d"}); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

func TestMatchesName(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"GH_TOKEN", "GH_TOKEN", true}, {"GH_TOKEN", "GH_TOKENS", false}, {"INPUT_*", "INPUT_A", true}, {"INPUT_*", "XINPUT_A", false},
		{"*KEY*", "A/KEY/B", true}, {"*KEY*", "KEY", true}, {"*KEY*", "KE", false}, {"**", "A", true}, {"*", "", true}, {"*", "A/B", true},
		{"A?C", "A/C", true}, {"A[BC]", "AC", true}, {"A[", "A[", true}, {"A[", "AB", false}, {`A\*`, "A*", true}, {`A\*`, "AB", false}, {"*A*B*", "XAYBZ", true},
	} {
		if got := matchesName(c.pattern, c.name); got != c.want {
			t.Errorf("%q matches %q: %v", c.pattern, c.name, got)
		}
	}
}
