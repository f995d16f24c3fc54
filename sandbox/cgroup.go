//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

// Control groups: the only limits that hold for a tree as a whole, and the only
// figures that are exact. Where none can be made, confine/watch.go and rlimits do
// what they can and the report says so.

const (
	cgroupRoot   = "/sys/fs/cgroup"
	cgroupPrefix = "nightshift-"
)

// group is the control group of a sandbox.
type group struct {
	v2       *cgroup2.Manager
	v1       cgroup1.Cgroup
	dir      string            // of v2
	dirs     map[string]string // of v1, by controller
	home     map[string]string // of v1: where this process is; nil when that cannot be seen
	children bool              // every command gets a group of its own; of v1, for memory
	procs    int64             // limit of processes, without what the init needs

	mu      sync.Mutex
	running map[*account]struct{} // none of v2 that has a group of its own
	mixed   bool                  // more than one command since the figures were begun
	oom     *os.File              // of v1: the kernel's notice that memory ran out
}

// initSlack is what the init and the supervisors need besides the commands.
const initSlack = 64

// wantsGroup tells whether limits are such as only a group can hold.
func wantsGroup(l Limits) bool { return l.MemoryBytes > 0 || l.Processes > 0 || l.CPUPercent > 0 }

// newGroup makes a group, as yet without limits, below or beside the one this
// process is in; cpu asks for one that can limit processor time.
func newGroup(cpu bool) (*group, error) {
	name := fmt.Sprintf("%s%d-%d", cgroupPrefix, os.Getpid(), time.Now().UnixNano())
	switch cgroups.Mode() {
	case cgroups.Unified:
		return newGroupV2(name)
	case cgroups.Legacy, cgroups.Hybrid:
		return newGroupV1(name, cpu)
	}
	return nil, errors.New("/sys/fs/cgroup is not there")
}

// limitedGroup is newGroup with its limits.
func limitedGroup(l Limits) (*group, error) {
	g, err := newGroup(l.CPUPercent > 0)
	if err != nil {
		return nil, err
	}
	if err := g.limit(l); err != nil {
		return nil, errors.Join(err, g.remove())
	}
	return g, nil
}

// limit sets what holds for the group as a whole.
func (g *group) limit(l Limits) (err error) {
	switch {
	case !wantsGroup(l):
		return nil
	case g.v1 != nil:
		g.splitMemory(l)
		err = g.v1.Update(resourcesV1(l))
	default:
		err = g.v2.Update(resourcesV2(l, initSlack))
		g.procs = l.Processes
		// Swap is not counted everywhere; without the file there is none to limit.
		if l.MemoryBytes > 0 {
			_ = os.WriteFile(filepath.Join(g.dir, "memory.swap.max"), []byte("0"), 0)
		}
	}
	if err != nil {
		return fmt.Errorf("sandbox: limits of the control group: %w", err)
	}
	return nil
}

// canLimitCPU tells whether the group can hold a limit of processor time.
func (g *group) canLimitCPU() bool { return g.v1 == nil || g.dirs["cpu"] != "" }

// visible is the folder below top of the group at path, as /proc/self/cgroup names
// it. In a container that path often exists outside only: then it is top, and not ok.
func visible(top, path string) (dir string, ok bool) {
	dir = filepath.Join(top, path)
	if _, err := os.Stat(dir); err != nil {
		return top, false
	}
	return dir, true
}

// newGroupV2 tries the own group and the one above it: a group that holds
// processes cannot hand its controllers down.
func newGroupV2(name string) (*group, error) {
	_, own, err := cgroups.ParseCgroupFileUnified("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("/proc/self/cgroup: %w", err)
	}
	if _, ok := visible(cgroupRoot, own); !ok {
		own = "/"
	}
	var errs []error
	for _, parent := range []string{own, filepath.Dir(own)} {
		dir := filepath.Join(cgroupRoot, parent)
		if err := unix.Access(dir, unix.W_OK); err != nil {
			errs = append(errs, fmt.Errorf("%s cannot be written: %w", dir, err))
			continue
		}
		sweepGroups(dir)
		m, err := cgroup2.NewManager(cgroupRoot, filepath.Join(parent, name), resourcesV2(Limits{}, 0))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		g := &group{v2: m, dir: filepath.Join(dir, name), running: map[*account]struct{}{}}
		g.split()
		return g, nil
	}
	return nil, errors.Join(errs...)
}

