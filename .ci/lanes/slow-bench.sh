#!/usr/bin/env bash
# Whole-process measures against the reference from npm on the same scripted
# server, in turn (A B A B …), as medians and ratios: machines are noisy.
#
#   NIGHTSHIFT=/path/to/nightshift RUNS=15 bash .ci/lanes/slow-bench.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${NIGHTSHIFT:?path of the binary}"
if [ -z "${REFERENCE:-}" ]; then
  npmdir=$(mktemp -d)
  trap 'rm -rf "$npmdir"' EXIT
  (cd "$npmdir" && npm init -y >/dev/null && npm install --no-audit --no-fund --silent @openai/codex@0.171.0)
  REFERENCE=$(find "$npmdir/node_modules/@openai" -type f -path '*/bin/codex' -perm -u+x -size +1M | head -n 1)
fi
command -v bwrap >/dev/null || { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq bubblewrap >/dev/null; }
REFERENCE=$REFERENCE NIGHTSHIFT=$NIGHTSHIFT python3 .ci/lanes/bench.py "${RUNS:-15}"
