package policy

import (
	"slices"
	"strings"
	"time"
)

// projectRule says what a trusted project's file may do with a key.
type projectRule int

const (
	// ignored: the key has no effect in a project file, and a notice says so.
	ignored projectRule = iota
	// free: a project may set it.
	free
	// tighter: a project may only make it stricter (see projectLayers).
	tighter
)

// key is one setting. Path parts of "*" stand for any name.
type key struct {
	path    string
	typ     string // see typeNames in check.go
	def     any    // the built-in default, nil for none
	doc     string
	project projectRule
	// ours: the reference does not know the key.
	ours bool
	// unused: the reference uses the key, an unattended run of this program does
	// not.
	unused bool
}

// configKeys are all keys of config.toml but those inside a profile.
func configKeys() []key {
	refused := []key{{path: "profile", typ: "string", doc: "Refused: choose a profile with --profile."}}
	return slices.Concat(modelKeys(), sandboxKeys(), extensionKeys(), telemetryKeys(), ownKeys(), unusedKeys(), refused)
}

// profileKeys are the keys inside profiles.NAME: all the others but projects and
// what chooses a profile.
func profileKeys() []key {
	keys := slices.DeleteFunc(configKeys(), func(k key) bool {
		root, _, _ := strings.Cut(k.path, ".")
		return root == "projects" || root == "profile"
	})
	for i := range keys {
		keys[i].project, keys[i].def = ignored, nil
	}
	return keys
}

