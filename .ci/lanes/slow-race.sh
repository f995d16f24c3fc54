#!/usr/bin/env bash
# Every package under the race detector, shuffled and not shortened, and the
# program that the end-to-end tests start built with it too.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work" # tests run the program as another user too
export CGO_ENABLED=1
# shellcheck disable=SC2016 # the program reads the variable
go build -race -ldflags='-X main.systemDir=$NIGHTSHIFT_TEST_SYSTEM_DIR' -o "$work/nightshift" ./cmd/nightshift
go test -race -shuffle=on -timeout 60m ./runner/... ./sandbox/... ./policy/... ./report/...
NIGHTSHIFT_TEST_PROGRAM=$work/nightshift go test -race -timeout 90m ./cmd/nightshift ${RUN:+-run "$RUN"}
