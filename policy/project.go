package policy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// restrain takes out of a trusted project's layer whatever would loosen what the
// layers below give. What is left may only change how the work is done, or make
// a limit stricter.
func (ld *loader) restrain(l *layer, below *node) {
	l.dropped = map[string]string{}
	var names []string
	drop := func(s setting, why string) {
		name := dotted(s.path)
		if _, done := l.dropped[name]; done {
			return
		}
		l.dropped[name] = why
		l.root = l.root.without(indexless(s.path)...)
		names = append(names, s.path[0])
		ld.notice(Notice{Class: "project_ignored", Message: fmt.Sprintf("%s%s is ignored: %s", place(s.at), name, why), Origin: s.at.origin()})
	}
	for _, s := range l.found.found {
		if s.key.unused && s.key.project == free {
			continue
		}
		if s.path[0] == "mcp_servers" && len(s.path) > 2 && below.get("mcp_servers", s.path[1]) != nil {
			if !tightensServer(s, below.get("mcp_servers", s.path[1])) {
				drop(s, "a project may only restrict a server that other configuration defines")
			}
			continue
		}
		switch s.key.project {
		case free:
			if s.key.typ == "path" && s.at.kind == kString && !ld.inProject(s.at) {
				drop(s, "a project may only name files of its own")
			}
		case tighter:
			v, ok := ld.tightened(s, below)
			switch {
			case !ok:
				drop(s, "a project may only make this stricter")
			case v != s.at:
				l.root = l.root.with(v, s.path...)
			}
		case ignored:
			if s.at.kind == kTable && (s.key.typ == "table" || s.key.typ == "exporter") && len(s.at.keys) > 0 && s.key.path != "hooks" {
				continue // its members are judged one by one
			}
			drop(s, "a project file may not set it")
		}
	}
	if len(names) > 0 {
		names = unique(names)
		slices.SortStableFunc(names, func(a, b string) int { return wirePlace(a) - wirePlace(b) })
		last := len(ld.notices) - 1
		ld.notices[last].Wire = fmt.Sprintf("Ignored unsupported project-local config keys in %s: %s. "+
			"If you want these settings to apply, manually set them in your user-level config.toml.", l.path, strings.Join(names, ", "))
	}
}

// wirePlace orders names as the reference lists those that it refuses.
func wirePlace(name string) int {
	order := []string{
		"openai_base_url", "chatgpt_base_url", "apps_mcp_product_sku", "model_provider", "model_providers", "notify", "profile",
		"profiles", "experimental_realtime_webrtc_call_base_url", "experimental_realtime_ws_base_url", "otel",
	}
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}

// indexless cuts a path at its first array index: a list is dropped whole.
func indexless(path []string) []string {
	for i, p := range path {
		if at := strings.IndexByte(p, '['); at > 0 && strings.HasSuffix(p, "]") {
			return append(path[:i:i], p[:at])
		}
	}
	return path
}

// unique removes repetitions, keeping the first.
func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// inProject tells whether a path of a project's layer stays in the project.
func (ld *loader) inProject(v *node) bool {
	path := ld.resolve(v.text, v.layer)
	return within(ld.src.Files.RealPath(path), ld.src.Files.RealPath(ld.trust.root))
}

// within tells whether path is dir or below it; both are clean and absolute.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// tightensServer: of a server defined below, a project may switch off the whole
// or single tools.
func tightensServer(s setting, server *node) bool {
	switch s.path[2] {
	case "enabled":
		return !s.at.yes
	case "enabled_tools":
		now := server.get("enabled_tools")
		return now == nil || !slices.ContainsFunc(stringsOf(s.at), func(t string) bool { return !slices.Contains(stringsOf(now), t) })
	case "disabled_tools":
		// The list replaces the one below, so it must hold that.
		return !slices.ContainsFunc(stringsOf(server.get("disabled_tools")), func(t string) bool { return !slices.Contains(stringsOf(s.at), t) })
	case "required":
		return s.at.yes
	}
	return false
}

// ranks order words from strict to loose.
var ranks = map[string][]string{
	"web_search":                       {"disabled", "cached", "indexed", "live"},
	"sandbox_mode":                     {"read-only", "workspace-write", "danger-full-access"},
	"shell_environment_policy.inherit": {"none", "core", "all"},
}

// tightened is the value a project's setting may have, false if none.
func (ld *loader) tightened(s setting, below *node) (*node, bool) {
	now := below.get(s.path...)
	switch s.key.path {
	case "web_search", "sandbox_mode", "shell_environment_policy.inherit":
		order := ranks[s.key.path]
		limit, _ := s.key.def.(string)
		if s.key.path == "sandbox_mode" {
			limit = "workspace-write" // what a trusted project gets
		}
		if now != nil {
			limit = now.text
		}
		return s.at, slices.Index(order, s.at.text) <= slices.Index(order, limit)
	case "sandbox_workspace_write.network_access", "allow_login_shell", "shell_environment_policy.ignore_default_excludes":
		return s.at, !s.at.yes
	case "sandbox_workspace_write.exclude_slash_tmp", "sandbox_workspace_write.exclude_tmpdir_env_var":
		return s.at, s.at.yes
	case "features.*":
		// These two restrict while they are on.
		return s.at, !featureOn(s.at) && s.path[1] != "hooks" && s.path[1] != "network_proxy"
	case "shell_environment_policy.exclude":
		return joined(s.at, environmentList(below, "exclude")), true
	case "shell_environment_policy.include_only":
		kept := environmentList(below, "include")
		return s.at, len(kept) == 0 || !slices.ContainsFunc(stringsOf(s.at), func(p string) bool { return !slices.Contains(kept, p) })
	case "shell_environment_policy.filters.*":
		return s.at, s.at.text == "exclude" || len(environmentList(below, "include")) == 0
	case "verify", "sandbox.require", "sandbox.deny_read":
		return joined(s.at, stringsOf(now)), true
	}
	return lower(s, now)
}

// lower takes the smaller of two numbers, durations or sizes; zero is no limit.
func lower(s setting, now *node) (*node, bool) {
	mine, theirs := magnitude(s.at), magnitude(now)
	if now == nil {
		def, hasDefault := s.key.def.(int)
		if !hasDefault {
			return s.at, mine > 0
		}
		theirs = float64(def)
	}
	return s.at, mine > 0 && (theirs == 0 || mine <= theirs)
}

// magnitude is a limit as a number, 0 if there is none.
func magnitude(n *node) float64 {
	if n == nil {
		return 0
	}
	switch n.kind {
	case kInteger:
		return float64(n.number)
	case kFloat:
		return n.float
	}
	if d, err := durationOf(n); err == nil {
		return d.Seconds()
	}
	if size, err := sizeOf(n); err == nil {
		return float64(size)
	}
	return 0
}

// joined is a list with the strings of another in front.
func joined(list *node, before []string) *node {
	if len(before) == 0 {
		return list
	}
	out := *list
	out.items = nil
	for _, s := range before {
		out.items = append(out.items, &node{kind: kString, text: s, layer: list.layer, line: list.line, column: list.column})
	}
	for _, item := range list.items {
		if !slices.Contains(before, item.text) {
			out.items = append(out.items, item)
		}
	}
	return &out
}

func featureOn(v *node) bool {
	if v.kind == kTable {
		on := v.get("enabled")
		return on == nil || on.yes
	}
	return v.yes
}
