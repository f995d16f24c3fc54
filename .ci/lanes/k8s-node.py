"""A stand-in for scheduler, kubelet and container runtime: pods of a real
control plane are started as processes. Each one gets a root of its own with the
machine's programs, its volumes and nothing else that can be written, and runs as
the user that its manifest names. See slow-k8s.sh."""
import base64, json, os, pathlib, signal, ssl, subprocess, sys, time, urllib.error, urllib.request

SERVER, TOKEN, BASE, PROGRAM = sys.argv[1:5]
SHOWN = sys.argv[5:]  # folders of the machine that pods see, read-only
TLS = ssl._create_unverified_context()
GRACE = 30


def api(method, path, body=None, kind="application/json"):
    data = None if body is None else json.dumps(body).encode()
    req = urllib.request.Request(SERVER + path, data, {"Authorization": "Bearer " + TOKEN, "Content-Type": kind}, method=method)
    try:
        with urllib.request.urlopen(req, context=TLS, timeout=30) as r:
            return json.load(r)
    except urllib.error.HTTPError as e:
        if e.code in (404, 409):
            return None
        raise RuntimeError("%s %s: %s" % (method, path, e.read().decode()))


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def variables(pod, container):
    env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/home/nightshift", "HOSTNAME": pod["metadata"]["name"],
           "KUBERNETES_SERVICE_HOST": "192.0.2.1"}
    for e in container.get("env", []):
        source = e.get("valueFrom", {})
        if "secretKeyRef" in source:
            ref = source["secretKeyRef"]
            secret = api("GET", "/api/v1/namespaces/default/secrets/" + ref["name"])
            env[e["name"]] = base64.b64decode(secret["data"][ref["key"]]).decode()
        elif "fieldRef" in source:  # metadata.annotations['x'] or metadata.labels['x']
            where, key = source["fieldRef"]["fieldPath"].split("[")
            env[e["name"]] = pod["metadata"][where.split(".")[1]][key.strip("']")]
        else:
            env[e["name"]] = e.get("value", "")
    return env


def volume(pod, v, owner):
    """The folder that a volume is."""
    if "persistentVolumeClaim" in v:
        path = os.path.join(BASE, "claims", v["persistentVolumeClaim"]["claimName"])
    else:
        path = os.path.join(BASE, "pods", pod["metadata"]["name"], v["name"])
    os.makedirs(path, exist_ok=True)
    if "configMap" in v:
        for name, text in api("GET", "/api/v1/namespaces/default/configmaps/" + v["configMap"]["name"])["data"].items():
            with open(os.path.join(path, name), "w") as f:
                f.write(text)
    os.chown(path, *owner)
    return path


def start(pod):
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    user, group = spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsGroup"]
    # /proc as it is: bubblewrap's own covers parts of it, and the manifest asks for an unmasked one.
    argv = ["bwrap", "--tmpfs", "/", "--bind", "/proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for d in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/sys"):
        argv += ["--ro-bind-try", d, d]
    # bubblewrap makes the folders above a mount for its own user only.
    above = {str(p) for d in SHOWN + [m["mountPath"] for m in container.get("volumeMounts", [])] for p in pathlib.Path(d).parents}
    for d in sorted(above - {"/"}):
        argv += ["--perms", "0755", "--dir", d]
    for d in SHOWN:
        argv += ["--ro-bind", d, d]
    dirs = {v["name"]: volume(pod, v, (user, spec["securityContext"]["fsGroup"])) for v in spec.get("volumes", [])}
    for m in container.get("volumeMounts", []):
        argv += ["--ro-bind" if m.get("readOnly") else "--bind", dirs[m["name"]], m["mountPath"]]
    if container["securityContext"]["readOnlyRootFilesystem"]:
        argv += ["--remount-ro", "/"]
    command = container["command"] + container.get("args", [])
    assert command[0] == "/usr/local/bin/nightshift", command
    argv += ["--clearenv"]
    for k, v in variables(pod, container).items():
        argv += ["--setenv", k, v]
    argv += ["--", "setpriv", "--reuid", str(user), "--regid", str(group), "--clear-groups", "--no-new-privs", "--inh-caps=-all",
             "--bounding-set=-all", PROGRAM] + command[1:]
    log = open(os.path.join(BASE, pod["metadata"]["name"] + ".log"), "w")
    return subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)


def status(pod, phase, **state):
    container = pod["spec"]["containers"][0]
    ready = "True" if phase == "Running" else "False"
    body = {"status": {"phase": phase, "startTime": pod["status"].get("startTime") or now(), "conditions": [
        {"type": "Ready", "status": ready, "lastTransitionTime": now()}], "containerStatuses": [
        {"name": container["name"], "image": container["image"], "imageID": "", "ready": phase == "Running", "restartCount": 0, "state": state}]}}
    api("PATCH", "/api/v1/namespaces/default/pods/%s/status" % pod["metadata"]["name"], body, "application/strategic-merge-patch+json")


def term(p):
    try:
        os.killpg(p.pid, signal.SIGTERM)
    except ProcessLookupError:
        pass


def main():
    api("POST", "/api/v1/nodes", {"metadata": {"name": "ci"}})
    running, gone = {}, set()
    while True:
        pods = {p["metadata"]["uid"]: p for p in api("GET", "/api/v1/namespaces/default/pods")["items"]}
        for uid, pod in pods.items():
            name, deleted = pod["metadata"]["name"], "deletionTimestamp" in pod["metadata"]
            if uid not in running and uid not in gone and pod["status"].get("phase") == "Pending" and not deleted:
                api("POST", "/api/v1/namespaces/default/pods/%s/binding" % name, {"metadata": {"name": name}, "target": {"kind": "Node", "name": "ci"}})
                running[uid] = start(pod)
                with open(os.path.join(BASE, name + ".pid"), "w") as f:
                    f.write(str(running[uid].pid))
                status(pod, "Running", running={"startedAt": now()})
            elif uid in running:
                p = running[uid]
                if deleted and p.poll() is None and not hasattr(p, "told"):
                    p.told = time.monotonic()
                    term(p)
                if deleted and p.poll() is None and time.monotonic() - p.told > GRACE:
                    os.killpg(p.pid, signal.SIGKILL)
                if p.poll() is not None:
                    code = p.returncode if p.returncode >= 0 else 128 - p.returncode
                    status(pod, "Succeeded" if code == 0 else "Failed", terminated={"exitCode": code, "startedAt": now(), "finishedAt": now(),
                                                                                      "reason": "Completed" if code == 0 else "Error"})
                    del running[uid]
                    gone.add(uid)
            if deleted and uid not in running:
                api("DELETE", "/api/v1/namespaces/default/pods/%s" % name, {"gracePeriodSeconds": 0})
        for uid in [u for u in running if u not in pods]:
            term(running.pop(uid))
        time.sleep(0.2)


main()
