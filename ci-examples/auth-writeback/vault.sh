#!/bin/sh
# Stores a refreshed login in HashiCorp Vault (KV version 2), with vault.
#
#   nightshift exec --auth-writeback 'sh ci-examples/auth-writeback/vault.sh' …
#
# Why Vault: it has versions, so a login that was replaced by mistake can be
# brought back, short-lived access for each job, and a conditional write.
#
# Needs: VAULT_ADDR and VAULT_TOKEN of a policy with create, read and update on
# the one path (data and metadata).
# Settings: AUTH_MOUNT, AUTH_PATH.
#
# Compare and swap: the write names the version it replaces (-cas) and fails if
# somebody else was faster. nightshift tries again at the end of the run; then
# the newer login is seen and kept. Set cas_required=true on the path, so that
# nobody writes without it.
set -eu

mount=${AUTH_MOUNT:-secret}
path=${AUTH_PATH:-ci/nightshift}

generation() {
	# Whole seconds, so that the times compare as text.
	sed -n 's/.*"last_refresh"[[:space:]]*:[[:space:]]*"\([0-9T:-]*\).*/\1/p' | head -n 1
}

bundle=$(cat)
ours=$(printf '%s\n' "$bundle" | generation)
[ -n "$ours" ] || { echo "vault.sh: no login with a last_refresh on stdin" >&2; exit 1; }

# Exit code 2 with no value is a path that does not exist yet: version 0. Other
# failures stop here.
version=0
if metadata=$(vault kv metadata get -format=json -mount="$mount" "$path"); then
	version=$(printf '%s\n' "$metadata" | sed -n 's/.*"current_version"[[:space:]]*:[[:space:]]*\([0-9]*\).*/\1/p' | head -n 1)
	[ -n "$version" ] || { echo "vault.sh: the version of $mount/$path is not known" >&2; exit 1; }
	# Two steps, so that a failed read is not taken for an empty one.
	stored=$(vault kv get -mount="$mount" -version="$version" -field=auth_json "$path")
	theirs=$(printf '%s\n' "$stored" | generation)
	newest=$(printf '%s\n%s\n' "$ours" "$theirs" | LC_ALL=C sort | tail -n 1)
	if [ "$newest" != "$ours" ]; then
		echo "vault.sh: the stored login ($theirs) is newer than this one ($ours); not replaced" >&2
		exit 1
	fi
elif [ $? -ne 2 ]; then
	echo "vault.sh: $mount/$path cannot be read" >&2
	exit 1
fi

# The value goes through stdin: arguments are visible to other processes. A path
# that could not be read for another reason than being new is not version 0, so
# the write fails there too.
printf '%s\n' "$bundle" | vault kv put -mount="$mount" -cas="$version" "$path" auth_json=- > /dev/null
