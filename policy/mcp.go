package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// mcp fills MCPServers and switches off what requirements do not name.
func (b *builder) mcp() {
	table := b.root.get("mcp_servers")
	if table == nil {
		return
	}
	b.cfg.MCPServers = map[string]MCPServer{}
	for _, name := range table.keys {
		if s, ok := b.server(name, table.fields[name]); ok {
			b.cfg.MCPServers[name] = b.identified(s, table.fields[name])
		}
	}
}

func (b *builder) server(name string, v *node) (MCPServer, bool) {
	at := func(key string) []string { return []string{"mcp_servers", name, key} }
	bad := func(at *node, format string, args ...any) {
		b.wrong(at, "mcp_servers."+name, fmt.Sprintf("mcp_servers.%s ", name)+fmt.Sprintf(format, args...), "")
	}
	s := MCPServer{
		Name: name, Origin: v.origin(), Enabled: b.boolean(true, at("enabled")...), Required: b.boolean(false, at("required")...),
		Command: b.str(at("command")...), Args: b.list(at("args")...), Env: b.strmap(at("env")...),
		URL: b.str(at("url")...), BearerTokenEnvVar: b.str(at("bearer_token_env_var")...),
		HTTPHeaders: b.strmap(at("http_headers")...), EnvHTTPHeaders: b.strmap(at("env_http_headers")...),
		DisabledTools: b.list(at("disabled_tools")...), DefaultApproval: "auto", ToolApproval: map[string]string{},
		StartupTimeout: seconds(v.get("startup_timeout_sec"), 10*time.Second), ToolTimeout: seconds(v.get("tool_timeout_sec"), time.Minute),
	}
	if ms := v.get("startup_timeout_ms"); ms != nil && v.get("startup_timeout_sec") == nil {
		s.StartupTimeout = time.Duration(min(ms.number, longest.Milliseconds())) * time.Millisecond
	}
	if t := v.get("enabled_tools"); t != nil {
		s.EnabledTools = append([]string{}, stringsOf(t)...)
	}
	if c := v.get("cwd"); c != nil {
		// A relative one is below the working folder of the run, not beside the file.
		if s.Cwd = c.text; strings.HasPrefix(c.text, "~") {
			s.Cwd = b.resolve(c.text, c.layer)
		}
	}
	if m := v.get("default_tools_approval_mode"); m != nil {
		s.DefaultApproval = m.text
	}
	if tools := v.get("tools"); tools != nil {
		for _, tool := range tools.keys {
			if m := tools.fields[tool].get("approval_mode"); m != nil {
				s.ToolApproval[tool] = m.text
			}
		}
	}
	for _, e := range itemsOf(v.get("env_vars")) {
		name := e.text
		if e.kind == kTable {
			name = ""
			if n := e.get("name"); n != nil {
				name = n.text
			}
		}
		if name == "" {
			bad(e, "has an env_vars entry without a name")
			continue
		}
		s.EnvVars = append(s.EnvVars, name)
	}
	if m := v.get("sandbox"); m != nil && m.text == "none" {
		if b.q.serversInside != nil {
			b.notice(Notice{Class: "requirement_fallback", Origin: b.q.serversInside.origin(),
				Message: fmt.Sprintf("%smcp_servers.%s runs in the sandbox by requirements (set by %s)", place(m), name, b.q.serversInside.origin())})
		} else {
			s.Sandbox = "none"
		}
	}
	if t := v.get("bearer_token"); t != nil {
		// Passed over, the server would be asked without its credential.
		b.wrong(t, "mcp_servers."+name, fmt.Sprintf("mcp_servers.%s has a bearer_token, and a token does not belong in this file", name),
			"put the token into a variable of the job, and name that in bearer_token_env_var")
	}
	if why := transportMistake(s); why != "" {
		if !b.wasWrong(at("command")...) && !b.wasWrong(at("url")...) {
			bad(v, "%s", why)
		}
		return s, false
	}
	return s, true
}

// transportMistake is what is wrong with the transport of a server, "" if
// nothing is.
func transportMistake(s MCPServer) string {
	stdio, http := s.Command != "", s.URL != ""
	switch {
	case stdio && http:
		return "has both command and url; it needs one"
	case !stdio && !http:
		return "needs command or url"
	case stdio && (s.BearerTokenEnvVar != "" || len(s.HTTPHeaders)+len(s.EnvHTTPHeaders) > 0):
		return "is a stdio server and cannot have HTTP headers"
	case http && (len(s.Args)+len(s.Env)+len(s.EnvVars) > 0 || s.Cwd != ""):
		return "is an HTTP server and cannot have args, env or cwd"
	}
	return ""
}

func itemsOf(v *node) []*node {
	if v == nil {
		return nil
	}
	return v.items
}

// identified compares a server with the lists of requirements: it must be on
// each, and be what each says it is.
func (b *builder) identified(s MCPServer, at *node) MCPServer {
	if !s.Enabled {
		return s
	}
	for _, list := range b.q.servers {
		id, listed := list.identities[s.Name]
		why := ""
		origin := list.at.origin()
		switch {
		case !listed:
			why = "is not on the list of allowed servers"
		case id != nil:
			origin = id.origin()
			why = identityMismatch(s, id)
		}
		if why == "" {
			continue
		}
		s.Enabled, s.DisabledBy = false, origin
		if s.Required {
			b.violated(at, "mcp_servers."+s.Name,
				fmt.Sprintf("MCP server %q is required, but %s (set by %s)", s.Name, why, origin),
				"remove required, or ask for the server to be allowed")
		} else {
			b.notice(Notice{Class: "mcp_disabled", Origin: origin,
				Message: fmt.Sprintf("MCP server %q is off by requirements: it %s (set by %s)", s.Name, why, origin)})
		}
		return s
	}
	return s
}

