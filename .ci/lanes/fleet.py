"""32 runs at once, in turn, against one scripted model server: our batch with 32
workers, which also makes 32 checkouts, 32 processes of ours, and 32 of the
reference in folders that are ready. Compared are the memory of all processes at
the moment when every run waits for its last answer, and the wall time of all runs
together. Then 32 processes of one batch that are killed at random. See
slow-fleet.sh."""
import json, os, random, shutil, statistics, subprocess, sys, tempfile, threading, time

import scripted

RUNS, ROUNDS, TASKS = 32, int(sys.argv[1]), int(sys.argv[2])
OURS, REFERENCE = os.environ["NIGHTSHIFT"], os.environ["REFERENCE"]
LIMIT = 600  # seconds for one round


class Model(scripted.Handler):
    """Two sandboxed commands, then a message. With a gate, the message waits
    until everybody has asked for it."""
    gate = None
    arrived = threading.Semaphore(0)

    def do_POST(self):
        n = self.body().count(b'"function_call_output"')
        if n < 2:
            item = scripted.call(n, "echo %d > made-%d.txt; cat a.txt" % (n, n))
        else:
            item = scripted.message(n)
            if Model.gate is not None:
                Model.arrived.release()
                Model.gate.wait(LIMIT)
        self.send(scripted.response(n, item))


def environment(base, i):
    return scripted.environment(base, "%s/home-%d" % (base, i))


def processes(program):
    """32 processes, each in its own folder."""
    def begin(base):
        command = [program, "exec", "--json", "--ephemeral", "-s", "workspace-write", "hi"]
        return [(command, "%s/ws-%d" % (base, i), environment(base, i)) for i in range(RUNS)]
    return begin


def batch(base):
    """One process with 32 workers."""
    # A new folder each time: ext4 looks slowly for inodes where many were just freed.
    out = tempfile.mkdtemp(prefix="batch-", dir=base)
    return [([OURS, "batch", "--tasks", base + "/fleet.jsonl", "--out", out, "-j", str(RUNS), "--ephemeral", "-s", "workspace-write"],
             base, environment(base, 0))]


HOW = {"batch": batch, "processes": processes(OURS), "reference": processes(REFERENCE)}


def fleet(how, base, gated):
    Model.gate = threading.Event() if gated else None
    todo = HOW[how](base)
    start = time.monotonic()
    log = open(base + "/fleet.log", "w")
    procs = [subprocess.Popen(c, cwd=d, env=e, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log) for c, d, e in todo]
    pss = 0
    if gated:
        for _ in range(RUNS):
            if not Model.arrived.acquire(timeout=LIMIT):
                sys.exit("%s: not every run asked for its last answer" % how)
        pss = scripted.pss(p.pid for p in procs)
        Model.gate.set()
    peaks = 0
    for p in procs:
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        peaks += usage.ru_maxrss / 1024
        if p.returncode != 0:
            sys.exit("%s ended with %d; see\n%s" % (how, p.returncode, open(base + "/fleet.log").read()[-3000:]))
    return {"wall s": time.monotonic() - start, "PSS MiB": pss, "sum of peaks MiB": peaks}


def git(where, *args):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", where, *args], check=True)


def compare(base, port):
    os.mkdir(base + "/user")
    for i in range(RUNS):
        ws, home = "%s/ws-%d" % (base, i), "%s/home-%d" % (base, i)
        os.mkdir(ws)
        os.mkdir(home)
        with open(ws + "/a.txt", "w") as f:
            f.write("one\n")
        git(ws, "init", "-q", "-b", "main")
        git(ws, "add", "-A")
        git(ws, "commit", "-q", "-m", "start")
        scripted.configure(home, "http://127.0.0.1:%d/v1" % port)
    with open(base + "/fleet.jsonl", "w") as f:
        for i in range(RUNS):
            f.write(json.dumps({"id": "run %d" % i, "repo": "%s/ws-%d" % (base, i), "prompt": "hi"}) + "\n")
    print("  %-18s %10s %10s %10s %18s" % ("", "batch", "processes", "reference", "ratios"))
    for gated in (True, False):
        rows = {k: [] for k in HOW}
        for r in range(ROUNDS + 1):
            for k in HOW:
                row = fleet(k, base, gated)
                if r > 0:  # the first warms caches and homes
                    rows[k].append(row)
        for figure in (["PSS MiB", "sum of peaks MiB"] if gated else ["wall s"]):
            a, b, c = (statistics.median(r[figure] for r in rows[k]) for k in HOW)
            print("  %-18s %10.2f %10.2f %10.2f %10.3f %.3f" % (figure, a, b, c, a / c, b / c), flush=True)
            yield figure, a / c


