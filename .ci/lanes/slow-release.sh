#!/usr/bin/env bash
# A release without publishing: goreleaser as the release workflow runs it, from a
# clean clone, with the bills of materials. What it makes is looked at: static
# programs, archives with manual and completions, sums, and the same bytes again
# from another folder.
#
#   bash .ci/lanes/slow-release.sh      # builds goreleaser: some minutes
set -euo pipefail
cd "$(dirname "$0")/../.."
say() { printf -- '-- %s (at %ss)\n' "$*" "$SECONDS"; }
fail() { echo "FAULT: $*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say "tools, in the versions of the workflow"
tools=$(sed -n 's/^ *go install \([^ ]*@v[^ ]*\)$/\1/p' .github/workflows/release.yml)
[ "$(wc -l <<<"$tools")" = 2 ] || fail "release.yml does not install two tools: $tools"
mkdir "$work/bin"
for tool in $tools; do
  name=${tool%@*} name=${name%/v[0-9]} name=${name##*/}
  have=${TOOLS:-/nowhere}/$name # a folder with tools that were built before
  if [ -x "$have" ] && go version -m "$have" | grep -q "mod.*${tool#*@}"; then
    ln -s "$have" "$work/bin/$name"
  else
    GOBIN=$work/bin timeout 1800 go install "$tool" || fail "$tool cannot be built"
  fi
done
export PATH=$work/bin:$PATH
timeout 60 goreleaser check --config .github/goreleaser.yaml || fail "the configuration"

release() { # release DIR: everything but publishing
  git clone -q . "$1"
  git -C "$1" tag -f v0.1.0-lane >/dev/null
  (cd "$1" && timeout 1200 goreleaser release --snapshot --clean --skip=publish --config .github/goreleaser.yaml) >"$work/log" 2>&1 || { tail -20 "$work/log"; fail "goreleaser"; }
}
say "release"
release "$work/one"
cd "$work/one/dist"
sha256sum --check --strict --quiet SHA256SUMS || fail "the sums"
[ "$(ls ./*.tar.gz | wc -l)" = 2 ] || { ls; fail "not two archives"; }
[ -z "$(git -C .. status --porcelain)" ] || { git -C .. status --short; fail "the release leaves files that git would take"; }
for arch in amd64 arm64; do
  archive=$(ls nightshift-*-linux-$arch.tar.gz) name=${archive%.tar.gz}
  grep -q " $archive$" SHA256SUMS || fail "$archive has no sum"
  grep -q " $name.cdx.json$" SHA256SUMS || fail "the bill of materials of $arch has no sum"
  tar -xzf "$archive" -C "$work"
  at=$work/$name
  for f in nightshift LICENSE README.md man/nightshift.1 completions/nightshift.bash completions/_nightshift completions/nightshift.fish schemas/events.schema.json; do
    [ -s "$at/$f" ] || { tar -tzf "$archive"; fail "$archive has no $f"; }
  done
  tar --numeric-owner -tvzf "$archive" | awk '$2 != "0/0"' | grep . && fail "$archive holds files of somebody" || true
  go version -m "$at/nightshift" >"$work/about"
  for setting in CGO_ENABLED=0 GOARCH=$arch -trimpath=true; do
    grep -q -- "$setting" "$work/about" || { cat "$work/about"; fail "the program of $arch is built without $setting"; }
  done
  ! readelf -l "$at/nightshift" | grep -q INTERP || fail "the program of $arch asks for a loader"
  # The bill names each module that the program holds, and no other.
  awk '$1 == "dep" {print $2 "@" $3}' "$work/about" | sort >"$work/modules"
  sed -n 's|.*"bom-ref": "pkg:golang/\([^?"]*\).*|\1|p' "$name.cdx.json" | grep -v '^std@\|nightshift@' | sed 's/%2[Bb]/+/g' | sort -u >"$work/bill"
  diff -i "$work/modules" "$work/bill" >"$work/diff" || { head -20 "$work/diff"; fail "the bill of materials of $arch"; }
  say "$archive: $(stat -c %s "$archive") bytes, $(wc -l <"$work/bill") modules in its bill"
done
version=$(ls ./*-linux-amd64.tar.gz | sed 's|./nightshift-\(.*\)-linux-amd64.tar.gz|\1|')
if [ "$(uname -m)" = x86_64 ]; then
  "$work/nightshift-$version-linux-amd64/nightshift" --version | grep -q "$version" || fail "the program does not know its version $version"
fi
sed -n '1s/\\-/-/gp' "$work/nightshift-$version-linux-amd64/man/nightshift.1" | grep -q "nightshift $version" || fail "the manual does not name the version"
cd "$OLDPWD"

say "once more, from another folder"
release "$work/two-in-a-folder-with-a-longer-name"
diff "$work/one/dist/SHA256SUMS" "$work/two-in-a-folder-with-a-longer-name/dist/SHA256SUMS" || fail "the same commit gave other bytes"
say "done"
