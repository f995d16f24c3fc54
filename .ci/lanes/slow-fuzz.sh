#!/usr/bin/env bash
# Every fuzz target of the tree, each for FUZZTIME (10 m), FUZZJOBS at once (as
# many as there are cores). FUZZONLY selects by a pattern over "package Target";
# what crashes is left as a vector below testdata/fuzz of its package, to be fixed
# and committed. The rows stand in the order in which the targets end.
set -euo pipefail
cd "$(dirname "$0")/../.."
export CGO_ENABLED=0
export FUZZTIME=${FUZZTIME:-10m}

targets() {
  grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' cmd runner policy sandbox report |
    sed -E 's|/[^/]*_test.go:func | |' | sort -u
}

# fuzz PACKAGE TARGET prints the row of one target and, if it fails, the end of
# what it said; a file in $failures tells the caller.
fuzz() {
  local log began result=ok last execs corpus
  log=$(mktemp)
  began=$(date +%s)
  # A target that hangs is found by the fuzzer's own bound of an input, and by this one.
  if ! timeout --kill-after=30 7200 go test -run '^$' -fuzz "^$2\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 1x -parallel 1 "./$1" >"$log" 2>&1 </dev/null; then
    # Go reports the end of the time in the middle of an input as a failure.
    if ! grep -qa 'context deadline exceeded' "$log" || grep -qaE 'Failing input|panic|_test.go:' "$log"; then
      result=FAILED
      touch "$failures/${1//\//.}.$2"
    fi
  fi
  last=$(grep -a 'fuzz: elapsed.*execs' "$log" | tail -n 1 || true)
  execs=$(sed -nE 's/.*execs: ([0-9]+).*/\1/p' <<<"$last")
  corpus=$(sed -nE 's/.*total: ([0-9]+).*/\1/p' <<<"$last")
  if [ "$result" = ok ] && [ -z "$execs" ]; then
    result='the corpus alone took FUZZTIME'
  fi
  # One write, so that targets that end together do not mix their lines.
  printf '%s\n' "$(
    printf '| %-20s | %-24s | %8s | %12s | %9s | %s\n' "$1" "$2" "$(( $(date +%s) - began ))" "${execs:-?}" "${corpus:-?}" "$result"
    [ "$result" != FAILED ] || tail -n 40 "$log" | cut -c1-400
  )"
  rm -f "$log"
}

failures=$(mktemp -d)
trap 'rm -rf "$failures"' EXIT
export failures
export -f fuzz

list=$(targets | grep -E "${FUZZONLY:-.}" || true)
if [ -z "$list" ]; then
  echo "no fuzz target fits FUZZONLY=${FUZZONLY:-}" >&2
  exit 1
fi
printf '| %-20s | %-24s | %8s | %12s | %9s | %s\n' package target seconds executions corpus result
xargs -P "${FUZZJOBS:-$(nproc)}" -L 1 bash -euo pipefail -c 'fuzz "$@"' fuzz <<<"$list"
failed=$(find "$failures" -type f | wc -l)
echo "$(wc -l <<<"$list") targets, $FUZZTIME each; $failed failed"
[ "$failed" = 0 ]
