#!/usr/bin/env bash
# Whole-process measures against the reference from npm and against a floor
# program, all on the same scripted server, in turn (A B C A B C …), as medians
# and ratios: machines are noisy. PARTS selects from: calls long streams fleet network.
#
#   NIGHTSHIFT=/path/to/nightshift RUNS=15 PARTS="calls" bash .ci/lanes/slow-bench.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${NIGHTSHIFT:?path of the binary}"
. .ci/reference.sh
apt_install strace strace
CGO_ENABLED=0 go build -o "$work/floor" .ci/lanes/floor.go
# shellcheck disable=SC2086
FLOOR=$work/floor NIGHTSHIFT=$NIGHTSHIFT python3 -B .ci/lanes/bench.py "${RUNS:-15}" ${PARTS:-}