func modelKeys() []key {
	p := "model_providers.*."
	return []key{
		{path: "model", typ: "name", def: "gpt-5.5", project: free, doc: "Model to ask."},
		{path: "model_provider", typ: "name", def: "openai", doc: "Provider of the model: openai or a name in model_providers."},
		{
			path:    "model_reasoning_effort",
			typ:     "enum:none|minimal|low|medium|high|xhigh|max|ultra|persistent",
			project: free,
			doc:     "How long the model thinks.",
		},
		{path: "model_reasoning_summary", typ: "enum:auto|concise|detailed|none", project: free, doc: "Summaries of the model's reasoning."},
		{path: "model_verbosity", typ: "enum:low|medium|high", project: free, doc: "Length of the model's answers."},
		{
			path:    "service_tier",
			typ:     "enum:auto|default|fast|flex|priority",
			project: free,
			doc:     "How soon and at what price the service answers; fast is priority.",
		},
		{path: "model_context_window", typ: "int", project: free, doc: "Size of the context window in tokens."},
		{path: "model_auto_compact_token_limit", typ: "int", project: free, doc: "Tokens after which the history is compacted."},
		{path: "model_instructions_file", typ: "path", project: free, doc: "File with the base instructions."},
		{path: "experimental_instructions_file", typ: "path", project: free, doc: "Older name of model_instructions_file."},
		{path: "instructions", typ: "string", project: free, doc: "Base instructions."},
		{path: "developer_instructions", typ: "string", project: free, doc: "Instructions added as a developer message."},
		{path: "compact_prompt", typ: "string", project: free, doc: "Prompt for compacting the history."},
		{path: "experimental_compact_prompt_file", typ: "path", project: free, doc: "File with the prompt for compacting."},
		{path: "review_model", typ: "name", project: free, doc: "Model of the review command."},
		{path: "openai_base_url", typ: "string", doc: "Base URL of the built-in provider."},
		{path: "chatgpt_base_url", typ: "string", doc: "Base URL of the ChatGPT backend."},
		{path: "model_providers", typ: "table", doc: "Model services by name."},
		{path: p + "name", typ: "string", doc: "Name to show."},
		{path: p + "base_url", typ: "string", doc: "Base URL; /responses is appended."},
		{path: p + "wire_api", typ: "enum:responses", def: "responses", doc: "Protocol; only responses is left."},
		{path: p + "env_key", typ: "string", doc: "Variable that holds the key. Commands never see it."},
		{path: p + "env_key_instructions", typ: "string", doc: "What to tell when the variable is missing."},
		{path: p + "experimental_bearer_token", typ: "string", doc: "The token itself."},
		{path: p + "requires_openai_auth", typ: "bool", def: false, doc: "Use CODEX_API_KEY or auth.json."},
		{path: p + "http_headers", typ: "strmap", doc: "Headers of every request."},
		{path: p + "env_http_headers", typ: "strmap", doc: "Headers whose values are variables."},
		{path: p + "query_params", typ: "strmap", doc: "Query parameters of every request."},
		{path: p + "request_max_retries", typ: "int", def: 4, doc: "Retries of one request."},
		{path: p + "stream_max_retries", typ: "int", def: 5, doc: "Retries of a broken stream."},
		{path: p + "stream_idle_timeout_ms", typ: "int", def: 300000, doc: "Silence after which a stream is broken."},
		{path: p + "retry_budget", typ: "duration", ours: true, doc: "Wall time that all retries of one request may take."},
		{path: p + "auth", typ: "any", unused: true, doc: "Token command; use env_key."},
		{path: p + "aws", typ: "any", unused: true, doc: "AWS signing."},
		{path: p + "supports_websockets", typ: "bool", unused: true, doc: "Requests go over HTTP."},
		{path: p + "websocket_connect_timeout_ms", typ: "int", unused: true, doc: "Requests go over HTTP."},
		{path: "project_doc_max_bytes", typ: "int", def: 32768, project: free, doc: "Bytes of AGENTS.md files of the project in the prompt."},
		{path: "project_doc_fallback_filenames", typ: "strings", project: free, doc: "Names tried where AGENTS.md is missing."},
		{path: "project_root_markers", typ: "strings", doc: "Names that mark a project's root; default .git."},
		{path: "projects", typ: "table", doc: "Trust by absolute path."},
		{path: "projects.*.trust_level", typ: "enum:trusted|untrusted", doc: "Whether the project's own configuration counts."},
		{path: "forced_login_method", typ: "enum:chatgpt|api", doc: "The only login that may be used."},
		{path: "forced_chatgpt_workspace_id", typ: "string|strings", doc: "The only workspaces that may be used."},
		{
			path: "cli_auth_credentials_store",
			typ:  "enum:file|keyring|auto|ephemeral",
			def:  "file",
			doc:  "Where the login is stored; only file is used.",
		},
		{path: "tools.view_image", typ: "bool", def: true, project: free, doc: "Offer the tool view_image."},
		{path: "tool_output_token_limit", typ: "int", project: free, doc: "Tokens that the model sees of one tool's output; 10000."},
		{path: "background_terminal_max_timeout", typ: "int", project: free, doc: "Longest wait for a running command in milliseconds, at least 5000; 300000."},
		{path: "include_environment_context", typ: "bool", def: true, project: free, doc: "Tell the model about folder, shell and date."},
		{path: "include_permissions_instructions", typ: "bool", def: true, project: free, doc: "Tell the model what the policy permits."},
		{path: "hide_agent_reasoning", typ: "bool", def: false, project: free, doc: "Leave the model's reasoning out of the text for people."},
		{path: "tools_view_image", typ: "bool", project: free, doc: "Older name of tools.view_image."},
		{path: "tools.update_plan.enabled", typ: "bool", def: false, project: free, doc: "Offer the tool update_plan."},
		{
			path:    "web_search",
			typ:     "enum:disabled|cached|indexed|live",
			def:     "cached",
			project: tighter,
			doc:     "Hosted web search; live under full access unless set.",
		},
		{path: "tools.web_search", typ: "any", project: ignored, doc: "true is web_search = \"live\"; the table's options are not used."},
		{path: "tools_web_search", typ: "bool", project: ignored, doc: "Older name of tools.web_search."},
	}
}

