#!/usr/bin/env bash
# What confinement costs, measured in turn and told as ratios: a confined `true`
# against bubblewrap with the same namespaces (at most 2) and against the
# reference's own `sandbox -- true` (at most 0.2); 200 calls, the last as fast as
# the first.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "${REFERENCE:-}" ]; then
  command -v npm >/dev/null || { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq npm >/dev/null; }
  (cd "$work" && npm init -y >/dev/null && npm install --no-audit --no-fund --silent @openai/codex@0.171.0)
  REFERENCE=$(find "$work/node_modules/@openai" -type f -path '*/bin/codex' -perm -u+x -size +1M | head -n 1)
fi
command -v bwrap >/dev/null || { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq bubblewrap >/dev/null; }
NIGHTSHIFT_OVERHEAD=1 REFERENCE=$REFERENCE CGO_ENABLED=0 go test ./sandbox -count=1 -timeout 15m -run '^TestOverhead$' -v
