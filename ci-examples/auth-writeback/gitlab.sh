#!/bin/sh
# Stores a refreshed login as a GitLab CI/CD variable, with curl.
#
#   nightshift exec --auth-writeback 'sh ci-examples/auth-writeback/gitlab.sh' …
#
# Why a project variable of type file: the job gets it as a file and can hand it
# to `nightshift auth import`. It is protected, so only protected branches see
# it; a login has several lines and cannot be masked by GitLab, but nightshift
# masks it in everything it writes.
#
# Needs: AUTH_GITLAB_TOKEN (a project access token, role Maintainer, scope api;
# the job token cannot write variables), CI_API_V4_URL, CI_PROJECT_ID.
# Settings: AUTH_VARIABLE.
#
# Compare and swap: GitLab has no conditional write. The stored login is read
# first, an older one never replaces a newer one, and the job needs a
# `resource_group` so that two of them do not write at once.
set -eu
umask 077

api=${CI_API_V4_URL:?is not set}/projects/${CI_PROJECT_ID:?is not set}/variables
variable=${AUTH_VARIABLE:-CODEX_AUTH_JSON}
: "${AUTH_GITLAB_TOKEN:?is not set}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/bundle"

# The token goes through stdin and the login through a private file: arguments
# are visible to other processes.
gitlab() {
	printf 'header = "PRIVATE-TOKEN: %s"\n' "$AUTH_GITLAB_TOKEN" |
		curl --config - --silent --show-error --max-time 20 "$@"
}

# The backslashes are there in the answer of GitLab, a text within JSON. Whole
# seconds, so that the times compare as text.
generation() {
	sed -n 's/.*"last_refresh\\*"[[:space:]]*:[[:space:]]*\\*"\([0-9T:-]*\).*/\1/p' "$1" | head -n 1
}

ours=$(generation "$work/bundle")
[ -n "$ours" ] || { echo "gitlab.sh: no login with a last_refresh on stdin" >&2; exit 1; }

status=$(gitlab --output "$work/stored" --write-out '%{http_code}' "$api/$variable")
case $status in
200)
	theirs=$(generation "$work/stored")
	newest=$(printf '%s\n%s\n' "$ours" "$theirs" | LC_ALL=C sort | tail -n 1)
	if [ "$newest" != "$ours" ]; then
		echo "gitlab.sh: the stored login ($theirs) is newer than this one ($ours); not replaced" >&2
		exit 1
	fi
	gitlab --fail --output "$work/answer" --request PUT --data-urlencode "value@$work/bundle" "$api/$variable"
	;;
404)
	gitlab --fail --output "$work/answer" --request POST --data "key=$variable" --data 'variable_type=file' \
		--data 'protected=true' --data-urlencode "value@$work/bundle" "$api"
	;;
*)
	echo "gitlab.sh: GitLab answered $status" >&2
	exit 1
	;;
esac
