// The official SDK, unmodified, with nightshift in the place of the CLI: run,
// runStreamed, threads that go on, an output schema, images, options, failures
// and abort. The model is a scripted server (`nightshift debug server`).
//
//   NIGHTSHIFT=/path/to/nightshift node check.mjs
import { Codex } from "@openai/codex-sdk";
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, writeFileSync, existsSync, readFileSync, mkdirSync, rmSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import path from "node:path";

const bin = process.env.NIGHTSHIFT ?? "nightshift";
// Not below the temporary folder: that is replaced inside the sandbox.
const base = mkdtempSync(path.join(process.env.CHECK_BASE ?? homedir(), ".nightshift-sdk-"));
let servers = [];
let passed = 0;

async function server(script) {
  const file = path.join(base, `script-${servers.length}.json`);
  writeFileSync(file, JSON.stringify(script));
  const child = spawn(bin, ["debug", "server", file], { stdio: ["ignore", "pipe", "inherit"] });
  servers.push(child);
  const url = await new Promise((ok, bad) => {
    child.stdout.once("data", (d) => ok(d.toString().trim()));
    child.once("exit", (c) => bad(new Error(`the model server ended with ${c}`)));
  });
  return url.endsWith("/v1") ? url : url + "/v1";
}

async function codex(replies, more = {}) {
  const baseUrl = await server({ model_script: replies });
  const home = path.join(base, `home-${servers.length}`);
  mkdirSync(home);
  return new Codex({
    codexPathOverride: bin, baseUrl, apiKey: "sk-fake-0123456789abcdef",
    env: { PATH: process.env.PATH, HOME: base, CODEX_HOME: home, LANG: "C.UTF-8" }, ...more,
  });
}

