#!/usr/bin/env bash
# The Kubernetes examples on a real control plane: etcd, kube-apiserver and the
# job controller, with a stand-in that starts the pods' commands as processes.
# The Indexed Job's merge must equal that of one local batch; a pod that is killed
# is replaced and loses nothing; exit codes do what podFailurePolicy says.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
: "${NIGHTSHIFT:?path of the binary}"
NIGHTSHIFT=$(realpath "$NIGHTSHIFT")
version=1.37.2
say() { printf -- '-- %s (at %ss)\n' "$*" "$SECONDS"; }
fail() {
  echo "FAULT: $*" >&2
  [ -z "${work:-}" ] || tail -n 8 "$work"/node/*.log "$work/node.log" >&2 2>/dev/null || true
  exit 1
}
[ "$(id -u)" = 0 ] || fail "pods run as users of their own, so this lane needs root"
need=()
command -v etcd >/dev/null || need+=(etcd-server)
command -v bwrap >/dev/null || need+=(bubblewrap)
command -v openssl >/dev/null || need+=(openssl)
if [ ${#need[@]} -gt 0 ]; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
fi

# Not below /tmp, where commands have a folder of their own, nor in a home folder,
# which other users may not enter.
work=$(mktemp -d "${NIGHTSHIFT_LANE_DIR:-/var/lib}/nightshift-k8s.XXXXXX")
chmod 755 "$work"
started=()
finish() {
  for p in "${started[@]}"; do kill "$p" 2>/dev/null || true; done
  for f in "$work"/node/*.pid; do [ -f "$f" ] && kill -- "-$(cat "$f")" 2>/dev/null || true; done
  for p in "${started[@]}"; do
    timeout 3 tail --pid="$p" -f /dev/null || kill -9 "$p" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap finish EXIT

say "the control plane, built"
if [ -z "${CONTROL_PLANE:-}" ]; then
  CONTROL_PLANE=$work/bin
  mkdir "$work/module"
  (
    cd "$work/module"
    # Kubernetes names its own parts by folder; their published modules have the same content.
    mod=$(GOFLAGS=-mod=mod go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
    {
      printf 'module example.com/control-plane\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v%s\n\n' "$version"
      sed -n 's|^\t\(k8s.io/[a-z-]*\) => ./staging.*|replace \1 => \1 v0'"${version#1}"'|p' "$mod"
    } >go.mod
    GOFLAGS=-mod=mod CGO_ENABLED=0 timeout 3600 go build -ldflags='-s -w' -o "$CONTROL_PLANE/" k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager
  )
fi
if [ -z "${MANIFESTS:-}" ]; then
  MANIFESTS=$work/bin/manifests
  go build -C .github/tools/manifests -o "$MANIFESTS" .
fi

say "the control plane, started"
read -r etcd peer api < <(python3 -c '
import socket
s = [socket.socket() for _ in range(3)]
for x in s: x.bind(("127.0.0.1", 0))
print(*(x.getsockname()[1] for x in s))')
etcd --data-dir "$work/etcd" --listen-client-urls "http://127.0.0.1:$etcd" --advertise-client-urls "http://127.0.0.1:$etcd" \
  --listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" --initial-cluster "default=http://127.0.0.1:$peer" \
  >"$work/etcd.log" 2>&1 &
started+=($!)
openssl genrsa -out "$work/sa.key" 2048 2>/dev/null
token=$(head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n')
echo "$token,ci,ci,system:masters" >"$work/tokens"
"$CONTROL_PLANE/kube-apiserver" --etcd-servers "http://127.0.0.1:$etcd" --secure-port "$api" --bind-address 127.0.0.1 --advertise-address 127.0.0.1 \
  --cert-dir "$work/certs" --token-auth-file "$work/tokens" --authorization-mode RBAC --service-account-issuer https://ci.example.com \
  --service-account-key-file "$work/sa.key" --service-account-signing-key-file "$work/sa.key" --service-cluster-ip-range 10.0.0.0/24 \
  --disable-admission-plugins ServiceAccount --endpoint-reconciler-type none >"$work/apiserver.log" 2>&1 &
started+=($!)
cat >"$work/kubeconfig" <<Y
apiVersion: v1
kind: Config
clusters: [{name: ci, cluster: {server: "https://127.0.0.1:$api", insecure-skip-tls-verify: true}}]
users: [{name: ci, user: {token: "$token"}}]
contexts: [{name: ci, context: {cluster: ci, user: ci}}]
current-context: ci
Y
call() { # call METHOD PATH [CURL ARGS…]
  curl -ksS --max-time 30 -H "Authorization: Bearer $token" -X "$1" "https://127.0.0.1:$api$2" "${@:3}"
}
for _ in $(seq 300); do [ "$(call GET /readyz 2>/dev/null)" = ok ] && break; sleep 0.5; done
[ "$(call GET /readyz)" = ok ] || { tail -20 "$work/apiserver.log"; fail "the API server is not ready"; }
"$CONTROL_PLANE/kube-controller-manager" --kubeconfig "$work/kubeconfig" --controllers job-controller,ttl-after-finished-controller,cronjob-controller \
  --leader-elect=false --cert-dir "$work/certs" --bind-address 127.0.0.1 --secure-port 0 >"$work/controller.log" 2>&1 &
started+=($!)

# The work, as in the engines lane: nine tasks over one repository.
git="git -c user.name=ci -c user.email=ci@example.com"
mkdir -p "$work/repo" "$work/tools" "$work/node/claims" "$work/local"
(cd "$work/repo" && git init -q -b main && echo one >a.txt && git add -A && $git commit -q -m start)
tasks() { # tasks LIMIT: the second one gets the limit
  local id limit
  for id in alpha beta gamma delta epsilon zeta eta theta iota; do
    limit=
    [ $id != beta ] || limit=$1
    printf '{"id":"%s","repo":"%s","prompt":"do %s"%s}\n' $id "$work/repo" $id "$limit"
  done
}
script() { # script COMMAND FIRST: what the model does
  printf '{"model_script": [%s{"items": [{"call": "exec_command", "args": {"cmd": "%s", "yield_time_ms": 30000}}]}, {"items": [{"message": "done"}]}]}\n' "$2" "$1" >"$work/tools/model.json"
}
cp "$NIGHTSHIFT" "$work/tools/program"
cat >"$work/tools/nightshift" <<SH
#!/bin/sh
if [ "\$1" = batch ] && [ "\$2" != merge ]; then
  set -- "\$@" --deterministic --ephemeral -m gpt-5.5 --model-script "$work/tools/model.json"
fi
exec "$work/tools/program" "\$@"
SH
chmod -R a+rX "$work/repo" "$work/tools"
chmod 755 "$work/tools/nightshift" "$work/tools/program"
python3 "$root/.ci/lanes/k8s-node.py" "https://127.0.0.1:$api" "$token" "$work/node" "$work/tools/nightshift" "$work/repo" "$work/tools" >"$work/node.log" 2>&1 &
started+=($!)

secret=sk-not-a-key-000000
apply() { # apply FILE: create the objects of a manifest; the server checks every field
  "$MANIFESTS" -json "$1" | while IFS= read -r object; do
    case $object in
      *'"kind":"Job"'*) path=/apis/batch/v1/namespaces/default/jobs ;;
      *'"kind":"CronJob"'*) path=/apis/batch/v1/namespaces/default/cronjobs ;;
      *'"kind":"PersistentVolumeClaim"'*) path=/api/v1/namespaces/default/persistentvolumeclaims ;;
      *) fail "no path for $object" ;;
    esac
    code=$(call POST "$path?fieldValidation=Strict" -H 'Content-Type: application/json' -d "$object" -o "$work/answer" -w '%{http_code}')
    case $code in 201 | 409) ;; *) cat "$work/answer"; fail "$1 is refused with $code" ;; esac
  done
}
config() { # config FILE: the tasks
  python3 -c 'import json,sys; print(json.dumps({"metadata":{"name":"tasks"},"data":{"tasks.jsonl":open(sys.argv[1]).read()}}))' "$1" >"$work/object"
  call DELETE /api/v1/namespaces/default/configmaps/tasks -o /dev/null
  call POST /api/v1/namespaces/default/configmaps -H 'Content-Type: application/json' -d @"$work/object" -o /dev/null --fail
}
job() { # job NAME: its status, as JSON
  call GET "/apis/batch/v1/namespaces/default/jobs/$1"
}
field() { python3 -c 'import json,sys; o=json.load(sys.stdin)["status"]; print(eval(sys.argv[1], {"s": o, "c": {c["type"]: c.get("reason","") for c in o.get("conditions",[]) if c["status"]=="True"}}))' "$1"; }
wait_job() { # wait_job NAME CONDITION
  local got=
  for _ in $(seq 600); do
    got=$(job "$1" | field '",".join(c)')
    case ,$got, in *,"$2",*) return 0 ;; *,Complete,* | *,Failed,*) break ;; esac
    sleep 0.5
  done
  job "$1" | head -c 6000; tail -20 "$work/controller.log"
  fail "job $1 is \"$got\", not $2"
}
remove() { # remove JOB
  call DELETE "/apis/batch/v1/namespaces/default/jobs/$1?propagationPolicy=Background" -o /dev/null
  call DELETE "/api/v1/namespaces/default/pods?labelSelector=batch.kubernetes.io/job-name%3D$1" -o /dev/null
  for _ in $(seq 200); do [ "$(call GET "/apis/batch/v1/namespaces/default/jobs/$1" -o /dev/null -w '%{http_code}')" = 404 ] && break; sleep 0.2; done
  rm -rf "$work/node/claims/nightshift-results"
}
for _ in $(seq 100); do call GET /api/v1/namespaces/default -o /dev/null --fail 2>/dev/null && break; sleep 0.2; done
call POST /api/v1/namespaces/default/secrets -H 'Content-Type: application/json' -o /dev/null --fail \
  -d '{"metadata":{"name":"nightshift"},"stringData":{"api-key":"'$secret'"}}'
results=$work/node/claims/nightshift-results

say "an Indexed Job"
tasks ',"limits":{"max_turns":1}' >"$work/tasks.jsonl"
script "echo two >> a.txt; mkdir -p made; pwd | wc -l > made/b.txt" '{"match": {"contains": "do gamma"}, "status": 400, "body": {"error": {"message": "no"}}}, '
# The local batch runs as the user of the pods: what a sandbox can guarantee
# depends on that, and reports say so.
mkdir -p "$work/local/home/.codex"
cp "$work/tasks.jsonl" "$work/local"
chown -R 65532:65532 "$work/local"
setpriv --reuid 65532 --regid 65532 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all env -i -C "$work/local" PATH="$PATH" \
  HOME="$work/local/home" CODEX_HOME="$work/local/home/.codex" CODEX_API_KEY=$secret \
  "$work/tools/nightshift" batch --tasks tasks.jsonl --out results -s workspace-write --max-wall-time 20m --requests-per-minute 60 >"$work/log" 2>&1 || true
"$NIGHTSHIFT" batch merge "$work/local/results" --out "$work/local/merged" --tasks "$work/tasks.jsonl" 2>/dev/null || { cat "$work/log"; fail "the local batch left no results"; }
grep -q '^9 tasks: 7 succeeded, 2 failed' "$work/log" || { cat "$work/log"; fail "the local batch"; }
config "$work/tasks.jsonl"
apply ci-examples/kubernetes/indexed-job.yaml
wait_job nightshift Failed # two tasks fail
say "$(job nightshift | field '"the Job: %s; indexes done %s, failed %s; pods: %d" % (c["Failed"], s.get("completedIndexes"), s.get("failedIndexes"), s.get("failed", 0) + s.get("succeeded", 0))')"
[ "$(job nightshift | field 'c["Failed"]')" = FailedIndexes ] || fail "the Job did not end by its indexes"
[ "$(job nightshift | field 's.get("failed", 0) + s.get("succeeded", 0)')" = 3 ] || fail "failed tasks made the Job start pods again"
apply ci-examples/kubernetes/merge-job.yaml
wait_job nightshift-merge Failed # the gate
diff -r "$work/local/merged" "$results/merged" >"$work/diff" || { head -c 3000 "$work/diff"; fail "its merge differs from that of the local batch"; }
say "$(wc -l <"$results/merged/results.jsonl") results, equal byte for byte"
remove nightshift-merge
remove nightshift

say "a pod is killed"
tasks '' >"$work/tasks.jsonl"
script "echo two >> a.txt; sleep 2" ''
config "$work/tasks.jsonl"
apply ci-examples/kubernetes/indexed-job.yaml
victim=
for _ in $(seq 200); do
  victim=$(ls "$work"/node/nightshift-0-*.pid 2>/dev/null | while read -r f; do kill -0 "$(cat "$f")" 2>/dev/null && echo "$f"; done | head -n 1) || true
  [ -n "$victim" ] && ls "$results"/claims/* >/dev/null 2>&1 && break
  sleep 0.1
done
[ -n "$victim" ] || fail "no pod to kill"
kill -9 -- "-$(cat "$victim")"
wait_job nightshift Complete
say "$(job nightshift | field '"the Job is complete; pods: %d succeeded, %d failed" % (s.get("succeeded", 0), s.get("failed", 0))')"
[ "$(job nightshift | field 's.get("failed", 0)')" = 1 ] || fail "the killed pod was not replaced"
"$NIGHTSHIFT" batch merge "$results" --out "$work/merged" --tasks "$work/tasks.jsonl" --gate || fail "tasks are lost"
[ "$(wc -l <"$work/merged/results.jsonl")" = 9 ] || fail "not nine results"
remove nightshift

say "a mistake of the set-up"
echo '{"id":"a"}' >"$work/bad.jsonl"
config "$work/bad.jsonl"
apply ci-examples/kubernetes/indexed-job.yaml
wait_job nightshift Failed
[ "$(job nightshift | field 'c["Failed"]')" = PodFailurePolicy ] || fail "exit code 2 did not end the Job"
[ "$(job nightshift | field 's.get("failed", 0)')" -le 3 ] || fail "exit code 2 was tried again"
remove nightshift
apply ci-examples/kubernetes/cronjob.yaml
call GET /apis/batch/v1/namespaces/default/cronjobs/nightshift -o /dev/null --fail
say "done"