func sandboxKeys() []key {
	f := "permissions.*.filesystem"
	n := "permissions.*.network."
	keys := []key{
		{path: "approval_policy", typ: "approval", def: "never", project: free, doc: "An unattended run never asks, whatever is set here."},
		{
			path:    "sandbox_mode",
			typ:     "enum:read-only|workspace-write|danger-full-access",
			def:     "read-only",
			project: tighter,
			doc:     "What commands may write; workspace-write in trusted projects unless set.",
		},
		{path: "sandbox_workspace_write.writable_roots", typ: "paths", doc: "Folders besides the workspace that commands may write."},
		{path: "sandbox_workspace_write.network_access", typ: "bool", def: false, project: tighter, doc: "The host's network for commands."},
		{path: "sandbox_workspace_write.exclude_slash_tmp", typ: "bool", def: false, project: tighter, doc: "/tmp is not writable."},
		{path: "sandbox_workspace_write.exclude_tmpdir_env_var", typ: "bool", def: false, project: tighter, doc: "$TMPDIR is not writable."},
		{path: "allow_login_shell", typ: "bool", def: true, project: tighter, doc: "Commands may run in a login shell."},
		{
			path: "default_permissions",
			typ:  "string",
			doc:  "Permission profile: :read-only, :workspace, :danger-full-access or a name in permissions.",
		},
		{path: "permissions", typ: "table", doc: "Permission profiles by name."},
		{path: "permissions.*.description", typ: "string", doc: "What the profile is for."},
		{path: "permissions.*.extends", typ: "string", doc: "Profile this one is based on."},
		{path: "permissions.*.workspace_roots.*", typ: "bool", doc: "Folders that are workspace roots too."},
		{path: f, typ: "table", doc: "Access by path: read, write or deny."},
		{path: f + ".*", typ: "any", doc: "read, write or deny, or a table of subpaths."},
		{path: n + "domains.*", typ: "enum:allow|deny", doc: "Hosts commands may or may not reach: name, *.name, **.name or *."},
		{path: n + "unix_sockets.*", typ: "enum:allow|deny|none", doc: "Host sockets that stay reachable."},
		{path: n + "mitm", typ: "any", unused: true, doc: "Connections are never intercepted."},
		{
			path:    "shell_environment_policy.inherit",
			typ:     "enum:all|core|none",
			def:     "all",
			project: tighter,
			doc:     "What commands inherit of the runner's environment.",
		},
		{
			path:    "shell_environment_policy.ignore_default_excludes",
			typ:     "bool",
			def:     false,
			project: tighter,
			doc:     "Pass names that look like secrets. Unlike the reference's, the default drops them.",
		},
		{path: "shell_environment_policy.exclude", typ: "strings", project: tighter, doc: "Name patterns to drop."},
		{path: "shell_environment_policy.include_only", typ: "strings", project: tighter, doc: "Name patterns to keep; everything else is dropped."},
		{path: "shell_environment_policy.filters.*", typ: "enum:include|exclude", project: tighter, doc: "Name patterns to keep or drop."},
		{path: "shell_environment_policy.set", typ: "strmap", doc: "Variables set for commands."},
		{path: "shell_environment_policy.experimental_use_profile", typ: "bool", unused: true, doc: "Commands run in the shell the model asks for."},
		{path: "features", typ: "table", doc: "Switches by name."},
		{path: "features.*", typ: "feature", project: tighter, doc: "Switch of a feature."},
		{
			path:   "approvals_reviewer",
			typ:    "enum:user|auto_review|guardian_subagent",
			unused: true,
			doc:    "Nobody reviews in an unattended run: what would be asked is denied.",
		},
	}
	for _, prefix := range []string{n, "permissions.network."} {
		keys = append(keys,
			key{path: prefix + "enabled", typ: "bool", def: false, doc: "Network for commands through an allow list of hosts."},
			key{path: prefix + "mode", typ: "enum:limited|full", def: "full", doc: "limited: only GET, HEAD and OPTIONS over plain HTTP."},
			key{path: prefix + "allow_local_binding", typ: "bool", def: false, doc: "Local and private addresses may be reached through the proxy."},
			key{path: prefix + "dangerously_allow_all_unix_sockets", typ: "bool", unused: true, doc: "Never done here; list sockets."})
		for _, name := range []string{"allow_upstream_proxy", "enable_socks5", "enable_socks5_udp", "dangerously_allow_non_loopback_proxy", "dangerously_allow_non_loopback_admin"} {
			keys = append(keys, key{path: prefix + name, typ: "bool", unused: true, doc: "The proxy's own settings are fixed here."})
		}
		for _, name := range []string{"proxy_url", "socks_url", "admin_url"} {
			keys = append(keys, key{path: prefix + name, typ: "string", unused: true, doc: "The proxy listens inside the sandbox only."})
		}
	}
	return append(keys,
		key{path: "permissions.network.allowed_domains", typ: "strings", doc: "Hosts commands may reach: name, *.name, **.name or *."},
		key{path: "permissions.network.denied_domains", typ: "strings", doc: "Hosts they may not reach; wins over allowed_domains."},
		key{path: "permissions.network.allow_unix_sockets", typ: "paths", doc: "Host sockets that stay reachable."},
		key{path: "permissions.network.domains.*", typ: "enum:allow|deny", doc: "Hosts by name, as in profiles."},
		key{path: "permissions.network.unix_sockets.*", typ: "enum:allow|deny|none", doc: "Host sockets that stay reachable."})
}

