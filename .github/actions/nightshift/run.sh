#!/usr/bin/env bash
# Turns the inputs of the action into one call of `nightshift exec`.
set -euo pipefail
private=$(mktemp -d "${RUNNER_TEMP:-/tmp}/nightshift-XXXXXX")
chmod 700 "$private"
export CODEX_HOME=${IN_HOME:-$private/home}
mkdir -p "$CODEX_HOME"
args=(exec --skip-git-repo-check --color never)

sandbox=${IN_SANDBOX:-workspace-write}
case "${IN_PROFILE:-}" in
  "") ;;
  :read-only) sandbox=read-only ;;
  :workspace) sandbox=workspace-write ;;
  *) args+=(--config "default_permissions=\"$IN_PROFILE\"") ;;
esac
[ "${IN_STRATEGY:-}" = read-only ] && sandbox=read-only

[ -n "${IN_DIR:-}" ] && args+=(--cd "$IN_DIR")
[ -n "${IN_OUTPUT_FILE:-}" ] && args+=(--output-last-message "$IN_OUTPUT_FILE")
if [ -n "${IN_SCHEMA:-}" ]; then
  printf '%s' "$IN_SCHEMA" > "$private/schema.json"
  args+=(--output-schema "$private/schema.json")
elif [ -n "${IN_SCHEMA_FILE:-}" ]; then
  args+=(--output-schema "$IN_SCHEMA_FILE")
fi
[ -n "${IN_MODEL:-}" ] && args+=(--model "$IN_MODEL")
[ -n "${IN_EFFORT:-}" ] && args+=(--config "model_reasoning_effort=\"$IN_EFFORT\"")
[ -n "${IN_ENDPOINT:-}" ] && args+=(--config "openai_base_url=\"${IN_ENDPOINT%/responses}\"")
[ -n "${IN_MAX_TURNS:-}" ] && args+=(--max-turns "$IN_MAX_TURNS")
[ -n "${IN_MAX_WALL_TIME:-}" ] && args+=(--max-wall-time "$IN_MAX_WALL_TIME")
[ -n "${IN_MAX_COST:-}" ] && args+=(--max-cost "$IN_MAX_COST")
[ -n "${IN_REQUIREMENTS:-}" ] && args+=(--requirements "$IN_REQUIREMENTS")
[ "${IN_STRICT:-false}" = true ] && args+=(--strict)
while IFS= read -r line; do
  [ -n "$line" ] && args+=(--verify "$line")
done <<< "${IN_VERIFY:-}"

# Changes from outside do not bring their own instructions.
from=${IN_INSTRUCTIONS_FROM:-}
case "${EVENT:-}" in
  pull_request | pull_request_target) [ -z "$from" ] && [ -n "${BASE_REF:-}" ] && from="origin/$BASE_REF" ;;
esac
[ -n "$from" ] && args+=(--instructions-from "$from")

IN_ARGS=${IN_ARGS:-}
if [ -n "${IN_ARGS//[[:space:]]/}" ]; then
  # By way of a file: a list that does not parse must stop the step.
  case "${IN_ARGS#"${IN_ARGS%%[![:space:]]*}"}" in
    \[*) jq -j '.[] | strings // error("codex-args: not a list of strings") | (., "\u0000")' <<< "$IN_ARGS" > "$private/args" ;;
    *) xargs printf '%s\0' <<< "$IN_ARGS" > "$private/args" ;;
  esac || { echo "::error::codex-args is neither a JSON array of strings nor a list of words" >&2; exit 2; }
  mapfile -d '' -t more < "$private/args"
  args+=("${more[@]}")
fi
args+=(--report-dir "${IN_REPORT_DIR:-$private/report}" --sandbox "$sandbox")

# The prompt is a file and the key comes first on stdin, so neither shows in a
# process list, and the key is in no environment.
if [ -n "${IN_PROMPT:-}" ]; then
  printf '%s' "$IN_PROMPT" > "$private/prompt.md"
  args+=(--prompt-file "$private/prompt.md")
else
  args+=(--prompt-file "$IN_PROMPT_FILE")
fi
key=${IN_API_KEY:-}
unset IN_API_KEY
if [ -n "$key" ]; then
  args+=(--api-key-stdin)
  exec "$NIGHTSHIFT" "${args[@]}" < <(printf '%s\n' "$key")
fi
exec "$NIGHTSHIFT" "${args[@]}" < /dev/null
