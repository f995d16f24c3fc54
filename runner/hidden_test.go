package runner

import (
	"slices"
	"strings"
	"testing"
)

func TestCodexFolders(t *testing.T) {
	for _, c := range []struct {
		home, codexHome string
		want            []string
	}{
		{"/home/u", "", []string{"/home/u/.codex"}},
		{"/home/u", "/home/u/.codex", []string{"/home/u/.codex"}},
		{"/home/u", "/srv/codex", []string{"/home/u/.codex", "/srv/codex"}},
		{"", "/srv/codex", []string{"/srv/codex"}},
		{"", "", nil},
	} {
		if got := codexFolders(c.home, c.codexHome); !slices.Equal(got, c.want) {
			t.Errorf("codexFolders(%q, %q) = %q", c.home, c.codexHome, got)
		}
	}
}

func TestInstructionsIn(t *testing.T) {
	for _, p := range instructionsIn("/home/u", "") {
		if !strings.HasPrefix(p, "/home/u/.codex/") || strings.Contains(p, "auth") {
			t.Errorf("shown: %s", p)
		}
	}
	if instructionsIn("", "") != nil {
		t.Error("something is shown without a home")
	}
}

// A server that the configuration starts from CODEX_HOME can be read; what is
// private there stays hidden, even where the configuration names a file in it.
func TestConfiguredServersShowNoSecrets(t *testing.T) {
	p := newPlace(t)
	p.write("codex/tools/server.sh", "tool")
	private := []string{"archived_sessions/a.jsonl", "sessions/a.jsonl", "log/server.log", "auth.json.bak", "history.jsonl", "p.config.toml"}
	var args []string
	for _, name := range append([]string{"tools/server.sh"}, private...) {
		args = append(args, `"`+p.home+"/"+name+`"`)
	}
	for _, name := range private {
		p.write("codex/"+name, "private")
	}
	c, o := p.confine("read-only", `mcp_servers.x.command="/bin/sh"`, "mcp_servers.x.args=["+strings.Join(args, ",")+"]")
	out, _ := p.run(c, o, "cat "+strings.Join(args, " "))
	if strings.Contains(out, "private") || !strings.HasPrefix(out, "tool") {
		t.Errorf("%s", out)
	}
}
