package sandbox

import (
	"path/filepath"
	"strings"
)

// DefaultDeny lists the paths that no command has a reason to read: the
// credential store of the runner, private keys, tokens of clouds, registries and
// forges, password hashes. home and codexHome are absolute; an empty one is
// left out. Paths that do not exist are listed too: they may come.
//
// The whole of codexHome is denied, not only auth.json: that file is replaced by
// rename when a login is refreshed, which would uncover it. Spec.Reveal shows
// the harmless parts again.
func DefaultDeny(home, codexHome string) []string {
	var out []string
	if home != "" {
		for _, p := range homeSecrets {
			out = append(out, filepath.Join(home, p))
		}
	}
	// Also when CODEX_HOME is elsewhere: somebody's login may still lie there.
	if usual := filepath.Join(home, ".codex"); home != "" && usual != codexHome {
		out = append(out, usual)
	}
	if codexHome != "" {
		out = append(out, codexHome)
	}
	return append(out, systemSecrets...)
}

// DefaultReveal lists the parts of codexHome that commands may read although it
// is denied: instructions, skills and prompts hold no credentials.
func DefaultReveal(home, codexHome string) []string {
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

var homeSecrets = []string{
	".ssh", ".gnupg", ".pki", ".password-store", ".local/share/keyrings", ".vault-token",
	".netrc", "_netrc", ".git-credentials", ".config/git/credentials", ".authinfo", ".authinfo.gpg",
	".aws", ".azure", ".config/gcloud", ".config/doctl", ".oci", ".bluemix", ".aliyun", ".config/hcloud", ".fly",
	".kube", ".docker/config.json", ".config/containers/auth.json", ".config/helm/registry", ".config/helm/repositories.yaml",
	".config/gh", ".config/hub", ".config/glab-cli", ".config/tea",
	".npmrc", ".yarnrc.yml", ".config/configstore", ".pypirc", ".config/pypoetry/auth.toml", ".gem/credentials", ".cargo/credentials",
	".cargo/credentials.toml", ".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties", ".nuget/NuGet/NuGet.Config",
	".composer/auth.json", ".config/composer/auth.json", ".terraform.d/credentials.tfrc.json", ".terraformrc",
	".pgpass", ".my.cnf", ".mylogin.cnf", ".config/op", ".config/sops", ".config/rclone", ".boto", ".s3cfg",
	".gitlab-runner/config.toml", ".buildkite-agent", ".claude", ".claude.json", ".gemini", ".config/openai",
	".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".psql_history",
}

var systemSecrets = []string{
	"/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d", "/etc/security/opasswd",
	"/etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_host_ecdsa_key", "/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_dsa_key",
	"/etc/ssl/private", "/etc/pki/tls/private", "/etc/krb5.keytab", "/etc/NetworkManager/system-connections", "/etc/wireguard",
	"/etc/rancher/k3s/k3s.yaml", "/etc/kubernetes/admin.conf", "/etc/kubernetes/pki", "/var/lib/kubelet/pki",
	"/etc/gitlab-runner/config.toml", "/etc/buildkite-agent/buildkite-agent.cfg", "/var/lib/jenkins/secrets", "/var/jenkins_home/secrets",
	"/etc/docker/key.json", "/var/lib/docker", "/var/lib/containerd", "/var/lib/cloud/instance/user-data.txt",
}

// CleanEnv returns environ without what could hold a secret or lead to a
// service of the host: names that speak of keys, tokens and passwords, the CI
// service's own variables, agent and display sockets, and values with a
// password inside a URL. It is the answer where no policy says better.
func CleanEnv(environ []string) []string {
	var out []string
	for _, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		if ok && name != "" && !secretName(name) && !urlWithPassword(value) {
			out = append(out, kv)
		}
	}
	return out
}

var secretPrefixes = []string{
	"ACTIONS_", "GITHUB_", "INPUT_", "STATE_", "SSH_", "DBUS_", "DOCKER_", "CONTAINER_HOST", "KUBE", "VAULT_", "WAYLAND_",
	"XAUTH", "GPG_", "GNUPG", "AWS_CONTAINER_", "AWS_WEB_IDENTITY", "AZURE_", "ARM_CLIENT", "GOOGLE_APPLICATION", "CLOUDSDK_",
	"SYSTEM_ACCESS", "BUILDKITE_AGENT_", "CODEX_", "OPENAI_", "ANTHROPIC_", "NIGHTSHIFT_",
}

var secretWords = []string{
	"KEY", "SECRET", "TOKEN", "PASSW", "CREDENTIAL", "AUTH", "PRIVATE", "COOKIE", "SIGNATURE", "CERTIFICATE", "WEBHOOK", "DSN",
}

var secretSegments = map[string]bool{
	"PASS": true, "PWD": true, "PAT": true, "JWT": true, "SAS": true, "CREDS": true, "CRED": true, "NETRC": true, "PIN": true,
}

// hostNames are variables that name a place or service of the host.
var hostNames = map[string]bool{
	"DISPLAY": true, "XDG_RUNTIME_DIR": true, "XDG_SESSION_ID": true, "TMUX": true, "TMUX_PANE": true, "STY": true, "TMPDIR": true,
	"TEMP": true, "TMP": true, "LD_PRELOAD": true, "NOTIFY_SOCKET": true, "LISTEN_FDS": true, "LISTEN_PID": true, "LISTEN_FDNAMES": true,
	"SUDO_ASKPASS": true, "GIT_ASKPASS": true, "MAIL": true, "WATCHDOG_USEC": true, "WATCHDOG_PID": true, "INVOCATION_ID": true, "JOURNAL_STREAM": true,
}

// plainNames only look like secrets.
var plainNames = map[string]bool{
	"PWD": true, "OLDPWD": true, "GIT_AUTHOR_NAME": true, "GIT_AUTHOR_EMAIL": true, "GIT_AUTHOR_DATE": true,
}

func secretName(name string) bool {
	up := strings.ToUpper(name)
	if plainNames[up] {
		return false
	}
	if hostNames[up] {
		return true
	}
	for _, p := range secretPrefixes {
		if strings.HasPrefix(up, p) {
			return true
		}
	}
	for _, w := range secretWords {
		if strings.Contains(up, w) {
			return true
		}
	}
	for _, s := range strings.FieldsFunc(up, func(r rune) bool { return r == '_' || r == '.' || r == '-' }) {
		if secretSegments[s] {
			return true
		}
	}
	return false
}

// urlWithPassword reports whether a value holds scheme://user:password@host.
func urlWithPassword(v string) bool {
	for {
		_, rest, ok := strings.Cut(v, "://")
		if !ok {
			return false
		}
		authority := rest
		if i := strings.IndexAny(rest, "/?# \t\n\"'"); i >= 0 {
			authority = rest[:i]
		}
		if user, _, ok := cutLast(authority, "@"); ok && user != "" {
			return true
		}
		v = rest
	}
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
