#!/usr/bin/env bash
# Every fault injection in one place, with raised counts, and a table of what was
# injected how often and what came of it. FAULT_ROUNDS (100) says how often faults
# with a random instant are injected. Needs root for a full process table, and
# strace for slow disks and interrupted system calls.
set -euo pipefail
cd "$(dirname "$0")/../.."
export CGO_ENABLED=0
export NIGHTSHIFT_FAULT_ROUNDS=${FAULT_ROUNDS:-100}
command -v strace >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq strace >/dev/null; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

run() { # run TITLE PACKAGE PATTERN: one after the other, so that instants mean something
  local began rc=0
  began=$(date +%s)
  echo "== $1"
  go test "./$2" -run "$3" -count=1 -timeout 60m -v >"$log" 2>&1 || rc=$?
  # Lines of the table: FAULT what | how often | what came of it
  sed -nE 's/^.*FAULT (.*)$/| \1 |/p' "$log" | cut -c1-220 | sort
  printf '| %s: tests of %s | %d passed, %d skipped | %ds |\n' "$1" "$2" "$(grep -c -- '^ *--- PASS' "$log" || true)" \
    "$(grep -c -- '^ *--- SKIP' "$log" || true)" "$(($(date +%s) - began))"
  grep -q -- '--- PASS' "$log" || rc=1 # a test that was renamed is no success
  if [ "$rc" != 0 ]; then
    failed=$((failed + 1))
    echo "-- FAILED: $1"
    grep -vE '^ *(=== |--- (PASS|SKIP))' "$log" | tail -n 60 | cut -c1-400
  fi
}

run 'kill -9' cmd/nightshift '^TestFaultKill'
run 'kill -9 of writers of a login' runner/auth '^Test(Kill|ManyProcesses|Faults|SlowWriteback)'
run 'kill -9 in a batch' runner/batch '^TestKilledProcessesLoseNothing$'
run 'kill -9 of a thread'"'"'s writer' runner/rollout '^Test(TornEndIsRepaired|SweepLocks)$'
run 'kill -9 inside the sandbox' sandbox '^Test(Kill|FullAccessInitKilled|PlaceholdersOfAKilledRunner|KilledInit.*)'
run 'signals' cmd/nightshift '^TestFault(Signal|Storm)'
run 'disk full' cmd/nightshift '^TestFaultDisk'
run 'disk and file limits in the sandbox' sandbox '^Test(DiskLimit|FileSizeLimit|WorkspaceInMemory)$'
run 'streams' cmd/nightshift '^TestFaultStreams$'
run 'slow disk, interrupted calls' cmd/nightshift '^TestFaultStrace'
run 'clock' runner/event '^TestFaultClock$'
run 'clock of a login' runner/auth '^Test(WhenDue|ExpiredAccessToken)$'
run 'memory and processes of a child' sandbox '^Test(MemoryLimit|WatchedLimits|LimitsOf.*|FullAccessSideBySide|TerminalOfBriefCommands)$'
run 'process table' cmd/nightshift '^TestFaultProcessTable$'
run 'broken streams' cmd/nightshift '^TestFaultMatrix$'
run 'lying servers' cmd/nightshift '^TestFaultServer$'
run 'the wire' runner/model '^Test(CutAtEveryEvent|Trickle|Faults|Unreachable)'
run 'services down' cmd/nightshift '^TestFault(Collector|Tokens)Down$'

echo "$failed groups failed"
[ "$failed" = 0 ]
