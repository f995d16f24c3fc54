"""Starts three programs in turn against one scripted model server and compares
whole processes: ours, the reference, and a floor that does the least there is
(floor.go). Medians and ratios; see slow-bench.sh."""
import os, re, shutil, statistics, subprocess, sys, tempfile, threading, time

import scripted

RUNS = int(sys.argv[1])
PARTS = set(sys.argv[2:])
PROGRAMS = {"ours": os.environ["NIGHTSHIFT"], "reference": os.environ["REFERENCE"], "floor": os.environ["FLOOR"]}


class Session:
    """What one process asked for. The server finds it by the path it was given."""
    def __init__(self, calls=0, deltas=0, command="true", watch=False, wrap=()):
        self.calls, self.deltas, self.command, self.watch, self.wrap = calls, deltas, command, watch, list(wrap)
        self.first = self.last = self.process = None
        self.count = self.sent = self.pss = 0


SESSIONS = {}


class Model(scripted.Handler):
    """One answer for each POST: `calls` tool calls one after the other, then a message."""

    def do_POST(self):
        s = SESSIONS[self.path.split("/")[1]]
        body = self.body()
        s.first = s.first or time.monotonic()
        s.sent += len(body)
        n = s.count
        s.count += 1
        if s.watch and s.process:
            time.sleep(0.5)  # a model thinks
            s.pss = max(s.pss, scripted.pss([s.process.pid]))
        if n < s.calls:
            self.send(scripted.response(n, scripted.call(n, s.command)))
        else:
            self.send(scripted.response(n, scripted.message(n), s.deltas))
        s.last = time.monotonic()


