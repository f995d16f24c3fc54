package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A policy behind a link that leads nowhere is not no policy.
func TestDanglingLinks(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "not", "mounted")
	for _, c := range []struct {
		at, to string // a link in the machine's folder
		failed bool
	}{
		{at: "etc/requirements.toml", to: nowhere, failed: true},
		{at: "etc/managed_config.toml", to: nowhere, failed: true},
		{at: "etc/rules", to: nowhere, failed: true},
		{at: "etc/rules/x.rules", to: nowhere, failed: true},
		{at: "etc", to: nowhere, failed: true},
		{at: "home/config.toml", to: nowhere, failed: true},
		{at: "home/hooks.json", to: nowhere, failed: true},
		{at: "etc/elsewhere", to: "."}, // a good link, with nothing behind it
	} {
		t.Run(c.at, func(t *testing.T) {
			m := newMachine(t)
			src := m.sources()
			src.Files = Disk{}
			path := filepath.Join(filepath.Dir(src.SystemDir), c.at)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if c.at == "etc" {
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(c.to, path); err != nil {
				t.Fatal(err)
			}
			if !c.failed {
				src.SystemDir = path
			}
			_, err := Load(src)
			if (err != nil) != c.failed {
				t.Fatalf("got %v", err)
			}
			if c.failed && !strings.Contains(err.Error(), "is a link to "+nowhere+", which does not exist") {
				t.Errorf("got %v", err)
			}
		})
	}
}
