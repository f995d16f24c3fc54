package policy

import (
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"
)

// snippets are pieces of requirement files; one of each group may stand in a
// file.
var snippets = [][]string{
	{
		"",
		`allowed_approval_policies = ["never"]`,
		`allowed_approval_policies = ["on-request", "never"]`,
		`allowed_approval_policies = [{ granular = { sandbox_approval = true, rules = true, mcp_elicitations = false } }]`,
	},
	{
		"",
		"",
		`allowed_sandbox_modes = ["read-only"]`,
		`allowed_sandbox_modes = ["read-only", "workspace-write"]`,
		`allowed_sandbox_modes = ["read-only", "danger-full-access"]`,
	},
	{
		"",
		"",
		`allowed_web_search_modes = []`,
		`allowed_web_search_modes = ["cached"]`,
		`allowed_web_search_modes = ["indexed"]`,
		`allowed_web_search_modes = ["cached", "indexed"]`,
		`allowed_web_search_modes = ["live"]`,
		`allowed_web_search_modes = ["indexed", "live"]`,
	},
	{"", "", `allow_login_shell = false`, `allow_login_shell = true`},
	{"", "", `default_permissions = ":danger-full-access"`, `default_permissions = ":read-only"`},
	{"", "", "", `enforce_residency = "us"`},
	{"", "", "", `allowed_login_methods = ["api"]`, `allowed_login_methods = ["api", "chatgpt"]`},
	{
		"",
		"",
		"",
		"[allowed_permission_profiles]\n\":read-only\" = true\n\":workspace\" = true",
		"[allowed_permission_profiles]\n\":read-only\" = true",
	},
	{"", "", "", "[features]\nnetwork_proxy = false\nweb_search_request = true", "[features]\nshell_tool = false"},
	{
		"",
		"",
		"[experimental_network]\nenabled = false",
		"[experimental_network]\nenabled = true\nallowed_domains = [\"a.example\", \"*.b.example\"]",
		"[experimental_network]\ndenied_domains = [\"c.example\"]",
		"[experimental_network]\nenabled = true\nreview_domains = [\"a.example\"]",
		"[experimental_network.domains]\n\"**.b.example\" = \"allow\"\n\"x.b.example\" = \"deny\"",
		"[experimental_network]\nallow_local_binding = false\nallow_unix_sockets = []",
		"[experimental_network]\nmanaged_allowed_domains_only = true",
	},
	{
		"",
		"",
		"[mcp_servers]",
		"[mcp_servers.one]",
		"[mcp_servers.one.identity]\ncommand = \"srv\"\n[mcp_servers.two]",
		"[mcp_servers.one.identity]\ncommand = \"other\"",
		"[mcp_servers.two.identity]\nurl = { prefix = \"https://\" }",
	},
	{
		"",
		"",
		"[rules]\nallow_unsandboxed = true",
		"[rules]\nallow_unsandboxed = false",
		"[[rules.prefix_rules]]\npattern = [{ token = \"git\" }, { any_of = [\"push\", \"fetch\"] }]\ndecision = \"forbidden\"",
		"[[rules.prefix_rules]]\npattern = [{ token = \"make\" }]\ndecision = \"prompt\"",
	},
	{"", "", "[limits]\nmax_turns = 5\nmax_wall_time = \"10m\"", "[limits]\nmax_turns = 50\nmax_cost_usd = 1.5", "[limits]\nverify_rounds = 1"},
	{
		"",
		"",
		"[sandbox]\nmemory = \"1GiB\"\nrequire = [\"resources-limited\"]",
		"[sandbox]\nprocesses = 10\ndeny_read = [\"/work/repo/secret\"]",
		"[sandbox]\nmay_drop = [\"reads-confined\"]\nallow_unsandboxed_servers = false",
		"[sandbox]\nallowed_degrade = []",
	},
	{"", "", "[permissions.filesystem]\ndeny_read = [\"/work/repo/private\"]", "[permissions.mine]\nextends = \":workspace\""},
	{"", "", "", "[[remote_sandbox_config]]\nhostname_patterns = [\"build-*\"]\nallowed_sandbox_modes = [\"read-only\"]"},
	{"", "", "", "model_providers = {}", "model_provider = \"mock\""},
}