// badIdentity is what is wrong with an identity, "" if nothing is.
func badIdentity(id *node) string {
	if id.kind != kTable {
		return "must be a table"
	}
	command, url := id.get("command"), id.get("url")
	switch {
	case command == nil && url == nil:
		return "needs command or url"
	case command != nil && command.kind == kString, command == nil:
	case command.kind == kTable && command.get("executable") != nil && command.get("executable").kind == kString:
	default:
		return "has a command that is neither a string nor a table with executable"
	}
	matchers := append([]*node{}, itemsOf(identityArgs(id))...)
	if url != nil {
		matchers = append(matchers, url)
	}
	for _, m := range matchers {
		if message := badMatcher(m); message != "" {
			return message
		}
	}
	if args := identityArgs(id); args != nil && args.kind != kArray {
		return "has args that are not a list"
	}
	return ""
}

// identityArgs is the list of argument matchers, wherever it is written.
func identityArgs(id *node) *node {
	if a := id.get("args"); a != nil {
		return a
	}
	return id.get("command", "args")
}

func badMatcher(m *node) string {
	if m.kind == kString {
		return ""
	}
	if m.kind != kTable || len(m.keys) != 1 {
		return "has a matcher that is neither a string nor one of exact, prefix, regex"
	}
	v := m.fields[m.keys[0]]
	if v.kind != kString {
		return "has a matcher that is not a string"
	}
	switch m.keys[0] {
	case "exact", "prefix":
	case "regex":
		if _, err := regexp.Compile(v.text); err != nil {
			return fmt.Sprintf("has the invalid expression %q", v.text)
		}
	default:
		return "has a matcher that is neither a string nor one of exact, prefix, regex"
	}
	return ""
}

// matches compares a value with a matcher: exact unless it says otherwise.
func matches(m *node, value string) bool {
	if m.kind == kString {
		return m.text == value
	}
	if len(m.keys) != 1 {
		return false
	}
	want := m.fields[m.keys[0]].text
	switch m.keys[0] {
	case "exact":
		return value == want
	case "prefix":
		return strings.HasPrefix(value, want)
	case "regex":
		re, err := regexp.Compile(`\A(?:` + want + `)\z`)
		return err == nil && re.MatchString(value)
	}
	return false
}

// identityMismatch says how a server differs from its identity, "" if it does
// not. An identity with both a command and a URL is read as the command.
func identityMismatch(s MCPServer, id *node) string {
	if command := id.get("command"); command != nil {
		want := command.text
		if command.kind == kTable {
			want = command.get("executable").text
		}
		if s.Command != want {
			return fmt.Sprintf("does not run %q", want)
		}
		if args := identityArgs(id); args != nil {
			if len(args.items) != len(s.Args) {
				return "has other arguments than allowed"
			}
			for i, m := range args.items {
				if !matches(m, s.Args[i]) {
					return "has other arguments than allowed"
				}
			}
		}
		return ""
	}
	if url := id.get("url"); url != nil && !matches(url, s.URL) {
		return "has another address than allowed"
	}
	return ""
}

// MCPTool decides on a call of an MCP tool. Nobody can approve, so a tool runs
// if its configuration approves it, or if it only reads; under full access every
// tool runs.
func (p *Policy) MCPTool(server, tool string, readOnlyHint, destructiveHint bool) Verdict {
	s, ok := p.config.MCPServers[server]
	key := "mcp_servers." + server
	deny := func(source, reason, rule, origin string) Verdict {
		return Verdict{Outcome: Denied, Source: source, Reason: reason, Rule: rule, Origin: origin}
	}
	switch {
	case !ok:
		return deny("rule", fmt.Sprintf("there is no MCP server %q", server), key, "")
	case s.DisabledBy != "":
		return deny("requirement", fmt.Sprintf("MCP server %q is off by requirements", server), "mcp_servers", s.DisabledBy)
	case !s.Enabled:
		return deny("rule", fmt.Sprintf("MCP server %q is off", server), key+".enabled", p.origins[key+".enabled"])
	case slices.Contains(s.DisabledTools, tool):
		return deny("rule", fmt.Sprintf("tool %q of MCP server %q is off", tool, server), key+".disabled_tools", p.origins[key+".disabled_tools"])
	case s.EnabledTools != nil && !slices.Contains(s.EnabledTools, tool):
		return deny("rule", fmt.Sprintf("tool %q of MCP server %q is not on its list of tools", tool, server), key+".enabled_tools", p.origins[key+".enabled_tools"])
	}
	mode, rule := s.DefaultApproval, key+".default_tools_approval_mode"
	if m, set := s.ToolApproval[tool]; set {
		mode, rule = m, key+".tools."+dotted([]string{tool})+".approval_mode"
	}
	allow := Verdict{Outcome: Allowed, Source: "rule", Rule: rule, Origin: p.origins[rule]}
	switch {
	case mode == "approve", p.config.SandboxMode == "danger-full-access":
		return allow
	case mode == "auto" && readOnlyHint && !destructiveHint:
		return allow
	}
	why := "does not say that it only reads"
	switch {
	case mode == "prompt":
		why = "is set to ask first"
	case destructiveHint:
		why = "says that it changes things for good"
	}
	return deny("approval", fmt.Sprintf("MCP tool %s/%s %s, so it needs approval, and nobody can be asked", server, tool, why), rule, p.origins[rule])
}
