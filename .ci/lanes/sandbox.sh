#!/usr/bin/env bash
# The attack corpus on the real kernel, through the real binary: as root and as
# an ordinary user, in workspace-write and read-only, through apply_patch, as a
# command, a hook and an MCP server of a whole run, and with each layer of the
# kernel taken away. Every attack must be HELD and every must-work program must
# work; programs that need a writable folder are not asked of read-only. Prints
# the tables.
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

# As parts of a whole run: what a run starts besides commands of `sandbox` is
# confined as they are. Attacks on resources are left out here: limits belong to
# the sandbox, not to who is in it. Hooks and servers are judged side by side.
cp .ci/lanes/attack-as.py "$work/attack-as.py"
within_run=$(cd "$work/attacks/attacks" && grep -L -e '^# class: \(resource\|patch\)' -e '^# kill-wrapper' -- *.sh *.py | paste -sd,)
within_run=$within_run,git-read.sh,localhost.py,workspace-edit.sh,unix-sockets.py
as_kind() { # as_kind KIND
  run "as-$1" root "$within_run" -- python3 "$work/attack-as.py" "$1" "$bin" -s workspace-write --deny-read {DENY} --deny-read {DENYWS} --
  return "$failed"
}
as_kind hook > "$work/hook.log" 2>&1 & hook=$!
as_kind mcp > "$work/mcp.log" 2>&1 & mcp=$!
wait "$hook" || failed=1
wait "$mcp" || failed=1
cat "$work/hook.log" "$work/mcp.log"
run as-command root "log-*,fs-write-outside.sh,git-hooks-write.sh,read-*,env-*,proc-*,inherited-*,setsid-*,net-unix-*,localhost.py" -- \
  python3 "$work/attack-as.py" command "$bin" -s workspace-write --deny-read {DENY} --deny-read {DENYWS} --

# Each layer taken away: what is still claimed holds, or the sandbox refuses with
# exit code 4, naming layer and errno, before anything runs. An attack or more for
# every guarantee.
quick=fs-write-outside.sh,fs-metadata-outside.py,git-hooks-write.sh,codex-dir-create.sh,read-denied-path.sh,read-denied-in-workspace.sh
quick=$quick,read-home-secrets.sh,net-tcp-host-loopback.py,net-unix-datagram.py,net-unix-pathname.py,setsid-orphans.sh,userns-create.py
quick=$quick,kernel-surface.py,proc-supervisor.py,inherited-fds.py
degrade='sandbox.degrade=["landlock","outer-proc"]'
layer() { # layer WHO LAYERS held|REFUSAL FLAGS…: one row of the table
  local who=$1 layers=$2 want=$3 out code base=() prefix
  shift 3
  cd "$work"
  prefix=(python3 "$work/attacks/deny-layer" "$layers" -- "$bin" sandbox "$@")
  set +e
  out=$(as_user "$who" "${prefix[@]}" --mode workspace-write -C "$scratch" -- true 2>&1)
  code=$?
  set -e
  if [ "$want" != held ]; then
    printf '%-12s %-34s exit %s  %s\n' "$who" "$layers${*:+ (degraded)}" "$code" "$(head -n 1 <<< "$out")"
    case $code:$out in 4:*"$want"*) ;; *) failed=1; echo "  must refuse with 4 and say: $want" ;; esac
    return 0
  fi
  if [ "$code" != 0 ]; then
    printf '%-12s %-34s exit %s  %s\n' "$who" "$layers${*:+ (degraded)}" "$code" "$out"
    failed=1
    return 0
  fi
  [ "$who" = root ] || base=(--base "$home/attacks")
  if out=$(as_user "$who" python3 "$work/attacks/run-attacks" "${base[@]}" --only "$quick" --strict -- "${prefix[@]}" --deny-read {DENY} --deny-read {DENYWS} -- 2>&1) ||
    out=$(as_user "$who" python3 "$work/attacks/run-attacks" "${base[@]}" --only "$quick" --strict -- "${prefix[@]}" --deny-read {DENY} --deny-read {DENYWS} -- 2>&1); then
    printf '%-12s %-34s %s\n' "$who" "$layers${*:+ (degraded)}" "$(tail -n 1 <<< "$out")"
  else
    printf '%-12s %-34s NOT HELD\n%s\n' "$who" "$layers${*:+ (degraded)}" "$out"
    failed=1
  fi
}
printf '\n-- layers taken away\n'
scratch=$work/scratch
install -d -o "$user" "$scratch"
no_user='user namespace unavailable (clone: EPERM)'
layer root userns held
layer root allns "$no_user"
layer root landlock held
layer root landlock-off held
layer root seccomp 'seccomp unavailable (seccomp(SECCOMP_SET_MODE_FILTER): ENOSYS)'
layer root mount 'mount namespace unavailable (making / private: EPERM)'
layer root newmount held
layer root pivot held
layer root pidfd held
layer root newmount,pivot,landlock,pidfd held
layer root allns held -c "$degrade"
layer root mount held -c "$degrade"
layer root allns,landlock "$no_user" -c "$degrade"
layer "$user" userns "$no_user"
layer "$user" allns "$no_user"
layer "$user" seccomp 'seccomp unavailable'
layer "$user" mount 'mount namespace unavailable'
layer "$user" newmount,pivot,landlock,pidfd held
layer "$user" allns held -c "$degrade"
exit "$failed"