function workspace() {
  const dir = mkdtempSync(path.join(base, "ws-"));
  execFileSync("git", ["init", "-q", "-b", "main"], { cwd: dir });
  execFileSync("git", ["-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "start"], { cwd: dir });
  return dir;
}

async function check(name, f) {
  await f();
  passed++;
  console.log(`ok ${name}`);
}

try {
  await check("run: items, final response, usage", async () => {
    const c = await codex([
      { items: [{ call: "exec_command", args: { cmd: "echo hi > made.txt; cat made.txt" } }], usage: { input: 100, cached: 20, output: 10, reasoning: 4 } },
      { items: [{ message: "made it" }], usage: { input: 200, output: 5 } },
    ]);
    const dir = workspace();
    const t = c.startThread({ workingDirectory: dir, sandboxMode: "workspace-write" });
    const turn = await t.run("make a file");
    assert.equal(turn.finalResponse, "made it");
    assert.equal(turn.usage.input_tokens, 300);
    assert.equal(turn.usage.cached_input_tokens, 20);
    const cmd = turn.items.find((i) => i.type === "command_execution");
    assert.equal(cmd.status, "completed");
    assert.match(cmd.aggregated_output, /hi\n$/);
    assert.equal(readFileSync(path.join(dir, "made.txt"), "utf8"), "hi\n");
    assert.match(t.id, /^[0-9a-f-]{36}$/);
  });

  await check("runStreamed: order of events", async () => {
    const c = await codex([{ items: [{ reasoning: ["**Thinking**"] }, { message: "streamed" }] }]);
    const { events } = await c.startThread({ workingDirectory: workspace() }).runStreamed("go");
    const seen = [];
    for await (const e of events) seen.push(e.type);
    assert.deepEqual(seen, ["thread.started", "turn.started", "item.completed", "item.completed", "turn.completed"]);
  });

  await check("a thread goes on, also by id", async () => {
    const c = await codex([
      { items: [{ message: "teal it is" }] },
      { match: { contains: "teal it is" }, items: [{ message: "teal" }] },
      { match: { contains: "teal it is" }, items: [{ message: "still teal" }] },
    ]);
    const dir = workspace();
    const t = c.startThread({ workingDirectory: dir });
    await t.run("remember teal");
    assert.equal((await t.run("which?")).finalResponse, "teal");
    const again = c.resumeThread(t.id, { workingDirectory: dir });
    assert.equal((await again.run("and now?")).finalResponse, "still teal");
    assert.equal(again.id, t.id);
  });

  await check("output schema", async () => {
    const c = await codex([{ items: [{ message: '{"verdict":"pass"}' }] }]);
    const turn = await c.startThread({ workingDirectory: workspace() }).run("verdict", {
      outputSchema: { type: "object", properties: { verdict: { type: "string" } }, required: ["verdict"], additionalProperties: false },
    });
    assert.deepEqual(JSON.parse(turn.finalResponse), { verdict: "pass" });
  });

  await check("an answer that breaks the schema throws", async () => {
    const c = await codex([{ items: [{ message: "prose" }] }, { items: [{ message: "prose" }] }]);
    await assert.rejects(c.startThread({ workingDirectory: workspace() }).run("verdict", { outputSchema: { type: "object" } }), /schema/);
  });

  await check("images and structured input", async () => {
    const c = await codex([{ match: { contains: "data:image/png;base64" }, items: [{ message: "a dot" }] }]);
    const png = path.join(base, "dot.png");
    writeFileSync(png, Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64"));
    const turn = await c.startThread({ workingDirectory: workspace() }).run([
      { type: "text", text: "what is" }, { type: "text", text: "this?" }, { type: "local_image", path: png }]);
    assert.equal(turn.finalResponse, "a dot");
  });

  await check("options: model, effort, web search, network, approval, extra folders, config", async () => {
    const extra = mkdtempSync(path.join(base, "extra-"));
    const c = await codex([
      { match: { contains: '"some-model"' }, items: [{ call: "exec_command", args: { cmd: `echo x > ${extra}/x.txt` } }] },
      { items: [{ message: "ok" }] },
    ], { config: { model_verbosity: "low", tools: { update_plan: { enabled: true } } } });
    const turn = await c.startThread({
      workingDirectory: workspace(), model: "some-model", modelReasoningEffort: "high", sandboxMode: "workspace-write",
      networkAccessEnabled: false, webSearchMode: "disabled", approvalPolicy: "never", additionalDirectories: [extra], skipGitRepoCheck: true,
    }).run("write beside");
    assert.equal(turn.finalResponse, "ok");
    assert.ok(existsSync(path.join(extra, "x.txt")));
  });

  await check("a failed turn throws its message", async () => {
    const c = await codex([{ status: 400, body: { error: { message: "That is no question.", type: "invalid_request_error", code: null } } }]);
    await assert.rejects(c.startThread({ workingDirectory: workspace() }).run("x"), /That is no question/);
  });

  await check("not a repository throws what stderr says", async () => {
    const c = await codex([{ items: [{ message: "never" }] }]);
    const dir = mkdtempSync(path.join(base, "plain-"));
    await assert.rejects(c.startThread({ workingDirectory: dir }).run("x"), /skip-git-repo-check/);
  });

  await check("abort ends the run and its command", async () => {
    const mark = `sleep ${30000000 + process.pid}`; // no other run has it
    const c = await codex([{ items: [{ call: "exec_command", args: { cmd: `echo up > up.txt; exec ${mark}`, yield_time_ms: 30000 } }] }]);
    const dir = workspace();
    const stop = new AbortController();
    const run = c.startThread({ workingDirectory: dir, sandboxMode: "workspace-write" }).run("wait", { signal: stop.signal });
    const ended = assert.rejects(run, (e) => e.name === "AbortError" || /abort/i.test(e.message));
    for (let i = 0; i < 300 && !existsSync(path.join(dir, "up.txt")); i++) await new Promise((r) => setTimeout(r, 50));
    stop.abort();
    await ended;
    let left = "x";
    for (let i = 0; i < 200 && left; i++) {
      await new Promise((r) => setTimeout(r, 50));
      try { left = execFileSync("pgrep", ["-f", mark]).toString(); } catch { left = ""; }
    }
    assert.equal(left, "");
  });
  console.log(`${passed} passed, 0 failed`);
} catch (e) {
  console.error(e);
  console.log(`${passed} passed, 1 failed`);
  process.exitCode = 1;
} finally {
  for (const s of servers) s.kill();
  rmSync(base, { recursive: true, force: true });
}
