package policy

import (
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// mergeEnvironment rewrites shell_environment_policy of a layer so that merging
// it over base gives the right patterns. The lists exclude and include_only
// replace the entries of their kind; filters are merged entry by entry, names
// compared without case. Inside, only filters are left.
func mergeEnvironment(base, over *node) *node {
	env := over.get("shell_environment_policy")
	if env == nil || env.kind != kTable {
		return over
	}
	filters := newTable(env.layer)
	for _, list := range []struct{ key, action string }{{"exclude", "exclude"}, {"include_only", "include"}} {
		now := env.get(list.key)
		if now == nil {
			continue
		}
		// Entries of this kind below are switched off by name.
		if old := base.get("shell_environment_policy", "filters"); old != nil {
			for _, pattern := range old.keys {
				if old.fields[pattern].text == list.action {
					filters.set(pattern, &node{kind: kString, text: "", layer: now.layer, line: now.line, column: now.column})
				}
			}
		}
		for _, item := range now.items {
			filters.set(strings.ToUpper(item.text), &node{kind: kString, text: list.action, layer: now.layer, line: now.line, column: now.column})
		}
	}
	if table := env.get("filters"); table != nil && table.kind == kTable {
		for _, pattern := range table.keys {
			filters.set(strings.ToUpper(pattern), table.fields[pattern])
		}
	}
	if len(filters.keys) == 0 {
		return over
	}
	return over.without("shell_environment_policy", "exclude").without("shell_environment_policy", "include_only").
		without("shell_environment_policy", "filters").with(filters, "shell_environment_policy", "filters")
}

// environmentList is the patterns of one action in a merged tree.
func environmentList(root *node, action string) []string {
	filters := root.get("shell_environment_policy", "filters")
	if filters == nil {
		return nil
	}
	var out []string
	for _, pattern := range filters.keys {
		if filters.fields[pattern].text == action {
			out = append(out, pattern)
		}
	}
	return out
}

// coreVariables is what inherit = "core" keeps, besides LC_*.
var coreVariables = []string{"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TMPDIR", "USER"}

// secretPatterns are names dropped unless ignore_default_excludes is set.
var secretPatterns = strings.Fields(`*KEY* *SECRET* *TOKEN* *PASSWORD* *PASSWD* *PASSPHRASE* *CREDENTIAL* *COOKIE* *WEBHOOK*
	*_PASS *_PWD *_PAT *_JWT *_JWT_* *_DSN *_SAS *_CREDS *_PRIVATE *_PRIVATE_* *_AUTH *_AUTH_CONFIG SSHPASS`)

// secretValues are what gives a credential away under any name: a URL with a
// password, a setting of one in a connection string, a private key, and tokens
// that announce themselves. The password alone is the first group that matched.
// Only a value that holds one of signs is looked at: most hold none, and most runs
// never need the expressions.
var secretValues = []struct {
	signs []string
	find  func() *regexp.Regexp
}{
	{[]string{"://"}, lazily(`[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#@:]*:([^\s/?#@]+)@`)},
	{[]string{"="}, lazily(`(?i)(?:^|[;,&\s])(?:password|passwd|pwd|accountkey|sharedaccesskey|sharedsecret|client_secret|apikey|api_key|token)\s*=\s*([^;,&\s]+)`)},
	{[]string{"-----BEGIN "}, lazily(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*`)},
	{[]string{"sk-", "k_live_", "k_test_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "npm_", "pypi-", "AKIA", "ASIA", "AIza", "eyJ"},
		lazily(`\b(?:sk-[A-Za-z0-9_-]{16,}|[rs]k_(?:live|test)_[A-Za-z0-9]{10,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}` +
			`|glpat-[A-Za-z0-9_-]{16,}|xox[abeprs]-[A-Za-z0-9-]{10,}|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}|(?:AKIA|ASIA)[A-Z0-9]{16}` +
			`|AIza[A-Za-z0-9_-]{30,}|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+)`)},
}

// lazily compiles an expression when it is first needed.
func lazily(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// SecretIn finds what is secret about an environment variable, by its name or its
// value; "" if nothing is. These are the variables that commands do not get
// unless ignore_default_excludes is set. The addresses of proxies may hold a
// password: who has the host's network needs them.
func SecretIn(name, value string) string {
	if !strings.HasSuffix(strings.ToUpper(name), "_PROXY") {
		for _, e := range secretValues {
			if !slices.ContainsFunc(e.signs, func(sign string) bool { return strings.Contains(value, sign) }) {
				continue
			}
			if m := e.find().FindStringSubmatch(value); m != nil {
				return m[len(m)-1]
			}
		}
	}
	if value != "" && secretName(name) {
		return value
	}
	if isGitSetting("KEY", name) || isGitSetting("VALUE", name) {
		if found := URLCredentials(value); len(found) > 0 {
			return found[0]
		}
	}
	if isGitSetting("VALUE", name) {
		if m := headerValue().FindStringSubmatch(value); m != nil {
			return m[1]
		}
	}
	return ""
}

// secretName tells whether a variable holds a secret by its name. The names of
// settings for git do not: GIT_CONFIG_KEY_0 is "safe.directory" and the like.
func secretName(name string) bool {
	return matchesAny(secretPatterns, name) && !isGitSetting("KEY", name)
}

// isGitSetting tells whether name is one of the variables that git takes settings
// from, GIT_CONFIG_KEY_0 and so on.
func isGitSetting(half, name string) bool {
	n, ok := strings.CutPrefix(strings.ToUpper(name), "GIT_CONFIG_"+half+"_")
	return ok && n != "" && strings.Trim(n, "0123456789") == ""
}

// URLCredentials are the passwords in the URLs of a text, and names of users that
// are tokens, which some services take in the place of both. Of one that is
// quoted in the URL the plain form follows.
func URLCredentials(line string) (found []string) {
	for {
		_, rest, ok := strings.Cut(line, "://")
		if !ok {
			return found
		}
		line = rest
		authority := rest
		if end := strings.IndexAny(rest, "/?# \t\"'"); end >= 0 {
			authority = rest[:end]
		}
		at := strings.LastIndexByte(authority, '@')
		if at < 0 {
			continue
		}
		user, password, _ := strings.Cut(authority[:at], ":")
		list := []string{password}
		if likeToken(user) {
			list = append(list, user)
		}
		for _, s := range list {
			if s == "" || s == "x-oauth-basic" || strings.HasPrefix(s, "$") {
				continue
			}
			found = append(found, s)
			if plain, err := url.PathUnescape(s); err == nil && plain != s {
				found = append(found, plain)
			}
		}
	}
}

// likeToken tells whether the name of a user is long and mixed as no name is.
func likeToken(user string) bool {
	const shortest = 16
	return len(user) >= shortest && strings.ContainsAny(user, "0123456789") && !strings.Contains(user, "%40")
}

// headerValue is a setting for git that is a header to be sent, which is nearly
// always one that authorizes: no address follows the colon.
var headerValue = lazily(`(?i)^\s*[a-z][a-z0-9-]*:\s*(?:(?:basic|bearer|token)\s+)?([^\s/].*)$`)

// runnerVariables never reach a command, whatever the configuration says: keys
// of the runner, files that steer the CI job, and sockets of agents that hold
// credentials.
var runnerVariables = strings.Fields(`CODEX_API_KEY CODEX_ACCESS_TOKEN OPENAI_API_KEY OPENAI_IDENTITY_TOKEN_FILE OPENAI_FEDERATION_RULE_ID NIGHTSHIFT_* ACTIONS_*
	GITHUB_ENV GITHUB_PATH GITHUB_OUTPUT GITHUB_STATE GITHUB_STEP_SUMMARY GITHUB_TOKEN GH_TOKEN GH_ENTERPRISE_TOKEN
	GITHUB_ENTERPRISE_TOKEN INPUT_* RUNNER_TRACKING_ID CI_JOB_TOKEN CI_JOB_JWT* CI_REGISTRY_PASSWORD CI_DEPLOY_PASSWORD
	CI_REPOSITORY_URL CI_DEPENDENCY_PROXY_PASSWORD BUILDKITE_AGENT_ACCESS_TOKEN BUILDKITE_ENV_FILE BASH_ENV CIRCLE_OIDC_TOKEN*
	SYSTEM_ACCESSTOKEN VSS_* TEAMCITY_BUILD_PROPERTIES_FILE DRONE_OUTPUT BITBUCKET_STEP_OIDC_TOKEN SSH_AUTH_SOCK SSH_AGENT_PID
	GPG_AGENT_INFO DBUS_SESSION_BUS_ADDRESS DBUS_SYSTEM_BUS_ADDRESS DISPLAY WAYLAND_DISPLAY XAUTHORITY DOCKER_HOST DOCKER_CONFIG
	CONTAINER_HOST KUBECONFIG TMUX STY VSCODE_IPC_HOOK_CLI VSCODE_GIT_* GOOGLE_APPLICATION_CREDENTIALS AWS_WEB_IDENTITY_TOKEN_FILE
	AWS_CONTAINER_*`)

// Environment is the environment commands get, made from environ ("NAME=value").
// In order: inherit, default excludes, excludes, set, includes; the runner's own
// secrets are dropped at every step. Names are compared without case.
func (p *Policy) Environment(environ []string) []string {
	e := p.config.Environment
	values := map[string]string{}
	var order []string
	put := func(name, value string) {
		if _, exists := values[name]; !exists {
			order = append(order, name)
		}
		values[name] = value
	}
	for _, pair := range environ {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" || p.isRunnerVariable(name) || !inherits(e.Inherit, name) {
			continue
		}
		if !e.IgnoreDefaultExcludes && (secretName(name) || SecretIn(name, value) != "") || matchesAny(e.Exclude, name) {
			continue
		}
		put(name, value)
	}
	for _, name := range sortedKeys(e.Set) {
		if !p.isRunnerVariable(name) {
			put(name, e.Set[name])
		}
	}
	out := make([]string, 0, len(order))
	for _, name := range order {
		if len(e.IncludeOnly) == 0 || matchesAny(e.IncludeOnly, name) {
			out = append(out, name+"="+values[name])
		}
	}
	return out
}

func inherits(mode, name string) bool {
	switch mode {
	case "none":
		return false
	case "core":
		return slices.Contains(coreVariables, strings.ToUpper(name)) || strings.HasPrefix(strings.ToUpper(name), "LC_")
	}
	return true
}

// isRunnerVariable tells whether a name belongs to the runner.
func (p *Policy) isRunnerVariable(name string) bool {
	return matchesAny(runnerVariables, name) || matchesAny(p.secretVariables, name)
}

// SecretVariables are the variables that hold the runner's own credentials: the
// provider's key and headers, and tokens of MCP servers. Their values must be
// masked wherever they appear.
func (p *Policy) SecretVariables() []string { return slices.Clone(p.secretVariables) }

func matchesAny(patterns []string, name string) bool {
	upper := strings.ToUpper(name)
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matchesName(strings.ToUpper(pattern), upper) })
}

// matchesName is path.Match without its slash, for names and patterns in upper case.
// Every start asks it a few thousand times, nearly always about plain names and
// *WORD*.
func matchesName(pattern, name string) bool {
	const meta = `*?[\`
	i := strings.IndexAny(pattern, meta)
	if i < 0 {
		return pattern == name
	}
	if !strings.HasPrefix(name, pattern[:i]) {
		return false
	}
	if n := len(pattern); n > 1 && i == 0 && pattern[0] == '*' && pattern[n-1] == '*' && !strings.ContainsAny(pattern[1:n-1], meta) {
		return strings.Contains(name, pattern[1:n-1])
	}
	// A variable's name may hold a slash, which a star does not match.
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00"))
	if err != nil {
		return pattern == name // a pattern that is not a glob is a name
	}
	return ok
}
