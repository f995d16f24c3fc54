#!/usr/bin/env bash
# Real MCP servers from npm, unmodified: server-everything over stdio and over
# streamable HTTP, and server-filesystem over stdio. Whole runs of nightshift
# with a scripted model, in a read-only sandbox; what the model was shown is read
# from the recorded thread.
set -euo pipefail
: "${NIGHTSHIFT:?path of the binary}"
command -v npm >/dev/null || { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq npm >/dev/null; }

# Not below /tmp: commands and servers have a /tmp of their own.
work=$(mktemp -d "${NIGHTSHIFT_LANE_DIR:-$HOME}/nightshift-mcp.XXXXXX")
web=
finish() {
  [ -z "$web" ] || kill "$web" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

npm install --prefix "$work" --no-audit --no-fund --silent \
  @modelcontextprotocol/server-everything@2026.8.31 @modelcontextprotocol/server-filesystem@2026.8.31
servers=$work/node_modules/@modelcontextprotocol
mkdir -p "$work/home" "$work/ws"
cd "$work/ws"
git init -q && printf 'three pears\n' > stock.txt && git add -A && git -c user.name=ci -c user.email=ci@example.com commit -qm stock

# A free port: the kernel names one, and the server gets it a moment later.
port=$(node -e 'const s=require("net").createServer().listen(0,"127.0.0.1",()=>{console.log(s.address().port);s.close()})')
PORT=$port node "$servers/server-everything/dist/index.js" streamableHttp > "$work/web.log" 2>&1 &
web=$!
for _ in $(seq 100); do
  node -e 'require("net").connect(+process.argv[1],"127.0.0.1").on("connect",()=>process.exit(0)).on("error",()=>process.exit(1))' "$port" && break
  sleep 0.1
done

cat > "$work/home/config.toml" <<CONFIG
model = "gpt-5.5"
[mcp_servers.stdio]
command = "node"
args = ["$servers/server-everything/dist/index.js", "stdio"]
default_tools_approval_mode = "approve"
required = true
startup_timeout_sec = 60
[mcp_servers.web]
url = "http://127.0.0.1:$port/mcp"
default_tools_approval_mode = "approve"
required = true
startup_timeout_sec = 60
[mcp_servers.files]
command = "node"
args = ["$servers/server-filesystem/dist/index.js", "$work/ws"]
required = true
startup_timeout_sec = 60
[mcp_servers.files.tools.write_file]
approval_mode = "approve"
CONFIG

cat > "$work/model.json" <<SCRIPT
{"model_script": [
  {"items": [{"call": "echo", "namespace": "mcp__stdio", "call_id": "stdio_echo", "args": {"message": "over stdio"}}]},
  {"items": [{"call": "get-sum", "namespace": "mcp__stdio", "call_id": "stdio_sum", "args": {"a": 19, "b": 23}}]},
  {"items": [{"call": "get-tiny-image", "namespace": "mcp__stdio", "call_id": "stdio_image", "args": {}}]},
  {"items": [{"call": "get-structured-content", "namespace": "mcp__stdio", "call_id": "stdio_structured", "args": {"location": "New York"}}]},
  {"items": [{"call": "echo", "namespace": "mcp__web", "call_id": "web_echo", "args": {"message": "over HTTP"}}]},
  {"items": [{"call": "get-sum", "namespace": "mcp__web", "call_id": "web_sum", "args": {"a": "no number"}}]},
  {"items": [{"call": "read_text_file", "namespace": "mcp__files", "call_id": "files_read", "args": {"path": "$work/ws/stock.txt"}}]},
  {"items": [{"call": "write_file", "namespace": "mcp__files", "call_id": "files_write", "args": {"path": "$work/ws/new.txt", "content": "x"}}]},
  {"items": [{"call": "create_directory", "namespace": "mcp__files", "call_id": "files_mkdir", "args": {"path": "$work/ws/new"}}]},
  {"items": [{"call": "list_mcp_resources", "call_id": "resources", "args": {"server": "stdio"}}]},
  {"items": [{"message": "done"}]}
]}
SCRIPT

CODEX_HOME=$work/home "$NIGHTSHIFT" exec --json -s read-only --model-script "$work/model.json" "Try the servers." < /dev/null > "$work/events.jsonl"

cat > "$work/check.mjs" <<'CHECK'
import fs from "node:fs";
import path from "node:path";
const [work] = process.argv.slice(2);
const lines = (f) => fs.readFileSync(f, "utf8").trim().split("\n").map((l) => JSON.parse(l));
const sessions = fs.readdirSync(path.join(work, "home/sessions"), { recursive: true }).filter((f) => f.endsWith(".jsonl"));
const shown = Object.fromEntries(sessions.flatMap((f) => lines(path.join(work, "home/sessions", f)))
  .filter((l) => l.type === "response_item" && l.payload.type === "function_call_output")
  .map((l) => [l.payload.call_id, JSON.stringify(l.payload.output)]));
const items = lines(path.join(work, "events.jsonl")).filter((e) => e.type === "item.completed" && e.item.type === "mcp_tool_call").map((e) => e.item);
const status = (server, tool) => items.filter((i) => i.server === server && i.tool === tool).map((i) => i.status).join();
let passed = 0;
const failures = [];
const expect = (what, ok, got) => { ok ? passed++ : failures.push(`${what}: ${got}`); };
const sees = (id, text) => expect(id, (shown[id] ?? "").includes(text), shown[id]);
sees("stdio_echo", "Echo: over stdio");
sees("stdio_sum", "The sum of 19 and 23 is 42.");
sees("stdio_image", "data:image/png;base64,iVBOR");
sees("stdio_structured", 'Output:\\n{\\"temperature\\":');
sees("web_echo", "Echo: over HTTP");
sees("web_sum", "Invalid arguments");
sees("files_read", "three pears");
sees("files_write", "EROFS");
sees("files_mkdir", "MCP tool call requires approval, but approval policy is never");
sees("resources", "architecture.md");
expect("a good call is completed", status("stdio", "get-sum") === "completed", status("stdio", "get-sum"));
expect("a bad call is failed", status("web", "get-sum") === "failed", status("web", "get-sum"));
expect("an approved write fails in the read-only sandbox", status("files", "write_file") === "failed", status("files", "write_file"));
expect("a tool without approval is refused", status("files", "create_directory") === "failed", status("files", "create_directory"));
expect("nothing was written", !fs.existsSync(path.join(work, "ws/new.txt")) && !fs.existsSync(path.join(work, "ws/new")), fs.readdirSync(path.join(work, "ws")));
for (const f of failures) console.error("FAILED", f);
console.log(`${passed} passed, ${failures.length} failed`);
process.exit(failures.length ? 1 : 0);
CHECK
node "$work/check.mjs" "$work"

if pgrep -f "$servers/.* stdio" > /dev/null || pgrep -f "$servers/server-filesystem" > /dev/null; then
  echo "a server outlived its run" >&2
  exit 1
fi
