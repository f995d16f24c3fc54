//go:build linux

package confine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Killing trees where there is no pid namespace to do it.

// KillRound is the pause between two looks at a tree that is being killed.
const KillRound = 2 * time.Millisecond

// killTree stops and kills everything below a supervisor until it is gone. The
// supervisor adopts every orphan, so nobody gets out of sight; stopping first
// keeps a fork bomb from growing faster than it is killed.
func (in *initProcess) killTree(id uint32, supervisor int) {
	for {
		in.mu.Lock()
		pid, ok := in.running[id]
		if !ok || pid != supervisor {
			in.mu.Unlock()
			return
		}
		ds := descendants(supervisor)
		for _, s := range []unix.Signal{unix.SIGSTOP, unix.SIGKILL} {
			for _, d := range ds {
				IgnoreGone(unix.Kill(d, s))
			}
		}
		in.mu.Unlock()
		time.Sleep(KillRound)
	}
}

// killOrphans ends what a killed supervisor left: its orphans are the init's
// children now.
func (in *initProcess) killOrphans() {
	for range 500 {
		in.mu.Lock()
		mine := map[int]bool{}
		for _, pid := range in.running {
			mine[pid] = true
			for _, d := range descendants(pid) {
				mine[d] = true
			}
		}
		left := 0
		for _, d := range descendants(unix.Getpid()) {
			if !mine[d] {
				left++
				IgnoreGone(unix.Kill(d, unix.SIGKILL))
				var ws unix.WaitStatus
				_, _ = unix.Wait4(d, &ws, unix.WNOHANG, nil) // only children can be reaped; the others follow
			}
		}
		in.mu.Unlock()
		if left == 0 {
			return
		}
		time.Sleep(KillRound)
	}
}

// killAll ends every tree of the init, for its own end.
func (in *initProcess) killAll() {
	self := unix.Getpid()
	for range 500 { // one second: nobody may hold up the end for ever
		ds := descendants(self)
		if len(ds) == 0 {
			return
		}
		for _, s := range []unix.Signal{unix.SIGSTOP, unix.SIGKILL} {
			for _, d := range ds {
				IgnoreGone(unix.Kill(d, s))
			}
		}
		for {
			var ws unix.WaitStatus
			if pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil); err != nil || pid <= 0 {
				break
			}
		}
		time.Sleep(KillRound)
	}
}

// descendants lists every process below pid, parents first. Without a pid
// namespace this is how a tree is found; its supervisor adopts orphans.
func descendants(pid int) []int { return processChildren().Below(pid) }

// childMap holds the children of every process.
type childMap map[int][]int

// processChildren reads /proc once.
func processChildren() childMap {
	m := childMap{}
	ds, err := os.ReadDir("/proc")
	if err != nil {
		return m
	}
	for _, d := range ds {
		if child, parent, ok := parentOf(d.Name()); ok {
			m[parent] = append(m[parent], child)
		}
	}
	return m
}

func (m childMap) Below(pid int) []int {
	var out []int
	for queue := m[pid]; len(queue) > 0; queue = queue[1:] {
		out = append(out, queue[0])
		queue = append(queue, m[queue[0]]...)
	}
	return out
}

// parentOf reads the parent of a process from its folder in /proc.
func parentOf(name string) (pid, parent int, ok bool) {
	if name[0] < '0' || name[0] > '9' {
		return 0, 0, false
	}
	b, err := os.ReadFile(filepath.Join("/proc", name, "stat"))
	if err != nil {
		return 0, 0, false
	}
	// pid (name) state parent …; the name may hold anything.
	i := strings.LastIndexByte(string(b), ')')
	if i < 0 {
		return 0, 0, false
	}
	var state string
	if _, err := fmt.Sscan(name, &pid); err != nil {
		return 0, 0, false
	}
	if _, err := fmt.Sscan(string(b[i+1:]), &state, &parent); err != nil {
		return 0, 0, false
	}
	return pid, parent, state != "Z"
}
