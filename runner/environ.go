package runner

import (
	"encoding/base64"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/sandbox"
	"github.com/nightshift-ci/nightshift/sandbox/egress"
)

// environment is a set of variables in the order they were first set.
type environment []string

func (e environment) get(name string) (string, bool) {
	for i := len(e) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(e[i], name+"="); ok {
			return v, true
		}
	}
	return "", false
}

func (e *environment) set(name, value string) {
	e.drop(name)
	*e = append(*e, name+"="+value)
}

func (e *environment) drop(names ...string) {
	*e = slices.DeleteFunc(*e, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(names, name)
	})
}

// CommandEnv is what the variables of a command are made of besides policy.
type CommandEnv struct {
	Base        []string // what policy lets through
	ThreadID    string
	CallID      string // tool call, "" for hooks, servers and checks
	Version     string
	TraceParent string
	ProxyAddr   string // of the egress proxy as commands see it, "" if there is none
}

// Environ is the environment of one command: what policy lets through, what the
// reference always sets, where temporary files and caches go, and how the
// network is reached.
func (c *Confinement) Environ(o CommandEnv) []string {
	e := environment(slices.Clone(o.Base))
	for _, kv := range [][2]string{
		{"CODEX_CI", "1"}, {"CODEX_THREAD_ID", o.ThreadID}, {"CODEX_SESSION_ID", o.ThreadID}, {"CODEX_VERSION", o.Version},
		{"CODEX_APPLY_PATCH_PRESERVE_LINE_ENDINGS", "1"},
		{"NO_COLOR", "1"}, {"COLORTERM", ""}, {"PAGER", "cat"}, {"GIT_PAGER", "cat"}, {"GH_PAGER", "cat"}, {"GIT_TERMINAL_PROMPT", "0"},
		{"LANG", "C.UTF-8"}, {"LC_ALL", "C.UTF-8"}, {"LC_CTYPE", "C.UTF-8"}, {"PWD", c.workdir},
	} {
		e.set(kv[0], kv[1])
	}
	e.drop("OLDPWD", "CODEX_TOOL_CALL_ID", "TRACEPARENT", "TRACESTATE", "CODEX_SANDBOX_NETWORK_DISABLED")
	if o.CallID != "" {
		e.set("CODEX_TOOL_CALL_ID", o.CallID)
	}
	if o.TraceParent != "" {
		e.set("TRACEPARENT", o.TraceParent)
	}
	if t, ok := e.get("TERM"); !ok || t == "" {
		e.set("TERM", "dumb")
	}
	c.temporary(&e)
	c.network(&e, o.ProxyAddr)
	for _, name := range sortedNames(c.Caches) {
		value := c.Caches[name]
		if old, ok := e.get(name); ok && old != "" && name == "MAVEN_OPTS" {
			value = old + " " + value
		}
		e.set(name, value)
	}
	e.gitConfig()
	c.gitOwner(&e)
	return e
}

// temporary names the folder for temporary files, unless the host's is used.
func (c *Confinement) temporary(e *environment) {
	if c.tmp == "" {
		return
	}
	e.drop("TMP", "TEMP", "TEMPDIR")
	e.set("TMPDIR", c.tmp)
}

var proxyNames = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "no_proxy"}

// network sends clients to the egress proxy. Without any network the host's
// proxies are of no use, and their addresses may hold passwords.
func (c *Confinement) network(e *environment, addr string) {
	switch c.Spec.Net.Mode {
	case sandbox.NetOff:
		e.drop(proxyNames...)
		e.set("CODEX_SANDBOX_NETWORK_DISABLED", "1")
	case sandbox.NetProxy:
		e.drop(proxyNames...)
		if addr == "" {
			e.set("CODEX_SANDBOX_NETWORK_DISABLED", "1")
			return
		}
		for _, kv := range egress.ProxyEnv(addr) {
			name, value, _ := strings.Cut(kv, "=")
			e.set(name, value)
		}
		// Java reads no such variables.
		host, port, _ := strings.Cut(addr, ":")
		java := "-Dhttp.proxyHost=" + host + " -Dhttp.proxyPort=" + port + " -Dhttps.proxyHost=" + host + " -Dhttps.proxyPort=" + port +
			" -Dhttp.nonProxyHosts=localhost|127.*|[::1]"
		for _, name := range []string{"MAVEN_OPTS", "GRADLE_OPTS"} {
			old, _ := e.get(name)
			e.set(name, strings.TrimSpace(old+" "+java))
		}
	}
}

// gitOwner lets git work in a workspace that somebody else owns, as the checkout
// of a CI job in a container often is: the user chose this folder.
func (c *Confinement) gitOwner(e *environment) {
	if c.facts.Root == "" || !foreign(c.facts.Root) && !foreign(c.facts.GitDir) {
		return
	}
	count := e.gitConfig()
	e.set("GIT_CONFIG_KEY_"+strconv.Itoa(count), "safe.directory")
	e.set("GIT_CONFIG_VALUE_"+strconv.Itoa(count), c.facts.Root)
	e.set("GIT_CONFIG_COUNT", strconv.Itoa(count+1))
}

