#!/usr/bin/env bash
# Finds the program, or builds it from the source that this action is part of.
set -euo pipefail
path=${GIVEN:-}
if [ -z "$path" ] && command -v nightshift >/dev/null 2>&1; then
  path=$(command -v nightshift)
fi
if [ -z "$path" ]; then
  command -v go >/dev/null 2>&1 || { echo "::error::nightshift is not on PATH and there is no Go to build it with; set nightshift-path" >&2; exit 1; }
  path="${RUNNER_TEMP:?}/nightshift-bin/nightshift"
  (cd "$GITHUB_ACTION_PATH/../../.." && CGO_ENABLED=0 go build -trimpath -o "$path" ./cmd/nightshift)
fi
[ -x "$path" ] || { echo "::error::$path is not a program" >&2; exit 1; }
{
  echo "path=$path"
  echo "version=$("$path" --version | awk '{print $2}')"
} >> "$GITHUB_OUTPUT"
