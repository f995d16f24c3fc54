package policy

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
		{"deny names that look like patterns", map[string]string{home: "[sandbox]\ndeny_read = [\"/work/repo/app/[slug]/key.ts\", \"/work/repo/[b]/*.env\", \"/work/repo/what?\"]", "work/app/[slug]/key.ts": "x", "work/[b]/x.env": "x", "work/b/y.env": "x", "work/what?": "x", "work/whats": "x", "work/[x/key": "x"},
			func(s *Sources) { s.Flags.DenyRead = []string{"[b]/x.*", "/work/repo/[x/key"} },
			Permissions{Mode: "read-only"}, []string{"/work/repo/app/[slug]/key.ts", "/work/repo/[b]/x.env", "/work/repo/b/y.env", "/work/repo/what?", "/work/repo/whats", "/work/repo/[x/key"}},
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
			if got.Mode != c.want.Mode || !slices.Equal(got.Write, c.want.Write) || !cmp.Equal(got.Network.Mode, c.want.Network.Mode) ||
				!slices.Equal(got.Network.UnixSockets, c.want.Network.UnixSockets) ||
				got.Workspace != "/work/repo" {
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
