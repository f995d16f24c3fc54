"""Starts two programs in turn against one scripted model server and compares
whole processes: start to first request, last answer to exit, wall and CPU time,
peak memory, requests and bytes. See slow-bench.sh."""
import http.server, json, os, shutil, statistics, subprocess, sys, tempfile, threading, time

RUNS = int(sys.argv[1])
HERE = {"ours": os.environ["NIGHTSHIFT"], "reference": os.environ["REFERENCE"]}


def event(kind, **more):
    return ("event: %s\ndata: %s\n\n" % (kind, json.dumps({"type": kind, **more}))).encode()


class Model(http.server.BaseHTTPRequestHandler):
    """One answer for each POST: `calls` tool calls one after the other, then a message."""
    protocol_version = "HTTP/1.1"
    calls, deltas, first, last, count, sent = 0, 0, None, None, 0, 0

    def log_message(self, *_):
        pass

    def do_POST(self):
        cls = Model
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        now = time.monotonic()
        cls.first = cls.first or now
        cls.sent += len(body)
        n = cls.count
        cls.count += 1
        if n < cls.calls:
            item = {"type": "function_call", "id": "fc_%d" % n, "call_id": "call_%d" % n, "name": "exec_command", "status": "completed",
                    "arguments": json.dumps({"cmd": cls.command, "login": False})}
        else:
            item = {"type": "message", "id": "msg_%d" % n, "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": "done", "annotations": []}]}
        out = event("response.created", response={"id": "r%d" % n}) + event("response.output_item.added", output_index=0, item=item)
        if n >= cls.calls:
            delta = event("response.output_text.delta", item_id=item["id"], output_index=0, content_index=0, delta="word ")
            out += delta * cls.deltas
        out += event("response.output_item.done", output_index=0, item=item)
        out += event("response.completed", response={"id": "r%d" % n, "status": "completed", "output": [item], "usage": {
            "input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 10,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 110}})
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)
        self.wfile.flush()
        cls.last = time.monotonic()


def once(program, base, args, port, calls=0, deltas=0, command="true"):
    Model.calls, Model.deltas, Model.command = calls, deltas, command
    Model.first = Model.last = None
    Model.count = Model.sent = 0
    env = {"PATH": os.environ["PATH"], "HOME": base + "/user", "CODEX_HOME": base + "/home", "LANG": "C.UTF-8", "TERM": "dumb", "MOCK_API_KEY": "sk-fake-0000000000"}
    start = time.monotonic()
    p = subprocess.Popen([program, "exec", "--json", "--ephemeral"] + args + ["hi"], cwd=base + "/ws", env=env, stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(p.pid, 0)
    end = time.monotonic()
    if os.waitstatus_to_exitcode(status) != 0 or Model.first is None:
        sys.exit("%s ended with %s after %d requests" % (program, os.waitstatus_to_exitcode(status), Model.count))
    return {"first request ms": (Model.first - start) * 1e3, "last answer to exit ms": (end - Model.last) * 1e3, "wall ms": (end - start) * 1e3,
            "cpu ms": (usage.ru_utime + usage.ru_stime) * 1e3, "peak MiB": usage.ru_maxrss / 1024, "requests": Model.count, "bytes sent": Model.sent}


def compare(title, base, port, args, runs, **kw):
    rows = {k: [] for k in HERE}
    for k in HERE:
        once(HERE[k], base, args, port, **kw)
    for _ in range(runs):
        for k in HERE:
            rows[k].append(once(HERE[k], base, args, port, **kw))
    print("\n%s (%d runs each, in turn)\n  %-24s %12s %12s %8s" % (title, runs, "", "ours", "reference", "ratio"))
    med = {}
    for figure in rows["ours"][0]:
        a, b = (statistics.median(r[figure] for r in rows[k]) for k in ("ours", "reference"))
        med[figure] = (a, b)
        print("  %-24s %12.1f %12.1f %8.3f" % (figure, a, b, a / b if b else 0))
    return med


def main():
    base = tempfile.mkdtemp(prefix="nightshift-bench-", dir="/var/lib" if os.geteuid() == 0 else os.path.expanduser("~"))
    try:
        for d in ("ws", "home", "user"):
            os.mkdir(base + "/" + d)
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(git + ["init", "-q", "-b", "main"], cwd=base + "/ws", check=True)
        subprocess.run(git + ["commit", "-q", "--allow-empty", "-m", "start"], cwd=base + "/ws", check=True)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        with open(base + "/home/config.toml", "w") as f:
            f.write('model = "gpt-5.5"\nmodel_provider = "mock"\n[model_providers.mock]\nname = "mock"\n'
                    'base_url = "http://127.0.0.1:%d/v1"\nwire_api = "responses"\nenv_key = "MOCK_API_KEY"\n[analytics]\nenabled = false\n' % port)
        plain = compare("one answer", base, port, ["-s", "read-only"], RUNS)
        few = max(3, RUNS // 3)
        one = compare("20 sandboxed calls", base, port, ["-s", "workspace-write"], few, calls=20)
        compare("20 plain calls", base, port, ["-s", "danger-full-access"], few, calls=20)
        compare("200 sandboxed calls", base, port, ["-s", "workspace-write"], max(1, RUNS // 8), calls=200)
        compare("50 MiB of output", base, port, ["-s", "read-only"], few, calls=1, command="head -c 52428800 /dev/zero | tr '\\0' x")
        compare("20 000 deltas", base, port, ["-s", "read-only"], few, deltas=20000)
        call = [(one["wall ms"][i] - plain["wall ms"][i]) / 20 for i in (0, 1)]
        floor = []
        for _ in range(20):
            start = time.monotonic()
            subprocess.run(["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"], check=True)
            floor.append((time.monotonic() - start) * 1e3)
        print("\none sandboxed call: ours %.1f ms, reference %.1f ms (ratio %.3f), bubblewrap alone %.1f ms (ratio %.2f)" % (
            call[0], call[1], call[0] / call[1], statistics.median(floor), call[0] / statistics.median(floor)))
        print("binary: ours %.1f MB, reference %.1f MB" % tuple(os.path.getsize(HERE[k]) / 1e6 for k in ("ours", "reference")))
    finally:
        shutil.rmtree(base)


main()