def killed(base):
    """32 processes of one batch; half of them are killed again and again."""
    repo, out = base + "/repo", base + "/results"
    os.mkdir(repo)
    with open(repo + "/a.txt", "w") as f:
        f.write("one\n")
    git(repo, "init", "-q", "-b", "main")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "start")
    with open(base + "/tasks.jsonl", "w") as f:
        for i in range(TASKS):
            f.write(json.dumps({"id": "task %d" % i, "repo": repo, "prompt": "do task %d" % i}) + "\n")
    with open(base + "/model.json", "w") as f:
        json.dump({"model_script": [{"items": [{"message": "done"}]}]}, f)
    command = [OURS, "batch", "--tasks", base + "/tasks.jsonl", "--out", out, "-j", "2", "-s", "read-only", "-m", "gpt-5.5",
               "--ephemeral", "--model-script", base + "/model.json"]
    env = {"PATH": os.environ["PATH"], "HOME": base + "/user", "CODEX_HOME": base + "/home-0", "LANG": "C.UTF-8"}
    log = open(base + "/batch.log", "ab")
    spawn = lambda: subprocess.Popen(command, env=env, cwd=base, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)
    start, kills = time.monotonic(), 0
    procs = [spawn() for _ in range(RUNS)]
    while any(p.poll() is None for p in procs):
        if time.monotonic() - start > 3 * LIMIT:
            sys.exit("the batch does not end")
        done = len(os.listdir(out + "/done")) if os.path.isdir(out + "/done") else 0
        i = random.randrange(RUNS)
        if done < TASKS * 0.9 and procs[i].poll() is None:
            os.killpg(procs[i].pid, 9)
            procs[i].wait()
            kills += 1
            procs[i] = spawn()
        time.sleep(random.random())
    for p in procs:
        if p.returncode not in (0, -9):
            said = [line for line in open(base + "/batch.log") if line.startswith(("error:", "hint:", "failed:"))]
            sys.exit("a batch ended with %d; see\n%s" % (p.returncode, "".join(said[-20:])))
    with open(out + "/results.jsonl") as f:
        results = [json.loads(line) for line in f]
    ids = {r["id"] for r in results}
    bad = [r["id"] for r in results if r["outcome"] != "success"]
    # An empty claim is of one who was killed in between making and filling it: only
    # its lease tells that it is nobody's.
    left = [p for p in os.listdir(out + "/claims") if not p.startswith(".") and os.path.getsize(out + "/claims/" + p)]
    print("  %d tasks, %d processes, %d killed in %.0f s: %d results, %d different, %d failed, %d claims of the dead left" % (
        TASKS, RUNS, kills, time.monotonic() - start, len(results), len(ids), len(bad), len(left)), flush=True)
    return len(results) == len(ids) == TASKS and not bad and not left and kills > 0


def main():
    base = tempfile.mkdtemp(prefix="nightshift-fleet-", dir="/var/lib" if os.geteuid() == 0 else os.path.expanduser("~"))
    try:
        server = scripted.Server(("127.0.0.1", 0), Model)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print("%d runs at once, %d cores, medians of %d rounds in turn" % (RUNS, os.cpu_count(), ROUNDS), flush=True)
        ratios = dict(compare(base, server.server_address[1]))
        print("processes of one batch, killed at random", flush=True)
        good = killed(base)
        if ratios["PSS MiB"] > 0.3 or ratios["wall s"] > 0.25:
            sys.exit("the fleet needs more than 0.3 of the reference's memory or 0.25 of its time")
        if not good:
            sys.exit("the batch lost a task, ran one twice or left claims")
    finally:
        shutil.rmtree(base, ignore_errors=True)


main()
