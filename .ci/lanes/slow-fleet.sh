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
. .ci/reference.sh
NIGHTSHIFT=$NIGHTSHIFT timeout 5400 python3 -B .ci/lanes/fleet.py "${ROUNDS:-3}" "${TASKS:-1000}"
