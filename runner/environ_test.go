package runner

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/sandbox"
)

func TestEnviron(t *testing.T) {
	p := newPlace(t)
	p.env = append(p.env, "TERM=xterm", "PLAIN_SETTING=visible", "DEPLOY_TOKEN=tok-fake-55aa", "GITHUB_ENV=/x", "OLDPWD=/", "PWD=/", "LANG=de_DE.UTF-8",
		"HTTPS_PROXY=http://u:pw@proxy.example.com", "no_proxy=10.0.0.0/8", "TMPDIR="+p.base, "TRACEPARENT=old", "MAVEN_OPTS=-Xmx1g", "CODEX_TOOL_CALL_ID=old")
	c, o := p.confine("workspace-write")
	e := environment(c.Environ(CommandEnv{Base: o.Policy.Environment(p.env), ThreadID: "thread-1", CallID: "call_7", Version: "1.2.3", TraceParent: "00-aa-bb-01"}))
	for name, want := range map[string]string{
		"CODEX_CI": "1", "CODEX_THREAD_ID": "thread-1", "CODEX_SESSION_ID": "thread-1", "CODEX_TOOL_CALL_ID": "call_7", "CODEX_VERSION": "1.2.3",
		"CODEX_APPLY_PATCH_PRESERVE_LINE_ENDINGS": "1", "NO_COLOR": "1", "COLORTERM": "", "PAGER": "cat", "GIT_PAGER": "cat", "GH_PAGER": "cat",
		"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "LC_CTYPE": "C.UTF-8", "TERM": "xterm", "CODEX_SANDBOX_NETWORK_DISABLED": "1", "TMPDIR": "/tmp",
		"PLAIN_SETTING": "visible", "PWD": p.ws, "TRACEPARENT": "00-aa-bb-01", "HOME": p.user, "CI": "true",
	} {
		if got, ok := e.get(name); !ok || got != want {
			t.Errorf("%s=%q, %v; want %q", name, got, ok, want)
		}
	}
	for _, name := range []string{"DEPLOY_TOKEN", "GITHUB_ENV", "OLDPWD", "HTTPS_PROXY", "no_proxy"} {
		if v, ok := e.get(name); ok {
			t.Errorf("%s=%q", name, v)
		}
	}
	if v, _ := e.get("MAVEN_OPTS"); !strings.HasPrefix(v, "-Xmx1g -Dmaven.repo.local=") {
		t.Errorf("MAVEN_OPTS=%q", v)
	}
	names := map[string]bool{}
	for _, kv := range e {
		name, _, _ := strings.Cut(kv, "=")
		if names[name] {
			t.Errorf("%s is there twice", name)
		}
		names[name] = true
	}
	bare := environment(c.Environ(CommandEnv{Base: nil, ThreadID: "t"}))
	if v, _ := bare.get("TERM"); v != "dumb" {
		t.Errorf("TERM=%q", v)
	}
	if _, ok := bare.get("CODEX_TOOL_CALL_ID"); ok {
		t.Error("a call id without a call")
	}
}

func TestEnvironOfNetworks(t *testing.T) {
	p := newPlace(t)
	p.env = append(p.env, "HTTPS_PROXY=http://u:pw@proxy.example.com", "TMPDIR="+p.base)
	has := func(c *Confinement, o ConfineOptions, addr, name string) string {
		v, ok := environment(c.Environ(CommandEnv{Base: o.Policy.Environment(p.env), ProxyAddr: addr})).get(name)
		if !ok {
			return "-"
		}
		return v
	}
	c, o := p.confine("workspace-write", "sandbox_workspace_write.network_access=true")
	if c.Spec.Net.Mode != sandbox.NetHost || has(c, o, "", "HTTPS_PROXY") != "http://u:pw@proxy.example.com" || has(c, o, "", "CODEX_SANDBOX_NETWORK_DISABLED") != "-" {
		t.Errorf("%+v", c.Spec.Net)
	}
	told := func(c *Confinement) bool {
		return slices.ContainsFunc(c.Notices, func(n event.Notice) bool { return n.Class == "job_proxy" && strings.Contains(n.Message, "HTTPS_PROXY") })
	}
	if told(c) {
		t.Errorf("%+v", c.Notices)
	}
	p.flags.NetworkAllow = []string{"example.com"}
	c, o = p.confine("workspace-write")
	if !told(c) {
		t.Errorf("nothing is said of the job's proxy: %+v", c.Notices)
	}
	const addr = "127.0.0.1:3128"
	if c.Spec.Net.Mode != sandbox.NetProxy || has(c, o, addr, "HTTPS_PROXY") != "http://"+addr || has(c, o, addr, "no_proxy") != "localhost,127.0.0.1,::1" ||
		has(c, o, addr, "CODEX_SANDBOX_NETWORK_DISABLED") != "-" || !strings.Contains(has(c, o, addr, "MAVEN_OPTS"), "-Dhttps.proxyPort=3128") {
		t.Errorf("%+v", c.Environ(CommandEnv{ProxyAddr: addr}))
	}
	if has(c, o, "", "HTTPS_PROXY") != "-" || has(c, o, "", "CODEX_SANDBOX_NETWORK_DISABLED") != "1" {
		t.Error("a proxy that is not there is named")
	}
	p.flags.NetworkAllow = nil
	c, o = p.confine("danger-full-access")
	if has(c, o, "", "TMPDIR") != p.base || has(c, o, "", "CODEX_SANDBOX_NETWORK_DISABLED") != "-" {
		t.Error("full access changes more than it should")
	}
}

