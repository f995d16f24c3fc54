#!/usr/bin/env bash
# Whole-process measures against the reference from npm and against a floor
# program, all on the same scripted server, in turn (A B C A B C …), as medians
# and ratios: machines are noisy. PARTS selects from: calls long streams fleet.
#
#   NIGHTSHIFT=/path/to/nightshift RUNS=15 PARTS="calls" bash .ci/lanes/slow-bench.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${NIGHTSHIFT:?path of the binary}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "${REFERENCE:-}" ]; then
  (cd "$work" && npm init -y >/dev/null && npm install --no-audit --no-fund --silent @openai/codex@0.171.0)
  REFERENCE=$(find "$work/node_modules/@openai" -type f -path '*/bin/codex' -perm -u+x -size +1M | head -n 1)
fi
command -v bwrap >/dev/null || { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq bubblewrap >/dev/null; }
CGO_ENABLED=0 go build -o "$work/floor" .ci/lanes/floor.go
# shellcheck disable=SC2086
FLOOR=$work/floor REFERENCE=$REFERENCE NIGHTSHIFT=$NIGHTSHIFT python3 .ci/lanes/bench.py "${RUNS:-15}" ${PARTS:-}
