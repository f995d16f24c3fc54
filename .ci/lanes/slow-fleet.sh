#!/usr/bin/env bash
# A fleet on one machine: 32 runs at once against the reference from npm, memory
# and wall time as ratios of one comparison; and 32 processes of one batch over
# 1 000 tasks, killed with SIGKILL at random: exactly 1 000 results.
#
#   NIGHTSHIFT=/path/to/nightshift ROUNDS=3 TASKS=1000 bash .ci/lanes/slow-fleet.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${NIGHTSHIFT:?path of the binary}"
NIGHTSHIFT=$(realpath "$NIGHTSHIFT")
if [ -z "${REFERENCE:-}" ]; then
  npmdir=$(mktemp -d)
  trap 'rm -rf "$npmdir"' EXIT
  (cd "$npmdir" && npm init -y >/dev/null && timeout 600 npm install --no-audit --no-fund --silent @openai/codex@0.171.0)
  REFERENCE=$(find "$npmdir/node_modules/@openai" -type f -path '*/bin/codex' -perm -u+x -size +1M | head -n 1)
fi
command -v bwrap >/dev/null || { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq bubblewrap >/dev/null; }
REFERENCE=$REFERENCE NIGHTSHIFT=$NIGHTSHIFT timeout 5400 python3 .ci/lanes/fleet.py "${ROUNDS:-3}" "${TASKS:-1000}"
