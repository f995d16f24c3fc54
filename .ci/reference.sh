# Sourced by the lanes that compare with the reference. Makes the folder $work,
# which goes with the lane, and sets REFERENCE to its program from npm, unless
# that is given; installs bubblewrap, which the reference's sandbox needs.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
apt_install() { # apt_install COMMAND PACKAGE
  command -v "$1" >/dev/null && return 0
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$2" >/dev/null
}
if [ -z "${REFERENCE:-}" ]; then
  apt_install npm npm
  (cd "$work" && npm init -y >/dev/null && timeout 600 npm install --no-audit --no-fund --silent @openai/codex@0.171.0)
  REFERENCE=$(find "$work/node_modules/@openai" -type f -path '*/bin/codex' -perm -u+x -size +1M | head -n 1)
fi
export REFERENCE
apt_install bwrap bubblewrap
