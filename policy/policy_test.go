package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// load makes a policy of files, or fails.
func load(t testing.TB, files map[string]string, change ...func(*Sources)) *Policy {
	t.Helper()
	content := map[string]string{"/work/repo/.git/HEAD": "x"}
	for name, text := range files {
		content[places.Replace(name)] = text
	}
	src := inMemory(content).sources()
	for _, f := range change {
		f(&src)
	}
	p, err := Load(src)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSampleConfiguration: every documented setting is known.
func TestSampleConfiguration(t *testing.T) {
	data, err := os.ReadFile("testdata/sample.toml")
	if err != nil {
		t.Fatal(err)
	}
	if errs := Lint("config", "config.toml", data); errs != nil {
		t.Fatalf("mistakes in the sample: %v", &Errors{List: errs})
	}
	p := load(t, map[string]string{"home/config.toml": string(data), "home/instructions.txt": "Work.", "home/compact.txt": "Sum up.", "home/agents/reviewer.toml": "model = \"small\"",
		"home/certs/ca.pem": "x", "home/certs/client.pem": "x", "home/certs/key.pem": "x"}, func(s *Sources) {
		s.Strict = true
		s.LookupEnv = func(name string) (string, bool) { return "value of " + name, true }
	})
	c := p.Config()
	if c.OTel.Logs.Headers["x-otlp-api-key"] != "value of OTLP_KEY" || c.OTel.Logs.CACertificate != "/home/u/.codex/certs/ca.pem" {
		t.Errorf("exporter: %+v", c.OTel.Logs)
	}
	if c.Agents.Roles["reviewer"].Model != "small" || c.Instructions != "Work." || c.CompactPrompt != "Sum up." {
		t.Errorf("roles %+v, instructions %q, compact prompt %q", c.Agents.Roles, c.Instructions, c.CompactPrompt)
	}
	if s := c.MCPServers["docs"]; !slices.Equal(s.EnvVars, []string{"LOCAL_TOKEN", "REMOTE_TOKEN"}) || !s.Required {
		t.Errorf("server: %+v", s)
	}
	unused := 0
	for _, n := range p.Notices() {
		if n.Class == "unused_key" {
			unused++
		}
	}
	if unused == 0 {
		t.Error("settings without effect are not told")
	}
	for _, name := range []string{"GITHUB_TOKEN", "AUTH_ENV", "OTLP_KEY"} {
		if !slices.Contains(p.SecretVariables(), name) {
			t.Errorf("%s is not among the secrets %q", name, p.SecretVariables())
		}
	}
}

// TestEveryKeyIsDocumented: the tables of keys are complete and sound.
func TestEveryKeyIsDocumented(t *testing.T) {
	for name, keys := range map[string][]key{"config": configKeys(), "requirements": requirementKeys()} {
		seen := map[string]bool{}
		for _, k := range keys {
			if k.doc == "" || k.typ == "" {
				t.Errorf("%s: %s has no text or no type", name, k.path)
			}
			if seen[k.path] {
				t.Errorf("%s: %s is listed twice", name, k.path)
			}
			seen[k.path] = true
			if m := wrongType(&node{kind: kString, text: "\x00"}, k.typ); strings.Contains(m, "unknown type") {
				t.Errorf("%s: %s: %s", name, k.path, m)
			}
		}
	}
}

// TestSchema: the published schemas are valid, accept the sample and refuse what
// Load refuses.
func TestSchema(t *testing.T) {
	compile := func(name string) *jsonschema.Schema {
		t.Helper()
		data, err := Schema(name)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource(name+".json", doc); err != nil {
			t.Fatal(err)
		}
		s, err := c.Compile(name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	validate := func(s *jsonschema.Schema, text string) error {
		t.Helper()
		var v map[string]any
		if err := toml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		return s.Validate(doc)
	}
	sample, err := os.ReadFile("testdata/sample.toml")
	if err != nil {
		t.Fatal(err)
	}
	config, requirements := compile("config"), compile("requirements")
	if err := validate(config, string(sample)); err != nil {
		t.Errorf("the sample: %v", err)
	}
	for text, ok := range map[string]bool{
		"model = \"x\"": true, "modle = \"x\"": false, "model = 3": false, "sandbox_mode = \"x\"": false, "[limits]\nmax_wall_time = \"10m\"": true, "[limits]\nmax_wall_time = \"soon\"": false,
		"[otel]\nexporter = \"none\"": true, "[profiles.a]\nmodel = \"x\"": true, "[sandbox]\nmemory = \"1GiB\"": true, "approval_policy = \"never\"": true, "[hooks]\nStop = []": true, "[hooks]\nNope = []": false,
	} {
		if err := validate(config, text); (err == nil) != ok {
			t.Errorf("config %q: %v", text, err)
		}
	}
	for text, ok := range map[string]bool{
		"allowed_sandbox_modes = [\"read-only\"]": true, "allowed_sandbox_mode = []": false, "allowed_approval_policies = []": false, "[rules]\nprefix_rules = [{ pattern = [{ token = \"a\" }], decision = \"forbidden\" }]": true,
		"[limits]\nmax_turns = 3": true, "[mcp_servers.a.identity]\ncommand = \"x\"": true,
	} {
		if err := validate(requirements, text); (err == nil) != ok {
			t.Errorf("requirements %q: %v", text, err)
		}
	}
	if _, err := Schema("other"); err == nil {
		t.Error("a schema that does not exist")
	}
}

func TestEnvironment(t *testing.T) {
	environ := []string{"PATH=/bin", "HOME=/h", "LANG=C", "LC_ALL=C", "TZ=UTC", "FOO=1", "Foo_Bar=2", "AWS_SECRET_ACCESS_KEY=s", "MY_TOKEN=s", "db_password=s", "GITHUB_ENV=/x", "GITHUB_SHA=abc", "ACTIONS_RUNTIME_URL=u",
		"OPENAI_API_KEY=s", "CODEX_API_KEY=s", "MOCK=s", "SSH_AUTH_SOCK=/s", "KEYBOARD=us", "EMPTY=", "=x", "nonsense"}
	for _, c := range []struct{ name, config, want string }{
		{"default", "", "PATH HOME LANG LC_ALL TZ FOO Foo_Bar GITHUB_SHA EMPTY"},
		{"core", "[shell_environment_policy]\ninherit = \"core\"", "PATH HOME LANG LC_ALL"},
		{"none", "[shell_environment_policy]\ninherit = \"none\"\nset = { A = \"1\" }", "A"},
		{"no default excludes", "[shell_environment_policy]\nignore_default_excludes = true", "PATH HOME LANG LC_ALL TZ FOO Foo_Bar AWS_SECRET_ACCESS_KEY MY_TOKEN db_password GITHUB_SHA KEYBOARD EMPTY"},
		{"exclude without case", "[shell_environment_policy]\nexclude = [\"foo*\", \"t?\"]", "PATH HOME LANG LC_ALL GITHUB_SHA EMPTY"},
		{"include only", "[shell_environment_policy]\ninclude_only = [\"P*\", \"foo\"]\nset = { Pet = \"1\", OTHER = \"2\" }", "PATH FOO Pet"},
		{"set goes before excludes", "[shell_environment_policy]\nset = { MY_KEY = \"1\", FOO = \"2\" }", "PATH HOME LANG LC_ALL TZ FOO Foo_Bar GITHUB_SHA EMPTY MY_KEY"},
		{"set cannot bring back the runner's", "[shell_environment_policy]\nset = { OPENAI_API_KEY = \"1\", ACTIONS_X = \"2\" }", "PATH HOME LANG LC_ALL TZ FOO Foo_Bar GITHUB_SHA EMPTY"},
		{"filters", "[shell_environment_policy.filters]\n\"FOO*\" = \"exclude\"\n\"*A*\" = \"include\"", "PATH LANG LC_ALL GITHUB_SHA"},
	} {
		p := load(t, map[string]string{"home/config.toml": c.config + "\n[model_providers.m]\nbase_url = \"http://x\"\nenv_key = \"MOCK\"\n", "etc/config.toml": "model_provider = \"m\""})
		var names []string
		for _, pair := range p.Environment(environ) {
			name, _, _ := strings.Cut(pair, "=")
			names = append(names, name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s: got %s\nwant %s", c.name, got, c.want)
		}
	}
	p := load(t, map[string]string{"home/config.toml": "[shell_environment_policy]\nset = { FOO = \"new\" }"})
	if got := p.Environment([]string{"FOO=a", "FOO=b"}); !slices.Equal(got, []string{"FOO=new"}) {
		t.Errorf("a name given twice: %q", got)
	}
}

// FuzzEnvironment: no runner's secret passes, whatever the patterns.
func FuzzEnvironment(f *testing.F) {
	f.Add("A_*", "*", "NAME", "all")
	f.Add("[", "?", "openai_api_key", "core")
	f.Fuzz(func(t *testing.T, exclude, include, name, inherit string) {
		if strings.ContainsAny(name, "=\x00") || name == "" {
			t.Skip()
		}
		p := &Policy{config: Config{Environment: EnvironmentPolicy{Inherit: inherit, Exclude: []string{exclude}, IncludeOnly: []string{include}, Set: map[string]string{name: "v"}, IgnoreDefaultExcludes: true}}, secretVariables: []string{"MOCK_KEY"}}
		for _, pair := range p.Environment([]string{"MOCK_KEY=secret", "mock_key=secret", "CODEX_API_KEY=secret", "ACTIONS_RUNTIME_TOKEN=secret", "GITHUB_ENV=secret", "Openai_Api_Key=secret", name + "=x"}) {
			if strings.HasSuffix(pair, "=secret") {
				t.Errorf("%q passes with exclude %q, include %q, inherit %q", pair, exclude, include, inherit)
			}
		}
	})
}

func TestHost(t *testing.T) {
	net := "[permissions.network]\nenabled = true\nallowed_domains = [\"a.example\", \"*.sub.example\", \"**.both.example\", \"10.1.2.3\"]\ndenied_domains = [\"bad.sub.example\"]\n"
	for _, c := range []struct {
		name, config, rules, requirements string
		allow, deny                       []string // "host" or "METHOD host"
	}{
		{"off", "", "", "", nil, []string{"a.example"}},
		{"list", net, "", "", []string{"a.example", "A.Example.", "x.sub.example", "y.x.sub.example", "both.example", "x.both.example", "10.1.2.3", "POST a.example", "SOCKS a.example"},
			[]string{"b.example", "sub.example", "bad.sub.example", "aa.example", "a.example.evil", "notboth.example", "10.1.2.4", "1.2.3.4", "", "a b"}},
		{"any", "[permissions.network]\nenabled = true\nallowed_domains = [\"*\"]\ndenied_domains = [\"**.bad.example\"]", "", "", []string{"a.example"}, []string{"bad.example", "x.bad.example", "10.0.0.1", "169.254.169.254", "::1"}},
		{"limited", strings.Replace(net, "enabled", "mode = \"limited\"\nenabled", 1), "", "", []string{"GET a.example", "HEAD a.example", "OPTIONS a.example", "get a.example"}, []string{"POST a.example", "CONNECT a.example", "SOCKS a.example"}},
		{"rules", net, "network_rule(host=\"a.example\", protocol=\"http\", decision=\"deny\", justification=\"no\")\nnetwork_rule(host=\"r.example\", protocol=\"https\", decision=\"allow\")\nnetwork_rule(host=\"p.example\", protocol=\"https\", decision=\"prompt\")", "",
			[]string{"CONNECT r.example", "x.sub.example"}, []string{"a.example", "GET a.example", "GET r.example", "p.example"}},
		{"requirements", net, "", "[experimental_network]\nallowed_domains = [\"**.sub.example\", \"b.example\"]\n", []string{"x.sub.example"}, []string{"a.example", "b.example", "both.example"}},
		{"review", net, "", "[experimental_network]\nreview_domains = [\"a.example\"]\n", []string{"x.sub.example"}, []string{"a.example"}},
		{"host network", "sandbox_mode = \"workspace-write\"\n[sandbox_workspace_write]\nnetwork_access = true", "", "", []string{"a.example", "10.0.0.1"}, nil},
		{"host network with a denial", "sandbox_mode = \"workspace-write\"\n[sandbox_workspace_write]\nnetwork_access = true", "network_rule(host=\"a.example\", protocol=\"https\", decision=\"forbidden\")", "", []string{"b.example"}, []string{"a.example"}},
		{"profile", "default_permissions = \"p\"\n[permissions.p]\nextends = \":workspace\"\n[permissions.p.network]\nenabled = true\n[permissions.p.network.domains]\n\"a.example\" = \"allow\"\n", "", "", []string{"a.example"}, []string{"b.example"}},
		{"network_proxy blocks all", "sandbox_mode = \"workspace-write\"\n[sandbox_workspace_write]\nnetwork_access = true\n[features]\nnetwork_proxy = true", "", "", nil, []string{"a.example"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := load(t, map[string]string{"home/config.toml": c.config, "home/rules/n.rules": c.rules, "etc/requirements.toml": c.requirements})
			ask := func(subject string) HostDecision {
				method, host, two := strings.Cut(subject, " ")
				if !two {
					method, host = "CONNECT", subject
				}
				if method == "SOCKS" {
					method = ""
				}
				return p.Host(host, 443, method)
			}
			for _, s := range c.allow {
				if d := ask(s); !d.Allowed {
					t.Errorf("%q is refused: %s", s, d.Reason)
				}
			}
			for _, s := range c.deny {
				if d := ask(s); d.Allowed || d.Reason == "" {
					t.Errorf("%q is allowed, or refused without a reason: %+v", s, d)
				}
			}
		})
	}
	p := load(t, map[string]string{"home/config.toml": net})
	if d := p.Host("bad.sub.example", 443, "CONNECT"); d.Origin != "/home/u/.codex/config.toml:4" || d.Rule != "bad.sub.example" {
		t.Errorf("where it was denied: %+v", d)
	}
}

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
				t.Errorf("full access %v: %s/%s read only %v destructive %v: %s %s %q, want %s", full, c.server, c.tool, c.readOnly, c.destructive, v.Outcome, v.Source, v.Reason, want)
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
	p := load(t, map[string]string{"home/config.toml": "[mcp_servers.s]\nurl = \"https://x.example/mcp\"\n", "etc/requirements.toml": "[mcp_servers.s.identity]\nurl = { prefix = \"https://x.example/\" }\n"})
	if !p.Config().MCPServers["s"].Enabled {
		t.Error("a URL with the right prefix is off")
	}
}

func TestPermissions(t *testing.T) {
	home := "home/config.toml"
	for _, c := range []struct {
		name   string
		files  map[string]string
		change func(*Sources)
		want   Permissions
		deny   []string // must be among the denied
	}{
		{"read-only", nil, nil, Permissions{Mode: "read-only"}, []string{"/home/u/.ssh", "/home/u/.codex/auth.json", "/etc/shadow"}},
		{"workspace-write", map[string]string{home: "[sandbox_workspace_write]\nwritable_roots = [\"data\", \"~/more\", \"/abs/../x\"]"}, func(s *Sources) {
			s.Flags.Sandbox, s.Flags.AddDirs = "workspace-write", []string{"/added"}
		}, Permissions{Mode: "workspace-write", Write: []string{"/work/repo", "/home/u/.codex/data", "/home/u/more", "/x", "/added"}}, nil},
		{"full", nil, func(s *Sources) { s.Flags.Bypass = true }, Permissions{Mode: "danger-full-access", Network: NetworkPermissions{Mode: "host"}}, nil},
		{"deny", map[string]string{home: "[sandbox]\ndeny_read = [\"~/secret\", \"/work/repo/**/*.env\"]", "work/a/x.env": "x", "work/.env": "x", "work/b": "x"}, func(s *Sources) { s.Flags.DenyRead = []string{"flagged"} },
			Permissions{Mode: "read-only"}, []string{"/home/u/secret", "/work/repo/a/x.env", "/work/repo/.env", "/work/repo/flagged"}},
		{"profile", map[string]string{home: "default_permissions = \"p\"\n[permissions.p]\nextends = \":workspace\"\n[permissions.p.workspace_roots]\n\"~/lib\" = true\n\"~/no\" = false\n[permissions.p.filesystem]\n\"/opt/secrets\" = \"deny\"\n\"/data\" = \"write\"\n\":tmpdir\" = \"deny\"\n[permissions.p.filesystem.\":workspace_roots\"]\n\".devcontainer\" = \"read\"\n\"generated\" = \"deny\"\n"}, nil,
			Permissions{Mode: "workspace-write", Write: []string{"/work/repo", "/home/u/lib", "/data"}}, []string{"/opt/secrets", "/work/repo/generated", "/home/u/lib/generated"}},
		{"profile without workspace", map[string]string{home: "default_permissions = \"p\"\n[permissions.p.filesystem]\n\":root\" = \"read\"\n\"/data\" = \"write\"\n"}, nil, Permissions{Mode: "workspace-write", Write: []string{"/data"}}, nil},
		{"built-in", map[string]string{home: "default_permissions = \":workspace\""}, nil, Permissions{Mode: "workspace-write", Write: []string{"/work/repo"}}, nil},
		{"proxy", map[string]string{home: "[permissions.network]\nenabled = true\nallowed_domains = [\"x.example\"]\nallow_unix_sockets = [\"/run/x.sock\"]"}, nil, Permissions{Mode: "read-only", Network: NetworkPermissions{Mode: "proxy", UnixSockets: []string{"/run/x.sock"}}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change == nil {
				c.change = func(*Sources) {}
			}
			p := load(t, c.files, c.change)
			got, err := p.Permissions("/work/repo")
			if err != nil {
				t.Fatal(err)
			}
			if c.want.Network.Mode == "" {
				c.want.Network.Mode = "off"
			}
			if got.Mode != c.want.Mode || !slices.Equal(got.Write, c.want.Write) || !cmp.Equal(got.Network.Mode, c.want.Network.Mode) || !slices.Equal(got.Network.UnixSockets, c.want.Network.UnixSockets) || got.Workspace != "/work/repo" {
				t.Errorf("got %+v\nwant %+v", got, c.want)
			}
			for _, d := range c.deny {
				if !slices.Contains(got.Deny, d) {
					t.Errorf("%s is not denied: %q", d, got.Deny)
				}
			}
			if c.name == "profile" && (!slices.Contains(got.ProtectNames, ".devcontainer") || !got.Sandbox.ExcludeSlashTmp) {
				t.Errorf("protected %q, no /tmp %v", got.ProtectNames, got.Sandbox.ExcludeSlashTmp)
			}
			if c.want.Mode != "danger-full-access" && !slices.Contains(got.ProtectNames, ".git") {
				t.Errorf("protected: %q", got.ProtectNames)
			}
		})
	}
	p := load(t, map[string]string{home: "[sandbox]\ndeny_read = [\"/work\"]"})
	if _, err := p.Permissions("/work/repo"); err == nil {
		t.Error("the workspace is denied, and nothing is said")
	}
	p = load(t, nil, func(s *Sources) { s.Cwd = "/home/u/.config/gh/work" })
	if got, err := p.Permissions("/home/u/.config/gh/work"); err != nil || slices.Contains(got.Deny, "/home/u/.config/gh") {
		t.Errorf("a workspace in a folder of credentials: %v %q", err, got.Deny)
	}
}

// TestVerdicts: what the rules say becomes the outcome of an unattended run.
func TestVerdicts(t *testing.T) {
	files := map[string]string{
		"home/rules/u.rules":        "prefix_rule(pattern=[\"make\"])\nprefix_rule(pattern=[\"git\", \"fetch\"], decision=\"prompt\", justification=\"Ask.\")\nprefix_rule(pattern=[\"curl\"], decision=\"forbidden\", justification=\"No.\")\n",
		"work/.codex/rules/p.rules": "prefix_rule(pattern=[\"npm\"])\nprefix_rule(pattern=[\"rm\"])\n",
		"home/config.toml":          "[projects.\"/work/repo\"]\ntrust_level = \"trusted\"\n",
	}
	system := map[string]string{"etc/requirements.toml": "[rules]\nallow_unsandboxed = true\n[[rules.prefix_rules]]\npattern = [{ token = \"nc\" }]\ndecision = \"forbidden\"\n"}
	for name, text := range files {
		system[name] = text
	}
	plain, granting := load(t, files), load(t, system)
	full := load(t, map[string]string{"home/rules/u.rules": files["home/rules/u.rules"]}, func(s *Sources) { s.Flags.Sandbox = "danger-full-access" })
	for _, c := range []struct {
		p                       *Policy
		script, outcome, source string
	}{
		{plain, "make x", Sandboxed, "rule"}, {granting, "make x", Unsandboxed, "rule"}, {granting, "make > x", Sandboxed, "rule"}, {granting, "npm ci", Sandboxed, "rule"}, {granting, "make && npm ci", Sandboxed, "rule"},
		{plain, "ls", Sandboxed, ""}, {plain, "git fetch", Denied, "approval"}, {plain, "curl x", Denied, "rule"}, {granting, "nc x", Denied, "requirement"}, {plain, "rm -rf x", Denied, "danger"}, {plain, "$X", Denied, "rule"},
		{full, "ls", Unsandboxed, ""}, {full, "curl x", Denied, "rule"}, {full, "rm -f x", Denied, "danger"},
	} {
		v := c.p.Shell(c.script, "/bin/bash", true)
		if v.Outcome != c.outcome || v.Source != c.source || v.Outcome == Denied && v.Reason == "" {
			t.Errorf("%q: %s by %q (%s), want %s by %q", c.script, v.Outcome, v.Source, v.Reason, c.outcome, c.source)
		}
	}
	for _, c := range []struct {
		p               *Policy
		script, outcome string
		source          string
	}{
		{plain, "ls", Denied, "approval"}, {plain, "make", Denied, "approval"}, {granting, "make", Unsandboxed, "rule"}, {granting, "ls", Denied, "approval"}, {full, "ls", Denied, "approval"}, {plain, "curl x", Denied, "rule"},
	} {
		if v := c.p.Escalation(c.script, "/bin/bash", true); v.Outcome != c.outcome || v.Source != c.source {
			t.Errorf("escalation of %q: %s by %q, want %s by %q", c.script, v.Outcome, v.Source, c.outcome, c.source)
		}
	}
	v := plain.Command([]string{"curl", "x"})
	if v.Rule != "curl" || v.Origin != "/home/u/.codex/rules/u.rules:3" || !strings.Contains(v.Reason, "No.") {
		t.Errorf("where a command was refused: %+v", v)
	}
	noLogin := load(t, map[string]string{"etc/requirements.toml": "allow_login_shell = false"})
	if v := noLogin.Shell("ls", "/bin/bash", true); v.Outcome != Denied || v.Source != "requirement" || v.Origin == "" {
		t.Errorf("a login shell: %+v", v)
	}
	if v := noLogin.Shell("ls", "/bin/bash", false); v.Outcome != Sandboxed {
		t.Errorf("a plain shell: %+v", v)
	}
	if got := granting.ForbiddenExecutables(); !slices.Equal(got, []string{"curl", "nc"}) {
		t.Errorf("forbidden executables: %q", got)
	}
}

func TestPermissionsText(t *testing.T) {
	p := load(t, map[string]string{
		"home/config.toml":   "sandbox_mode = \"workspace-write\"\n[sandbox_workspace_write]\nwritable_roots = [\"/data\"]\n[sandbox]\ndeny_read = [\"/opt/secret\"]\n[permissions.network]\nenabled = true\nallowed_domains = [\"pkg.example\"]\n",
		"home/rules/u.rules": "prefix_rule(pattern=[\"git\", [\"push\", \"fetch\"]], decision=\"forbidden\", justification=\"No pushes from CI.\")\nprefix_rule(pattern=[\"npm\", \"publish\"], decision=\"prompt\")\n",
	})
	text := p.PermissionsText()
	for _, part := range []string{"`workspace-write`", "`never`", "/work/repo", "/data", "/opt/secret", "pkg.example", "git {push,fetch}", "No pushes from CI.", "npm publish", "needs approval", ".git"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in the text for the model:\n%s", part, text)
		}
	}
	if text := load(t, nil).PermissionsText(); !strings.Contains(text, "`read-only`") || !strings.Contains(text, "network of commands is off") {
		t.Errorf("text of the default policy:\n%s", text)
	}
	if text := load(t, nil, func(s *Sources) { s.Flags.Bypass = true }).PermissionsText(); !strings.Contains(text, "`danger-full-access`") {
		t.Errorf("text without a sandbox:\n%s", text)
	}
}

func TestDigest(t *testing.T) {
	base := load(t, nil).Digest()
	if !strings.HasPrefix(base, "sha256:") || len(base) != 71 {
		t.Errorf("digest %q", base)
	}
	if other := load(t, map[string]string{"home/config.toml": "[tui]\ntheme = \"x\"\n# comment\n"}).Digest(); other != base {
		t.Error("a setting without effect changes the digest")
	}
	moved := load(t, map[string]string{"/other/repo/.git/HEAD": "x"}, func(s *Sources) { s.Cwd, s.GitRoot = "/other/repo", "" }).Digest()
	if moved != base {
		t.Error("the working folder changes the digest")
	}
	for name, text := range map[string]string{"home/config.toml": "sandbox_mode = \"workspace-write\"", "home/rules/x.rules": "prefix_rule(pattern=[\"a\"])", "etc/requirements.toml": "[experimental_network]\nallowed_domains = [\"x.example\"]"} {
		if load(t, map[string]string{name: text}).Digest() == base {
			t.Errorf("%s does not change the digest", name)
		}
	}
	secret := func(value string) string {
		return load(t, map[string]string{"home/config.toml": "model_provider = \"m\"\n[model_providers.m]\nbase_url = \"http://x\"\nexperimental_bearer_token = \"" + value + "\"\nhttp_headers = { A = \"" + value + "\" }\n"}).Digest()
	}
	if secret("one") != secret("two") {
		t.Error("a secret's value changes the digest")
	}
}

func TestExplain(t *testing.T) {
	p := load(t, map[string]string{
		"etc/config.toml": "web_search = \"cached\"", "home/config.toml": "web_search = \"live\"\nsandbox_mode = \"workspace-write\"\n[model_providers.m]\nbase_url = \"http://x\"\nexperimental_bearer_token = \"secret\"\nhttp_headers = { Authorization = \"secret\" }\n[projects.\"/work/repo\"]\ntrust_level = \"trusted\"\n",
		"work/.codex/config.toml": "sandbox_mode = \"danger-full-access\"\n",
		"etc/requirements.toml":   "allowed_web_search_modes = [\"cached\"]\nallowed_sandbox_modes = [\"read-only\"]\n",
	})
	e := p.Explain("web_search")
	if e.Value != "cached" || len(e.Layers) != 2 || len(e.Constraint) != 1 || e.Constraint[0].Origin != "/etc/codex/requirements.toml:1" {
		t.Errorf("web_search: %+v", e)
	}
	e = p.Explain("sandbox_mode")
	if e.Value != "read-only" || len(e.Layers) != 2 || e.Layers[1].Ignored == "" || e.Layers[0].Value != "workspace-write" {
		t.Errorf("sandbox_mode: %+v", e)
	}
	if e := p.Explain("sandbox_mod"); e.Known || !strings.Contains(e.Suggestion, "sandbox_mode") {
		t.Errorf("a misspelt key: %+v", e)
	}
	if e := p.Explain("tui.theme"); e.Use != "unused" {
		t.Errorf("a key without effect: %+v", e)
	}
	for _, key := range []string{"model_providers", "model_providers.m", "model_providers.m.experimental_bearer_token", "model_providers.m.http_headers"} {
		e := p.Explain(key)
		data, err := json.Marshal(e)
		if err != nil || strings.Contains(string(data), "secret") || strings.Contains(e.String(), "secret") {
			t.Errorf("%s shows a secret: %s", key, data)
		}
	}
	if got := p.Origins()["sandbox_mode"]; got != "/etc/codex/requirements.toml:2" {
		t.Errorf("origin of the sandbox mode: %q", got)
	}
}

func TestLint(t *testing.T) {
	for _, c := range []struct {
		kind, text string
		want       []string
	}{
		{"config", "modle = 1\nmodel = 2\n[mcp_servers.x]\n", []string{":1:1: unknown key", ":2:1: \"model\" must be a string", ":3:14: mcp_servers.x needs command or url"}},
		{"config", "model_provider = \"elsewhere\"\nmodel_instructions_file = \"elsewhere.md\"\n", nil},
		{"requirements", "allowed_sandbox_modes = [\"workspace-write\"]\nnosuch = 1\n[features]\nhoks = true\n[experimental_network]\nallowed_domains = [\"http://x\"]\n", []string{"must include \"read-only\"", ":2:1: unknown requirement \"nosuch\"", "unknown feature \"hoks\"", "is no host name"}},
		{"requirements", "allowed_approval_policies = [\"on-request\"]\n", nil},
		{"rules", "prefix_rule(pattern=[])\nprefix_rule(pattern=[\"a\"], match=[\"b\"])\n", []string{":1:1: prefix_rule: pattern is empty", ":2:1: prefix_rule: match example"}},
	} {
		errs := Lint(c.kind, "policy/x", []byte(c.text))
		if len(errs) != len(c.want) {
			t.Errorf("%s %q: %v", c.kind, c.text, &Errors{List: errs})
			continue
		}
		for _, w := range c.want {
			if !slices.ContainsFunc(errs, func(e *Error) bool { return strings.Contains(e.Error(), w) }) {
				t.Errorf("%s %q: no %q in %v", c.kind, c.text, w, &Errors{List: errs})
			}
		}
	}
	for path, want := range map[string]string{"a/b.rules": "rules", "requirements.toml": "requirements", "x/prod.requirements.toml": "requirements", "config.toml": "config", "ci.config.toml": "config"} {
		if got := LintKind(path); got != want {
			t.Errorf("%s is taken for %s", path, got)
		}
	}
}

func TestCompare(t *testing.T) {
	a := "allowed_sandbox_modes = [\"read-only\", \"workspace-write\"]\nallowed_web_search_modes = [\"cached\"]\n[limits]\nmax_turns = 5\n[sandbox]\ndeny_read = [\"/a\"]\n[[rules.prefix_rules]]\npattern = [{ token = \"a\" }]\ndecision = \"prompt\"\n"
	b := "allowed_sandbox_modes = [\"read-only\"]\nallowed_web_search_modes = [\"cached\", \"live\"]\n[limits]\nmax_turns = 9\n[sandbox]\ndeny_read = [\"/a\", \"/b\"]\n[mcp_servers]\n[[rules.prefix_rules]]\npattern = [{ token = \"a\" }]\ndecision = \"forbidden\"\n"
	changes, err := Compare("a.toml", []byte(a), "b.toml", []byte(b))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changes {
		got = append(got, c.Key+" "+c.Effect)
	}
	want := []string{"allowed_sandbox_modes tighter", "allowed_web_search_modes looser", "limits.max_turns looser", "mcp_servers tighter", "rules.prefix_rules a tighter", "sandbox.deny_read tighter"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if changes, err := Compare("a.toml", []byte(a), "a.toml", []byte(a)); err != nil || changes != nil {
		t.Errorf("a file compared with itself: %v %v", changes, err)
	}
	if _, err := Compare("a.toml", []byte("nosuch = 1"), "b.toml", []byte(b)); err == nil {
		t.Error("a file with mistakes is compared")
	}
	x, y := load(t, nil), load(t, map[string]string{"etc/requirements.toml": "allow_login_shell = false\nallowed_web_search_modes = []"})
	diff := Differences(x, y)
	if len(diff) < 2 || diff[0].Key != "allow_login_shell" {
		t.Errorf("differences: %+v", diff)
	}
}

func TestHooks(t *testing.T) {
	group := func(event, command string) string {
		return fmt.Sprintf("[[hooks.%s]]\nmatcher = \"x\"\n[[hooks.%s.hooks]]\ntype = \"command\"\ncommand = %q\n", event, event, command)
	}
	files := map[string]string{"etc/config.toml": group("PreToolUse", "system"), "home/config.toml": group("PreToolUse", "user") + group("Stop", "stop"), "etc/requirements.toml": group("SessionStart", "required"), "etc/managed_config.toml": group("PostToolUse", "managed"),
		"home/hooks.json": `{"hooks": {"PreToolUse": [{"matcher": "^Bash$", "hooks": [{"type": "command", "command": "json", "timeout": 3}]}]}}`}
	names := func(p *Policy) (out []string) {
		for _, h := range p.Config().Hooks {
			out = append(out, fmt.Sprintf("%s %s %s %v", h.Event, h.Command, h.OnError, h.Managed))
		}
		return out
	}
	if got, want := names(load(t, files)), []string{"SessionStart required continue true", "PreToolUse system block true", "PreToolUse user block false", "Stop stop continue false", "PostToolUse managed continue true", "PreToolUse json block false"}; !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	off := func(s *Sources) {
		s.Overrides = append(s.Overrides, Override{Key: "features.hooks", Value: "false", Flag: "--disable hooks"})
	}
	managed := []string{"SessionStart required continue true", "PreToolUse system block true", "PostToolUse managed continue true"}
	p := load(t, files, off)
	if got := names(p); !slices.Equal(got, managed) {
		t.Errorf("with hooks off: %q", got)
	}
	if !slices.ContainsFunc(p.Notices(), func(n Notice) bool { return n.Class == "hooks_off" }) {
		t.Error("nothing is said about hooks that are off")
	}
	files["etc/requirements.toml"] = "allow_managed_hooks_only = true\n" + files["etc/requirements.toml"]
	if got := names(load(t, files)); !slices.Equal(got, managed) {
		t.Errorf("with managed hooks only: %q", got)
	}
}

// TestRulesFiles: which files count, and that broken ones stop the run.
func TestRulesFiles(t *testing.T) {
	m := newMachine(t)
	m.write("etc/rules/a.rules", `prefix_rule(pattern=["system"], decision="forbidden")`)
	m.write("home/rules/a.rules", `prefix_rule(pattern=["user"], decision="forbidden")`)
	m.write("home/rules/b.txt", `nonsense`)
	m.write("home/rules/sub/c.rules", `prefix_rule(`)
	m.write("home/rules/folder.rules/d.rules", `prefix_rule(`)
	m.write("work/.codex/rules/p.rules", `prefix_rule(`)
	p, err := Load(m.sources())
	if err != nil {
		t.Fatal(err)
	}
	levels := func(p *Policy) string {
		return fmt.Sprint(p.Command([]string{"system"}).Level, p.Command([]string{"user"}).Level)
	}
	if got := levels(p); got != "forbidden forbidden" {
		t.Errorf("levels: %s", got)
	}
	src := m.sources()
	src.IgnoreRules = true
	if p, err = Load(src); err != nil || levels(p) != "forbidden none" {
		t.Errorf("ignoring rules: %v %s", err, levels(p))
	}
	m.write("home/config.toml", "[projects.\""+m.work+"\"]\ntrust_level = \"trusted\"\n")
	if _, err = Load(m.sources()); err == nil || !strings.Contains(err.Error(), "p.rules:1:") {
		t.Errorf("broken rules of a trusted project: %v", err)
	}
	if os.Getuid() != 0 {
		path := m.write("home/rules/closed.rules", "x")
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		if _, err = Load(m.sources()); err == nil || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("rules that cannot be read: %v", err)
		}
	}
	m2 := newMachine(t)
	m2.write("home/rules", "a file")
	var all *Errors
	if _, err = Load(m2.sources()); err == nil || !asErrors(err, &all) || all.Kind() != KindPolicy {
		t.Errorf("rules is a file: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(m2.etc, "config.toml"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err = Load(m2.sources()); err == nil || !strings.Contains(err.Error(), "config.toml: cannot be read") {
		t.Errorf("config.toml is a folder: %v", err)
	}
}

func asErrors(err error, target **Errors) bool {
	e, ok := err.(*Errors) //nolint:errorlint // Load returns it unwrapped
	*target = e
	return ok
}

// TestErrors: the text of errors, alone and together.
func TestErrors(t *testing.T) {
	e := &Errors{List: []*Error{{File: "f", Line: 2, Column: 3, Message: "bad"}, {Message: "worse", HintText: "do it", Kind: KindPolicy}, {File: "g", Message: "unreadable"}}}
	if e.Error() != "f:2:3: bad\nworse\ng: unreadable" || e.Hint() != "do it" || e.Kind() != KindPolicy || len(e.Unwrap()) != 3 {
		t.Errorf("%q %q %v", e.Error(), e.Hint(), e.Kind())
	}
}

// FuzzLoad: whatever stands in the files, Load gives a policy or errors with
// texts, and a further requirements file never widens.
func FuzzLoad(f *testing.F) {
	vectors, err := filepath.Glob("testdata/vectors/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, v := range vectors {
		data, err := os.ReadFile(v)
		if err != nil {
			f.Fatal(err)
		}
		_, text, _ := strings.Cut(string(data), "--\n")
		text, _, _ = strings.Cut(text, "\n-- ")
		f.Add(text+"\n", "allowed_sandbox_modes = [\"read-only\"]\n")
		f.Add("sandbox_mode = \"workspace-write\"\n", text+"\n")
	}
	f.Fuzz(func(t *testing.T, config, requirements string) {
		files := inMemory(map[string]string{"/work/repo/.git/HEAD": "x", "/home/u/.codex/config.toml": config})
		before, errBefore := Load(files.sources())
		src := files.with("/reqs/x.toml", requirements).sources()
		src.Requirements = []string{"/reqs/x.toml"}
		after, errAfter := Load(src)
		for _, err := range []error{errBefore, errAfter} {
			var all *Errors
			if err == nil {
				continue
			}
			if !asErrors(err, &all) {
				t.Fatalf("not an *Errors: %v", err)
			}
			for _, e := range all.List {
				if e.Message == "" || e.Line < 0 {
					t.Errorf("an error without text: %+v", e)
				}
			}
		}
		if errBefore != nil && errAfter == nil {
			t.Errorf("requirements made a refused configuration load: %v", errBefore)
		}
		if errBefore != nil || errAfter != nil {
			return
		}
		if _, err := before.Permissions("/work/repo"); err != nil {
			return
		}
		if out := widened(viewOf(t, before), viewOf(t, after)); out != nil {
			t.Errorf("requirements widened: %q", out)
		}
		if before.PermissionsText() == "" {
			t.Error("no text for the model")
		}
		for _, k := range before.Keys() {
			if _, err := json.Marshal(before.Explain(k)); err != nil {
				t.Errorf("%s cannot be explained: %v", k, err)
			}
		}
	})
}

// BenchmarkLoad loads 5,000 rules and 50 layers.
func BenchmarkLoad(b *testing.B) {
	content := map[string]string{"/work/repo/.git/HEAD": "x"}
	var trusted strings.Builder
	trusted.WriteString("model = \"x\"\n[projects.\"/work/repo\"]\ntrust_level = \"trusted\"\n")
	content["/home/u/.codex/config.toml"] = trusted.String()
	for i := range 20 {
		var text strings.Builder
		for n := range 250 {
			fmt.Fprintf(&text, "prefix_rule(pattern=[\"tool%d\", \"push%d\"], decision=\"forbidden\", justification=\"Not from CI.\")\n", i, n)
		}
		content[fmt.Sprintf("/home/u/.codex/rules/%d.rules", i)] = text.String()
	}
	dir := "/work/repo"
	for i := range 25 {
		content[dir+"/.codex/config.toml"] = fmt.Sprintf("model = \"m%d\"\n[limits]\nmax_turns = %d\n[mcp_servers.s%d]\ncommand = \"x\"\n", i, 1000-i, i)
		dir += fmt.Sprintf("/d%d", i)
	}
	var reqs []string
	for i := range 22 {
		name := fmt.Sprintf("/reqs/%d.toml", i)
		content[name] = fmt.Sprintf("allowed_sandbox_modes = [\"read-only\", \"workspace-write\"]\n[limits]\nmax_turns = %d\n[[rules.prefix_rules]]\npattern = [{ token = \"x%d\" }]\ndecision = \"forbidden\"\n", 500-i, i)
		reqs = append(reqs, name)
	}
	src := inMemory(content).sources()
	src.Cwd, src.Requirements = dir, reqs
	p, err := Load(src)
	if err != nil {
		b.Fatal(err)
	}
	if n := len(p.Rules().Rules()); n != 5022 || len(p.Layers()) < 47 {
		b.Fatalf("%d rules, %d layers", n, len(p.Layers()))
	}
	b.Run("load", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Load(src); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("small", func(b *testing.B) {
		small := inMemory(map[string]string{"/work/repo/.git/HEAD": "x", "/home/u/.codex/config.toml": "model = \"x\"\n"}).sources()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Load(small); err != nil {
				b.Fatal(err)
			}
		}
	})
}
