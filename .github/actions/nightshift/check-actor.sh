#!/usr/bin/env bash
# Refuses a run that somebody without write access has started, unless allowed.
set -euo pipefail
listed() { # listed NAME LIST
  local IFS=, one
  for one in $2; do
    one=${one//[[:space:]]/}
    [ -n "$one" ] && [ "${one%\[bot\]}" = "${1%\[bot\]}" ] && return 0
  done
  return 1
}
case "${EVENT:-}" in schedule|workflow_dispatch|push|repository_dispatch) exit 0 ;; esac # only writers can start these
[ "${ALLOW_USERS:-}" = "*" ] && exit 0
case "$ACTOR" in
  *"[bot]")
    if listed "$ACTOR" "${ALLOW_BOT_USERS:-}"; then exit 0; fi
    if [ "$ACTOR" = "github-actions[bot]" ] && [ "${ALLOW_BOTS:-false}" = true ]; then exit 0; fi
    ;;
  *) if listed "$ACTOR" "${ALLOW_USERS:-}"; then exit 0; fi ;;
esac
permission=$(curl -fsS --max-time 20 -H "Authorization: Bearer $GH_TOKEN" "$API/repos/$REPO/collaborators/$ACTOR/permission" |
  sed -n 's/.*"permission": *"\([a-z]*\)".*/\1/p' | head -n 1) || permission=""
case "$permission" in
  admin | maintain | write) exit 0 ;;
esac
echo "::error::$ACTOR has no write access to $REPO and is not in allow-users; nothing was run" >&2
exit 1
