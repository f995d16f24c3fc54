package runner

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// What commands must not read, or what must at least not be shown.

// deny lists what commands must not read: what policy says, what no command has
// a reason to read, and the files through which a CI job is steered.
func (c *Confinement) deny(configured []string, o ConfineOptions) {
	c.work = []string{c.workdir}
	for _, root := range c.Spec.Write {
		c.work = append(c.work, sandbox.RealPath(root))
	}
	list := slices.Clone(configured)
	list = append(list, c.controlFiles(o.Private)...)
	list = append(list, c.forbiddenPrograms(o.Policy.ForbiddenExecutables())...)
	secrets := codexFolders(o.UserHome, o.Home)
	// HOME may be one that a CI system chose; keys lie in the account's own too.
	if own := o.ownHome(); own != "" && own != o.UserHome {
		secrets = slices.Concat(secrets, policy.SecretPaths(own), codexFolders(own, ""))
	}
	slices.Sort(secrets)
	for _, d := range slices.Compact(secrets) {
		// Somebody who works below such a folder wants it: what lies in it is
		// denied one by one then, by policy.
		if !c.holdsWork(d) {
			list = append(list, d)
		}
	}
	c.Spec.Reveal = append(instructionsIn(o.UserHome, o.Home), configuredParts(o.Policy.Config(), o.Home)...)
	slices.Sort(list)
	c.Spec.Deny = slices.Compact(list)
}

// codexFolders are CODEX_HOME, and the usual place of it, where somebody's login
// may still lie when CODEX_HOME is elsewhere. An empty home or codexHome is left
// out. The whole is denied, not only auth.json: that file is replaced by rename
// when a login is refreshed, which would uncover it.
func codexFolders(home, codexHome string) []string {
	var out []string
	if usual := filepath.Join(home, ".codex"); home != "" && usual != codexHome {
		out = append(out, usual)
	}
	if codexHome != "" {
		out = append(out, codexHome)
	}
	return out
}

// instructionsIn are the parts of CODEX_HOME that commands may read although the
// whole is denied: instructions, skills and prompts hold no credentials.
func instructionsIn(home, codexHome string) []string {
	if codexHome == "" && home != "" {
		codexHome = filepath.Join(home, ".codex")
	}
	if codexHome == "" {
		return nil
	}
	var out []string
	for _, p := range []string{"AGENTS.md", "AGENTS.override.md", "skills", "prompts", "agents"} {
		out = append(out, filepath.Join(codexHome, p))
	}
	return out
}

// holdsWork tells whether the working folder or a writable one lies in dir.
func (c *Confinement) holdsWork(dir string) bool {
	dir = sandbox.RealPath(dir)
	return slices.ContainsFunc(c.work, func(root string) bool { return sandbox.Within(root, dir) })
}

// controlVariables name files that set variables, paths and outputs of later
// steps of a job, or that hold the credentials of a service account.
var controlVariables = []string{
	"GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE", "GITHUB_STEP_SUMMARY",
	"BASH_ENV", "BUILDKITE_ENV_FILE", "TEAMCITY_BUILD_PROPERTIES_FILE", "DRONE_OUTPUT", "CIRCLE_INTERNAL_CONFIG",
	"GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_GHA_CREDS_PATH", "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", "CLOUDSDK_CONFIG",
	"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
	"AZURE_CONFIG_DIR", "AZURE_FEDERATED_TOKEN_FILE", "KUBECONFIG", "DOCKER_CONFIG", "NETRC", "GNUPGHOME", "OPENAI_IDENTITY_TOKEN_FILE",
	"BUILDKITE_CONFIG_PATH", "AGENT_TEMPDIRECTORY", "WORKSPACE_TMP", "VAULT_TOKEN_FILE", "SOPS_AGE_KEY_FILE", "ANSIBLE_VAULT_PASSWORD_FILE",
}

