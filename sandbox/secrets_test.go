package sandbox

import (
	"slices"
	"strings"
	"testing"
)

func TestDefaultDeny(t *testing.T) {
	got := DefaultDeny("/home/u", "")
	for _, p := range []string{"/home/u/.ssh", "/home/u/.aws", "/home/u/.codex", "/home/u/.netrc", "/etc/shadow"} {
		if !slices.Contains(got, p) {
			t.Errorf("%s is missing", p)
		}
	}
	got = DefaultDeny("/home/u", "/srv/codex")
	if !slices.Contains(got, "/home/u/.codex") || !slices.Contains(got, "/srv/codex") {
		t.Errorf("another CODEX_HOME: %v", got)
	}
	for _, p := range DefaultDeny("", "") {
		if !strings.HasPrefix(p, "/etc/") && !strings.HasPrefix(p, "/var/") {
			t.Errorf("without a home: %s", p)
		}
	}
	for _, p := range DefaultReveal("/home/u", "") {
		if !strings.HasPrefix(p, "/home/u/.codex/") || strings.Contains(p, "auth") {
			t.Errorf("revealed: %s", p)
		}
	}
	if DefaultReveal("", "") != nil {
		t.Error("something is revealed without a home")
	}
}
