package rollout

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSweepLocks: the lock files of dead runners go, those of live ones stay.
func TestSweepLocks(t *testing.T) {
	s := &Store{Home: t.TempDir()}
	live, err := s.Create(Meta{Cwd: "/w"})
	check(t, err)
	dir := filepath.Join(s.Home, lockFolder)
	for _, name := range []string{"dead.lock", "other.txt"} {
		check(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	next, err := s.Create(Meta{Cwd: "/w"})
	check(t, err)
	for name, want := range map[string]bool{"dead.lock": false, "other.txt": true, live.ID() + ".lock": true, next.ID() + ".lock": true, coordination: true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", name, err, want)
		}
	}
	check(t, live.Close())
	check(t, next.Close())
}
