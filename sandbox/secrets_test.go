package sandbox

import (
	"slices"
	"strings"
	"testing"
)

func TestCleanEnv(t *testing.T) {
	keep := []string{"PATH=/bin", "HOME=/root", "LANG=C", "LC_ALL=C", "TZ=UTC", "PWD=/x", "USER=u", "SHELL=/bin/sh", "TERM=dumb", "GOPATH=/go", "GOROOT=/usr/local/go",
		"GOFLAGS=-mod=mod", "JAVA_HOME=/j", "NODE_OPTIONS=x", "CI=true", "RUNNER_OS=Linux", "RUNNER_TOOL_CACHE=/t", "npm_config_registry=https://registry.example.com/",
		"CGO_ENABLED=0", "EMPTY=", "A=b=c", "http_proxy=http://proxy.example.com:3128", "GIT_AUTHOR_NAME=a", "COMPASS=north", "PIPELINE=1"}
	drop := []string{"OPENAI_API_KEY=x", "MY_DB_PASSWORD=x", "GITHUB_TOKEN=x", "GITHUB_ENV=/x", "GITHUB_SHA=x", "ACTIONS_RUNTIME_TOKEN=x", "ACTIONS_CACHE_URL=x",
		"AWS_SECRET_ACCESS_KEY=x", "AWS_ACCESS_KEY_ID=x", "SSH_AUTH_SOCK=/x", "DBUS_SESSION_BUS_ADDRESS=x", "DOCKER_HOST=unix:///x", "DISPLAY=:0", "KUBECONFIG=/x",
		"GOOGLE_APPLICATION_CREDENTIALS=/x", "PGPASSWORD=x", "MYSQL_PWD=x", "NPM_TOKEN=x", "npm_config__authToken=x", "CI_JOB_JWT=x", "SYSTEM_ACCESSTOKEN=x",
		"DATABASE_URL=postgres://user:pass@db.example.com/x", "CI_REPOSITORY_URL=https://gitlab-ci-token:abc@git.example.com/x", "http_proxy=http://u:p@proxy.example.com",
		"TWO=https://a.example.com/ https://u:p@b.example.com", "XDG_RUNTIME_DIR=/run/user/0", "TMPDIR=/x", "LD_PRELOAD=/x.so", "secret_sauce=x", "Auth_Header=x",
		"GH_PAT=x", "SENTRY_DSN=x", "SLACK_WEBHOOK=x", "NETRC=/x", "CODEX_API_KEY=x", "INPUT_X=y", "=x", "noequals"}
	got := CleanEnv(append(slices.Clone(keep), drop...))
	for _, kv := range keep {
		if !slices.Contains(got, kv) {
			t.Errorf("%s is dropped", kv)
		}
	}
	for _, kv := range drop {
		if slices.Contains(got, kv) {
			t.Errorf("%s is kept", kv)
		}
	}
}

func FuzzCleanEnv(f *testing.F) {
	for _, s := range []string{"A=b", "X_TOKEN=1", "U=a://b:c@d", "=", "a", "K=://@", "é=ü"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, kv string) {
		for _, got := range CleanEnv([]string{kv}) {
			name, _, _ := strings.Cut(got, "=")
			up := strings.ToUpper(name)
			for _, w := range []string{"TOKEN", "SECRET", "PASSWORD", "API_KEY"} {
				if strings.Contains(up, w) {
					t.Fatalf("%q is kept", got)
				}
			}
			if got != kv {
				t.Fatalf("%q became %q", kv, got)
			}
		}
	})
}

func TestDefaultDeny(t *testing.T) {
	got := DefaultDeny("/home/u", "")
	for _, p := range []string{"/home/u/.ssh", "/home/u/.aws", "/home/u/.codex", "/home/u/.netrc", "/etc/shadow"} {
		if !slices.Contains(got, p) {
			t.Errorf("%s is missing", p)
		}
	}
	got = DefaultDeny("/home/u", "/srv/codex")
	if !slices.Contains(got, "/home/u/.codex") || !slices.Contains(got, "/srv/codex") {
		t.Errorf("another CODEX_HOME: %v", got)
	}
	for _, p := range DefaultDeny("", "") {
		if !strings.HasPrefix(p, "/etc/") && !strings.HasPrefix(p, "/var/") {
			t.Errorf("without a home: %s", p)
		}
	}
	for _, p := range DefaultReveal("/home/u", "") {
		if !strings.HasPrefix(p, "/home/u/.codex/") || strings.Contains(p, "auth") {
			t.Errorf("revealed: %s", p)
		}
	}
	if DefaultReveal("", "") != nil {
		t.Error("something is revealed without a home")
	}
}
