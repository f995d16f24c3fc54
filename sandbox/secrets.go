package sandbox

import "path/filepath"

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
