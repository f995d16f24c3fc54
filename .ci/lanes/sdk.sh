#!/usr/bin/env bash
# The official TypeScript SDK from npm, unmodified, against nightshift.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${NIGHTSHIFT:?path of the binary}"
command -v npm >/dev/null || { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq npm >/dev/null; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp ci-examples/sdk/package.json ci-examples/sdk/check.mjs "$work"
cd "$work"
npm install --no-audit --no-fund --silent
NIGHTSHIFT=$NIGHTSHIFT node check.mjs