// Inside, nothing of the runner's variables is left, own or in any /proc.
func TestEnvironInside(t *testing.T) {
	p := newPlace(t)
	p.env = append(p.env, "DEPLOY_TOKEN=tok-fake-55aa55aa55aa", "DB_PASSWORD=pw-fake-1234554321", "PLAIN_SETTING=visible-ok")
	c, o := p.confine("workspace-write")
	out, _ := p.run(c, o, `env | sort; tr '\0' '\n' < /proc/$PPID/environ; for p in /proc/[0-9]*; do tr '\0' '\n' < $p/environ 2>/dev/null; done; echo "tmp: $TMPDIR"; touch "$TMPDIR/x" && echo tmp works; locale 2>&1 | head -1`)
	if strings.Contains(out, "fake") || !strings.Contains(out, "visible-ok") || !strings.Contains(out, "tmp works") {
		t.Errorf("%s", out)
	}
}

func TestGitOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	p := newPlace(t)
	p.git(p.ws, "init", "-q")
	for _, d := range []string{p.ws, p.ws + "/.git"} {
		if err := os.Chown(d, 12345, 12345); err != nil {
			t.Fatal(err)
		}
	}
	p.env = append(p.env, "GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=user.name", "GIT_CONFIG_VALUE_0=somebody", "GIT_CONFIG_KEY_1=a.b", "GIT_CONFIG_VALUE_1=c")
	p.write(p.home+"/config.toml", "[shell_environment_policy]\nexclude = [\"*_0\"]\nignore_default_excludes = true\n")
	c, o := p.confine("workspace-write")
	out, code := p.run(c, o, "git status --porcelain && git config a.b")
	if code != 0 || out != "c\n" {
		t.Errorf("exit %d: %s", code, out)
	}
	e := environment(c.GitEnv(p.env))
	if v, _ := e.get("GIT_CONFIG_VALUE_0"); v != p.ws {
		t.Errorf("%q", e)
	}
}

// Settings for git that the job gives by the environment reach commands, but for
// those that authorize.
func TestGitSettingsOfTheJob(t *testing.T) {
	p := newPlace(t)
	p.git(p.ws, "init", "-q")
	p.env = append(p.env, "GIT_CONFIG_COUNT=5",
		"GIT_CONFIG_KEY_0=http.https://example.com/.extraheader", "GIT_CONFIG_VALUE_0=AUTHORIZATION: basic c2VjcmV0LXNlY3JldA==",
		"GIT_CONFIG_KEY_1=a.b", "GIT_CONFIG_VALUE_1=c",
		"GIT_CONFIG_KEY_2=url.https://bot:pw-fake-1234554321@example.com/.insteadOf", "GIT_CONFIG_VALUE_2=https://example.com/",
		"GIT_CONFIG_KEY_3=http.extraheader", "GIT_CONFIG_VALUE_3=X-Api-Token: plain-fake-99",
		"GIT_CONFIG_KEY_4=url.https://mirror.example/.insteadOf", "GIT_CONFIG_VALUE_4=https://example.com/")
	c, o := p.confine("workspace-write")
	out, code := p.run(c, o, `git config a.b; git config url.https://mirror.example/.insteadOf; env | grep ^GIT_CONFIG_COUNT; env | grep -i "secret\|c2Vj\|fake" || echo none`)
	if code != 0 || out != "c\nhttps://example.com/\nGIT_CONFIG_COUNT=2\nnone\n" {
		t.Errorf("exit %d: %s", code, out)
	}
}

func TestGitEnv(t *testing.T) {
	p := newPlace(t)
	p.env = append(p.env, "GIT_DIR=/evil", "GIT_SSH_COMMAND=evil", "LD_PRELOAD=evil", "DEPLOY_TOKEN=x")
	c, _ := p.confine("workspace-write")
	e := c.GitEnv(p.env)
	for _, kv := range e {
		if strings.Contains(kv, "evil") || strings.Contains(kv, "DEPLOY") {
			t.Errorf("%q", e)
		}
	}
	if !slices.Contains(e, "HOME="+p.user) || !slices.Contains(e, "PATH="+os.Getenv("PATH")) {
		t.Errorf("%q", e)
	}
}

func TestJobSecrets(t *testing.T) {
	environ := []string{
		"DEPLOY_TOKEN=tok-fake-55aa55aa55aa", "DB_PASSWORD=pw-fake-1234554321", "MY_PROVIDER=short", "PLAIN=visible-setting-1", "SSH_KEY_PATH=/home/x/key",
		"USE_TOKEN=true", "KEYBOARD=international", "SECRET_STAGE=production", "NPM_TOKEN=abcdefghijklmnopqrstuvwx", "EMPTY_TOKEN=", "CACHE_KEY=12345678", "novalue",
		"DATABASE_URL=postgres://app:fake-pw-987@db/x", "GOPRIVATE=example.com/acme/*", "TEST_URL=postgres://postgres:postgres@db/x",
	}
	if got := NamedSecrets(environ, []string{"my_provider", "empty_token"}); !maps.Equal(got, map[string]string{"MY_PROVIDER": "short"}) {
		t.Errorf("%v", got)
	}
	got := JobSecrets(environ)
	want := map[string]string{"DEPLOY_TOKEN": "tok-fake-55aa55aa55aa", "DB_PASSWORD": "pw-fake-1234554321",
		"NPM_TOKEN": "abcdefghijklmnopqrstuvwx", "DATABASE_URL": "fake-pw-987", "CACHE_KEY": "12345678"}
	if !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
