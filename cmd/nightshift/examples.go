package main

// examples are the lines that the help of a command and the manual page show;
// "" is the program itself. All of them are parsed by a test.
func examples(path string) string {
	switch path {
	case "", "exec":
		return `  nightshift exec "why does the test fail?"
  nightshift exec --json -s workspace-write --report-dir out "update the changelog" > events.jsonl
  git diff | nightshift exec -s read-only "review this diff"
  nightshift exec -s workspace-write --max-wall-time 15m --verify "go test ./..." "make the tests pass"
  nightshift exec resume --last -s workspace-write "now add a test"
`
	case "resume":
		return `  nightshift exec resume --last -s workspace-write "now add a test"
  nightshift exec resume 01a22bb1-39dd-7a5a-a144-92c867c63c4c --json "go on"
`
	case "fork":
		return `  nightshift exec fork --last -s workspace-write "try it the other way"
`
	case "review":
		return `  nightshift review --uncommitted
  nightshift review --base origin/main --fail-on high --report sarif=review.sarif
  nightshift review --commit HEAD -o review.md
`
	case "batch", "batch run":
		return `  nightshift batch --tasks tasks.jsonl --out results --repo . -j 4 -s workspace-write
  nightshift batch --tasks rows.csv --prompt "Translate {file} to {language}." --out results --repo .
  nightshift batch --tasks tasks.jsonl --out results --shard auto --max-cost 0.50 --budget-cost 20
  nightshift batch merge shard-*/results --out merged

A line of tasks.jsonl: {"id":"one","prompt":"…","repo":"…","ref":"…","limits":{"max_turns":20}}
rows.csv begins with the names of its columns; one of them is id.
Exit code 0: every task succeeded. 9: some did not. 7: a budget stopped the
batch. 6: the model service asks for a wait of more than 15 minutes, or refused
every task; the same command goes on later.
`
	case "batch merge":
		return `  nightshift batch merge shard-0 shard-1 --out merged
`
	case "replay":
		return `  nightshift replay out/events.jsonl
  nightshift replay -q out/events.jsonl --report html=report.html --report junit=junit.xml
`
	case "report merge":
		return `  nightshift report merge out-a out-b --report html=all.html
  nightshift report merge */report.json > all.json
`
	case "report schema":
		return `  nightshift report schema events > events.schema.json
`
	case "policy check":
		return `  nightshift policy check -- git push origin main
  nightshift policy check --json --shell 'make deploy 2>&1 | tee log'
  nightshift policy check --rules ci.rules -- npm ci

decision is what the rules say: allow, prompt, forbidden or none. outcome is what
an unattended run does: sandboxed, unsandboxed or denied. Exit code 0: the command
would run. 3: it would be refused, or the policy itself is not valid.
`
	case "policy explain":
		return `  nightshift policy explain
  nightshift policy explain sandbox_mode
`
	case "policy lint":
		return `  nightshift policy lint .codex/config.toml requirements.toml ci.rules
`
	case "policy diff":
		return `  nightshift policy diff /etc/codex/requirements.toml new-requirements.toml
  nightshift policy diff /dev/null requirements.toml

Lines with tighter, looser or different compare the files; lines with here say what would
change for a run in this folder.
`
	case "policy replay":
		return `  nightshift policy replay --requirements new-requirements.toml out/events.jsonl
`
	case "policy schema":
		return `  nightshift policy schema config > config.schema.json
`
	case "sandbox":
		return `  nightshift sandbox -- make test
  nightshift sandbox -s read-only -C /srv/project -- git status
  nightshift sandbox --json -- curl https://example.com

The exit code is the command's own; 126 and 127 as in a shell. 3: a rule forbids the
command, as policy check says; 4: a required guarantee cannot be had.
`
	case "doctor":
		return `  nightshift doctor
  nightshift doctor --json -s workspace-write -C /srv/project

It tries what the configuration of the folder asks for. The exit code is that of a run
which would be refused for it: 4 for a missing guarantee, 2 or 3 for a policy that
cannot be read or applied, otherwise 0.
`
	case "auth":
		return `  nightshift auth status
  nightshift auth import < auth.json
`
	case "auth status":
		return `  nightshift auth status
  nightshift auth status --json | jq -r .would
`
	case "policy":
		return `  nightshift policy lint .codex/config.toml requirements.toml
  nightshift policy check -- git push origin main
  nightshift policy explain sandbox_mode
`
	case "report":
		return `  nightshift report merge out-a out-b --report html=all.html
`
	case "debug":
		return `  nightshift debug prompt-input "fix the failing test" | jq .input
`
	case "demo":
		return `  nightshift demo
  nightshift demo /var/tmp/demo && ls /var/tmp/demo
`
	case "version":
		return `  nightshift version
`
	case "auth refresh":
		return `  nightshift auth refresh --if-due --auth-writeback "sh ci-examples/auth-writeback/vault.sh"
`
	case "auth import":
		return `  nightshift auth import < auth.json
`
	case "debug prompt-input":
		return `  nightshift debug prompt-input "fix the failing test" | jq .tools
`
	case "debug server":
		return `  nightshift debug server script.jsonl

The first line on stdout is the base URL. A line of script.jsonl is one reply:
  {"items":[{"call":"exec_command","args":{"cmd":"make test"}}]}
  {"status":429,"headers":{"Retry-After":"1"}}
  {"items":[{"message":"All tests pass."}]}
exec --record writes such a file, exec --model-script plays it without a server.
.github/MODEL-SCRIPTS.md of the repository has the whole language.
`
	case "completion":
		return `  source <(nightshift completion bash)
  nightshift completion zsh > ~/.zfunc/_nightshift    # with fpath+=(~/.zfunc) before compinit in .zshrc
  nightshift completion fish > ~/.config/fish/completions/nightshift.fish
`
	case "man":
		return `  nightshift man | man -l -
`
	}
	return ""
}
