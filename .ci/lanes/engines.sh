#!/usr/bin/env bash
# The examples on the engines they are for, unmodified: Slurm (one node), GitLab
# CI by gitlab-ci-local, GitHub Actions by act without containers. The same tasks
# through each of them, and through one local batch, must merge to the same bytes.
# Workflows are checked by actionlint, manifests by decoding them strictly.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
: "${NIGHTSHIFT:?path of the binary}"
NIGHTSHIFT=$(realpath "$NIGHTSHIFT")
say() { printf -- '-- %s (at %ss)\n' "$*" "$SECONDS"; }
fail() { echo "FAULT: $*" >&2; exit 1; }
packages() { # packages COMMAND PACKAGE…: install Debian packages where the command is missing
  command -v "$1" >/dev/null 2>&1 || PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null 2>&1 || missing+=("${@:2}")
}
missing=()
packages slurmctld slurm-wlm
packages munged munge
packages npm npm
packages rsync rsync # gitlab-ci-local copies with it
if [ ${#missing[@]} -gt 0 ]; then
  timeout 300 apt-get update -qq
  DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
export PATH=$PATH:/usr/sbin:/sbin

say "actionlint"
timeout 600 go tool -modfile=.github/tools/go.mod actionlint -shellcheck= -pyflakes= .github/workflows/*.yml ci-examples/github/*.yml

# Not below /tmp: commands have a /tmp of their own.
work=$(mktemp -d "${NIGHTSHIFT_LANE_DIR:-$HOME}/nightshift-engines.XXXXXX")
started=()
finish() {
  for p in "${started[@]}"; do kill "$p" 2>/dev/null || true; done
  for p in "${started[@]}"; do
    timeout 10 tail --pid="$p" -f /dev/null || kill -9 "$p" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap finish EXIT

say "manifests"
if [ -z "${MANIFESTS:-}" ]; then
  MANIFESTS=$work/bin/manifests
  timeout 900 go build -C .github/tools/manifests -o "$MANIFESTS" .
fi
"$MANIFESTS" ci-examples/kubernetes/*.yaml
sed 's/backoffLimitPerIndex:/backoffLimitPerIndx:/' ci-examples/kubernetes/indexed-job.yaml >"$work/misspelt.yaml"
"$MANIFESTS" "$work/misspelt.yaml" 2>"$work/log" && fail "a misspelt field of a manifest is not found"
grep -q 'unknown field "spec.backoffLimitPerIndx"' "$work/log" || { cat "$work/log"; fail "the misspelt field is not named"; }

say "engines"
timeout 300 npm install --prefix "$work/npm" --no-audit --no-fund --silent gitlab-ci-local@4.70.1
gitlab=$work/npm/node_modules/.bin/gitlab-ci-local
if [ -z "${ACT:-}" ]; then
  GOBIN=$work/bin timeout 900 go install github.com/nektos/act@v0.2.89
  ACT=$work/bin/act
fi

# The work: nine tasks over one repository; one fails, one meets its limit.
git="git -c user.name=ci -c user.email=ci@example.com"
mkdir "$work/repo" "$work/tools" "$work/home"
(cd "$work/repo" && git init -q -b main && echo one >a.txt && git add -A && $git commit -q -m start)
for id in alpha beta gamma delta epsilon zeta eta theta iota; do
  limit=
  [ $id != beta ] || limit=',"limits":{"max_turns":1}'
  printf '{"id":"%s","repo":"%s","prompt":"do %s"%s}\n' $id "$work/repo" $id "$limit"
done >"$work/tasks.jsonl"
cat >"$work/model.json" <<'J'
{"model_script": [
  {"match": {"contains": "do gamma"}, "status": 400, "body": {"error": {"message": "no"}}},
  {"items": [{"call": "exec_command", "args": {"cmd": "echo two >> a.txt; mkdir -p made; pwd | wc -l > made/b.txt"}}]},
  {"items": [{"message": "done"}]}]}
J
# The examples name no model and no script: whoever calls `nightshift` gets them.
cat >"$work/tools/nightshift" <<SH
#!/bin/sh
if [ "\$1" = batch ] && [ "\$2" != merge ]; then
  set -- "\$@" --deterministic --ephemeral -m gpt-5.5 --model-script "$work/model.json"
fi
exec "$NIGHTSHIFT" "\$@"
SH
chmod +x "$work/tools/nightshift"
export PATH=$work/tools:$PATH CODEX_HOME=$work/home CODEX_API_KEY=sk-not-a-key-000000
unset "${!CI_@}" "${!GITHUB_@}" "${!SLURM_@}" GITLAB_CI CI 2>/dev/null || true

project() { # project NAME: a repository with the tasks in it, as an engine finds it
  mkdir "$work/$1"
  cp "$work/tasks.jsonl" "$work/$1"
  (cd "$work/$1" && git init -q -b main && git add -A && $git commit -q -m tasks && git remote add origin https://example.com/group/tasks.git)
  cd "$work/$1"
}
gate() { # gate COMMAND…: the merge is a gate, and two tasks do not succeed
  local code=0
  timeout 240 "$@" >"$work/log" 2>&1 || code=$?
  [ $code -ne 0 ] || { tail -30 "$work/log"; fail "two tasks failed and the engine's run is green: $*"; }
}
same() { # same NAME DIR: the merge of an engine is that of the local batch
  [ -s "$2/results.jsonl" ] || { tail -50 "$work/log"; fail "$1: no merge in $2"; }
  diff -r "$work/local/merged" "$2" >"$work/diff" || { head -c ${SHOW:-3000} "$work/diff"; fail "$1: its merge differs from that of the local batch"; }
  say "$1: $(wc -l <"$2/results.jsonl") results, equal byte for byte"
}

say "one local batch"
project local
nightshift batch --tasks tasks.jsonl --out results -s workspace-write --max-wall-time 20m >"$work/log" 2>&1 && fail "two tasks should fail"
grep -q '^9 tasks: 7 succeeded, 2 failed, 0 without a result' "$work/log" || { cat "$work/log"; fail "the local batch"; }
nightshift batch merge results --out merged --tasks tasks.jsonl 2>/dev/null

say "GitLab CI"
project gitlab
cp "$root/ci-examples/gitlab/.gitlab-ci.yml" .
git add -A && $git commit -q -m ci
gate "$gitlab" --no-color
same "GitLab CI" merged

say "GitHub Actions"
project github
mkdir -p .github/workflows
cp "$root/ci-examples/github/matrix-batch.yml" .github/workflows/
git add -A && $git commit -q -m ci
# Stand-ins for the two actions that move artifacts: act has no service for them
# without containers. They know the inputs that the example uses.
store=$work/artifacts
mkdir -p "$store" "$work/upload" "$work/download"
cat >"$work/upload/action.yml" <<Y
name: upload
inputs:
  name: {required: true}
  path: {required: true}
runs:
  using: composite
  steps:
    - shell: bash
      env: {NAME: "\${{ inputs.name }}", PATHS: "\${{ inputs.path }}"}
      run: |
        mkdir -p "$store/\$NAME"
        first=\$(head -n 1 <<<"\$PATHS")
        tar -C "\$first" --exclude=tree --exclude=./cache -cf - . | tar -C "$store/\$NAME" -xf -
Y
cat >"$work/download/action.yml" <<Y
name: download
inputs:
  pattern: {required: true}
  path: {required: true}
runs:
  using: composite
  steps:
    - shell: bash
      env: {PATTERN: "\${{ inputs.pattern }}", TO: "\${{ inputs.path }}"}
      run: |
        mkdir -p "\$TO"
        cp -r "$store"/\$PATTERN "\$TO"
Y
pin() { sed -n "s|.*uses: actions/$1@\([0-9a-f]*\).*|\1|p" .github/workflows/matrix-batch.yml | head -n 1; }
gate env XDG_CACHE_HOME="$work/cache" "$ACT" workflow_dispatch -W .github/workflows/matrix-batch.yml -P ubuntu-24.04=-self-hosted --container-architecture linux/amd64 \
  -s OPENAI_API_KEY="$CODEX_API_KEY" --local-repository "actions/upload-artifact@$(pin upload-artifact)=$work/upload" \
  --local-repository "actions/download-artifact@$(pin download-artifact)=$work/download"
same "GitHub Actions" "$store/merged"

# Systems that run nowhere but at their vendor: the commands of the examples, taken
# out of the files, with the variables that the system would set.
step() { # step FILE TEXT: the command of the line that holds it
  grep -F "$2" "$root/ci-examples/$1" | head -n 1 | sed -E "s/^ *(- )?(command|run|bash|sh)?:? *//; s/^'(.*)'$/\\1/; s/\\$\\$/\\$/g"
}
shards() { # shards NAME FILE INDEX COUNT FIRST: three nodes, then the merge
  project "$1"
  local i code
  for i in 0 1 2; do
    code=0
    env "$3=$((i + $5))" "$4=3" PIPELINE_WORKSPACE="$PWD/pipeline" bash -c "$(step "$2" 'nightshift batch --tasks')" >>"$work/log" 2>&1 || code=$?
    case $code in 0 | 9) ;; *) tail -20 "$work/log"; fail "$1: node $i ended with $code" ;; esac
    [ ! -d pipeline/shard ] || mv pipeline/shard "pipeline/shard-$i" # as its artifact
  done
  gate env PIPELINE_WORKSPACE="$PWD/pipeline" bash -c "$(step "$2" 'nightshift batch merge')"
  same "$1" merged
}
shards buildkite buildkite/pipeline.yml BUILDKITE_PARALLEL_JOB BUILDKITE_PARALLEL_JOB_COUNT 0
shards circleci circleci/config.yml CIRCLE_NODE_INDEX CIRCLE_NODE_TOTAL 0
shards azure azure/azure-pipelines.yml SYSTEM_JOBPOSITIONINPHASE SYSTEM_TOTALJOBSINPHASE 1
shards jenkins jenkins/Jenkinsfile NIGHTSHIFT_SHARD_INDEX NIGHTSHIFT_SHARD_COUNT 0
project cron
NIGHTSHIFT_DIR=$PWD gate sh "$root/ci-examples/cron/nightly.sh"
[ "$(wc -l <merged/results.jsonl)" = 9 ] || { cat log; fail "cron: not nine results"; }
say "cron: 9 results"
if command -v systemd-analyze >/dev/null; then
  # The program is not installed here; everything else of the units must be right.
  sed 's|^ExecStart=/usr/local/bin/nightshift|ExecStart='"$NIGHTSHIFT"'|' "$root/ci-examples/systemd/nightshift.service" >"$work/nightshift.service"
  cp "$root/ci-examples/systemd/nightshift.timer" "$work"
  systemd-analyze verify "$work/nightshift.service" "$work/nightshift.timer" >"$work/log" 2>&1 || { cat "$work/log"; fail "the systemd units"; }
  ! grep -E "nightshift\.(service|timer):[0-9]+" "$work/log" || fail "the systemd units"