// stepScript is the name that a GitHub runner gives the script of a step. The
// values of the secrets that the workflow writes into it stand there in full.
var stepScript = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\.[a-z0-9]+$`)
})

// agentFiles are those with which an agent of GitHub or Azure logs in, and its
// settings, in its own folder.
func agentFiles(dir string, add func(string)) {
	if !exists(filepath.Join(dir, ".runner")) && !exists(filepath.Join(dir, ".agent")) {
		return
	}
	for _, name := range []string{".credentials", ".credentials_rsaparams", ".credentials_migrated", ".credential_store", ".env", "_diag"} {
		add(filepath.Join(dir, name))
	}
}

// controlFiles are the paths that the environment names as such. One that holds
// the work is left alone: covering it would stop the run.
//
// A temporary folder of the job may hold the run's own, which commands use in
// part: then what lies beside that is listed.
func (c *Confinement) controlFiles(runtime string) []string {
	var list []string
	var add func(string)
	add = func(path string) {
		switch {
		case !filepath.IsAbs(path) || path == "/" || c.holdsWork(path) || runtime != "" && sandbox.RealPath(path) == sandbox.RealPath(runtime):
		case runtime != "" && sandbox.Within(sandbox.RealPath(runtime), sandbox.RealPath(path)):
			entries, err := os.ReadDir(path)
			if err != nil {
				return // the run's own folder lies there and can be reached: it is readable
			}
			for _, e := range entries {
				add(filepath.Join(path, e.Name()))
			}
		default:
			list = append(list, filepath.Clean(path))
		}
	}
	for _, name := range controlVariables {
		value, _ := c.lookupEnv(name)
		for _, path := range filepath.SplitList(value) {
			add(path)
			// The service makes new files beside it for every step.
			if dir := filepath.Dir(path); filepath.Base(dir) == "_runner_file_commands" {
				add(dir)
			}
		}
	}
	folder := func(name string, do func(dir string)) {
		if dir, ok := c.lookupEnv(name); ok && filepath.IsAbs(dir) {
			do(filepath.Clean(dir))
		}
	}
	folder("CI_PROJECT_DIR", func(dir string) { add(dir + ".tmp") }) // GitLab's variables of type "file"
	folder("WORKSPACE", func(dir string) { add(dir + "@tmp") })      // Jenkins' scripts and secret files
	folder("AGENT_HOMEDIRECTORY", func(dir string) { agentFiles(dir, add) })
	folder("RUNNER_TEMP", func(dir string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return // no folder of a runner
		}
		for _, e := range entries {
			if stepScript().MatchString(e.Name()) {
				add(filepath.Join(dir, e.Name()))
			}
		}
		agentFiles(filepath.Dir(filepath.Dir(dir)), add) // of _work/_temp
	})
	return list
}

// globQuote makes a path a pattern that matches only itself.
func globQuote(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// forbiddenPrograms finds the files of programs that a rule forbids outright, so
// that they cannot be executed either where the rule's reader cannot look (an
// interpreter, a script on disk). A link to a program of another name (busybox,
// coreutils) stays: covering its target would take other programs away.
func (c *Confinement) forbiddenPrograms(names []string) []string {
	path, _ := c.lookupEnv("PATH")
	dirs := append(filepath.SplitList(path), "/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")
	var out []string
	for _, name := range names {
		candidates := []string{name}
		if !filepath.IsAbs(name) {
			candidates = nil
			for _, d := range dirs {
				candidates = append(candidates, filepath.Join(d, name))
			}
		}
		for _, p := range candidates {
			real, err := filepath.EvalSymlinks(p)
			if err == nil && strings.HasPrefix(filepath.Base(real), filepath.Base(name)) && !slices.Contains(out, real) {
				out = append(out, real)
			}
		}
	}
	return out
}

// configuredParts are the files and folders below home that MCP servers and
// hooks of the configuration name: a server that cannot read its own script is
// of no use.
func configuredParts(cfg *policy.Config, home string) []string {
	var named []string
	for _, s := range cfg.MCPServers {
		named = append(append(named, s.Command, s.Cwd), s.Args...)
	}
	for _, h := range cfg.Hooks {
		named = append(named, strings.FieldsFunc(h.Command, func(r rune) bool { return strings.ContainsRune(" \t\n;&|<>()\"'", r) })...)
	}
	named = append(named, cfg.Notify...)
	var out []string
	for _, n := range named {
		rest, below := strings.CutPrefix(filepath.Clean(n), home+"/")
		first, _, _ := strings.Cut(rest, "/")
		if !below || first == "" || policy.IsCodexSecret(first) {
			continue
		}
		if part := filepath.Join(home, first); !slices.Contains(out, part) && exists(part) {
			out = append(out, part)
		}
	}
	return out
}