func resourcesV2(l Limits, slack int64) *cgroup2.Resources {
	r := &cgroup2.Resources{Memory: &cgroup2.Memory{}, Pids: &cgroup2.Pids{}, CPU: &cgroup2.CPU{}}
	if l.MemoryBytes > 0 {
		r.Memory.Max = &l.MemoryBytes
	}
	if l.Processes > 0 {
		r.Pids.Max = l.Processes + slack
	}
	if l.CPUPercent > 0 {
		quota := l.CPUPercent * 1000 // of a period of 100 000 µs
		r.CPU.Max = cgroup2.NewCPUMax(&quota, nil)
	}
	return r
}

// split moves the init into a leaf of its own, so that commands can have theirs.
func (g *group) split() {
	if err := os.Mkdir(filepath.Join(g.dir, "init"), 0o755); err != nil {
		return
	}
	err := os.WriteFile(filepath.Join(g.dir, "cgroup.subtree_control"), []byte("+memory +pids +cpu"), 0)
	g.children = err == nil
}

// newGroupV1 makes one group for each controller that is needed.
func newGroupV1(name string, cpu bool) (*group, error) {
	own, err := cgroup1.ParseCgroupFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("/proc/self/cgroup: %w", err)
	}
	parents, home := map[string]string{}, map[string]string{}
	var subsystems []cgroup1.Subsystem
	needed := []cgroup1.Subsystem{
		cgroup1.NewMemory(cgroupRoot, cgroup1.OptionalSwap(), cgroup1.IgnoreModules("kmem", "kmem.tcp")), cgroup1.NewPids(cgroupRoot),
		cgroup1.NewCpuacct(cgroupRoot),
	}
	if cpu { // a group of its own has no real-time share: it would refuse a process of that class
		needed = append(needed, cgroup1.NewCpu(cgroupRoot))
	}
	for _, s := range needed {
		c := string(s.Name())
		parent := own[c]
		dir, ok := visible(filepath.Join(cgroupRoot, c), parent)
		if !ok {
			parent, home = "/", nil
		}
		if err := unix.Access(dir, unix.W_OK); err != nil {
			if c != "cpuacct" {
				return nil, fmt.Errorf("%s cannot be written: %w", dir, err)
			}
			continue
		}
		sweepGroups(dir)
		parents[c] = parent
		if home != nil {
			home[c] = dir
		}
		subsystems = append(subsystems, s)
	}
	at := func(c cgroup1.Name) (string, error) {
		parent, ok := parents[string(c)]
		if !ok {
			return "", cgroup1.ErrControllerNotActive
		}
		return filepath.Join(parent, name), nil
	}
	v1, err := cgroup1.New(at, &specs.LinuxResources{}, cgroup1.WithHierarchy(func() ([]cgroup1.Subsystem, error) { return subsystems, nil }))
	if err != nil {
		return nil, err
	}
	g := &group{v1: v1, dirs: map[string]string{}, home: home, running: map[*account]struct{}{}}
	for c, parent := range parents {
		g.dirs[c] = filepath.Join(cgroupRoot, c, parent, name)
	}
	return g, nil
}

func resourcesV1(l Limits) *specs.LinuxResources {
	r := &specs.LinuxResources{}
	if l.MemoryBytes > 0 {
		r.Memory = &specs.LinuxMemory{Limit: &l.MemoryBytes}
	}
	if l.Processes > 0 {
		n := l.Processes + initSlack
		r.Pids = &specs.LinuxPids{Limit: &n}
	}
	if l.CPUPercent > 0 {
		quota, period := l.CPUPercent*1000, uint64(100000)
		r.CPU = &specs.LinuxCPU{Quota: &quota, Period: &period}
	}
	return r
}

