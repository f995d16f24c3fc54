#!/usr/bin/env bash
# The attack corpus on the real kernel, through the real binary: as root and as
# an ordinary user, in workspace-write and read-only, and through apply_patch.
# Every attack must be HELD and every must-work program must work; programs that
# need a writable folder are not asked of read-only. Prints the table.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${NIGHTSHIFT:?path of the binary}"
for p in python3 iproute2 bubblewrap make util-linux; do
  dpkg -s "$p" >/dev/null 2>&1 || missing="${missing:-} $p"
done
if [ -n "${missing:-}" ]; then
  apt-get update -qq
  # shellcheck disable=SC2086
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing >/dev/null
fi
user=nightshift-ci
id "$user" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$user"
home=$(getent passwd "$user" | cut -d: -f6)
work=$(mktemp -d /var/lib/nightshift-attacks-XXXXXX)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cp -r sandbox/testdata/attacks "$work/attacks"
cp "$NIGHTSHIFT" "$work/nightshift"
chmod -R a+rX "$work"
bin=$work/nightshift

failed=0
as_user() { # as_user WHO COMMAND…
  if [ "$1" = root ]; then
    "${@:2}"
  else
    setpriv --reuid "$user" --regid "$user" --init-groups env HOME="$home" PATH="$PATH" LANG=C.UTF-8 "${@:2}"
  fi
}
run() { # run NAME WHO ONLY ARGS…: one pass over the corpus; what ran out of time gets a second try
  local name=$1 who=$2 only=$3 table base=() late
  shift 3
  printf '\n-- %s\n' "$name"
  if [ "$who" = root ]; then
    table=$work/$name.json
  else
    install -d -o "$user" "$home/attacks"
    table=$home/attacks/$name.json
    base=(--base "$home/attacks")
  fi
  as_user "$who" python3 "$work/attacks/run-attacks" "${base[@]}" --only "$only" --json "$table" "$@" || true
  late=$(python3 -c 'import json, sys; print(",".join(r["file"] for r in json.load(open(sys.argv[1])) if r["verdict"] not in ("HELD", "WORKS", "SKIPPED")))' "$table")
  [ -z "$late" ] && return 0
  echo "-- again: $late"
  as_user "$who" python3 "$work/attacks/run-attacks" "${base[@]}" --only "$late" --strict "$@" || failed=1
}
read_only=$(cd "$work/attacks/attacks" && ls -- *.sh *.py | paste -sd,)
read_only=$read_only,git-read.sh,job-control.sh,localhost.py,pipes-devices.sh,pseudo-terminal.py,system-facts.sh
for as in root "$user"; do
  run "workspace-write-$as" "$as" "*" --apply-patch "cd {WS} && $bin apply-patch -s workspace-write" -- \
    "$bin" sandbox --mode workspace-write --deny-read {DENY} --deny-read {DENYWS} --
  run "read-only-$as" "$as" "$read_only" --apply-patch "cd {WS} && $bin apply-patch -s read-only" -- \
    "$bin" sandbox --mode read-only --deny-read {DENY} --deny-read {DENYWS} --
done

# Each layer taken away: what is still claimed holds, or the sandbox refuses
# with exit code 4 before anything runs.
for layer in userns allns landlock landlock-off seccomp mount newmount pivot pidfd; do
  set +e
  out=$(python3 "$work/attacks/deny-layer" "$layer" -- "$bin" sandbox --mode workspace-write -C "$work" -- true 2>&1)
  code=$?
  set -e
  printf '%-14s exit %s  %s\n' "$layer" "$code" "$(head -n 1 <<< "$out")"
  case $code in 0 | 4) ;; *) failed=1 ;; esac
done
exit "$failed"
