//go:build linux

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

// When the memory of a group runs out the kernel kills one process, and what is
// left of its command goes on without it: half a build is worth nothing, and the
// others may grow in its place. Version 2 can be told to kill a group as a whole.
// For version 1 it is done here: every command has a group for memory of its own,
// which counts who was killed.

// oomBound is how long after its notice the kernel may take to kill somebody.
const oomBound = time.Second

// folder is where the groups of commands are.
func (g *group) folder() string {
	if g.v1 != nil {
		return g.dirs["memory"]
	}
	return g.dir
}

// splitMemory lets every command of a group of version 1 have its own for memory,
// where the kernel counts that in the limited one too and tells when it runs out.
// Elsewhere the limit holds for the group as a whole, and nothing else is done.
func (g *group) splitMemory(l Limits) {
	dir := g.dirs["memory"]
	if l.MemoryBytes <= 0 || dir == "" || !countsBelow(dir) {
		return
	}
	notice, err := oomNotice(dir)
	if err != nil {
		return
	}
	g.oom, g.children = notice, true
	go g.endVictims()
}

// countsBelow makes a group of version 1 count what is in those below it. Without
// the file the kernel knows no other way.
func countsBelow(dir string) bool {
	file := filepath.Join(dir, "memory.use_hierarchy")
	b, err := os.ReadFile(file)
	if err != nil {
		return os.IsNotExist(err)
	}
	return strings.TrimSpace(string(b)) == "1" || os.WriteFile(file, []byte("1"), 0) == nil
}

// oomNotice is a descriptor that can be read each time the memory of a group of
// version 1 has run out.
func oomNotice(dir string) (*os.File, error) {
	control, err := os.Open(filepath.Join(dir, "memory.oom_control"))
	if err != nil {
		return nil, err
	}
	defer control.Close()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	notice := os.NewFile(uintptr(fd), "notice of "+dir)
	order := fmt.Sprintf("%d %d", fd, control.Fd())
	if err := os.WriteFile(filepath.Join(dir, "cgroup.event_control"), []byte(order), 0); err != nil {
		_ = notice.Close()
		return nil, err
	}
	return notice, nil
}

// endVictims ends every command that the kernel has killed a process of. It
// returns when the notice is closed.
func (g *group) endVictims() {
	var count [8]byte
	for {
		if _, err := g.oom.Read(count[:]); err != nil {
			return
		}
		// The notice comes before the kill.
		for end := time.Now().Add(oomBound); !g.endOne() && time.Now().Before(end); {
			time.Sleep(confine.KillRound)
		}
	}
}

// endOne kills the commands that have lost a process; false if there is none.
func (g *group) endOne() (found bool) {
	for _, a := range g.victims() {
		a.kill()
		found = true
	}
	return found
}

// victims are the running commands that have lost a process.
func (g *group) victims() (out []*account) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for a := range g.running {
		if oomKillsV1(a.child) > 0 {
			out = append(out, a)
		}
	}
	return out
}

// oomKillsV1 is how many processes of a group of version 1 the kernel killed for
// want of memory.
func oomKillsV1(dir string) int {
	return int(readField(filepath.Join(dir, "memory.oom_control"), "oom_kill"))
}
