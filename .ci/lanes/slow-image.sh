#!/usr/bin/env bash
# The image of the Dockerfile, built by buildah with chroot isolation: no container
# engine and no daemon. Where no image can be pulled, the two base images are made
# here under their own names, of Debian packages and of this machine's Go, so that
# the Dockerfile is built as it is. Then the image's program runs as the image's
# user on a read-only root, with no capability and a sandbox of its own.
#
#   bash .ci/lanes/slow-image.sh      # as root; some minutes
set -euo pipefail
cd "$(dirname "$0")/../.."
say() { printf -- '-- %s (at %ss)\n' "$*" "$SECONDS"; }
fail() { echo "FAULT: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "debootstrap and buildah's chroot isolation need root"
missing=()
for pair in buildah:buildah debootstrap:debootstrap bwrap:bubblewrap; do
  command -v "${pair%:*}" >/dev/null || missing+=("${pair#*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
  timeout 300 apt-get update -qq
  DEBIAN_FRONTEND=noninteractive timeout 600 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
work=$(mktemp -d "${NIGHTSHIFT_LANE_DIR:-/var/lib}/nightshift-image.XXXXXX")
chmod 755 "$work"
driver=overlay
mkdir "$work/l" "$work/u" "$work/w" "$work/m"
mount -t overlay -o "lowerdir=$work/l,upperdir=$work/u,workdir=$work/w" overlay "$work/m" 2>/dev/null && umount "$work/m" || driver=vfs
b() { timeout "${BOUND:-300}" buildah --storage-driver "$driver" --root "$work/store" --runroot "$work/run" "$@"; }
finish() {
  b umount --all >/dev/null 2>&1 || true
  for m in $(grep -o " $work/[^ ]*" /proc/self/mountinfo | sort -ru || true); do umount -l "$m" || true; done
  rm -rf --one-file-system "$work"
}
trap finish EXIT

pull=()
if ! BOUND=60 b pull -q docker.io/library/debian:stable-slim >/dev/null 2>&1; then
  say "no image can be pulled: base images of packages"
  mirror=$(apt-cache policy | sed -n 's|^ *[0-9]* \(https\?://[^ ]*\) [^ ]*/main .*|\1|p' | grep -v security | head -n 1 || true)
  timeout 600 debootstrap --variant=minbase stable "$work/debian" ${mirror:+"$mirror"} >"$work/log" 2>&1 || { tail -5 "$work/log"; fail "debootstrap"; }
  rm -rf "$work/debian"/var/cache/apt/archives/*.deb
  c=$(b from scratch)
  b add -q "$c" "$work/debian" / >/dev/null
  b commit -q "$c" docker.io/library/debian:stable-slim >/dev/null
  # The Go project's image is Debian with Go and certificates; ours has this
  # machine's Go.
  b add -q "$c" "$(go env GOROOT)" /usr/local/go >/dev/null
  b add -q "$c" /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt >/dev/null
  b config --env PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --env GOTOOLCHAIN=local --env GOPROXY="$(go env GOPROXY)" "$c"
  b commit -q "$c" docker.io/library/golang:1.26 >/dev/null
  b rm "$c" >/dev/null
  rm -rf --one-file-system "$work/debian"
  # With this machine's Go come its caches, so that nothing is compiled twice.
  pull=(--pull-never --volume "$(go env GOMODCACHE):/root/go/pkg/mod" --volume "$(go env GOCACHE):/root/.cache/go-build")
fi

say "build"
mkdir "$work/source"
git archive --format=tar HEAD | tar -C "$work/source" -xf -
cp Dockerfile "$work/source/Dockerfile"
BOUND=1200 b build --isolation chroot "${pull[@]}" --build-arg VERSION=0.1.0-image -t nightshift "$work/source" >"$work/log" 2>&1 || { tail -20 "$work/log"; fail "the image is not built"; }
config() { b inspect --type image --format "{{$1}}" nightshift; }
say "user $(config .OCIv1.Config.User), entry point $(config .OCIv1.Config.Entrypoint)"
case $(config .OCIv1.Config.User) in 65532 | 65532:65532) ;; *) fail "the image's user is no number other than 0" ;; esac

say "run"
c=$(b from --pull-never nightshift)
root=$(b mount "$c")
[ ! -e "$root/usr/local/go" ] || fail "the compiler is in the image"
file -b "$root/usr/local/bin/nightshift" 2>/dev/null | grep -q . && file -b "$root/usr/local/bin/nightshift" | grep -q 'statically linked' || go version -m "$root/usr/local/bin/nightshift" | grep -q CGO_ENABLED=0 || fail "the program is not static"
setuid=$(find "$root" -xdev -type f -perm /6000 | sed "s|^$root||" | sort | tr '\n' ' ')
say "setuid and setgid programs: ${setuid:-none}"
mkdir -m 777 "$work/workspace"
cat >"$work/workspace/model.json" <<'J'
{"model_script": [
  {"items": [{"call": "exec_command", "args": {"cmd": "id -u > who.txt; git --version; rg --version | head -n 1; touch /usr/here; touch /tmp/here; touch /home/nightshift/here"}}]},
  {"items": [{"message": "done"}]}]}
J
chmod 644 "$work/workspace/model.json"
# As a container engine would with --read-only, --tmpfs /tmp, --user and all
# capabilities dropped. PROC is /proc as --security-opt systempaths=unconfined
# leaves it; engines cover parts of it otherwise, as bubblewrap does.
inside() { # inside PROGRAM…
  # shellcheck disable=SC2086
  timeout 120 bwrap --ro-bind "$root" / --unshare-ipc --unshare-uts ${PROC:---bind /proc /proc} --dev /dev --perms 1777 --tmpfs /tmp --bind "$work/workspace" /workspace --chdir /workspace \
    --clearenv --setenv PATH /usr/local/bin:/usr/bin:/bin --setenv HOME /home/nightshift --setenv CODEX_HOME /tmp/home -- \
    /usr/bin/setpriv --reuid 65532 --regid 65532 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all "$@"
}
run='mkdir /tmp/home; exec nightshift exec --skip-git-repo-check --json -s workspace-write -m gpt-5.5 --model-script model.json --ephemeral'
inside nightshift --version | tee "$work/log"
grep -q 0.1.0-image "$work/log" || fail "the version is not the one of the build"
inside codex --version | grep -q 0.1.0-image || fail "there is no codex"
inside sh -c 'mkdir /tmp/home; touch /here 2>/dev/null && echo written; exec nightshift doctor' >"$work/log" 2>&1 || { cat "$work/log"; fail "doctor: this image cannot confine"; }
! grep -q written "$work/log" || fail "the root is not read-only"
inside sh -c "$run hi" </dev/null >"$work/events" 2>"$work/log" || { cat "$work/log" "$work/events"; fail "a run in the image"; }
grep -q '"text":"done"' "$work/events" || { cat "$work/events"; fail "the run has no answer"; }
[ "$(cat "$work/workspace/who.txt")" = 65532 ] || fail "the command ran as $(cat "$work/workspace/who.txt")"
for program in 'git version' 'ripgrep'; do grep -q "$program" "$work/events" || { cat "$work/events"; fail "no $program in the image"; }; done
say "with a covered /proc"
code=0
PROC="--unshare-pid --proc /proc" inside sh -c "$run hi" </dev/null >"$work/events" 2>"$work/log" || code=$?
if [ $code -ne 0 ]; then
  [ $code -eq 4 ] && grep -q 'systempaths=unconfined' "$work/log" || { cat "$work/log"; fail "ended with $code, and not with the advice"; }
  PROC="--unshare-pid --proc /proc" inside sh -c "$run -c 'sandbox.degrade=[\"outer-proc\"]' hi" </dev/null >"$work/events" 2>"$work/log" || { cat "$work/log"; fail "a run with the outer /proc"; }
fi
b umount "$c" >/dev/null
b rm "$c" >/dev/null
say "done"