class Bench:
    def __init__(self, base):
        self.base = base
        self.server = scripted.Server(("127.0.0.1", 0), Model)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.serial = 0

    def start(self, who, args, session):
        self.serial += 1
        key = "s%d" % self.serial
        SESSIONS[key] = session
        url = "http://127.0.0.1:%d/%s/v1" % (self.server.server_address[1], key)
        home = "%s/%s" % (self.base, key)
        os.mkdir(home)
        scripted.configure(home, url)
        env = scripted.environment(self.base, home)
        argv = session.wrap + [PROGRAMS[who]] + ([url] if who == "floor" else ["exec", "--json", "--ephemeral"] + args + ["hi"])
        session.start = time.monotonic()
        session.process = subprocess.Popen(argv, cwd=self.base + "/ws", env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return session

    def finish(self, who, s):
        _, status, usage = os.wait4(s.process.pid, 0)
        s.process.returncode = os.waitstatus_to_exitcode(status)
        end = time.monotonic()
        if s.process.returncode != 0 or s.first is None:
            sys.exit("%s ended with %s after %d requests" % (who, s.process.returncode, s.count))
        return {"first request ms": (s.first - s.start) * 1e3, "last answer to exit ms": (end - s.last) * 1e3, "wall ms": (end - s.start) * 1e3,
                "cpu ms": (usage.ru_utime + usage.ru_stime) * 1e3, "peak RSS MiB": usage.ru_maxrss / 1024, "PSS of the tree MiB": s.pss,
                "requests": s.count, "KB sent": s.sent / 1e3}

    def once(self, who, args, **kw):
        return self.finish(who, self.start(who, args, Session(**kw)))

    def fleet(self, who, args, size, **kw):
        begin = time.monotonic()
        running = [self.start(who, args, Session(**kw)) for _ in range(size)]
        time.sleep(0.05)
        peak, stop = [0], threading.Event()

        def watch():
            while not stop.wait(0.1):
                peak[0] = max(peak[0], scripted.pss(s.process.pid for s in running if s.process.returncode is None))
        w = threading.Thread(target=watch)
        w.start()
        for s in running:
            self.finish(who, s)
        wall = time.monotonic() - begin
        stop.set()
        w.join()
        return {"wall ms": wall * 1e3, "PSS of all MiB": peak[0]}

    def compare(self, title, args, runs, only=None, one=None, watch=False, **kw):
        one = one or self.once
        rows = {k: [] for k in PROGRAMS}
        for k in PROGRAMS:
            one(k, args, **kw)
        for _ in range(runs):
            for k in PROGRAMS:
                row = one(k, args, **kw)
                if watch:  # in a run of its own: it takes time
                    row.update({f: v for f, v in one(k, args, watch=True, **kw).items() if f.startswith("PSS")})
                rows[k].append(row)
        print("\n| %s (%d runs each, in turn) | ours | reference | floor | ours / reference | ours / floor |\n|---|---|---|---|---|---|" % (title, runs))
        med = {}
        for figure in only or rows["ours"][0]:
            a, b, c = med[figure] = [statistics.median(r[figure] for r in rows[k]) for k in PROGRAMS]
            print("| %s | %.1f | %.1f | %.1f | %.3f | %.2f |" % (figure, a, b, c, a / b if b else 0, a / c if c else 0), flush=True)
        return med


def cold(path):
    """Drops the file from the page cache: its pages count in a process's memory
    as they were read, which says nothing about the program, and a file that was
    just written is kept in far larger pieces than one that was read."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def sandboxed_true(base):
    """A confined `true` of each: our `sandbox`, the reference's, and bubblewrap."""
    env = {"PATH": os.environ["PATH"], "HOME": base + "/user", "CODEX_HOME": base + "/user"}
    argv = {"ours": [PROGRAMS["ours"], "sandbox", "--", "true"], "reference": [PROGRAMS["reference"], "sandbox", "--", "true"],
            "bubblewrap": ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]}
    rows = {k: [] for k in argv}
    for i in range(RUNS + 1):
        for k in argv:
            start = time.monotonic()
            subprocess.run(argv[k], cwd=base + "/ws", env=env, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if i:
                rows[k].append((time.monotonic() - start) * 1e3)
    med = {k: statistics.median(v) for k, v in rows.items()}
    print("\na whole process that runs a confined `true`, ms: " + ", ".join("%s %.1f" % kv for kv in med.items()))
    return med["bubblewrap"]


ADDRESS = re.compile(r'sin6?_port=htons\((\d+)\).*?"([0-9a-fA-F.:]+)"')


def asked(b):
    """Which addresses each program tried to reach, name servers included: only
    the model's belongs there. The reference's are shown, ours must be none."""
    server = ("127.0.0.1", str(b.server.server_address[1]))
    for who in ("ours", "reference"):
        trace = "%s/trace.%s" % (b.base, who)
        b.once(who, ["-s", "read-only"], calls=1, wrap=["strace", "-f", "-qq", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-o", trace])
        with open(trace, errors="replace") as f:
            others = sorted({(a, port) for port, a in ADDRESS.findall(f.read())} - {server})
        print("addresses %s reached besides the model's: %s" % (who, ", ".join("%s port %s" % x for x in others) or "none"))
        if who == "ours" and others:
            sys.exit("nothing but the model may be looked up")


def want(part):
    return not PARTS or part in PARTS


def main():
    base = tempfile.mkdtemp(prefix="nightshift-bench-", dir="/var/lib" if os.geteuid() == 0 else os.path.expanduser("~"))
    try:
        for d in ("ws", "user"):
            os.mkdir(base + "/" + d)
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(git + ["init", "-q", "-b", "main"], cwd=base + "/ws", check=True)
        subprocess.run(git + ["commit", "-q", "--allow-empty", "-m", "start"], cwd=base + "/ws", check=True)
        for path in PROGRAMS.values():
            cold(path)
        b, few = Bench(base), max(3, RUNS // 3)
        plain = b.compare("one answer", ["-s", "read-only"], RUNS, watch=True)
        if want("calls"):
            calls = b.compare("20 sandboxed calls", ["-s", "workspace-write"], few, calls=20, watch=True)
            b.compare("20 plain calls", ["-s", "danger-full-access"], few, calls=20)
            b.compare("200 sandboxed calls", ["-s", "workspace-write"], max(1, RUNS // 8), calls=200)
            floor = sandboxed_true(base)
            per = [(calls["wall ms"][i] - plain["wall ms"][i]) / 20 for i in range(3)]
            print("one sandboxed call, ms: ours %.1f, reference %.1f (ratio %.3f), floor %.1f; ours / bubblewrap alone %.2f" % (
                per[0], per[1], per[0] / per[1], per[2], per[0] / floor))
        if want("long"):
            b.compare("1000 sandboxed calls", ["-s", "workspace-write"], 1, calls=1000)
        if want("streams"):
            b.compare("50 MiB of output", ["-s", "read-only"], few, calls=1, command="head -c 52428800 /dev/zero | tr '\\0' x")
            b.compare("20 000 deltas", ["-s", "read-only"], few, deltas=20000)
        if want("fleet"):
            for size in (1, 8, 32):
                b.compare("%d runs at once, 3 calls each" % size, ["-s", "workspace-write"], max(1, few // 2),
                          one=lambda who, args, size=size, **kw: b.fleet(who, args, size, **kw), calls=3)
        if want("network"):
            asked(b)
        print("\nbinary: ours %.1f MB, reference %.1f MB" % tuple(os.path.getsize(PROGRAMS[k]) / 1e6 for k in ("ours", "reference")))
    finally:
        shutil.rmtree(base, ignore_errors=True)


main()
