//go:build linux

package confine

import (
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The order of confinement is here, as data. Each later step would be refused
// by, or needs what is removed by, an earlier one.

// defaultPath is searched when the command's environment has no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// maxSearch bounds the folders of PATH that are looked into.
const maxSearch = 128

// streams are the command's standard descriptors in the init.
type streams struct{ in, out, err int }

// oomScore makes the kernel choose a command, and not the runner, when memory
// runs out.
const oomScore = "500"

// The scripts of one command. Their calls are copied into its arena, so the room
// for them serves the next one again.
const (
	ofSupervisor = iota
	ofCommand
	ofAfter
	scripts
)

// script begins one of the scripts of a command.
func (in *initProcess) script(a *arena, which int) *script {
	room := in.room[which][:0]
	return &script{a: a, calls: room, names: make([]string, 0, cap(room))}
}

// commandScript is what the process that becomes the command does.
func (in *initProcess) commandScript(a *arena, r *Request, st streams, groupFD, ruleset int) *script {
	s := in.script(a, ofCommand)
	s.do("setsid", unix.SYS_SETSID)
	if r.Move {
		// Where it is refused the command stays in the group of all, which is limited as well.
		s.try("control group", unix.SYS_WRITE, uintptr(groupFD), s.a.str("0"), 1)
	}
	if r.TTY != nil {
		s.do("taking the terminal", unix.SYS_IOCTL, uintptr(st.in), unix.TIOCSCTTY, 0)
	}
	for i, fd := range []int{st.in, st.out, st.err} {
		s.do("standard streams", unix.SYS_DUP3, uintptr(fd), uintptr(i), 0)
	}
	if in.plan.Confined {
		s.preferredByOOM()
	}
	in.limitCalls(s, r.Limits)
	if in.plan.Confined {
		none := place(a, struct {
			h unix.CapUserHeader
			d [2]unix.CapUserData
		}{h: unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}})
		s.do("dropping capabilities", unix.SYS_CAPSET, uintptr(unsafe.Pointer(&none.h)), uintptr(unsafe.Pointer(&none.d)))
	}
	s.do(StepDir, unix.SYS_CHDIR, a.str(r.Dir))
	if in.plan.Confined {
		if ruleset >= 0 {
			in.landlockCalls(s, ruleset)
		}
		in.filterCalls(s, r.ID)
	}
	s.resetSignals()
	s.exec(r)
	return s
}

// Steps whose refusal is the command's own fault.
const (
	StepDir  = "chdir"
	StepExec = "exec"
)

// preferredByOOM makes the kernel choose the command when memory runs out.
func (s *script) preferredByOOM() {
	score := s.a.str(oomScore)
	slot := s.a.bytes(4)
	slot[0], slot[1], slot[2], slot[3] = 0xff, 0xff, 0xff, 0xff // -1 where /proc cannot be opened
	s.try("oom score", unix.SYS_OPENAT, atCWD, s.a.str("/proc/self/oom_score_adj"), unix.O_WRONLY|unix.O_CLOEXEC, 0).keep = address(slot)
	s.try("oom score", unix.SYS_WRITE, 0, score, uintptr(len(oomScore))).use = address(slot)
	s.try("oom score", unix.SYS_CLOSE, 0).use = address(slot)
}

const atCWD = ^uintptr(99) // AT_FDCWD is -100

// limitCalls lower the resource limits.
func (in *initProcess) limitCalls(s *script, command Limits) {
	set := func(name string, resource int, v int64) {
		l := place(s.a, unix.Rlimit{Cur: uint64(v), Max: uint64(v)})
		s.do("limit of "+name, unix.SYS_PRLIMIT64, 0, uintptr(resource), uintptr(unsafe.Pointer(l)), 0)
	}
	command = clampLimits(command)
	if in.plan.Confined {
		set("core dumps", unix.RLIMIT_CORE, 0)
		set("real-time priority", unix.RLIMIT_RTPRIO, 0)
		set("priority", unix.RLIMIT_NICE, 0)
	}
	if v := Tighter(in.limits.FileBytes, command.FileBytes); v > 0 {
		set("file size", unix.RLIMIT_FSIZE, v)
	}
	if v := Tighter(in.limits.OpenFiles, command.OpenFiles); v > 0 {
		set("open files", unix.RLIMIT_NOFILE, v)
	}
	// The kernel counts processes of a user within its user namespace; without
	// one the limit would count everything the user runs on the machine.
	if v := Tighter(in.limits.Processes, command.Processes); v > 0 && in.plan.UserNS {
		set("processes", unix.RLIMIT_NPROC, v)
	}
}

