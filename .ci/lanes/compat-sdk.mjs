// The official SDK, unmodified, over two programs: ours and the reference. Every
// option of CodexOptions, ThreadOptions and TurnOptions, both ways to run, input
// in parts, failures, abort and threads that go on. What the caller gets and what
// the model server is asked must be the same.
//
//   NIGHTSHIFT=/path/to/nightshift REFERENCE=/path/to/codex node compat-sdk.mjs
import { Codex } from "@openai/codex-sdk";
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";

const programs = { reference: process.env.REFERENCE, ours: process.env.NIGHTSHIFT };
const png = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");
const say = (text) => ({ type: "message", id: "msg_1", role: "assistant", status: "completed", content: [{ type: "output_text", text, annotations: [] }] });
const call = (cmd, more = {}) => ({ type: "function_call", id: "fc_1", call_id: "c1", name: "exec_command", status: "completed", arguments: JSON.stringify({ cmd, login: false, ...more }) });
const think = (text) => ({ type: "reasoning", id: "rs_1", summary: [{ type: "summary_text", text }] });

// A world is a folder and a model server that answers in turn.
async function world(program, replies) {
  const base = realpathSync(mkdtempSync(path.join(process.env.CHECK_BASE ?? "/var/tmp", "nightshift-sdk-")));
  const asked = [];
  const server = http.createServer((req, res) => {
    let body = "";
    req.on("data", (d) => (body += d));
    req.on("end", () => {
      if (req.method !== "POST") { // a WebSocket upgrade, a list of models
        res.writeHead(426).end();
        return;
      }
      asked.push({ path: req.url, headers: req.headers, body: JSON.parse(body) });
      const reply = replies[asked.length - 1];
      if (!Array.isArray(reply)) {
        res.writeHead(reply?.status ?? 500, { "content-type": "application/json" }).end(JSON.stringify({ error: reply?.error ?? { message: "no reply is left" } }));
        return;
      }
      res.writeHead(200, { "content-type": "text/event-stream" });
      const send = (type, more) => res.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`);
      send("response.created", { response: { id: "r" + asked.length } });
      reply.forEach((item, i) => send("response.output_item.done", { output_index: i, item }));
      send("response.completed", { response: { id: "r" + asked.length, usage: { input_tokens: 100, input_tokens_details: { cached_tokens: 20 }, output_tokens: 10, output_tokens_details: { reasoning_tokens: 4 }, total_tokens: 110 } } });
      res.end();
    });
  });
  server.on("upgrade", (_, socket) => socket.end("HTTP/1.1 426 Upgrade Required\r\ncontent-length: 0\r\n\r\n"));
  await new Promise((ok) => server.listen(0, "127.0.0.1", ok));
  const ws = path.join(base, "ws"), home = path.join(base, "home");
  for (const d of [ws, home, path.join(base, "user"), path.join(base, "extra")]) mkdirSync(d);
  execFileSync("git", ["init", "-q", "-b", "main"], { cwd: ws });
  execFileSync("git", ["-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "start"], { cwd: ws });
  writeFileSync(path.join(base, "dot.png"), png);
  const url = `http://127.0.0.1:${server.address().port}/v1`;
  const env = { PATH: process.env.PATH, HOME: path.join(base, "user"), CODEX_HOME: home, LANG: "C.UTF-8", SHELL: "/bin/bash" };
  const codex = (more = {}) => new Codex({ codexPathOverride: program, baseUrl: url, apiKey: "sk-fake-0123456789abcdef", env, ...more });
  const close = () => { server.closeAllConnections(); server.close(); rmSync(base, { recursive: true, force: true }); };
  return { base, ws, home, url, env, asked, codex, close, thread: { workingDirectory: ws, model: "gpt-5.5" } };
}

// plain takes out what is new each time.
function plain(w, value) {
  return JSON.parse(JSON.stringify(value ?? null)
    .replaceAll(w.base, "<base>").replaceAll(w.url, "<url>")
    .replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, "<uuid>")
    .replace(/Wall time:? [0-9.]+ seconds/g, "Wall time").replace(/Chunk ID: [0-9a-f]{6}/g, "Chunk ID"));
}

// request keeps of a request what an option can change.
function request(r) {
  const b = r.body;
  const prompt = b.input.filter((i) => i.role === "user" && !/^\s*(<[a-z_]+>|# AGENTS)/.test(i.content[0].text ?? ""));
  const search = (b.tools ?? []).find((t) => t.type === "web_search");
  return {
    path: r.path, model: b.model, reasoning: b.reasoning, text: b.text, stream: b.stream, store: b.store,
    search: search ? search.external_web_access : "none", plan: (b.tools ?? []).some((t) => t.name === "update_plan"),
    originator: r.headers.originator, authorization: r.headers.authorization, extra: r.headers["x-extra"],
    prompt: prompt.map((i) => i.content.map((c) => [c.type, c.text ?? (c.image_url ?? "").length, c.detail])),
    answers: b.input.filter((i) => i.role === "assistant").map((i) => i.content[0].text),
    outputs: b.input.filter((i) => i.type === "function_call_output").map((i) => i.output),
  };
}

// What ours may have more: fields of items and events; what it says in other words.
function items(list) {
  return list.filter((i) => i.type !== "error").map((i) => {
    const keep = { agent_message: ["text"], reasoning: ["text"], command_execution: ["command", "aggregated_output", "exit_code", "status"] }[i.type] ?? Object.keys(i);
    return Object.fromEntries([["type", i.type], ...keep.map((k) => [k, k === "command" ? i[k].replace(/^\S*\/(bash|sh)/, "$1") : i[k]])]);
  });
}

const seen = (turn) => ({ final: turn.finalResponse, usage: turn.usage, items: items(turn.items) });
const failure = async (promise) => { try { await promise; return "no error"; } catch (e) { return `${e.name}: ${e.message}`; } };

// Each scenario: the replies, and what is done; it returns what the caller saw.
const one = [[say("done")]];
const work = [[think("Let me see"), call("echo hi > made.txt; cat made.txt")], [say("made it")]];
const scenarios = {
  "run": [work, async (w) => ({ ...seen(await w.codex().startThread({ ...w.thread, sandboxMode: "workspace-write" }).run("Make a file")), made: existsSync(w.ws + "/made.txt") })],
  "runStreamed": [work, async (w) => {
    const { events } = await w.codex().startThread({ ...w.thread, sandboxMode: "workspace-write" }).runStreamed("Make a file");
    const out = [];
    for await (const e of events) out.push([e.type, e.item ? items([e.item])[0]?.type : undefined, e.usage]);
    return out;
  }],
  "thread id": [one, async (w) => { const t = w.codex().startThread(w.thread); const before = t.id; await t.run("Hello there"); return [before, typeof t.id, t.id.length]; }],
  "second run": [[[say("one")], [say("two")]], async (w) => { const t = w.codex().startThread(w.thread); return [seen(await t.run("First words")), seen(await t.run("Second words"))]; }],
  "resumeThread": [[[say("one")], [say("two")]], async (w) => { const t = w.codex().startThread(w.thread); await t.run("First words"); const again = w.codex().resumeThread(t.id, w.thread); return [seen(await again.run("Second words")), again.id === t.id]; }],
  "resumeThread of nothing": [one, async (w) => (await failure(w.codex().resumeThread("01234567-89ab-7def-8123-456789abcdef", w.thread).run("Second words"))).includes("no rollout found")],
  "text and images": [one, async (w) => seen(await w.codex().startThread(w.thread).run([{ type: "text", text: "What is" }, { type: "text", text: "this picture?" }, { type: "local_image", path: w.base + "/dot.png" }]))],
  "two images": [one, async (w) => seen(await w.codex().startThread(w.thread).run([{ type: "local_image", path: w.base + "/dot.png" }, { type: "text", text: "What are these?" }, { type: "local_image", path: w.base + "/dot.png" }]))],
  "resume with an image": [[[say("one")], [say("two")]], async (w) => { const t = w.codex().startThread(w.thread); await t.run("First words"); return seen(await t.run([{ type: "text", text: "And this picture?" }, { type: "local_image", path: w.base + "/dot.png" }])); }],
  "outputSchema": [[[say('{"a":"b"}')]], async (w) => seen(await w.codex().startThread(w.thread).run("Answer as JSON", { outputSchema: { type: "object", properties: { a: { type: "string" } }, required: ["a"], additionalProperties: false } }))],
  "outputSchema that is no object": [one, async (w) => failure(w.codex().startThread(w.thread).run("Answer as JSON", { outputSchema: [] }))],
  "abort before the start": [one, async (w) => { const c = new AbortController(); c.abort(); return (await failure(w.codex().startThread(w.thread).run("Never", { signal: c.signal }))).split(":")[0]; }],
  "abort during a command": [[[call("touch up; sleep 60", { yield_time_ms: 30000 })], [say("never")]], async (w) => {
    const c = new AbortController();
    const end = failure(w.codex().startThread({ ...w.thread, sandboxMode: "workspace-write" }).run("Wait long", { signal: c.signal }));
    for (let i = 0; i < 400 && !existsSync(w.ws + "/up"); i++) await new Promise((ok) => setTimeout(ok, 50));
    c.abort();
    return (await end).split(":")[0];
  }],
  "a failed turn": [[{ status: 400, error: { message: "That is no question.", type: "invalid_request_error", code: "invalid_prompt" } }], async (w) => failure(w.codex().startThread(w.thread).run("Fail now"))],
  "a failed turn, streamed": [[{ status: 400, error: { message: "That is no question.", type: "invalid_request_error", code: "invalid_prompt" } }], async (w) => {
    const out = [];
    const error = await failure((async () => { for await (const e of (await w.codex().startThread(w.thread).runStreamed("Fail now")).events) out.push([e.type, e.message ?? e.error?.message]); })());
    return [out, error.replace(/code \d+:.*/s, "code")];
  }],
  "no repository": [one, async (w) => (await failure(w.codex().startThread({ ...w.thread, workingDirectory: w.base + "/extra" }).run("Hello there"))).includes("--skip-git-repo-check was not specified")],
  "skipGitRepoCheck": [one, async (w) => seen(await w.codex().startThread({ ...w.thread, workingDirectory: w.base + "/extra", skipGitRepoCheck: true }).run("Hello there"))],
  "threadSource": [one, async (w) => seen(await w.codex().startThread({ ...w.thread, threadSource: "ci" }).run("Hello there"))],
  "cyberAccessProgram": [one, async (w) => seen(await w.codex().startThread(w.thread).run("Hello there", { cyberAccessProgram: "standard" }))],
  "additionalDirectories": [[[call("echo x > ../extra/x.txt")], [say("done")]], async (w) => [seen(await w.codex().startThread({ ...w.thread, sandboxMode: "workspace-write", additionalDirectories: [w.base + "/extra"] }).run("Write beside")), existsSync(w.base + "/extra/x.txt")]],
  "networkAccessEnabled": [one, async (w) => seen(await w.codex().startThread({ ...w.thread, sandboxMode: "workspace-write", networkAccessEnabled: true }).run("Hello there"))],
  "networkAccessEnabled false": [one, async (w) => seen(await w.codex().startThread({ ...w.thread, sandboxMode: "workspace-write", networkAccessEnabled: false }).run("Hello there"))],
  "config": [one, async (w) => seen(await w.codex({ config: { model_verbosity: "high", tools: { update_plan: { enabled: true } }, project_doc_fallback_filenames: ["A.md", "B.md"], model_context_window: 100000, hide_agent_reasoning: false } }).startThread(w.thread).run("Hello there"))],
  "configOverrides": [one, async (w) => seen(await w.codex({ configOverrides: ['model_verbosity="medium"', "model_reasoning_effort=low"] }).startThread(w.thread).run("Hello there"))],
  "config and thread options": [one, async (w) => seen(await w.codex({ config: { model_reasoning_effort: "low" } }).startThread({ ...w.thread, modelReasoningEffort: "high" }).run("Hello there"))],
  "no apiKey, key in env": [one, async (w) => seen(await w.codex({ apiKey: undefined, env: { ...w.env, CODEX_API_KEY: "sk-other-0123456789" } }).startThread(w.thread).run("Hello there"))],
  "originator in env": [one, async (w) => seen(await w.codex({ env: { ...w.env, CODEX_INTERNAL_ORIGINATOR_OVERRIDE: "my_tool" } }).startThread(w.thread).run("Hello there"))],
  "no baseUrl": [one, async (w) => seen(await w.codex({ baseUrl: undefined, configOverrides: [`openai_base_url="${w.url}"`] }).startThread(w.thread).run("Hello there"))],
  "a provider by config": [one, async (w) => seen(await w.codex({ baseUrl: undefined, apiKey: undefined, config: { model_provider: "p", model_providers: { p: { name: "p", base_url: w.url, wire_api: "responses", http_headers: { "x-extra": "1" } } } } }).startThread(w.thread).run("Hello there"))],
  "program that is missing": [one, async (w) => /ENOENT|not found|no such/i.test(await failure(new Codex({ codexPathOverride: "/no/such/program", env: w.env }).startThread(w.thread).run("Hello there")))],
};
for (const v of ["read-only", "workspace-write", "danger-full-access"])
  scenarios[`sandboxMode ${v}`] = [[[call("echo x > made.txt || true; ls")], [say("done")]], async (w) => { const r = await w.codex().startThread({ ...w.thread, sandboxMode: v }).run("Write it"); return [r.finalResponse, existsSync(w.ws + "/made.txt")]; }];
for (const v of ["minimal", "low", "medium", "high", "xhigh", "max", "ultra", "persistent"])
  scenarios[`modelReasoningEffort ${v}`] = [one, async (w) => seen(await w.codex().startThread({ ...w.thread, modelReasoningEffort: v }).run("Hello there"))];
for (const v of ["disabled", "cached", "live"])
  scenarios[`webSearchMode ${v}`] = [one, async (w) => seen(await w.codex().startThread({ ...w.thread, webSearchMode: v }).run("Hello there"))];
for (const v of [true, false])
  scenarios[`webSearchEnabled ${v}`] = [one, async (w) => seen(await w.codex().startThread({ ...w.thread, webSearchEnabled: v }).run("Hello there"))];
for (const v of ["never", "on-request", "on-failure"])
  scenarios[`approvalPolicy ${v}`] = [one, async (w) => seen(await w.codex().startThread({ ...w.thread, approvalPolicy: v }).run("Hello there"))];
scenarios["approvalPolicy untrusted"] = [one, async (w) => (await failure(w.codex().startThread({ ...w.thread, approvalPolicy: "untrusted" }).run("Hello there"))).includes("no longer supported")];

let failed = 0;
for (const [name, [replies, act]] of Object.entries(scenarios)) {
  const got = {};
  for (const [who, program] of Object.entries(programs)) {
    const w = await world(program, replies);
    try {
      const result = plain(w, await act(w));
      got[who] = { result, requests: plain(w, w.asked.map(request)) };
    } catch (e) {
      got[who] = { thrown: String(e) };
    } finally {
      w.close();
    }
  }
  try {
    assert.deepEqual(got.ours, got.reference);
    assert.equal(got.ours.thrown, undefined);
    console.log(`ok ${name}`);
  } catch (e) {
    failed++;
    console.log(`not ok ${name}\n  reference ${JSON.stringify(got.reference)}\n  ours      ${JSON.stringify(got.ours)}`);
  }
}
console.log(`${Object.keys(scenarios).length - failed} the same, ${failed} not`);
process.exitCode = failed ? 1 : 0;