fi

say "Slurm"
project slurm
mkdir -m 700 "$work/munge" "$work/slurm-state" "$work/slurm-spool"
head -c 1024 /dev/urandom >"$work/munge/key"
chmod 600 "$work/munge/key"
munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
  --log-file="$work/munge/log" --seed-file="$work/munge/seed" >/dev/null 2>&1 &
started+=($!)
ports=($(node -e 'const n=require("net");Promise.all([0,1].map(()=>new Promise(r=>{const s=n.createServer().listen(0,"127.0.0.1",()=>r(s))}))).then(l=>{console.log(l.map(s=>s.address().port).join(" "));l.forEach(s=>s.close())})'))
host=$(hostname -s)
cat >"$work/slurm.conf" <<CONF
ClusterName=ci
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmdPort=${ports[1]}
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CredType=cred/munge
StateSaveLocation=$work/slurm-state
SlurmdSpoolDir=$work/slurm-spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=200000
ReturnToService=2
MaxNodeCount=1
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$work/slurm.conf
for _ in $(seq 100); do [ -S "$work/munge/socket" ] && break; sleep 0.1; done
slurmctld -D >/dev/null 2>&1 &
started+=($!)
slurmd -D -N "$host" >/dev/null 2>&1 &
started+=($!)
for _ in $(seq 300); do [ "$(sinfo -h -o %T 2>/dev/null)" = idle ] && break; sleep 0.2; done
[ "$(sinfo -h -o %T)" = idle ] || { tail -20 "$work/slurmctld.log" "$work/slurmd.log"; fail "the Slurm node is not ready"; }
cp "$root"/ci-examples/slurm/*.sbatch .
array=$(sbatch --parsable batch.sbatch)
code=0
timeout 240 sbatch --wait --dependency="afterany:$array" merge.sbatch >"$work/log" 2>&1 || code=$?
cat nightshift-*.log >>"$work/log"
[ $code -eq 9 ] || { cat "$work/log"; tail -20 "$work/slurmctld.log"; fail "the merge job ended with $code, not with 9"; }
[ "$(grep -h '^shard' nightshift-"$array"-*.log | sort -u | wc -l)" = 3 ] || { cat "$work/log"; fail "not three shards"; }
same Slurm merged
say "done"
