#!/usr/bin/env bash
# Every package under the race detector, shuffled.
set -euo pipefail
cd "$(dirname "$0")/../.."
CGO_ENABLED=1 go test -race -shuffle=on -timeout 60m ./...
