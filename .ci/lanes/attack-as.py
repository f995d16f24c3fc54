#!/usr/bin/env python3
"""attack-as command|hook|mcp NIGHTSHIFT [FLAGS of exec…] -- CMD…

The prefix for run-attacks that starts CMD as a part of a whole `exec` run with a
scripted model: as a command of the model, as a hook of the session, or as a stdio
MCP server. Printed is what the run prints for people, as a CI log would have it, and
the verdict of CMD, which is all that run-attacks wants of its output:

    run-attacks -- attack-as.py hook ./nightshift --deny-read {DENY} -s workspace-write --
"""
import json, os, shlex, signal, subprocess, sys, tempfile

kind, binary = sys.argv[1:3]
rest = sys.argv[3:]
flags, command = rest[:rest.index("--")], rest[rest.index("--") + 1:]
# Beside the fixture, where commands cannot write.
home = tempfile.mkdtemp(prefix="codex-home-", dir=os.environ["ATTACK_FIXTURE"])
said = ".attack/said"  # in the workspace: what a hook or a server prints is not shown by a run
if os.path.exists(said):
    os.unlink(said)
line = shlex.join(command)
config = ""
steps = [{"items": [{"message": "done"}]}]
if kind == "command":
    steps.insert(0, {"items": [{"call": "exec_command", "call_id": "attack", "args": {"cmd": line, "login": False, "yield_time_ms": 30000}}]})
elif kind == "hook":
    shown = json.dumps("%s > %s" % (line, said))
    config = "[[hooks.SessionStart]]\n[[hooks.SessionStart.hooks]]\ntype = \"command\"\ntimeout = 60\ncommand = %s\n" % shown
elif kind == "mcp":
    shown = json.dumps(["-c", "%s > %s < /dev/null" % (line, said)])
    config = "[mcp_servers.attack]\ncommand = \"/bin/sh\"\nargs = %s\nstartup_timeout_sec = 60\n" % shown
else:
    sys.exit(__doc__)
with open(home + "/config.toml", "w") as f:
    f.write(config)
with open(home + "/model.json", "w") as f:
    json.dump({"model_script": steps}, f)
events = home + "/events.jsonl"
p = subprocess.Popen([binary, "exec", "--skip-git-repo-check", "--ephemeral", "--model-script", home + "/model.json", "--events", events] + flags + ["work"],
                     env=dict(os.environ, CODEX_HOME=home), stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
for s in (signal.SIGTERM, signal.SIGINT):
    signal.signal(s, lambda n, _: p.send_signal(n))
code, out = p.wait(), ""
if kind == "command":
    for record in map(json.loads, open(events)):
        item = record.get("item", {})
        if record["type"] == "item.completed" and item.get("type") == "command_execution":
            out = item.get("aggregated_output", "")
            code = item.get("exit_code") or 0
elif os.path.exists(said):
    out = open(said, errors="replace").read()
for word in out.splitlines():
    if word.split(":")[0] in ("HELD", "ESCAPED", "WORKS", "BROKEN", "SKIPPED"):
        print(word)
sys.exit(code)
