#!/usr/bin/env bash
# Every fuzz target of the tree, one after the other, each for FUZZTIME (10 m).
# FUZZONLY selects by a pattern over "package Target"; what crashes is left as a
# vector below testdata/fuzz of its package, to be fixed and committed.
set -euo pipefail
cd "$(dirname "$0")/../.."
export CGO_ENABLED=0
time=${FUZZTIME:-10m}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

targets() {
  grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' cmd runner policy sandbox report |
    sed -E 's|/[^/]*_test.go:func | |' | sort -u
}

failed=0 count=0
printf '| %-20s | %-24s | %8s | %12s | %9s | %s\n' package target seconds executions corpus result
while read -r dir target; do
  echo "$dir $target" | grep -qE "${FUZZONLY:-.}" || continue
  count=$((count + 1))
  began=$(date +%s)
  result=ok
  # A target that hangs is found by the fuzzer's own bound of an input, and by this one.
  if ! timeout --kill-after=30 7200 go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x -parallel 1 "./$dir" >"$log" 2>&1 </dev/null; then
    # Go tells the end of the time in the middle of an input as a failure.
    if grep -qa 'context deadline exceeded' "$log" && ! grep -qaE 'Failing input|panic|_test.go:' "$log"; then
      result=ok
    else
      result=FAILED
      failed=$((failed + 1))
    fi
  fi
  last=$(grep -a 'fuzz: elapsed.*execs' "$log" | tail -n 1 || true)
  execs=$(sed -nE 's/.*execs: ([0-9]+).*/\1/p' <<<"$last")
  corpus=$(sed -nE 's/.*total: ([0-9]+).*/\1/p' <<<"$last")
  printf '| %-20s | %-24s | %8s | %12s | %9s | %s\n' "$dir" "$target" "$(( $(date +%s) - began ))" "${execs:-?}" "${corpus:-?}" "$result"
  [ "$result" = ok ] || tail -n 40 "$log" | cut -c1-400
done < <(targets)
echo "$count targets, $time each; $failed failed"
[ "$count" -gt 0 ] && [ "$failed" = 0 ]
