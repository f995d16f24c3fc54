//go:build linux

package confine

import (
	"os"
	"strconv"
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
// children now, and are all of its children that are not supervisors. A child of a
// running command never gets here, however its parents die: its own supervisor is
// nearer. That is why one look tells, and two would take for an orphan what was
// forked between them.
func (in *initProcess) killOrphans() {
	self := unix.Getpid()
	for range 500 {
		in.mu.Lock()
		supervisors := map[int]bool{}
		for _, pid := range in.running {
			supervisors[pid] = true
		}
		left := 0
		children := processChildren()
		for _, orphan := range children[self] {
			if supervisors[orphan] {
				continue
			}
			for _, d := range append(children.Below(orphan), orphan) {
				left++
				IgnoreGone(unix.Kill(d, unix.SIGKILL))
			}
			var ws unix.WaitStatus
			_, _ = unix.Wait4(orphan, &ws, unix.WNOHANG, nil) // the next look finds it again if it still lives
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

// childMap holds the children of every process. A zombie counts: its threads may
// live on when only the first has ended, and it takes a place in the pid table.
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
	_, fields, err := ProcStat(name)
	if err != nil || len(fields) < 2 {
		return 0, 0, false
	}
	pid, err1 := strconv.Atoi(name)
	parent, err2 := strconv.Atoi(fields[1])
	if err1 != nil || err2 != nil {
		return 0, 0, false
	}
	return pid, parent, true
}
