package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestSecretPaths(t *testing.T) {
	got := SecretPaths("/home/u")
	for _, p := range []string{"/home/u/.ssh", "/home/u/.aws", "/home/u/.netrc", "/home/u/.codex/auth.json", "/etc/shadow"} {
		if !slices.Contains(got, p) {
			t.Errorf("%s is missing", p)
		}
	}
	for _, p := range SecretPaths("") {
		if !strings.HasPrefix(p, "/etc/") && !strings.HasPrefix(p, "/var/") && !strings.HasPrefix(p, "/run/") && !strings.HasPrefix(p, "/root/") {
			t.Errorf("without a home: %s", p)
		}
	}
	if sorted := slices.Sorted(slices.Values(got)); len(slices.Compact(sorted)) != len(got) {
		t.Error("a path is listed twice")
	}
}
