#!/usr/bin/env bash
# release-files.sh VERSION DIR: what the program of a release tells of itself, its
# manual page and its completions, for the archives.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1 out=$2
rm -rf "$out"
mkdir -p "$out/completions"
program=$(mktemp -d)
trap 'rm -rf "$program"' EXIT
CGO_ENABLED=0 go build -trimpath -ldflags="-X main.version=$version" -o "$program/made" ./cmd/nightshift
"$program/made" man >"$out/nightshift.1"
"$program/made" completion bash >"$out/completions/nightshift.bash"
"$program/made" completion zsh >"$out/completions/_nightshift"
"$program/made" completion fish >"$out/completions/nightshift.fish"
