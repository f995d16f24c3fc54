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
