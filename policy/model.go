package policy

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"time"
)

// model fills what concerns the model and its provider.
func (b *builder) model() {
	c := &b.cfg
	c.Model = b.str("model")
	if c.Model == "" {
		c.Model = "gpt-5.5"
	}
	c.ReviewModel = b.str("review_model")
	c.ReasoningEffort = b.str("model_reasoning_effort")
	c.ReasoningSummary = b.str("model_reasoning_summary")
	c.Verbosity = b.str("model_verbosity")
	switch tier := b.str("service_tier"); tier {
	case "fast", "priority":
		if b.feature("fast_mode", true) {
			c.ServiceTier = "priority"
		}
	case "flex":
		c.ServiceTier = tier
	}
	c.ContextWindow = b.integer(0, "model_context_window")
	c.CompactLimit = b.integer(0, "model_auto_compact_token_limit")
	c.ModelFallback = b.list("model_fallback")
	c.ModelProvider = b.str("model_provider")
	if c.ModelProvider == "" {
		c.ModelProvider = "openai"
	}
	if b.q.residency != nil {
		c.Residency = b.q.residency.text
	}
	b.provider()
}

func (b *builder) provider() {
	c, name := &b.cfg, b.cfg.ModelProvider
	table := b.root.get("model_providers", name)
	p := Provider{Name: name, WireAPI: "responses", RequestMaxRetries: 4, StreamMaxRetries: 5, StreamIdleTimeout: 5 * time.Minute}
	if own := b.root.get("model_providers", "openai"); own != nil {
		b.wrong(own, "model_providers.openai", "model_providers.openai: the name is built in", "set openai_base_url, or use another name")
	}
	switch {
	case name == "openai":
		p.BuiltIn, p.Name, p.RequiresOpenAIAuth = true, "OpenAI", true
		p.BaseURL = b.str("openai_base_url")
	case table == nil:
		at := b.root.get("model_provider")
		known := []string{"openai"}
		if t := b.root.get("model_providers"); t != nil {
			known = append(known, t.keys...)
		}
		hint := "define [model_providers." + name + "]"
		if near := nearest(name, known); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		b.wrong(at, "model_provider", fmt.Sprintf("model_provider %q is not defined", name), hint)
	default:
		b.providerTable(&p, name, table)
	}
	c.Provider = p
}

func (b *builder) providerTable(p *Provider, name string, table *node) {
	at := func(key string) []string { return []string{"model_providers", name, key} }
	if n := b.str(at("name")...); n != "" {
		p.Name = n
	}
	p.BaseURL, p.BearerToken = b.str(at("base_url")...), b.str(at("experimental_bearer_token")...)
	p.EnvKey, p.EnvKeyInstructions = b.str(at("env_key")...), b.str(at("env_key_instructions")...)
	p.RequiresOpenAIAuth = b.boolean(false, at("requires_openai_auth")...)
	p.HTTPHeaders, p.EnvHTTPHeaders, p.QueryParams = b.strmap(at("http_headers")...), b.strmap(at("env_http_headers")...), b.strmap(at("query_params")...)
	p.RequestMaxRetries = int(min(100, b.integer(4, at("request_max_retries")...)))
	p.StreamMaxRetries = int(min(100, b.integer(5, at("stream_max_retries")...)))
	p.StreamIdleTimeout = time.Duration(min(b.integer(300_000, at("stream_idle_timeout_ms")...), 24*3600*1000)) * time.Millisecond
	p.RetryBudget = b.duration(table.get("retry_budget"))
	if p.BaseURL == "" && !b.wasWrong(at("base_url")...) {
		b.wrong(table, "model_providers."+name, fmt.Sprintf("model_providers.%s has no base_url", name), "")
	}
	for _, key := range []string{"auth", "aws"} {
		if v := table.get(key); v != nil {
			b.wrong(v, "model_providers."+name+"."+key,
				fmt.Sprintf("model_providers.%s.%s is not supported: requests would go out without a credential", name, key),
				"use env_key")
		}
	}
}

// instructions reads the prompt files.
func (b *builder) instructions() {
	c := &b.cfg
	c.Instructions = b.str("instructions")
	if f := b.root.get("model_instructions_file"); f != nil {
		c.Instructions = b.text(f, "model_instructions_file")
	}
	c.DeveloperInstructions = b.str("developer_instructions")
	for _, v := range b.q.advice {
		if c.DeveloperInstructions != "" {
			c.DeveloperInstructions += "\n\n"
		}
		c.DeveloperInstructions += v.text
	}
	c.CompactPrompt = b.str("compact_prompt")
	if f := b.root.get("experimental_compact_prompt_file"); f != nil && c.CompactPrompt == "" {
		c.CompactPrompt = b.text(f, "experimental_compact_prompt_file")
	}
	c.ProjectDocMaxBytes = int(b.integer(32768, "project_doc_max_bytes"))
	c.ProjectDocFallbacks = b.list("project_doc_fallback_filenames")
	for _, i := range itemsOf(b.root.get("project_doc_fallback_filenames")) {
		if !filepath.IsLocal(i.text) {
			b.wrong(i, "project_doc_fallback_filenames", fmt.Sprintf("project_doc_fallback_filenames: %q leads out of the folder", i.text), "")
		}
	}
	c.ProjectRootMarkers = []string{".git"}
	if m := b.root.get("project_root_markers"); m != nil {
		c.ProjectRootMarkers = stringsOf(m)
	}
	c.ProjectTrusted, c.TrustEntry, c.ProjectRoot = b.trust.trusted, b.trust.entry, b.trust.root
	c.UpdatePlan = b.boolean(false, "tools", "update_plan", "enabled")
	c.ViewImage = b.boolean(true, "tools", "view_image") && b.feature("view_image", true)
	c.Shell = b.feature("shell_tool", true)
	c.Terminals = b.feature("unified_exec_tty", true)
	c.OutputTokens = b.integer(0, "tool_output_token_limit")
	if ms := b.integer(0, "background_terminal_max_timeout"); ms > 0 {
		c.PollTimeout = time.Duration(min(ms, math.MaxInt32)) * time.Millisecond
	}
	c.HideReasoning = b.boolean(false, "hide_agent_reasoning")
	c.NoEnvironmentContext = !b.boolean(true, "include_environment_context")
	c.NoPermissionsText = !b.boolean(true, "include_permissions_instructions")
	c.NoSkillsListing = !b.boolean(true, "skills", "include_instructions")
}

// text is the content of a file that a key names.
func (b *builder) text(v *node, key string) string {
	path := b.resolve(v.text, v.layer)
	data, err := b.src.Files.ReadFile(path)
	if err != nil {
		b.wrong(v, key, fmt.Sprintf("%s: cannot read %s: %s", key, path, reason(err)), "")
		return ""
	}
	text := strings.TrimSpace(string(data))
	if text == "" {
		b.wrong(v, key, fmt.Sprintf("%s: %s is empty", key, path), "")
	}
	return text
}