// configs are user configurations to bound.
var configs = []string{
	"",
	"sandbox_mode = \"workspace-write\"\nweb_search = \"live\"\n[sandbox_workspace_write]\nnetwork_access = true\nwritable_roots = [\"/data\"]\n",
	"sandbox_mode = \"danger-full-access\"\n",
	"web_search = \"indexed\"\n[projects.\"/work/repo\"]\ntrust_level = \"trusted\"\n[permissions.network]\nenabled = true\nallowed_domains = [\"a.example\", \"**.b.example\"]\nallow_local_binding = true\nallow_unix_sockets = [\"/run/x.sock\"]\n",
	"default_permissions = \"mine\"\n[permissions.mine]\nextends = \":workspace\"\n[permissions.mine.filesystem]\n\"/srv/secret\" = \"deny\"\n\":slash_tmp\" = \"deny\"\n[permissions.mine.filesystem.\":workspace_roots\"]\n\"hidden\" = \"deny\"\n\".ci\" = \"read\"\n[permissions.mine.network]\nenabled = true\n[permissions.mine.network.domains]\n\"*\" = \"allow\"\n\"c.example\" = \"deny\"\n",
	"default_permissions = \":workspace\"\nweb_search = \"cached\"\n[features]\nnetwork_proxy = true\n",
	"sandbox_mode = \"workspace-write\"\n[sandbox]\nrequire = [\"writes-confined\"]\nmemory = \"4GiB\"\ndegrade = [\"landlock\"]\n[limits]\nmax_turns = 20\n[sandbox_workspace_write]\nnetwork_access = true\n[features]\nnetwork_proxy = true\n",
}

func randomRequirements(r *rand.Rand) string {
	// Tables must stand behind plain keys.
	var keys, tables []string
	for _, group := range snippets {
		if r.Intn(3) == 0 {
			continue
		}
		s := group[r.Intn(len(group))]
		if strings.HasPrefix(s, "[") {
			tables = append(tables, s)
		} else if s != "" {
			keys = append(keys, s)
		}
	}
	return strings.Join(keys, "\n") + "\n" + strings.Join(tables, "\n") + "\n"
}

// view is what a policy permits, in comparable form.
type view struct {
	mode, web, network int
	login              bool
	write, deny        []string
	require            []string
	commands           map[string]int
	hosts              map[string]bool
	servers            map[string]bool
	limits             map[string]float64
	degrade            []string
	unsandboxedServers map[string]bool
	tmp                bool
	protect            []string
}

func viewOf(t *testing.T, p *Policy) view {
	t.Helper()
	c := p.Config()
	perm, err := p.Permissions("/work/repo")
	if err != nil {
		t.Fatal(err)
	}
	v := view{
		mode:               slices.Index(ranks["sandbox_mode"], c.SandboxMode),
		web:                slices.Index(ranks["web_search"], c.WebSearch),
		network:            slices.Index([]string{"off", "proxy", "host"}, perm.Network.Mode),
		login:              c.AllowLoginShell,
		write:              perm.Write,
		deny:               perm.Deny,
		require:            c.Sandbox.Require,
		commands:           map[string]int{},
		hosts:              map[string]bool{},
		servers:            map[string]bool{},
		limits:             map[string]float64{},
		degrade:            c.Sandbox.Degrade,
		unsandboxedServers: map[string]bool{},
		tmp:                !c.Sandbox.ExcludeSlashTmp,
		protect:            perm.ProtectNames,
	}
	if c.Sandbox.Require == nil {
		v.require = slices.Clone(guarantees[:len(guarantees)-1])
	}
	if c.SandboxMode == "danger-full-access" {
		v.write, v.deny, v.require = []string{"*"}, nil, nil
	}
	outcomes := []string{Denied, Sandboxed, Unsandboxed}
	for _, script := range []string{"make all", "git push", "git status", "$X", "rm -rf x", "make > f", "npm ci"} {
		v.commands[script] = slices.Index(outcomes, p.Shell(script, "/bin/bash", false).Outcome)
		v.commands["login "+script] = slices.Index(outcomes, p.Shell(script, "/bin/bash", true).Outcome)
		v.commands["escalated "+script] = slices.Index(outcomes, p.Escalation(script, "/bin/bash", false).Outcome)
	}
	for _, host := range []string{"a.example", "b.example", "x.b.example", "y.b.example", "c.example", "other.example", "10.0.0.1"} {
		for _, method := range []string{"CONNECT", "GET", "POST", ""} {
			v.hosts[host+" "+method] = p.Host(host, 443, method).Allowed
		}
	}
	for name, s := range c.MCPServers {
		v.servers[name] = s.Enabled
		v.servers[name+"/read"] = p.MCPTool(name, "read", true, false).Outcome == Allowed
		v.servers[name+"/write"] = p.MCPTool(name, "write", false, true).Outcome == Allowed
		v.unsandboxedServers[name] = s.Enabled && s.Sandbox == "none"
	}
	l := c.Limits
	for name, n := range map[string]float64{"turns": float64(l.MaxTurns), "wall": l.MaxWallTime.Seconds(), "cost": l.MaxCostUSD, "verify": float64(l.VerifyRounds), "memory": float64(c.Sandbox.MemoryBytes), "processes": float64(c.Sandbox.Processes)} {
		if n == 0 {
			n = 1e300
		}
		v.limits[name] = n
	}
	return v
}

