#!/bin/sh
# One night's batch. Prints only when somebody has to look.
set -eu
cd "${NIGHTSHIFT_DIR:-/srv/nightshift}"
if [ -r ./env ]; then
  set -a
  . ./env # CODEX_API_KEY=…, mode 0600
  set +a
fi
exec 9>lock
flock -n 9 || { echo "the last night is still running" >&2; exit 75; }
code=0
nightshift batch --tasks tasks.jsonl --out results --retry-failed -s workspace-write --budget-wall-time 6h >>log 2>&1 || code=$?
nightshift batch merge results --out merged >>log 2>&1 || code=$?
if [ "$code" != 0 ]; then
  echo "nightshift ended with code $code; see $PWD/merged/summary.md and $PWD/log" >&2
fi
exit "$code"
