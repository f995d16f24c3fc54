package policy

import (
	"slices"
	"strings"
)

// unusedKeys are settings of the interactive program.
func unusedKeys() []key {
	var keys []key
	add := func(doc, typ string, paths ...string) {
		for _, p := range paths {
			keys = append(keys, key{path: p, typ: typ, doc: doc, unused: true, project: free})
		}
	}
	add("Setting of the terminal interface.", "any",
		"tui.alternate_screen", "tui.animations", "tui.keymap", "tui.model_availability_nux", "tui.notification_condition",
		"tui.notification_method", "tui.notifications", "tui.pet", "tui.pet_anchor", "tui.raw_output_mode", "tui.resume_cwd",
		"tui.session_picker_view", "tui.show_mcp_startup_status", "tui.show_tooltips", "tui.status_line",
		"tui.status_line_use_colors", "tui.terminal_resize_reflow_max_rows", "tui.terminal_title", "tui.theme",
		"tui.vim_mode_default", "tui.scroll_events_per_tick", "tui.scroll_invert", "tui.scroll_mode",
		"tui.scroll_trackpad_accel_events", "tui.scroll_trackpad_accel_max", "tui.scroll_trackpad_lines", "tui.scroll_wheel_lines",
		"tui.scroll_wheel_like_max_duration_ms", "tui.scroll_wheel_tick_detect_max_ms")
	add("Remembers what the interactive program has shown.", "any", "notice")
	add("Setting of the desktop program.", "any", "desktop", "audio", "realtime")
	add("Memories are not used.", "any", "memories")
	add("Apps and plugins are not used.", "any", "apps", "plugins", "marketplaces", "tool_suggest", "apps_mcp_product_sku")
	add("There is no automatic reviewer.", "any", "auto_review", "guardian_policy_config")
	add("Nothing is sent to the vendor.", "any", "analytics", "feedback")
	add("For replaying the reference.", "any", "debug")
	add("Setting of other systems.", "any", "windows", "windows_wsl_setup_acknowledged", "ghost_snapshot")
	add("There is no history file.", "any", "history")
	add("Setting of the interactive program.", "bool",
		"hide_agent_reasoning", "show_raw_agent_reasoning", "disable_paste_burst", "check_for_update_on_startup",
		"suppress_unstable_features_warning", "experimental_use_unified_exec_tool", "experimental_use_freeform_apply_patch",
		"include_apply_patch_tool", "include_apps_instructions", "include_collaboration_mode_instructions",
		"include_environment_context", "include_permissions_instructions", "model_supports_reasoning_summaries",
		"skills.bundled.enabled", "skills.include_instructions", "tools.experimental_request_user_input.enabled")
	add("Setting of the interactive program.", "string",
		"file_opener", "personality", "model_personality", "plan_mode_reasoning_effort", "oss_provider", "commit_attribution",
		"mcp_oauth_callback_url", "mcp_oauth_credentials_store", "model_auto_compact_token_limit_scope",
		"experimental_realtime_start_instructions", "experimental_realtime_ws_backend_prompt", "experimental_realtime_ws_base_url",
		"experimental_realtime_ws_model", "experimental_realtime_ws_startup_context", "experimental_realtime_webrtc_call_base_url",
		"experimental_thread_config_endpoint")
	add("Setting of the interactive program.", "path", "log_dir", "sqlite_home", "model_catalog_json", "js_repl_node_path")
	add("Setting of the interactive program.", "int", "background_terminal_max_timeout", "tool_output_token_limit", "mcp_oauth_callback_port")
	add("Setting of the interactive program.", "any", "experimental_thread_store", "js_repl_node_module_dirs", "model_availability_nux", "zsh_path")
	for i := range keys {
		switch keys[i].path {
		case "log_dir", "sqlite_home", "apps_mcp_product_sku", "experimental_realtime_ws_base_url", "experimental_realtime_webrtc_call_base_url":
			keys[i].project = ignored
		}
	}
	return keys
}

// usedFeatures are the switches that this program acts on, otherFeatures the ones
// it only knows.
var (
	usedFeatures  = strings.Fields(`hooks shell_tool multi_agent network_proxy unified_exec apply_patch_freeform web_search_request skills request_permissions_tool enable_fanout`)
	otherFeatures = strings.Fields(`child_agents_md apps plugins memories personality fast_mode shell_snapshot enable_request_compression skill_mcp_dependency_install
		prevent_idle_sleep codex_git_commit code_mode code_mode_only rollout_budget apply_patch_streaming_events apps_mcp_path_override
		auth_elicitation browser_use browser_use_external chronicle collaboration_modes computer_use default_mode_request_user_input
		elevated_windows_sandbox enable_experimental_windows_sandbox enable_mcp_apps exec_permission_approvals
		experimental_windows_sandbox external_migration goals guardian_approval image_detail_original image_generation imagegenext
		in_app_browser js_repl js_repl_polling js_repl_tools_only local_thread_store_compression mentions_v2 multi_agent_v2
		non_prefixed_mcp_tool_names plugin_hooks plugin_sharing powershell_utf8 realtime_conversation remote_compaction_v2 remote_control
		remote_models remote_plugin request_permissions request_rule respect_system_proxy responses_websocket_response_processed
		responses_websockets responses_websockets_v2 runtime_metrics search_tool shell_zsh_fork skill_env_var_dependency_prompt sqlite
		standalone_web_search steer terminal_resize_reflow tool_call_mcp_elicitation tool_search tool_search_always_defer_mcp_tools
		tool_suggest tui_app_server unavailable_dummy_tools unbounded_connection_retries undo unified_exec_zsh_fork use_legacy_landlock
		use_linux_sandbox_bwrap web_search web_search_cached workspace_dependencies workspace_owner_usage_nudge artifact ghost_commit
		streamable_shell view_image_tool tui2`)
)

// featureAliases are older names of features.
var featureAliases = map[string]string{
	"codex_hooks": "hooks", "collab": "multi_agent", "connectors": "apps", "memory_tool": "memories", "experimental_use_unified_exec_tool": "unified_exec",
	"experimental_use_freeform_apply_patch": "apply_patch_freeform", "include_apply_patch_tool": "apply_patch_freeform", "telepathy": "chronicle",
}

// featureName resolves aliases; known tells whether the feature exists.
func featureName(name string) (canonical string, known bool) {
	if canonical, isAlias := featureAliases[name]; isAlias {
		return canonical, true
	}
	return name, slices.Contains(usedFeatures, name) || slices.Contains(otherFeatures, name)
}

func featureNames() []string { return slices.Concat(usedFeatures, otherFeatures) }
