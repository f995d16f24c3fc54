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
		"show_raw_agent_reasoning", "disable_paste_burst", "check_for_update_on_startup",
		"suppress_unstable_features_warning", "experimental_use_unified_exec_tool", "experimental_use_freeform_apply_patch",
		"include_apply_patch_tool", "include_apps_instructions", "include_collaboration_mode_instructions",
		"model_supports_reasoning_summaries",
		"skills.bundled.enabled", "tools.experimental_request_user_input.enabled")
	add("Setting of the interactive program.", "string",
		"file_opener", "personality", "model_personality", "plan_mode_reasoning_effort", "oss_provider", "commit_attribution",
		"mcp_oauth_callback_url", "mcp_oauth_credentials_store", "model_auto_compact_token_limit_scope",
		"experimental_realtime_start_instructions", "experimental_realtime_ws_backend_prompt", "experimental_realtime_ws_base_url",
		"experimental_realtime_ws_model", "experimental_realtime_ws_startup_context", "experimental_realtime_webrtc_call_base_url",
		"experimental_thread_config_endpoint")
	add("Setting of the interactive program.", "path", "log_dir", "sqlite_home", "model_catalog_json", "js_repl_node_path")
	add("Setting of the interactive program.", "int", "mcp_oauth_callback_port")
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
// it only knows: those of the reference 0.171.0 and of versions before it.
var (
	usedFeatures  = strings.Fields(`hooks shell_tool view_image unified_exec_tty fast_mode multi_agent enable_fanout`)
	otherFeatures = strings.Fields(`agent_message_board agent_message_board_mcp analytics_plan_history api_key_cyber_access_programs api_key_model_discovery
		app_server_websocket_compression apply_patch_freeform apply_patch_preserve_line_endings apply_patch_streaming_events apps
		apps_early_resource_discovery apps_mcp_path_override artifact async_compaction async_compaction_root_only auth_elicitation
		background_paginated_rollout_migration bedrock_setup_wizard browser_annotation_api browser_use browser_use_external browser_use_full_cdp_access
		catalog_apps_instructions child_agents_md chronicle cli_daybreak cli_resume_account_check code_mode code_mode_buffered_exec code_mode_host
		code_mode_host_grpc code_mode_host_output_truncation code_mode_interrupt code_mode_only code_mode_only_strict_3p_tools code_mode_prewarm
		code_mode_tool_description_first code_mode_tool_search codex_apps_mcp_2026_07_28 codex_git_commit collaboration_modes command_sessions_world_state
		compaction_image_budget computer_use concurrent_reasoning_summaries content_item_kinds context_management credential_masking critical_path_timing
		current_time_reminder cwd_relative_turn_diffs daemon_auto_start daybreak_program_propagation default_mode_request_user_input defer_mailbox_preemption
		deferred_executor deferred_tool_world_state elevated_windows_sandbox enable_experimental_windows_sandbox enable_mcp_apps enable_request_compression
		exec_permission_approvals executed_tool_call_metadata executor_capability_discovery executor_capability_discovery_v2 experimental_windows_sandbox
		external_agent_memory_import external_migration file_backed_tool_audio gateway_setup_wizard gcp_setup_wizard ghost_commit goals guardian_approval
		guardian_conversation_history_tools guardian_denial_reconsideration guardian_enhanced_node_repl_transcripts guardian_ext
		guardian_include_additional_context guardian_native_multi_agent_history guardian_nested_approval_context guardian_node_repl_transcript_images
		guardian_recorded_items guardian_reuse_parent_compaction guardian_root_handoff_context guardian_trust_orchestrator_connectors guardianv2
		guardianv2_decisions_comparison guardianv3 hosted_search_policy image_detail_original image_generation image_generation_animation image_resize_notice
		imagegenext in_app_browser in_app_chat in_app_dictation in_app_local_automation in_app_updates in_app_voice incremental_exec_tools incremental_tools
		incremental_tools_legacy incremental_tools_legacy_gcp instant_interrupt interrupt_on_cancel item_ids js_repl js_repl_polling js_repl_tools_only
		local_thread_store_compression local_thread_store_shared_compression login_shell_package_path mcp_2026_07_28 mcp_connection_sharing
		mcp_lazy_stdio_startup mcp_oauth_refresh_coordination mcp_shared_repl_cwd mcp_tool_list_changed memories mentions_v2 model_catalog_in_context
		multi_agent_mode multi_agent_v2 multi_agent_v2_dynamic_tools multi_env_copy_file multi_environment_mcp network_proxy non_prefixed_mcp_tool_names
		nonfatal_clock_read_errors omit_app_server_notification_media omit_skill_descriptions output_token_replay per_environment_context personality
		plugin_discovery_prefetch plugin_hooks plugin_sharing plugins powershell_shell_version powershell_utf8 prediction_preserve_parent_tools prefer_mxc
		prevent_idle_sleep psp realtime_conversation reasoning_effort_override recommended_plugins remote_compaction_v2 remote_control remote_models
		remote_plugin request_permissions request_permissions_tool request_rule resize_all_images respect_system_proxy responses_websocket_response_processed
		responses_websockets responses_websockets_v2 restored_history_prewarm retain_client_developer_messages retain_client_tool_outputs rollout_budget
		runtime_agent_instances runtime_metrics safe_image_decoder search_tool secret_auth_storage send_async_message send_message_to_user_async
		shell_snapshot shell_snapshot_v2 shell_zsh_fork simplified_selection_hints skill_catalog_deltas skill_env_var_dependency_prompt
		skill_mcp_dependency_install skill_search skills skip_host_skill_discovery sleep_tool sqlite stable_environment_tools standalone_web_search steer
		step_model_switching streamable_shell subagent_default_context_limits subagent_thread_environments suppress_model_change_announcements
		system_proxy_fallback terminal_resize_reflow terminal_visualization_instructions token_budget tool_call_mcp_elicitation tool_search
		tool_search_always_defer_mcp_tools tool_suggest transcript_v2 tui2 tui_app_server tui_extensions_statusline tui_multi_backend tui_workspace
		ultrafast_mode unavailable_dummy_tools unbounded_connection_retries undo unified_exec unified_exec_zsh_fork unified_image_budget
		untrusted_as_tool_output use_agent_identity use_legacy_landlock use_linux_sandbox_bwrap use_xaa utc_environment_date wake_on_agent_messages web_search
		web_search_cached web_search_request windows_sandbox_service workspace_dependencies workspace_owner_usage_nudge worktrees write_stdin_approval`)
)

// featureAliases are older names of features.
var featureAliases = map[string]string{
	"codex_hooks": "hooks", "collab": "multi_agent", "connectors": "apps", "memory_tool": "memories", "view_image_tool": "view_image",
	"web_search": "web_search_request", "experimental_use_unified_exec_tool": "unified_exec",
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
