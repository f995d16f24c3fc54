package policy

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMCPTool(t *testing.T) {
	config := `
[mcp_servers.auto]
command = "x"
[mcp_servers.prompt]
command = "x"
default_tools_approval_mode = "prompt"
[mcp_servers.approve]
command = "x"
default_tools_approval_mode = "approve"
disabled_tools = ["off"]
[mcp_servers.approve.tools.ask]
approval_mode = "prompt"
[mcp_servers.some]
command = "x"
enabled_tools = ["one"]
[mcp_servers.gone]
command = "x"
enabled = false
[mcp_servers.forbidden]
command = "x"
`
	requirements := "[mcp_servers.auto]\n[mcp_servers.prompt]\n[mcp_servers.approve]\n[mcp_servers.some]\n[mcp_servers.gone]\n"
	for _, full := range []bool{false, true} {
		p := load(t, map[string]string{"home/config.toml": config, "etc/requirements.toml": requirements}, func(s *Sources) {
			if full {
				s.Flags.Sandbox = "danger-full-access"
			}
		})
		for _, c := range []struct {
			server, tool          string
			readOnly, destructive bool
			want, wantFull        string // allowed, or the source of the refusal
		}{
			{"auto", "t", true, false, Allowed, Allowed}, {"auto", "t", false, false, "approval", Allowed}, {"auto", "t", false, true, "approval", Allowed}, {"auto", "t", true, true, "approval", Allowed},
			{"prompt", "t", true, false, "approval", Allowed}, {"prompt", "t", false, true, "approval", Allowed},
			{"approve", "t", true, false, Allowed, Allowed}, {"approve", "t", false, false, Allowed, Allowed}, {"approve", "t", false, true, Allowed, Allowed}, {"approve", "ask", true, false, "approval", Allowed},
			{"approve", "off", true, false, "rule", "rule"}, {"some", "two", true, false, "rule", "rule"}, {"some", "one", true, false, Allowed, Allowed},
			{"gone", "t", true, false, "rule", "rule"}, {"none", "t", true, false, "rule", "rule"}, {"forbidden", "t", true, false, "requirement", "requirement"},
		} {
			want := c.want
			if full {
				want = c.wantFull
			}
			v := p.MCPTool(c.server, c.tool, c.readOnly, c.destructive)
			if got := v.Outcome; got == Denied && v.Source != want || got == Allowed && want != Allowed || got == Denied && v.Reason == "" {
				t.Errorf(
					"full access %v: %s/%s read only %v destructive %v: %s %s %q, want %s",
					full,
					c.server,
					c.tool,
					c.readOnly,
					c.destructive,
					v.Outcome,
					v.Source,
					v.Reason,
					want,
				)
			}
		}
	}
}

func TestIdentity(t *testing.T) {
	server := "[mcp_servers.s]\ncommand = \"srv\"\nargs = [\"--port\", \"80\"]\n"
	for identity, on := range map[string]bool{
		`{ command = "srv" }`: true, `{ command = "/bin/srv" }`: false, `{ url = "http://x" }`: false, `{ command = "srv", url = "http://y" }`: true,
		`{ command = "srv", args = ["--port", "80"] }`: true, `{ command = "srv", args = ["--port"] }`: false, `{ command = "srv", args = ["--port", { regex = "[0-9]+" }] }`: true,
		`{ command = "srv", args = ["--port", { regex = "8" }] }`: false, `{ command = "srv", args = ["--port", { prefix = "8" }] }`: true, `{ command = { executable = "srv", args = ["--port", { exact = "80" }] } }`: true,
	} {
		p := load(t, map[string]string{"home/config.toml": server, "etc/requirements.toml": "[mcp_servers.s]\nidentity = " + identity + "\n"})
		if s := p.Config().MCPServers["s"]; s.Enabled != on || on != (s.DisabledBy == "") {
			t.Errorf("identity %s: enabled %v by %q", identity, s.Enabled, s.DisabledBy)
		}
	}
	p := load(
		t,
		map[string]string{
			"home/config.toml":      "[mcp_servers.s]\nurl = \"https://x.example/mcp\"\n",
			"etc/requirements.toml": "[mcp_servers.s.identity]\nurl = { prefix = \"https://x.example/\" }\n",
		},
	)
	if !p.Config().MCPServers["s"].Enabled {
		t.Error("a URL with the right prefix is off")
	}
}

// A token in the file is refused: without it, the server would be asked as
// nobody. A working folder that is not absolute is left to the run, whose
// folder it is below.
func TestMCPServerKeys(t *testing.T) {
	server := "[mcp_servers.s]\nurl = \"https://x.example/mcp\"\nbearer_token = \"tok-123456\"\n"
	m := newMachine(t)
	m.write("home/config.toml", server)
	_, err := Load(m.sources())
	if err == nil || !strings.Contains(err.Error(), ":3:1: mcp_servers.s has a bearer_token") || strings.Contains(err.Error(), "tok-123456") {
		t.Errorf("%v", err)
	}
	for cwd, want := range map[string]string{"tools": "tools", "../x": "../x", "/srv": "/srv"} {
		p := load(t, map[string]string{"home/config.toml": "[mcp_servers.s]\ncommand = \"x\"\ncwd = \"" + cwd + "\"\n"})
		if got := p.Config().MCPServers["s"].Cwd; got != want {
			t.Errorf("cwd %q is %q, want %q", cwd, got, want)
		}
	}
}

// A variable of a telemetry header that is not set is told at the start.
func TestTelemetryVariableUnset(t *testing.T) {
	exporter := "[otel.exporter.otlp-http]\nendpoint = \"http://x.example\"\nprotocol = \"json\"\nheaders = { a = \"${SET}\", b = \"${UNSET}\" }\n"
	p := load(t, map[string]string{"home/config.toml": exporter}, func(s *Sources) {
		s.LookupEnv = func(name string) (string, bool) { return "v", name == "SET" }
	})
	n := slices.DeleteFunc(slices.Clone(p.Notices()), func(n Notice) bool { return n.Class != "otel_variable_unset" })
	if len(n) != 1 || !strings.Contains(n[0].Message, "header b comes from the variable UNSET") {
		t.Errorf("%+v", p.Notices())
	}
}

// A matcher that means commands and never sees one is told.
func TestBlindMatchers(t *testing.T) {
	for matcher, blind := range map[string]bool{"exec_command": true, "shell|Write": true, "exec.*": true, "Bash": false, "Bash|exec_command": false, ".*": false, "*": false, "": false, "apply_patch": false, "mcp__.*": false, "Edit|Write": false} {
		p := load(t, map[string]string{"home/config.toml": "[[hooks.PreToolUse]]\nmatcher = \"" + matcher + "\"\nhooks = [{ type = \"command\", command = \"x\" }]\n"})
		if told := slices.ContainsFunc(p.Notices(), func(n Notice) bool { return n.Class == "hook_matcher" }); told != blind {
			t.Errorf("matcher %q: told %v, want %v", matcher, told, blind)
		}
		if got := p.Config().Hooks[0].Timeout; got != 10*time.Minute {
			t.Errorf("a hook that names no time has %v", got)
		}
	}
}