func extensionKeys() []key {
	s := "mcp_servers.*."
	keys := []key{
		{path: "mcp_servers", typ: "table", project: free, doc: "MCP servers by name."},
		{path: s + "command", typ: "string", project: free, doc: "Program of a stdio server."},
		{path: s + "args", typ: "strings", project: free, doc: "Its arguments."},
		{path: s + "env", typ: "strmap", project: free, doc: "Its own variables."},
		{path: s + "env_vars", typ: "any", project: ignored, doc: "Variables passed through by name."},
		{path: s + "cwd", typ: "path", project: free, doc: "Its working folder."},
		{path: s + "url", typ: "string", project: free, doc: "Address of an HTTP server."},
		{path: s + "bearer_token_env_var", typ: "string", project: ignored, doc: "Variable that holds the token."},
		{path: s + "http_headers", typ: "strmap", project: free, doc: "Headers of every request."},
		{path: s + "env_http_headers", typ: "strmap", project: ignored, doc: "Headers whose values are variables."},
		{path: s + "enabled", typ: "bool", def: true, project: free, doc: "false switches the server off."},
		{path: s + "required", typ: "bool", def: false, project: free, doc: "The run does not start without it."},
		{path: s + "startup_timeout_sec", typ: "number", def: 10, project: free, doc: "Seconds until it must answer."},
		{path: s + "startup_timeout_ms", typ: "int", project: free, doc: "The same in milliseconds."},
		{path: s + "tool_timeout_sec", typ: "number", def: 60, project: free, doc: "Seconds a call may take."},
		{path: s + "enabled_tools", typ: "strings", project: free, doc: "The only tools to offer."},
		{path: s + "disabled_tools", typ: "strings", project: free, doc: "Tools not to offer."},
		{
			path:    s + "default_tools_approval_mode",
			typ:     "enum:auto|prompt|approve",
			def:     "auto",
			project: free,
			doc:     "approve runs tools that would need a person.",
		},
		{path: s + "tools.*.approval_mode", typ: "enum:auto|prompt|approve", project: free, doc: "The same for one tool."},
		{path: s + "sandbox", typ: "enum:run|none", ours: true, def: "run", doc: "none runs the server outside the sandbox."},
		{path: "hooks", typ: "table", doc: "Hooks by event."},
		{path: "hooks.state", typ: "any", unused: true, doc: "Hooks of the user's own files need no stored trust here."},
		{path: "notify", typ: "strings", doc: "Program run after the turn."},
		{path: "skills.include_instructions", typ: "bool", def: true, project: free, doc: "List the skills for the model."},
		{path: "skills.config", typ: "tables", project: free, doc: "Skills to switch off: name or path, enabled."},
		{path: "skills.config[].name", typ: "string", project: free, doc: "Name of the skill."},
		{path: "skills.config[].path", typ: "path", project: free, doc: "Its SKILL.md."},
		{path: "skills.config[].enabled", typ: "bool", project: free, doc: "false hides it."},
		{path: "agents.max_threads", typ: "int", def: 6, project: tighter, doc: "Sub-agents at the same time."},
		{path: "agents.max_depth", typ: "int", def: 1, project: tighter, doc: "How deep agents may start agents."},
		{path: "agents.job_max_runtime_seconds", typ: "int", def: 1800, project: tighter, doc: "Time of one worker of a CSV job."},
		{path: "agents.*.description", typ: "string", project: free, doc: "What the role is for."},
		{path: "agents.*.config_file", typ: "path", project: free, doc: "Configuration of the role."},
		{path: "agents.*.nickname_candidates", typ: "strings", unused: true, doc: "Agents have no nicknames here."},
		{path: "agents.interrupt_message", typ: "bool", unused: true, doc: "Nobody interrupts an unattended turn."},
	}
	for _, event := range hookEvents {
		h := "hooks." + event
		keys = append(keys,
			key{path: h, typ: "tables", doc: "Hooks at " + event + "."},
			key{path: h + "[].matcher", typ: "string", doc: "Regular expression on the tool's name; absent: all."},
			key{path: h + "[].hooks", typ: "tables", doc: "What to run."},
			key{path: h + "[].hooks[].type", typ: "enum:command|prompt|agent|mcp_tool", doc: "Only command can run unattended."},
			key{path: h + "[].hooks[].command", typ: "string", doc: "Command line."},
			key{path: h + "[].hooks[].timeout", typ: "number", def: int(HookTimeout / time.Second), doc: "Seconds it may take."},
			key{path: h + "[].hooks[].on_error", typ: "enum:block|continue", ours: true,
				doc: "What a failing hook does; block is the default where a hook can block."})
		for _, name := range []string{"async", "statusMessage", "commandWindows", "command_windows", "server", "tool", "prompt", "arguments"} {
			keys = append(keys, key{path: h + "[].hooks[]." + name, typ: "any", unused: true, doc: "Not used for command hooks."})
		}
	}
	for _, name := range []string{"environment_id", "name", "oauth", "oauth_resource", "scopes", "experimental_environment", "supports_parallel_tool_calls"} {
		keys = append(keys, key{path: s + name, typ: "any", unused: true, doc: "Interactive login and remote executors are not used here."})
	}
	return keys
}

