//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
	"golang.org/x/sys/unix"
)

// What each command of a sandbox has used, as its control group counts it.

// account is the reckoning of one command.
type account struct {
	g     *group
	child string   // its own group; of v1, which counts only memory there
	entry *os.File // by which the command gets into child: the folder, or v1's file of threads
	kill  func()   // ends the command
	begin figures
	alone bool
}

// figures are what a group has used since it was made.
type figures struct {
	cpu      time.Duration
	peak     int64
	current  int64
	oomKills int
}

// open begins the reckoning of a command, which kill ends.
func (g *group) open(id uint32, l Limits, kill func()) (*account, error) {
	if g == nil {
		return &account{}, nil
	}
	a := &account{g: g, kill: kill}
	if g.children {
		a.child = filepath.Join(g.folder(), fmt.Sprintf("command-%d", id))
		if err := os.Mkdir(a.child, 0o755); err != nil {
			return nil, fmt.Errorf("sandbox: control group of a command: %w", err)
		}
		if err := a.prepare(l); err != nil {
			return nil, errors.Join(err, unix.Rmdir(a.child))
		}
		if g.v2 != nil {
			return a, nil
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mixed = len(g.running) > 0 // also when one of them has ended since
	g.running[a] = struct{}{}
	a.alone = !g.mixed
	switch {
	case !a.alone:
	case a.child != "":
		a.begin.cpu = g.cpuV1()
	default:
		g.resetPeak()
		a.begin = g.figures()
	}
	return a, nil
}

// prepare sets the limits of the command's own group and opens the way into it.
func (a *account) prepare(l Limits) (err error) {
	if a.g.v1 != nil {
		a.entry, err = os.OpenFile(filepath.Join(a.child, "tasks"), os.O_WRONLY, 0)
	} else if err = a.limit(l); err == nil {
		a.entry, err = os.OpenFile(a.child, unix.O_PATH|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		return fmt.Errorf("sandbox: control group of a command: %w", err)
	}
	return nil
}

// limit sets what holds for one command. The whole of it dies when its memory
// runs out: half a build is worth nothing.
func (a *account) limit(l Limits) error {
	write := func(file, value string) error { return os.WriteFile(filepath.Join(a.child, file), []byte(value), 0) }
	_ = write("memory.oom.group", "1") // Linux 4.19
	var err error
	if l.MemoryBytes > 0 {
		err = errors.Join(err, write("memory.max", strconv.FormatInt(l.MemoryBytes, 10)))
	}
	// No command may use up what the init needs to start the next one.
	if n := confine.Tighter(l.Processes, a.g.procs); n > 0 {
		err = errors.Join(err, write("pids.max", strconv.FormatInt(n+1, 10)))
	}
	if l.CPUPercent > 0 {
		err = errors.Join(err, write("cpu.max", fmt.Sprintf("%d 100000", l.CPUPercent*1000)))
	}
	return err
}

// close puts the figures of a command that is gone into x.
func (a *account) close(x *Exit) {
	g := a.g
	if g == nil {
		return
	}
	if a.child != "" {
		defer removeGroups(a.child)
		_ = a.entry.Close()
		if g.v2 != nil {
			f := figuresV2(a.child)
			if f.cpu > 0 { // else the command was never in it: no clone3
				x.Measured, x.CPU = "cgroup", f.cpu
				a.fill(x, f, f.peak)
			}
			return
		}
		a.fill(x, figures{oomKills: oomKillsV1(a.child)}, readNumber(filepath.Join(a.child, "memory.max_usage_in_bytes")))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, a)
	alone := a.alone && !g.mixed
	if len(g.running) == 0 {
		g.mixed = false
	}
	if !alone {
		return
	}
	x.Measured = "cgroup"
	if a.child != "" {
		x.CPU = g.cpuV1() - a.begin.cpu
		return
	}
	f := g.figures()
	x.CPU = f.cpu - a.begin.cpu
	f.oomKills -= a.begin.oomKills
	a.fill(x, f, f.peak-a.begin.current)
}

// fill puts what a group counted of memory into x.
func (a *account) fill(x *Exit, f figures, peak int64) {
	x.PeakBytes = max(peak, x.PeakBytes)
	x.OOMKills = f.oomKills
	if f.oomKills > 0 && x.Signal == int(unix.SIGKILL) {
		x.Killed = "memory"
	}
}

// figures reads what the group has used.
func (g *group) figures() figures {
	if g.v2 != nil {
		return figuresV2(g.dir)
	}
	f := figures{cpu: g.cpuV1()}
	f.peak = readNumber(filepath.Join(g.dirs["memory"], "memory.max_usage_in_bytes"))
	f.current = readNumber(filepath.Join(g.dirs["memory"], "memory.usage_in_bytes"))
	f.oomKills = oomKillsV1(g.dirs["memory"])
	return f
}

// cpuV1 is the processor time of a group of version 1.
func (g *group) cpuV1() time.Duration {
	return time.Duration(readNumber(filepath.Join(g.dirs["cpuacct"], "cpuacct.usage")))
}

func figuresV2(dir string) figures {
	return figures{
		cpu:      time.Duration(readField(filepath.Join(dir, "cpu.stat"), "usage_usec")) * time.Microsecond,
		peak:     readNumber(filepath.Join(dir, "memory.peak")),
		current:  readNumber(filepath.Join(dir, "memory.current")),
		oomKills: int(readField(filepath.Join(dir, "memory.events"), "oom_kill")),
	}
}

// resetPeak makes the peak start again for the next command, where the kernel can.
func (g *group) resetPeak() {
	if g.v1 != nil {
		_ = os.WriteFile(filepath.Join(g.dirs["memory"], "memory.max_usage_in_bytes"), []byte("0"), 0)
	}
}

// readNumber reads a file with one number; 0 if it cannot be read.
func readNumber(file string) int64 {
	if n, ok := numberIn(file); ok {
		return n
	}
	return 0
}

// readField reads the number after a name in a file of names and numbers.
func readField(file, name string) int64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == name {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}
