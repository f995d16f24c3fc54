//go:build linux

package confine

import "testing"

// Only limits of memory and processes need a look at every process.
func TestWatcherCountsWhereItMust(t *testing.T) {
	for _, c := range []struct {
		name    string
		w       *watcher
		command Limits
		want    bool
	}{
		{"disk space", &watcher{disk: 1}, Limits{}, false},
		{"disk space, and a control group for the rest", &watcher{disk: 1}, Limits{FileBytes: 1, OpenFiles: 1}, false},
		{"memory", &watcher{memory: 1}, Limits{}, true},
		{"processes", &watcher{procs: 1}, Limits{}, true},
		{"memory of a command", &watcher{disk: 1}, Limits{MemoryBytes: 1}, true},
		{"processes of a command", &watcher{}, Limits{Processes: 1}, true},
	} {
		if got := c.w.counts(map[uint32]Limits{1: {}, 2: c.command}); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