// hookEvents are the events hooks can be bound to.
var hookEvents = [...]string{
	"SessionStart", "UserPromptSubmit", "PreToolUse", "PermissionRequest", "PostToolUse", "PreCompact", "PostCompact", "Stop",
	"SubagentStart", "SubagentStop",
}

func telemetryKeys() []key {
	keys := []key{
		{path: "otel.environment", typ: "string", def: "dev", doc: "Resource attribute env."},
		{path: "otel.log_user_prompt", typ: "bool", def: false, doc: "Export prompts."},
		{path: "otel.log_agent_responses", typ: "bool", def: false, doc: "Export answers."},
		{path: "otel.log_tool_output", typ: "bool", def: false, ours: true, doc: "Export tool arguments and output."},
		{path: "otel.tool_result.max_bytes", typ: "int", doc: "Bytes of tool output to export."},
		{path: "otel.span_attributes", typ: "strmap", doc: "Attributes of every span."},
		{path: "otel.flush_timeout", typ: "duration", ours: true, doc: "Time the last export may take."},
		{path: "otel.log_sse_deltas", typ: "bool", unused: true, doc: "Deltas are not exported."},
		{path: "otel.log_guardian_assessments", typ: "bool", unused: true, doc: "There is no automatic reviewer."},
		{path: "otel.tracestate", typ: "any", unused: true, doc: "TRACESTATE is passed on as it comes."},
		{path: "otel.headers_helper", typ: "any", unused: true, doc: "Headers may name variables."},
		{path: "otel.headers_helper_refresh_interval_ms", typ: "int", unused: true, doc: "Headers may name variables."},
	}
	for _, signal := range []string{"exporter", "trace_exporter", "metrics_exporter"} {
		e := "otel." + signal
		keys = append(keys, key{path: e, typ: "exporter", def: "none", doc: "none, otlp-http or otlp-grpc."})
		for _, protocol := range []string{"otlp-http", "otlp-grpc"} {
			x := e + "." + protocol
			keys = append(keys,
				key{path: x + ".endpoint", typ: "string", doc: "URL of the collector."},
				key{path: x + ".headers", typ: "strmap", doc: "Headers; ${NAME} is a variable."},
				key{path: x + ".tls.ca-certificate", typ: "path", doc: "Certificate authority."},
				key{path: x + ".tls.client-certificate", typ: "path", doc: "Client certificate."},
				key{path: x + ".tls.client-private-key", typ: "path", doc: "Its key."})
		}
		keys = append(keys, key{path: e + ".otlp-http.protocol", typ: "enum:binary|json", doc: "Encoding."})
	}
	return keys
}

