//go:build linux

package sandbox

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"
)

// leastReserve is how many processes and threads are kept for the runner and
// what else its user does; of much room it is an eighth.
const leastReserve = 32

// withinRoom lowers a limit of processes so that commands cannot use up what the
// user or the container may have: the runner needs threads to end a fork bomb,
// and a program in Go that gets none dies on the spot, without a report.
func withinRoom(want int64) int64 {
	if want <= 0 {
		return want
	}
	room, bounded := processRoom(cgroupRoot, want)
	if !bounded {
		return want
	}
	return min(want, max(minProcesses, room-max(leastReserve, room/8)))
}

// processRoom is how many processes can still be started, as far as that is
// little: the pids limits of the control groups around this process and the
// user's own limit. root is where control groups are mounted.
func processRoom(root string, want int64) (room int64, bounded bool) {
	note := func(left int64) {
		if !bounded || left < room {
			room, bounded = max(left, 0), true
		}
	}
	for _, dir := range pidsGroups(root) {
		for ; len(dir) >= len(root); dir = filepath.Dir(dir) {
			most, ok := numberIn(filepath.Join(dir, "pids.max"))
			now, known := numberIn(filepath.Join(dir, "pids.current"))
			if ok && known {
				note(most - now)
			}
		}
	}
	var r unix.Rlimit
	if os.Geteuid() == 0 || unix.Getrlimit(unix.RLIMIT_NPROC, &r) != nil {
		return room, bounded
	}
	// Counting looks at every process, which a limit far away is not worth.
	const farAway = 16 << 10
	if r.Cur < uint64(want)+farAway {
		note(int64(r.Cur) - tasksOf(os.Geteuid()))
	}
	return room, bounded
}

// pidsGroups are the folders of the groups that may limit this process: of the
// unified hierarchy, and of the old one for pids.
func pidsGroups(root string) (dirs []string) {
	old, unified, err := cgroups.ParseCgroupFileUnified("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	if unified != "" {
		dir, _ := visible(root, unified)
		dirs = append(dirs, dir)
	}
	if path, ok := old["pids"]; ok {
		dir, _ := visible(filepath.Join(root, "pids"), path)
		dirs = append(dirs, dir)
	}
	return dirs
}

// numberIn reads a file with one number; not ok where there is none.
func numberIn(name string) (int64, bool) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	return n, err == nil // "max" is none
}

// tasksOf counts the threads of a user, as far as they can be seen.
func tasksOf(uid int) (n int64) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if name := e.Name(); name[0] < '0' || name[0] > '9' {
			continue
		}
		fi, err := e.Info()
		if err != nil {
			continue // it is gone
		}
		// The folder of a process that hides itself is root's.
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok || int(st.Uid) != uid && st.Uid != 0 {
			continue
		}
		status, err := os.ReadFile(filepath.Join("/proc", e.Name(), "status"))
		if err != nil || statusField(status, "Uid:") != int64(uid) {
			continue
		}
		n += max(1, statusField(status, "Threads:"))
	}
	return n
}

// statusField is the first number after a label of /proc/PID/status, or -1.
func statusField(status []byte, label string) int64 {
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte(label)); ok {
			if f := bytes.Fields(rest); len(f) > 0 {
				if n, err := strconv.ParseInt(string(f[0]), 10, 64); err == nil {
					return n
				}
			}
		}
	}
	return -1
}
