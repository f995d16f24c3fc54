package policy

import (
	"path/filepath"
	"slices"
	"strings"
)

// Where credentials usually lie. The lists are only here: the sandbox hides what
// it is given, and runner adds what the environment of the run names.
var (
	// userSecrets are below a home folder.
	userSecrets = strings.Fields(`
		.ssh .gnupg .pki .password-store .local/share/keyrings .vault-token
		.netrc _netrc .git-credentials .config/git/credentials .authinfo .authinfo.gpg
		.aws .azure .config/gcloud .config/doctl .oci .bluemix .aliyun .config/hcloud .fly .databrickscfg .snowflake
		.kube .docker .docker/config.json .config/containers/auth.json .config/helm/registry .config/helm/repositories.yaml
		.config/gh .config/hub .config/glab-cli .config/tea
		.npmrc .yarnrc.yml .config/configstore .pypirc .config/pypoetry/auth.toml .gem/credentials .cargo/credentials .cargo/credentials.toml
		.m2/settings.xml .m2/settings-security.xml .gradle/gradle.properties .nuget/NuGet/NuGet.Config .composer/auth.json
		.config/composer/auth.json .terraform.d/credentials.tfrc.json .terraformrc
		.pgpass .my.cnf .mylogin.cnf .config/op .config/sops .config/rclone .boto .s3cfg
		.gitlab-runner/config.toml .buildkite-agent .claude .claude.json .gemini .config/openai .codex/auth.json
		.mozilla .config/google-chrome .config/chromium
		.bash_history .zsh_history .python_history .node_repl_history .psql_history .mysql_history`)
	// codexSecrets are below CODEX_HOME.
	codexSecrets = strings.Fields(`
		auth.json auth.json.lock auth.lock .credentials.json config.toml sessions archived_sessions history.jsonl log
		cloud-config-bundle-cache.json`)
	// codexSecretPrefixes begin the names of what lies beside them.
	codexSecretPrefixes = strings.Fields("auth .auth config.toml .config.toml .credentials sessions history rescue")
	// machineSecrets are of the machine and its services. A file is named besides
	// its folder where a run may work in the folder, which uncovers it.
	machineSecrets = strings.Fields(`
		/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/sudoers.d /etc/security/opasswd
		/etc/ssh /etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_ecdsa_key /etc/ssh/ssh_host_ed25519_key /etc/ssh/ssh_host_dsa_key
		/etc/ssl/private /etc/pki/tls/private /etc/krb5.keytab /etc/NetworkManager/system-connections /etc/wireguard
		/etc/rancher/k3s/k3s.yaml /etc/kubernetes /etc/kubernetes/admin.conf /etc/kubernetes/pki /var/lib/kubelet /var/lib/kubelet/pki
		/etc/gitlab-runner /etc/gitlab-runner/config.toml /etc/buildkite-agent/buildkite-agent.cfg /var/lib/jenkins/secrets
		/var/jenkins_home/secrets /etc/docker/key.json /var/lib/docker /var/lib/containerd /var/lib/cloud/instance/user-data.txt
		/root/.ssh /root/.aws /root/.docker /root/.kube /var/run/secrets /run/secrets`)
)

// SecretPaths are the credentials of a user, whose home is absolute or "", and of
// the machine. Paths that do not exist are listed too: they may come.
func SecretPaths(home string) []string {
	return slices.Concat(machineSecrets, pathsIn(home, userSecrets))
}

// IsCodexSecret tells whether an entry of CODEX_HOME is one that no command may
// read, even where the configuration names something in it: a login, a
// configuration, what was said in threads, or what programs leave beside these
// (temporary files, backups).
func IsCodexSecret(name string) bool {
	return slices.Contains(codexSecrets, name) || strings.HasSuffix(name, ".config.toml") ||
		slices.ContainsFunc(codexSecretPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// codexSecretPaths are the credentials and private files in CODEX_HOME.
func codexSecretPaths(codexHome string) []string { return pathsIn(codexHome, codexSecrets) }

// pathsIn are paths in a folder, none where there is no folder.
func pathsIn(dir string, names []string) []string {
	if dir == "" {
		return nil
	}
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = filepath.Join(dir, name)
	}
	return out
}