// Tighter is the smaller of two limits; zero stands for no limit.
func Tighter(a, b int64) int64 {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}

// landlockCalls allow /proc of this very command, which did not exist when the
// ruleset was made, and enforce it.
func (in *initProcess) landlockCalls(s *script, ruleset int) {
	// struct landlock_path_beneath_attr is packed: the descriptor follows the rights.
	attr := s.a.bytes(16)
	*(*uint64)(unsafe.Pointer(unsafe.SliceData(attr))) = uint64(in.procRights())
	if in.plan.Namespaces {
		open := s.do("opening /proc", unix.SYS_OPENAT, atCWD, s.a.str("/proc"), unix.O_PATH|unix.O_CLOEXEC, 0)
		open.keep = address(attr) + 8
		const pathBeneath = 1
		s.do("landlock_add_rule", unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), pathBeneath, address(attr), 0)
	}
	s.do("landlock_restrict_self", unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0)
}

// procRights are the rights of rightsOnProc that this kernel's version knows.
func (in *initProcess) procRights() uint64 {
	return uint64(rightsOnProc & landlockABIs[in.facts.Landlock].HandledAccessFS)
}

// filterCalls install the system call filter and hand its listener over.
func (in *initProcess) filterCalls(s *script, id uint32) {
	if in.filter == nil {
		return
	}
	prog := storeFilter(s.a, in.filter)
	flags := uintptr(0)
	if in.listeners != nil {
		flags = in.listenerFlag
	}
	c := s.do("seccomp", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, prog)
	if in.listeners == nil {
		return
	}
	msg, slot := in.listeners.message(s.a, id)
	c.keep = slot
	s.do("handing over the filter's listener", unix.SYS_SENDMSG, uintptr(in.listeners.childFD), msg, 0)
}

// resetSignals gives the command the default actions and an empty mask: the
// forking thread blocks everything, and somebody may have started the runner
// with signals ignored.
func (s *script) resetSignals() {
	const kernelSigaction = 32 // bytes: handler, flags, restorer, mask
	act := address(s.a.bytes(kernelSigaction))
	for n := uintptr(1); n <= 64; n++ {
		s.try("signal actions", unix.SYS_RT_SIGACTION, n, act, 0, 8) // SIGKILL and SIGSTOP refuse
	}
	s.do("signal mask", unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, address(s.a.bytes(8)), 0, 8)
}

// exec ends a script: it replaces the process.
func (s *script) exec(r *Request) {
	argv, envv := s.a.vector(r.Argv), s.a.vector(r.Env)
	if r.Helper != "" {
		// The link leads to this very program wherever it lies, also where the
		// command itself could not see it.
		argv = s.a.vector(append([]string{HelperName, r.Helper}, r.Argv...))
		s.do(StepExec, unix.SYS_EXECVE, s.a.str("/proc/self/exe"), argv, envv)
		return
	}
	if strings.Contains(r.Argv[0], "/") {
		s.do(StepExec, unix.SYS_EXECVE, s.a.str(r.Argv[0]), argv, envv)
		return
	}
	search := r.Path
	if search == "" {
		search = defaultPath
	}
	for i, dir := range strings.Split(search, ":") {
		if i == maxSearch {
			break
		}
		if dir == "" {
			dir = "." // an empty element of PATH is the working folder
		}
		s.do(StepExec, unix.SYS_EXECVE, s.a.str(dir+"/"+r.Argv[0]), argv, envv).mode = mayBeAbsent
	}
}

