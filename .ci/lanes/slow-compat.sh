#!/usr/bin/env bash
# Beside the reference from npm, on the same scripted server: every case of
# cmd/nightshift/testdata/compat and every golden scenario, threads that both
# programs write in turns, and the official SDK over both. A difference that
# testdata/compat/known.json does not name fails; so does a name without one.
# Takes some 15 minutes. `COMPAT_RECORD=1` rewrites testdata/compat/reference,
# with which `go test` compares, instead of comparing.
set -euo pipefail
cd "$(dirname "$0")/../.."
. .ci/reference.sh
apt_install jq jq
apt_install python3 python3-minimal
apt_install node nodejs
apt_install npm npm
export CGO_ENABLED=0
record=()
[ -z "${COMPAT_RECORD:-}" ] || record=(-compat.record)
NIGHTSHIFT_TEST_REFERENCE=$REFERENCE go test ./cmd/nightshift -count=1 -timeout 45m -parallel 4 -run '^TestCompatSideBySide$' "${record[@]}"
[ -z "${COMPAT_RECORD:-}" ] || exit 0
if [ -z "${NIGHTSHIFT:-}" ]; then
  go build -o "$work/nightshift" ./cmd/nightshift
  NIGHTSHIFT=$work/nightshift
fi
mkdir "$work/sdk"
cp ci-examples/sdk/package.json .ci/lanes/compat-sdk.mjs "$work/sdk"
cd "$work/sdk"
timeout 600 npm install --omit=optional --no-audit --no-fund --silent # its own copy of the program is not needed
NIGHTSHIFT=$NIGHTSHIFT timeout 1200 node compat-sdk.mjs
