package policy

import "strings"

// requirementKeys are all keys of requirements.toml. An unknown key is an
// error: a misspelt limit is no limit.
func requirementKeys() []key {
	n := "experimental_network."
	r := "rules.prefix_rules[]."
	keys := []key{
		{
			path: "allowed_approval_policies",
			typ:  "approvals",
			doc:  "Approval policies that may be in force. An unattended run never asks, so the list must hold never or a granular policy.",
		},
		{
			path: "allowed_approvals_reviewers",
			typ:  "enums:user|auto_review|guardian_subagent",
			doc:  "Who may review. There is no automatic reviewer here.",
		},
		{
			path: "allowed_sandbox_modes",
			typ:  "enums:read-only|workspace-write|danger-full-access|external-sandbox",
			doc:  "Sandbox modes that may be used; must hold read-only.",
		},
		{
			path: "remote_sandbox_config",
			typ:  "tables",
			doc:  "Other sandbox modes by host name; the first entry that fits replaces the list of the same file.",
		},
		{path: "remote_sandbox_config[].hostname_patterns", typ: "strings", doc: "Patterns of host names."},
		{
			path: "remote_sandbox_config[].allowed_sandbox_modes",
			typ:  "enums:read-only|workspace-write|danger-full-access|external-sandbox",
			doc:  "Sandbox modes there.",
		},
		{path: "default_permissions", typ: "string", doc: "Permission profile that is in force."},
		{path: "allowed_permission_profiles", typ: "table", doc: "Permission profiles that may be chosen."},
		{path: "allowed_permission_profiles.*", typ: "bool", doc: "true allows the profile."},
		{path: "permissions.filesystem.deny_read", typ: "strings", doc: "Paths commands cannot read; files add up."},
		{path: "allow_login_shell", typ: "bool", doc: "false: no login shells."},
		{path: "allowed_web_search_modes", typ: "enums:disabled|cached|indexed|live", doc: "Web search modes that may be used; disabled always may."},
		{path: n + "enabled", typ: "bool", doc: "false: no network for commands. true: only through the proxy."},
		{path: n + "domains.*", typ: "enum:allow|deny", doc: "Hosts by name; allowed ones are all that may be reached."},
		{path: n + "review_domains", typ: "any", doc: "Hosts that need a review; nobody reviews, so they are denied."},
		{path: n + "allowed_domains", typ: "strings", doc: "Hosts that may be reached; nothing else may."},
		{path: n + "denied_domains", typ: "strings", doc: "Hosts that may not be reached."},
		{path: n + "managed_allowed_domains_only", typ: "bool", doc: "Always so here: allowed hosts of requirements are all that may be reached."},
		{path: n + "unix_sockets.*", typ: "enum:allow|deny|none", doc: "Host sockets that may stay reachable."},
		{path: n + "allow_unix_sockets", typ: "strings", doc: "Older form of unix_sockets."},
		{path: n + "allow_local_binding", typ: "bool", doc: "false: no local or private addresses through the proxy."},
		{path: n + "header_injections", typ: "any", doc: "Cannot be done here: connections are not intercepted."},
		{path: "rules", typ: "table", doc: "Rules on commands."},
		{
			path: "rules.allow_unsandboxed",
			typ:  "bool",
			ours: true,
			doc:  "Allow rules may take commands out of the sandbox. Only the system's own file can say true; any file can say false.",
		},
		{path: "rules.prefix_rules", typ: "tables", doc: "Rules that prompt or forbid."},
		{path: r + "pattern", typ: "tables", doc: "One entry for each word: token or any_of."},
		{path: r + "pattern[].token", typ: "string", doc: "The word."},
		{path: r + "pattern[].any_of", typ: "strings", doc: "The words that may stand there."},
		{path: r + "decision", typ: "enum:prompt|prompt-user|forbidden|allow", doc: "prompt, prompt-user or forbidden."},
		{path: r + "justification", typ: "string", doc: "What to tell the model."},
		{path: r + "canonical_matching", typ: "bool", doc: "Accepted; paths and wrappers are always resolved."},
		{path: r + "reviewer", typ: "string", doc: "Accepted for prompts; nobody reviews."},
		{path: "hooks", typ: "table", doc: "Hooks that always run."},
		{path: "hooks.managed_dir", typ: "path", doc: "Folder of managed hooks."},
		{path: "hooks.windows_managed_dir", typ: "string", unused: true, doc: "For another system."},
		{path: "allow_managed_hooks_only", typ: "bool", doc: "Hooks of users do not run."},
		{path: "features", typ: "table", doc: "Switches with a fixed value."},
		{path: "features.*", typ: "bool", doc: "The fixed value."},
		{path: "feature_requirements", typ: "table", doc: "Older name of features."},
		{path: "feature_requirements.*", typ: "bool", doc: "The fixed value."},
		{path: "mcp_servers", typ: "table", doc: "The only MCP servers that may run, by name and identity."},
		{path: "mcp_servers.*.identity", typ: "table", doc: "What the server must be: command or url."},
		{path: "mcp_servers.*.identity.command", typ: "any", doc: "Its program, exactly; or a table executable, args."},
		{path: "mcp_servers.*.identity.args", typ: "any", doc: "Its arguments: a list, each exact or { prefix } or { regex }."},
		{path: "mcp_servers.*.identity.url", typ: "any", doc: "Its address, exactly, or { exact }, { prefix } or { regex }."},
		{path: "enforce_residency", typ: "enum:us", doc: "Region of the service."},
		{path: "allowed_login_methods", typ: "enums:chatgpt|api", doc: "Logins that may be used."},
		{path: "allowed_chatgpt_workspaces", typ: "strings", doc: "Workspaces that may be used."},
		{path: "cli_auth_credentials_store", typ: "enum:file|keyring|auto|ephemeral", doc: "Where the login must be stored."},
		{path: "chatgpt_base_url", typ: "string", doc: "Base URL of the ChatGPT backend."},
		{path: "model_provider", typ: "string", doc: "The only provider that may be used."},
		{path: "models.new_thread.model", typ: "string", doc: "Default model."},
		{path: "models.new_thread.model_reasoning_effort", typ: "string", doc: "Default effort."},
		{path: "models.new_thread.service_tier", typ: "enum:auto|default|fast|flex|priority", doc: "Default tier."},
		{path: "additional_developer_instructions", typ: "string", doc: "Instructions added for the model."},
		{path: "sandbox.require", typ: "guarantees", ours: true, doc: "Guarantees without which no run starts."},
		{
			path: "sandbox.may_drop",
			typ:  "guarantees",
			ours: true,
			doc:  "Default guarantees that a configuration may do without. Only the system's own file can grant it.",
		},
		{path: "sandbox.allowed_degrade", typ: "strings", ours: true, doc: "Weaker mechanisms that a user may accept by name."},
		{path: "sandbox.deny_read", typ: "strings", ours: true, doc: "As permissions.filesystem.deny_read."},
		{path: "sandbox.allow_unsandboxed_servers", typ: "bool", ours: true, doc: "false: MCP servers run in the sandbox."},
		{path: "sandbox.memory", typ: "size", ours: true, doc: "Most memory of a command's tree."},
		{path: "sandbox.processes", typ: "int", ours: true, doc: "Most processes of a command's tree."},
		{path: "sandbox.cpu", typ: "int", ours: true, doc: "Most CPU in percent of one core."},
		{path: "sandbox.file_size", typ: "size", ours: true, doc: "Largest file."},
	}
	for _, p := range modelKeys() {
		if strings.HasPrefix(p.path, "model_providers") {
			keys = append(keys, key{path: p.path, typ: p.typ, doc: p.doc, unused: p.unused, ours: p.ours})
		}
	}
	for _, p := range sandboxKeys() {
		if strings.HasPrefix(p.path, "permissions.*.") {
			keys = append(keys, key{path: p.path, typ: p.typ, doc: p.doc, unused: p.unused})
		}
	}
	for _, p := range telemetryKeys() {
		keys = append(keys, key{path: p.path, typ: p.typ, doc: p.doc, unused: p.unused, ours: p.ours})
	}
	for _, p := range extensionKeys() {
		if name, isHook := strings.CutPrefix(p.path, "hooks."); isHook && name != "state" {
			keys = append(keys, key{path: p.path, typ: p.typ, doc: p.doc, unused: p.unused, ours: p.ours})
		}
	}
	for _, p := range ownKeys() {
		name, isLimit := strings.CutPrefix(p.path, "limits.")
		if isLimit && name != "no_final_answer" {
			keys = append(keys, key{path: p.path, typ: p.typ, doc: "Most that a run may use: " + p.doc, ours: true})
		}
	}
	unused := func(doc, typ string, paths ...string) {
		for _, p := range paths {
			keys = append(keys, key{path: p, typ: typ, doc: doc, unused: true})
		}
	}
	unused("The proxy's own settings are fixed here.", "any",
		n+"http_port", n+"socks_port", n+"allow_upstream_proxy", n+"dangerously_allow_non_loopback_proxy",
		n+"dangerously_allow_all_unix_sockets")
	unused("For another system.", "any", "windows")
	unused("Plugins, marketplaces and apps are not used.", "any", "plugins", "marketplaces", "apps")
	unused("Nothing is read from a server.", "any", "config_server")
	unused("Setting of the interactive program.", "any",
		"model_catalog_json", "log_dir", "sqlite_home", "unsafe_enforce_sqlite_journal_mode", "feedback",
		"check_for_update_on_startup", "auto_review", "guardian_policy_config", "guardian_extra_policy", "application",
		"allow_remote_control", "allow_appshots", "allow_browser_and_computer_use", "browser_use", "computer_use", "in_app_browser")
	return keys
}