// sweepGroups removes what killed runners left: empty groups whose maker, the
// number in their name, is gone.
func sweepGroups(dir string) {
	names, err := filepath.Glob(filepath.Join(dir, cgroupPrefix+"*"))
	if err != nil {
		return
	}
	for _, n := range names {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(n), cgroupPrefix), "-")
		if _, err := os.Stat("/proc/" + pid); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		removeGroups(n)
	}
}

// removeGroups removes a group with those below; the kernel keeps one that is in
// use.
func removeGroups(dir string) {
	inner, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range inner {
		if e.IsDir() {
			removeGroups(filepath.Join(dir, e.Name()))
		}
	}
	_ = unix.Rmdir(dir)
}

// enter makes the process that the calling thread starts next begin in the group.
// The same thread, locked to its goroutine, must call leave afterwards. inside is
// false where that is not possible: then add has to move the process, which the
// kernel may take long to do.
func (g *group) enter(sys *syscall.SysProcAttr) (inside bool, leave func() error) {
	leave = func() error { return nil }
	switch {
	case g == nil || g.v1 != nil && g.home == nil:
		return false, leave
	case g.v1 == nil:
		f, err := os.OpenFile(g.leaf(), unix.O_DIRECTORY|unix.O_PATH, 0)
		if err != nil {
			return false, leave
		}
		sys.UseCgroupFD, sys.CgroupFD = true, int(f.Fd())
		return true, f.Close
	}
	// A thread that moves itself need not wait, and its child begins where it is.
	move := func(dirs map[string]string) error {
		for c := range g.dirs {
			if err := os.WriteFile(filepath.Join(dirs[c], "tasks"), []byte("0"), 0); err != nil {
				return fmt.Errorf("sandbox: the control group of a thread: %w", err)
			}
		}
		return nil
	}
	return move(g.dirs) == nil, func() error { return move(g.home) }
}

// leaf is the folder of v2 that holds the init.
func (g *group) leaf() string {
	if g.children {
		return filepath.Join(g.dir, "init")
	}
	return g.dir
}

// add moves the init into the group, before it starts anything.
func (g *group) add(pid int) error {
	if g == nil {
		return nil
	}
	if g.v1 != nil {
		return g.v1.AddProc(uint64(pid))
	}
	return os.WriteFile(filepath.Join(g.leaf(), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// kill ends every process of the group.
func (g *group) kill() {
	if g == nil {
		return
	}
	if g.v2 != nil {
		if _, err := os.Stat(filepath.Join(g.dir, "cgroup.kill")); err == nil {
			_ = g.v2.Kill() // the init's end, which follows, does the same by itself
		}
		return
	}
	for range 100 {
		ps, err := g.v1.Processes(cgroup1.Pids, true)
		if err != nil || len(ps) == 0 {
			return
		}
		for _, p := range ps {
			confine.IgnoreGone(unix.Kill(p.Pid, unix.SIGKILL))
		}
		time.Sleep(confine.KillRound)
	}
}

// groupGoneBound is how long removing a group may take.
const groupGoneBound = 5 * time.Second

// remove deletes the group, which is empty but for processes that are being
// reaped.
func (g *group) remove() error {
	if g == nil {
		return nil
	}
	if g.oom != nil {
		_ = g.oom.Close()
		removeGroups(g.folder())
	}
	var err error
	for deadline := time.Now().Add(groupGoneBound); time.Now().Before(deadline); {
		if g.v2 != nil {
			removeGroups(g.dir)
			if _, serr := os.Stat(g.dir); errors.Is(serr, os.ErrNotExist) {
				return nil
			}
			err = fmt.Errorf("sandbox: the control group %s is still in use", g.dir)
		} else if err = g.v1.Delete(); err == nil {
			return nil
		}
		time.Sleep(confine.KillRound)
	}
	return err
}

// name says which interface carries the limits.
func (g *group) name() string {
	if g.v2 != nil {
		return "cgroup v2"
	}
	return "cgroup v1"
}