// widened is what b permits and a does not.
func widened(a, b view) []string {
	var out []string
	note := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if b.mode > a.mode {
		note("sandbox mode")
	}
	if b.web > a.web {
		note("web search %d > %d", b.web, a.web)
	}
	if b.network > a.network {
		note("network %d > %d", b.network, a.network)
	}
	if b.tmp && !a.tmp {
		note("/tmp")
	}
	for _, name := range a.protect {
		if !slices.Contains(b.protect, name) {
			note("protected %s", name)
		}
	}
	if b.login && !a.login {
		note("login shell")
	}
	if !slices.Equal(a.write, []string{"*"}) {
		for _, w := range b.write {
			if !slices.Contains(a.write, w) {
				note("write %s", w)
			}
		}
	}
	for _, d := range a.deny {
		if !slices.Contains(b.deny, d) {
			note("read %s", d)
		}
	}
	for _, g := range a.require {
		if !slices.Contains(b.require, g) {
			note("without %s", g)
		}
	}
	for _, d := range b.degrade {
		if !slices.Contains(a.degrade, d) {
			note("degrade %s", d)
		}
	}
	for c, n := range b.commands {
		if n > a.commands[c] {
			note("command %s: %d > %d", c, n, a.commands[c])
		}
	}
	for h, yes := range b.hosts {
		if yes && !a.hosts[h] {
			note("host %s", h)
		}
	}
	for s, yes := range b.servers {
		if yes && !a.servers[s] {
			note("server %s", s)
		}
	}
	for s, yes := range b.unsandboxedServers {
		if yes && !a.unsandboxedServers[s] {
			note("unsandboxed server %s", s)
		}
	}
	for l, n := range b.limits {
		if n > a.limits[l] {
			note("limit %s: %v > %v", l, n, a.limits[l])
		}
	}
	return out
}

// TestRequirementsNeverWiden adds a random requirements file to random layers:
// whatever the file says, nothing becomes possible that was not.
func TestRequirementsNeverWiden(t *testing.T) {
	seed := time.Now().UnixNano()
	r := rand.New(rand.NewSource(seed))
	t.Logf("seed %d", seed)
	servers := "\n[mcp_servers.one]\ncommand = \"srv\"\nsandbox = \"none\"\n[mcp_servers.one.tools.write]\napproval_mode = \"approve\"\n[mcp_servers.two]\nurl = \"https://two.example\"\n[model_providers.mock]\nbase_url = \"http://x\"\n[prices.models.\"gpt-5.5\"]\ninput = 1\noutput = 2\n"
	compared, refused := 0, 0
	for range 1200 {
		files := inMemory(map[string]string{"/work/repo/.git/HEAD": "x", "/work/repo/f": "x",
			"/home/u/.codex/config.toml":      configs[r.Intn(len(configs))] + servers,
			"/home/u/.codex/rules/x.rules":    "prefix_rule(pattern=[\"make\"])\nprefix_rule(pattern=[\"npm\", \"ci\"])\n",
			"/work/repo/.codex/rules/p.rules": "prefix_rule(pattern=[\"git\", \"status\"])\n",
			"/reqs/extra.toml":                randomRequirements(r),
			"/reqs/first.toml":                randomRequirements(r),
			"/etc/codex/requirements.toml":    map[bool]string{true: randomRequirements(r), false: ""}[r.Intn(2) == 0],
			"/etc/codex/managed_config.toml":  []string{"", "", "sandbox_mode = \"read-only\"\n", "model = \"x\"\n"}[r.Intn(4)],
		})
		src := files.sources()
		if r.Intn(2) == 0 {
			src.Requirements = []string{"/reqs/first.toml"}
		}
		before, errBefore := Load(src)
		src.Requirements = append(slices.Clone(src.Requirements), "/reqs/extra.toml")
		after, errAfter := Load(src)
		show := func() string {
			return fmt.Sprintf(
				"config:\n%s\nsystem:\n%s\nfirst (%d files):\n%s\nextra:\n%s",
				files["home/u/.codex/config.toml"].Data,
				files["etc/codex/requirements.toml"].Data,
				len(src.Requirements),
				files["reqs/first.toml"].Data,
				files["reqs/extra.toml"].Data,
			)
		}
		switch {
		case errBefore != nil && errAfter == nil:
			t.Fatalf("a further file made a refused policy load: %v\n%s", errBefore, show())
		case errAfter != nil:
			var all *Errors
			if !errors.As(errAfter, &all) || len(all.List) == 0 {
				t.Fatalf("not an *Errors: %v", errAfter)
			}
			refused++
		default:
			compared++
			if out := widened(viewOf(t, before), viewOf(t, after)); out != nil {
				t.Fatalf("a further file widened: %q\n%s", out, show())
			}
		}
	}
	t.Logf("%d compared, %d refused", compared, refused)
	if compared < 300 || refused < 100 {
		t.Errorf("%d policies compared and %d refused: the generator is out of balance", compared, refused)
	}
}
