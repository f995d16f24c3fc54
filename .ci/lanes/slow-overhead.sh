#!/usr/bin/env bash
# What confinement costs, measured in turn and told as ratios: a confined `true`
# against bubblewrap with the same namespaces (at most 2) and against the
# reference's own `sandbox -- true` (at most 0.2); 200 calls, the last as fast as
# the first.
set -euo pipefail
cd "$(dirname "$0")/../.."
. .ci/reference.sh
NIGHTSHIFT_OVERHEAD=1 CGO_ENABLED=0 go test ./sandbox -count=1 -timeout 15m -run '^TestOverhead$' -v