// ownKeys are the keys the reference does not have.
func ownKeys() []key {
	keys := []key{
		{path: "model_fallback", typ: "strings", project: free, doc: "Models tried in turn when the model is overloaded or gone."},
		{path: "verify", typ: "strings", project: tighter, doc: "Commands that must pass before the run counts as done."},
		{path: "limits.max_turns", typ: "int", project: tighter, doc: "Model responses."},
		{path: "limits.max_tool_calls", typ: "int", project: tighter, doc: "Tool calls."},
		{path: "limits.max_wall_time", typ: "duration", project: tighter, doc: "Time of the whole run."},
		{path: "limits.max_idle_time", typ: "duration", project: tighter, doc: "Time without progress."},
		{path: "limits.max_tokens", typ: "int", project: tighter, doc: "Input and output tokens."},
		{path: "limits.max_cost_usd", typ: "number", project: tighter, doc: "Money, by [prices]."},
		{path: "limits.max_repeated_failures", typ: "int", project: tighter, doc: "Identical failing steps in a row."},
		{path: "limits.no_final_answer", typ: "bool", def: false, project: free, doc: "Do not ask for a summary when a limit is reached."},
		{path: "limits.verify_rounds", typ: "int", def: 3, project: tighter, doc: "How often a failed verify command is given back to the model."},
		{path: "limits.stop_hook_rounds", typ: "int", def: 3, project: tighter, doc: "How often a stop hook may send the model back to work."},
		{path: "prices.date", typ: "string", doc: "When the prices held."},
		{path: "prices.models.*.input", typ: "number", doc: "US dollars for a million input tokens."},
		{path: "prices.models.*.cached_input", typ: "number", doc: "For cached ones."},
		{path: "prices.models.*.output", typ: "number", doc: "For output tokens."},
		{
			path:    "sandbox.require",
			typ:     "guarantees",
			project: tighter,
			doc:     "Guarantees without which the run does not start, besides the default ones.",
		},
		{path: "sandbox.deny_read", typ: "paths", project: tighter, doc: "Paths commands cannot read."},
		{path: "sandbox.host_tmp", typ: "bool", def: false, doc: "Commands see the host's /tmp."},
		{path: "sandbox.memory", typ: "size", project: tighter, doc: "Memory of a command's tree: bytes, or 512MiB."},
		{path: "sandbox.processes", typ: "int", project: tighter, doc: "Processes of a command's tree."},
		{path: "sandbox.cpu", typ: "int", project: tighter, doc: "Percent of one core; 150 is one and a half."},
		{path: "sandbox.file_size", typ: "size", project: tighter, doc: "Size of one file."},
		{path: "sandbox.private_caches", typ: "bool", def: true, doc: "Give build tools caches of their own where theirs are read-only."},
		{path: "sandbox.degrade", typ: "strings", doc: "Weaker mechanisms that are accepted by name."},
		{path: "auth.writeback", typ: "string", doc: "Command that gets the login after each refresh."},
		{path: "auth.read_only_ok", typ: "bool", def: false, doc: "Accept that a refreshed login cannot be stored."},
	}
	for i := range keys {
		keys[i].ours = true
	}
	return keys
}