// supervisorScript is what a supervisor does before it forks the command.
func (in *initProcess) supervisorScript(a *arena, side bool) *script {
	s := in.script(a, ofSupervisor)
	if !in.plan.Namespaces {
		s.do("becoming the reaper of orphans", unix.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
		// The thread that forks is the init's first and lives as long as it. Which
		// signal it is does not matter: it wakes the supervisor.
		s.do("outliving nobody", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGHUP), 0, 0, 0)
		return s
	}
	if side {
		in.narrow(s)
	}
	if in.facts.Proc != "own" {
		return s
	}
	proc := a.str("/proc")
	fstype := a.str("proc")
	s.do("mounting /proc", unix.SYS_MOUNT, fstype, proc, fstype, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, 0)
	null := a.str("/dev/null")
	for _, e := range in.procSeals {
		name := a.str(e.name)
		if e.hide {
			s.do("covering "+e.name, unix.SYS_MOUNT, null, name, 0, unix.MS_BIND, 0)
			continue
		}
		s.do("sealing "+e.name, unix.SYS_MOUNT, name, name, 0, unix.MS_BIND, 0)
		s.do("sealing "+e.name, unix.SYS_MOUNT, 0, name, 0, unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, 0)
	}
	return s
}

// afterScript is what a supervisor does once the command runs: it keeps the
// control socket and nothing else.
func (in *initProcess) afterScript(a *arena) *script {
	s := in.script(a, ofAfter)
	control := uintptr(in.controlFD)
	if haveCloseRange() {
		if control > 0 {
			s.try("closing files", unix.SYS_CLOSE_RANGE, 0, control-1, 0)
		}
		s.try("closing files", unix.SYS_CLOSE_RANGE, control+1, uintptr(^uint32(0)), 0)
	} else {
		for fd := range highestFD() + 1 {
			if fd != control {
				s.try("closing files", unix.SYS_CLOSE, fd)
			}
		}
	}
	if in.plan.Confined {
		none := place(a, struct {
			h unix.CapUserHeader
			d [2]unix.CapUserData
		}{h: unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}})
		s.try("dropping capabilities", unix.SYS_CAPSET, uintptr(unsafe.Pointer(&none.h)), uintptr(unsafe.Pointer(&none.d)))
	}
	return s
}

// haveCloseRange tells whether close_range is there: an empty range is refused
// with EINVAL by a kernel that knows the call.
func haveCloseRange() bool { return unix.CloseRange(2, 1, 0) == unix.EINVAL }

// highestFD is the highest open descriptor.
func highestFD() uintptr {
	ds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 1023
	}
	var top uintptr
	for _, d := range ds {
		var n uintptr
		if _, err := fmt.Sscan(d.Name(), &n); err == nil {
			top = max(top, n)
		}
	}
	return top
}

// procSeal is an entry of /proc that concerns the machine and not a process.
type procSeal struct {
	name string
	hide bool // cover it with an empty file; otherwise make it read-only
}

// procSeals lists what must be sealed in every new /proc. Somebody who is user 0
// owns these files even without any capability: writing kernel/core_pattern runs
// a program outside every namespace.
func procSeals(f *Facts) []procSeal {
	if f.Proc != "own" {
		return nil
	}
	var out []procSeal
	for _, n := range []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "driver", "mtrr", "scsi", "dynamic_debug", "asound", "pressure"} {
		out = append(out, procSeal{name: "/proc/" + n})
	}
	for _, n := range []string{"kcore", "keys", "key-users", "timer_list", "kallsyms", "kmsg", "sched_debug", "slabinfo", "vmallocinfo",
		"kpagecount", "kpageflags", "kpagecgroup", "latency_stats", "timer_stats", "config.gz"} {
		out = append(out, procSeal{name: "/proc/" + n, hide: true})
	}
	kept := out[:0]
	for _, e := range out {
		if _, err := os.Lstat(e.name); err == nil {
			kept = append(kept, e)
		}
	}
	return kept
}

// clampLimits keeps limits within what the init itself may use: raising a hard
// limit takes a privilege of the machine.
func clampLimits(l Limits) Limits {
	clamp := func(v *int64, resource int) {
		var r unix.Rlimit
		if *v > 0 && unix.Getrlimit(resource, &r) == nil && r.Max < uint64(*v) {
			*v = int64(r.Max)
		}
	}
	clamp(&l.FileBytes, unix.RLIMIT_FSIZE)
	clamp(&l.OpenFiles, unix.RLIMIT_NOFILE)
	clamp(&l.Processes, unix.RLIMIT_NPROC)
	return l
}
