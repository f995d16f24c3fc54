#!/usr/bin/env bash
# class: read
# tries: credentials in the homes of build tools, also where a private cache begins with the user's
. "$(dirname "$0")/atk.sh"
for d in "$FIXHOME" "$GRADLE_USER_HOME" "$CARGO_HOME" "$npm_config_cache" "$MAVEN_HOME" "$XDG_CACHE_HOME" "$PIP_CACHE_DIR" "${TMPDIR:-/tmp}"; do
  [ -n "$d" ] && f=$(grep -rls CANARY-H "$d" | head -1) && [ -n "$f" ] && escaped "read $f"
done
held