// gitConfig renumbers the settings for git that the environment holds, and
// returns their number. Policy drops variables by their names, so that one of a
// pair may be missing; git would refuse to run then.
func (e *environment) gitConfig() int {
	text, ok := e.get("GIT_CONFIG_COUNT")
	if !ok {
		return 0
	}
	count, err := strconv.Atoi(text)
	if err != nil || count < 0 || count > 1000 {
		count = 0
	}
	kept := 0
	for i := range count {
		key, value := "GIT_CONFIG_KEY_"+strconv.Itoa(i), "GIT_CONFIG_VALUE_"+strconv.Itoa(i)
		k, hasKey := e.get(key)
		v, hasValue := e.get(value)
		e.drop(key, value)
		if hasKey && hasValue {
			e.set("GIT_CONFIG_KEY_"+strconv.Itoa(kept), k)
			e.set("GIT_CONFIG_VALUE_"+strconv.Itoa(kept), v)
			kept++
		}
	}
	e.set("GIT_CONFIG_COUNT", strconv.Itoa(kept))
	return kept
}

// foreign tells whether path belongs to another user.
func foreign(path string) bool {
	st, err := os.Stat(path)
	if err != nil {
		return false
	}
	owner, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) != os.Geteuid()
}

// gitNames are the variables that the runner's own git gets.
var gitNames = []string{"PATH", "HOME", "USER", "LOGNAME", "TZ", "XDG_CONFIG_HOME"}

// GitEnv is the environment of the runner's own git calls: enough to find git
// and the user's settings, and nothing that steers it.
func (c *Confinement) GitEnv(environ []string) []string {
	from := environment(environ)
	var e environment
	for _, name := range gitNames {
		if v, ok := from.get(name); ok {
			e.set(name, v)
		}
	}
	e.set("LC_ALL", "C.UTF-8")
	e.set("GIT_TERMINAL_PROMPT", "0")
	e.set("GIT_OPTIONAL_LOCKS", "0")
	c.temporary(&e)
	c.gitOwner(&e)
	return e
}

// childEnv is the environment of one command of this run; callID is the tool
// call it belongs to, "" for hooks, servers and checks. It may be called from
// any goroutine.
func (r *run) childEnv(callID string) []string {
	o := CommandEnv{Base: r.Policy.Environment(r.Environ), ThreadID: r.Thread.ID, CallID: callID, Version: r.Version, TraceParent: r.TraceParent}
	if r.box != nil {
		o.ProxyAddr = r.box.ProxyAddr()
	}
	return r.confinement.Environ(o)
}

// confined takes a confinement into the run: what it found is masked and reported.
func (r *run) confined(c *Confinement) {
	r.confinement = c
	if r.Mask != nil {
		for name, values := range c.Secrets {
			for _, v := range values {
				r.Mask.Add(v, name)
			}
		}
		for _, n := range r.Mask.Notices() {
			r.log.Emit(n)
		}
	}
	for _, n := range c.Notices {
		r.log.Emit(n)
	}
}

// NamedSecrets are the values in environ of the variables that policy names,
// whatever they look like. The case of a name does not count.
func NamedSecrets(environ, named []string) map[string]string {
	found := map[string]string{}
	for _, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		if ok && value != "" && slices.ContainsFunc(named, func(n string) bool { return strings.EqualFold(n, name) }) {
			found[name] = value
		}
	}
	return found
}

// JobSecrets are the values in environ that must be masked wherever they turn
// up, whatever policy says: of the variables that commands do not get by default,
// as far as they look like secrets. Names of files, numbers and single words are
// none.
func JobSecrets(environ []string) map[string]string {
	found := map[string]string{}
	for _, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || value == "" {
			continue
		}
		if secret := policy.SecretIn(name, value); looksSecret(secret) {
			found[name] = secret
		}
	}
	return found
}

// looksSecret keeps settings that only have such a name readable: "true", "1",
// "production", "/path/to/key".
func looksSecret(value string) bool {
	if len(value) < 8 || strings.HasPrefix(value, "/") || strings.HasPrefix(value, "~") {
		return false
	}
	letters := strings.Trim(value, "abcdefghijklmnopqrstuvwxyz") == "" || strings.Trim(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
	return !letters || len(value) >= 16
}

// headerSecrets are the credentials in an authorization header.
func headerSecrets(header string) []string {
	_, value, ok := strings.Cut(header, ":")
	fields := strings.Fields(value)
	if !ok || len(fields) == 0 {
		return nil
	}
	last := fields[len(fields)-1]
	found := []string{last}
	if strings.EqualFold(fields[0], "basic") {
		if b, err := base64.StdEncoding.DecodeString(last); err == nil {
			if _, password, ok := strings.Cut(string(b), ":"); ok {
				found = append(found, password)
			}
		}
	}
	return found
}

func sortedNames(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
