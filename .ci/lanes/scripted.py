"""What the lanes that measure have in common: the answers of a scripted model, the
configuration that leads to it, and the memory of processes."""
import http.server, json, os


def event(kind, **more):
    return ("event: %s\ndata: %s\n\n" % (kind, json.dumps({"type": kind, **more}))).encode()


def call(n, command):
    """The n-th item of a run: a command."""
    return {"type": "function_call", "id": "fc_%d" % n, "call_id": "call_%d" % n, "name": "exec_command", "status": "completed",
            "arguments": json.dumps({"cmd": command, "login": False})}


def message(n):
    """The n-th item of a run: its final answer."""
    return {"type": "message", "id": "msg_%d" % n, "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "done", "annotations": []}]}


def response(n, item, deltas=0):
    """A stream of events that ends with item."""
    out = event("response.created", response={"id": "r%d" % n}) + event("response.output_item.added", output_index=0, item=item)
    out += event("response.output_text.delta", item_id=item["id"], output_index=0, content_index=0, delta="word ") * deltas
    out += event("response.output_item.done", output_index=0, item=item)
    return out + event("response.completed", response={"id": "r%d" % n, "status": "completed", "output": [item], "usage": {
        "input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 110}})


class Handler(http.server.BaseHTTPRequestHandler):
    """Reads requests and sends streams."""
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def body(self):
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def send(self, stream):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(stream)))
        self.end_headers()
        self.wfile.write(stream)
        self.wfile.flush()


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


def configure(home, url):
    """Writes the config.toml of a program that is to ask the model at url."""
    with open(home + "/config.toml", "w") as f:
        f.write('model = "gpt-5.5"\nmodel_provider = "mock"\n[model_providers.mock]\nname = "mock"\nbase_url = "%s"\n'
                'wire_api = "responses"\nenv_key = "MOCK_API_KEY"\n[analytics]\nenabled = false\n' % url)


def environment(base, home):
    """The environment of a program under measure."""
    return {"PATH": os.environ["PATH"], "HOME": base + "/user", "CODEX_HOME": home, "LANG": "C.UTF-8", "TERM": "dumb",
            "MOCK_API_KEY": "sk-fake-0000000000"}


def descendants(roots):
    children = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid) as f:
                children.setdefault(int(f.read().rpartition(")")[2].split()[1]), []).append(int(pid))
        except OSError:
            pass
    todo, seen = list(roots), set()
    while todo:
        p = todo.pop()
        if p not in seen:
            seen.add(p)
            todo += children.get(p, [])
    return seen


def pss(roots):
    """MiB of processes and their descendants, shared pages divided among their
    users: what the machine would get back."""
    total = 0
    for pid in descendants(roots):
        try:
            with open("/proc/%d/smaps_rollup" % pid) as f:
                total += sum(int(line.split()[1]) for line in f if line.startswith("Pss:"))
        except OSError:
            pass
    return total / 1024
