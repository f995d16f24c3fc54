#!/bin/sh
# Stores a refreshed login in a Kubernetes secret, with kubectl.
#
#   nightshift exec --auth-writeback 'sh ci-examples/auth-writeback/kubernetes.sh' …
#
# Why not the mounted secret itself: a mount of a secret is read-only and shows a
# change only after a while. Mount it at /seed, keep CODEX_HOME in an emptyDir,
# and start with `nightshift auth import < /seed/auth.json`.
#
# Needs: a service account that may get and patch this one secret
# (resourceNames), and create secrets if it is not made beforehand.
# Settings: AUTH_NAMESPACE, AUTH_SECRET.
#
# Compare and swap: the patch names the resourceVersion it was made from, and the
# API server refuses it if somebody else was faster. nightshift tries again at
# the end of the run; then the newer login is seen and kept.
set -eu

secret=${AUTH_SECRET:-nightshift-auth}
kube() {
	if [ -n "${AUTH_NAMESPACE:-}" ]; then
		kubectl --namespace "$AUTH_NAMESPACE" "$@"
	else
		kubectl "$@"
	fi
}

generation() {
	# Whole seconds, so that the times compare as text.
	sed -n 's/.*"last_refresh"[[:space:]]*:[[:space:]]*"\([0-9T:-]*\).*/\1/p' | head -n 1
}

bundle=$(cat)
ours=$(printf '%s\n' "$bundle" | generation)
[ -n "$ours" ] || { echo "kubernetes.sh: no login with a last_refresh on stdin" >&2; exit 1; }

# --ignore-not-found: empty for a secret that is not there, a failure otherwise.
version=$(kube get secret "$secret" --ignore-not-found --output 'jsonpath={.metadata.resourceVersion}')
if [ -z "$version" ]; then
	# The value goes through stdin: arguments are visible to other processes.
	printf '%s\n' "$bundle" | kube create secret generic "$secret" --from-file=auth.json=/dev/stdin
	exit
fi

# Two steps, so that a failed read is not taken for an empty one.
stored=$(kube get secret "$secret" --output 'jsonpath={.data.auth\.json}')
theirs=$(printf '%s\n' "$stored" | base64 -d | generation)
newest=$(printf '%s\n%s\n' "$ours" "$theirs" | LC_ALL=C sort | tail -n 1)
if [ "$newest" != "$ours" ]; then
	echo "kubernetes.sh: the stored login ($theirs) is newer than this one ($ours); not replaced" >&2
	exit 1
fi

encoded=$(printf '%s\n' "$bundle" | base64 | tr -d '\n')
printf '{"metadata":{"resourceVersion":"%s"},"data":{"auth.json":"%s"}}\n' "$version" "$encoded" |
	kube patch secret "$secret" --type=merge --patch-file=/dev/stdin
