//go:build linux

package confine

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The init looks after limits that no kernel mechanism holds: disk space always,
// memory and processes where there is no control group. It kills the command
// that uses most. In between, for WatchEvery, a limit can be passed.

const WatchEvery = 100 * time.Millisecond

// Reasons why the init killed a command.
const (
	KilledNot uint32 = iota
	killedMemory
	killedProcesses
	killedDisk
)

var KilledNames = map[uint32]string{killedMemory: "memory", killedProcesses: "processes", killedDisk: "disk"}

// watcher holds what is known about the running commands.
type watcher struct {
	in     *initProcess
	memory int64 // 0: somebody else looks after it
	procs  int64
	disk   int64
	disks  []string // a folder on each file system that can be written

	mu      sync.Mutex
	limits  map[uint32]Limits // of single commands
	free    []space           // of disks, when the first running command began
	shared  int64             // of the machine, at that time
	running int
	killed  map[uint32]uint32
	wake    chan struct{}
}

func newWatcher(in *initProcess) *watcher {
	p := &in.plan
	w := &watcher{in: in, disk: p.Limits.DiskBytes, limits: map[uint32]Limits{}, killed: map[uint32]uint32{}, wake: make(chan struct{}, 1)}
	if p.Watch {
		w.memory, w.procs = p.Limits.MemoryBytes, p.Limits.Processes
	}
	if w.disk > 0 {
		w.disks = append(w.disks, p.Roots...)
		if p.Tmp != "" && p.TmpWrite {
			w.disks = append(w.disks, "/tmp")
		}
	}
	go w.loop()
	return w
}

// begin is called before a command starts.
func (w *watcher) begin(id uint32, l Limits) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == 0 {
		w.free, w.shared = freeSpace(w.disks), sharedPages()
	}
	w.running++
	w.limits[id] = l
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// end is called when a command is gone; it says why it was killed, if it was.
func (w *watcher) end(id uint32) uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	delete(w.limits, id)
	reason := w.killed[id]
	delete(w.killed, id)
	return reason
}

// loop looks while commands run and sleeps otherwise.
func (w *watcher) loop() {
	for range w.wake {
		for w.busy() {
			time.Sleep(WatchEvery)
			w.look()
		}
	}
}

// busy tells whether there is anything to look at.
func (w *watcher) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == 0 {
		return false
	}
	return w.disk > 0 || w.counts(w.limits)
}

// look compares and kills.
func (w *watcher) look() {
	w.mu.Lock()
	free, shared, limits := w.free, w.shared, maps.Clone(w.limits)
	w.mu.Unlock()
	w.lookAtDisks(free, limits)
	if !w.counts(limits) {
		return // /proc holds every process of the machine's, where it is the outer one
	}
	uses := w.in.uses()
	total := use{}
	grown := max(0, sharedPages()-shared)
	for id, u := range uses {
		total.memory += u.memory
		total.procs += u.procs
		l := limits[id]
		if l.MemoryBytes > 0 && u.memory+grown > l.MemoryBytes && w.in.held(id).bytes(0) > l.MemoryBytes {
			w.kill(id, killedMemory)
		}
		if l.Processes > 0 && u.procs > l.Processes {
			w.kill(id, killedProcesses)
		}
	}
	if w.memory > 0 && total.memory+grown > w.memory {
		// Pages that processes share were counted for each, and what grew need not be
		// the commands' doing; look again, exactly.
		var all holding
		for id := range uses {
			h := w.in.held(id)
			all.add(h)
			uses[id] = use{memory: h.bytes(0), procs: uses[id].procs}
		}
		if all.bytes(w.in.unowned()) > w.memory {
			w.kill(most(uses, func(u use) int64 { return u.memory }), killedMemory)
		}
	}
	if w.procs > 0 && total.procs > w.procs {
		w.kill(most(uses, func(u use) int64 { return u.procs }), killedProcesses)
	}
}

// most names the command that uses most.
func most(uses map[uint32]use, by func(use) int64) (worst uint32) {
	best := int64(-1)
	for id, u := range uses {
		if by(u) > best {
			worst, best = id, by(u)
		}
	}
	return worst
}

// lookAtDisks kills everybody when a file system has lost too much: nothing
// shows which of them did it.
func (w *watcher) lookAtDisks(free []space, running map[uint32]Limits) {
	for i, now := range freeSpace(w.disks) {
		if w.disk > 0 && i < len(free) && free[i].wasted(now, w.disk) {
			for id := range running {
				w.kill(id, killedDisk)
			}
			return
		}
	}
}

// counts tells whether memory or processes must be looked at.
func (w *watcher) counts(limits map[uint32]Limits) bool {
	if w.memory > 0 || w.procs > 0 {
		return true
	}
	for _, l := range limits {
		if l.MemoryBytes > 0 || l.Processes > 0 {
			return true
		}
	}
	return false
}

func (w *watcher) kill(id uint32, reason uint32) {
	w.mu.Lock()
	if _, running := w.limits[id]; running && w.killed[id] == KilledNot {
		w.killed[id] = reason
	}
	w.mu.Unlock()
	w.in.kill(id)
}

// space is what is left on a file system.
type space struct {
	bytes int64
	files int64 // 0 where the file system does not count them
}

// manyFiles is how many new files nobody minds. More may use up half of what the
// file system has left: without any, nothing works on the machine any more,
// though its disk is empty.
const manyFiles = 100_000

// wasted tells whether what was free before and is not now is too much: more
// than so many bytes, or more files than is good for the file system.
func (before space) wasted(now space, bytes int64) bool {
	files := before.files - now.files
	return before.bytes-now.bytes > bytes || files > manyFiles && now.files < before.files/2
}

// freeSpace is what is left on each file system.
func freeSpace(dirs []string) []space {
	out := make([]space, len(dirs))
	for i, d := range dirs {
		var st unix.Statfs_t
		if unix.Statfs(d, &st) == nil {
			out[i] = space{int64(st.Bavail) * st.Bsize, int64(st.Ffree)}
		}
	}
	return out
}

// trees lists the processes of every running command, its supervisor left out.
func (in *initProcess) trees() map[uint32][]int {
	in.mu.Lock()
	defer in.mu.Unlock()
	out := map[uint32][]int{}
	children := processChildren()
	for id, pid := range in.running {
		out[id] = children.Below(pid)
	}
	return out
}
