#!/bin/sh
# Stores a refreshed login as a secret of a GitHub environment, with gh.
#
#   nightshift exec --auth-writeback 'sh ci-examples/auth-writeback/github.sh' …
#
# Why an environment and not the repository: it can be limited to one branch and
# to reviewed jobs, and no other workflow sees the login.
#
# Needs: GH_TOKEN with read and write access to the environment's secrets and
# variables (an app token or a fine-grained token; the job's own GITHUB_TOKEN
# cannot write secrets), GITHUB_REPOSITORY.
# Settings: AUTH_ENVIRONMENT, AUTH_SECRET, AUTH_GENERATION.
#
# Compare and swap: GitHub never shows a secret again and has no conditional
# write. The generation (last_refresh of the stored login) is kept in a variable
# beside the secret, an older login never replaces a newer one, and the job needs
# a `concurrency` group so that two of them do not write at once.
set -eu

repo=${GITHUB_REPOSITORY:?is not set}
environment=${AUTH_ENVIRONMENT:-nightshift}
secret=${AUTH_SECRET:-CODEX_AUTH_JSON}
variable=${AUTH_GENERATION:-CODEX_AUTH_GENERATION}

bundle=$(cat)
# Whole seconds, so that the times compare as text.
ours=$(printf '%s\n' "$bundle" | sed -n 's/.*"last_refresh"[[:space:]]*:[[:space:]]*"\([0-9T:-]*\).*/\1/p' | head -n 1)
[ -n "$ours" ] || { echo "github.sh: no login with a last_refresh on stdin" >&2; exit 1; }

# A list is empty where `get` would fail, so a failure here is a real one.
theirs=$(gh variable list --repo "$repo" --env "$environment" --json name,value \
	--jq ".[] | select(.name == \"$variable\") | .value")
newest=$(printf '%s\n%s\n' "$ours" "$theirs" | LC_ALL=C sort | tail -n 1)
if [ "$newest" != "$ours" ]; then
	echo "github.sh: the stored login ($theirs) is newer than this one ($ours); not replaced" >&2
	exit 1
fi

# The value goes through stdin: arguments are visible to other processes.
printf '%s\n' "$bundle" | gh secret set "$secret" --repo "$repo" --env "$environment"
gh variable set "$variable" --repo "$repo" --env "$environment" --body "$ours"
