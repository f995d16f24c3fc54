//go:build linux

package confine

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file is the part of the init that runs between fork and exec.
//
// Rules of this file: after clone(2) without CLONE_VM the child has one thread
// of a Go program and nothing else, so it may only make raw system calls on
// memory that was prepared before. No allocation, no growing stack, no write
// barrier, no call that is not nosplit. Everything to be done is therefore data:
// a list of calls that script.go builds in plain Go. The technique is that
// of syscall.forkAndExecInChild; a second start of the whole program, which it
// replaces, costs several milliseconds a command.

// A call is one system call of a script.
type call struct {
	nr   uintptr
	a    [6]uintptr
	keep uintptr // address of an int32 that gets the result; 0: none
	use  uintptr // address of an int32 that is the first argument; 0: a[0] is
	mode uintptr
}

// What happens when a call is refused.
const (
	mustSucceed uintptr = iota
	mayFail             // go on with the next call
	mayBeAbsent         // go on, but only after ENOENT, ENOTDIR, EACCES (program search)
)

// Status is what a supervisor, or the init for it, tells the runner over the
// control socket: one message, so its layout is fixed. The first two words head
// every message.
type Status struct {
	Kind  uint32
	ID    uint32
	Wait  int32  // wait status of the main process
	Cause uint32 // of MsgGone: why the init killed it
	Utime unix.Timeval
	Stime unix.Timeval
	RSS   int64 // KiB
}

// family is everything the forked supervisor needs, in memory that does not
// move and is shared with its child.
type family struct {
	prepare, command, after    uintptr // scripts
	nPrepare, nCommand, nAfter uintptr
	cloneFlags                 uintptr // of the supervisor
	inGroup                    uintptr // 1: clone3 with args starts it in a control group
	control                    uintptr // descriptor of the control socket
	subreaper                  uintptr // 1: no pid namespace, wait until nobody is left
	parent                     uintptr // with it: the init, whose death ends the tree
	list, children             uintptr // with it: the file that lists the supervisor's children, and room for it
	failedStep, failedErrno    uintptr // why nothing was started
	mask                       uint64  // the signals it waits for
	info                       [128]byte
	rusage                     unix.Rusage
	wait                       uint32
	msg                        Status
	tick                       unix.Timespec
	args                       cloneArgs
}

// cloneArgs is struct clone_args of Linux 5.7.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// Everything here is executed with all signals blocked.

//go:nosplit
//go:norace
func raw(nr, a, b, c, d, e, f uintptr) (uintptr, syscall.Errno) {
	r, _, errno := syscall.RawSyscall6(nr, a, b, c, d, e, f)
	return r, errno
}

// spawn forks the supervisor of one command. It returns its pid in the parent.
// The caller has blocked all signals of its thread.
//
//go:nosplit
//go:norace
func spawn(f *family) (uintptr, syscall.Errno) {
	pid, errno := uintptr(0), syscall.Errno(unix.ENOSYS)
	if f.inGroup != 0 {
		pid, errno = raw(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&f.args)), unsafe.Sizeof(f.args), 0, 0, 0, 0)
	}
	if errno == unix.ENOSYS || errno == unix.EINVAL {
		pid, errno = raw(unix.SYS_CLONE, f.cloneFlags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	}
	if errno == 0 && pid == 0 {
		supervise(f)
	}
	return pid, errno
}

// runScript makes the calls in order. failed is the index of the call that was
// refused, counted from 1; 0 means that all were made.
//
//go:nosplit
//go:norace
func runScript(list, n uintptr) (failed uintptr, errno syscall.Errno) {
	var last syscall.Errno
	var lastAt uintptr
	for i := uintptr(0); i < n; i++ {
		c := (*call)(addressOf(list + i*unsafe.Sizeof(call{})))
		first := c.a[0]
		if c.use != 0 {
			first = uintptr(*(*int32)(addressOf(c.use)))
		}
		r, e := raw(c.nr, first, c.a[1], c.a[2], c.a[3], c.a[4], c.a[5])
		if e == 0 {
			if c.keep != 0 {
				*(*int32)(addressOf(c.keep)) = int32(r)
			}
			continue
		}
		if c.mode == mayFail {
			continue
		}
		if c.mode == mayBeAbsent && (e == unix.ENOENT || e == unix.ENOTDIR || e == unix.EACCES) {
			// A program that may not be run says more than one that is missing.
			if last != unix.EACCES {
				last, lastAt = e, i+1
			}
			continue
		}
		return i + 1, e
	}
	return lastAt, last
}

// supervise is pid 1 of one command's pid namespace (or its subreaper): it
// prepares, starts the command, reaps, passes signals on, and ends when the
// command ends, which ends everything else in the namespace.
//
//go:nosplit
//go:norace
func supervise(f *family) {
	if at, errno := runScript(f.prepare, f.nPrepare); errno != 0 {
		f.failedErrno, f.failedStep = uintptr(errno), at|stepOfSupervisor
		leave(1)
	}
	// CLONE_VFORK without CLONE_VM: the memory is a copy, but the call returns
	// only when the child has reached its program or given up.
	child, errno := raw(unix.SYS_CLONE, unix.CLONE_VFORK|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && child == 0 {
		at, errno := runScript(f.command, f.nCommand)
		// Not reached when the last call, execve, succeeded. f is shared memory.
		f.failedErrno, f.failedStep = uintptr(errno), at
		leave(127)
	}
	if errno != 0 {
		f.failedErrno, f.failedStep = uintptr(errno), stepOfFork
	}
	if f.failedErrno != 0 {
		leave(1) // the init, which sees this memory too, tells the runner
	}
	send(f, MsgStarted)
	runScript(f.after, f.nAfter)
	attend(f, child)
	leave(0)
}

// attend waits for signals until the command has ended.
//
//go:nosplit
//go:norace
func attend(f *family, child uintptr) {
	ended := false
	for {
		if f.subreaper != 0 {
			if pid, _ := raw(unix.SYS_GETPPID, 0, 0, 0, 0, 0, 0); pid != f.parent {
				endOrphans(f, child)
				return
			}
		}
		sig, errno := raw(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&f.mask)), uintptr(unsafe.Pointer(&f.info)), 0, 8, 0, 0)
		if errno != 0 {
			continue // EINTR
		}
		if sig != uintptr(unix.SIGCHLD) {
			if f.subreaper == 0 {
				raw(unix.SYS_KILL, ^uintptr(0), sig, 0, 0, 0, 0)
			}
			continue
		}
		for {
			pid, errno := raw(unix.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&f.wait)), unix.WNOHANG|unix.WALL, 0, 0, 0)
			if errno != 0 && ended {
				return // nobody is left
			}
			if errno != 0 || pid == 0 {
				break
			}
			if pid == child {
				raw(unix.SYS_GETRUSAGE, rusageChildren, uintptr(unsafe.Pointer(&f.rusage)), 0, 0, 0, 0)
				f.msg.Wait = int32(f.wait)
				f.msg.Utime, f.msg.Stime, f.msg.RSS = f.rusage.Utime, f.rusage.Stime, int64(f.rusage.Maxrss)
				send(f, MsgExited)
				if f.subreaper == 0 {
					return
				}
				ended = true
			}
		}
	}
}

// endOrphans kills the tree of a supervisor whose init is dead, where no pid
// namespace does it. Orphans become the supervisor's children, so that killing
// those over and over reaches everybody.
//
//go:nosplit
//go:norace
func endOrphans(f *family, child uintptr) {
	for range sendTries {
		n := uintptr(0)
		if fd, errno := raw(unix.SYS_OPENAT, atCWD, f.list, unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0); errno == 0 {
			if n, errno = raw(unix.SYS_READ, fd, f.children, childrenSize, 0, 0, 0); errno != 0 {
				n = 0
			}
			raw(unix.SYS_CLOSE, fd, 0, 0, 0, 0, 0)
		}
		if n == 0 { // a kernel without that file: the command itself must do
			raw(unix.SYS_KILL, child, uintptr(unix.SIGKILL), 0, 0, 0, 0)
		}
		pid := uintptr(0)
		for i := uintptr(0); i < n; i++ {
			if c := *(*byte)(addressOf(f.children + i)); c >= '0' && c <= '9' {
				pid = pid*10 + uintptr(c-'0')
				continue
			}
			// Each number is followed by a space; one that was cut off is not.
			if pid > 1 {
				raw(unix.SYS_KILL, pid, uintptr(unix.SIGKILL), 0, 0, 0, 0)
			}
			pid = 0
		}
		for {
			gone, errno := raw(unix.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&f.wait)), unix.WNOHANG|unix.WALL, 0, 0, 0)
			if errno == unix.ECHILD {
				return
			}
			if gone == child {
				child = 1 << 30 // nobody's number any more
			}
			if errno != 0 || gone == 0 {
				break
			}
		}
		raw(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&f.tick)), 0, 0, 0, 0, 0)
	}
}

// childrenSize is how many bytes of the list of children are read at once.
const childrenSize = 4096

const rusageChildren = ^uintptr(0) // RUSAGE_CHILDREN is -1

// Steps that are not calls of the command's own script.
const (
	stepOfSupervisor = 1 << 16
	stepOfFork       = 1 << 17
)

// send writes one message to the runner. The socket is shared with the init and
// not blocking; the runner always reads, so a full one empties soon.
//
//go:nosplit
//go:norace
func send(f *family, kind uint32) {
	f.msg.Kind = kind
	for range sendTries {
		_, e := raw(unix.SYS_WRITE, f.control, uintptr(unsafe.Pointer(&f.msg)), unsafe.Sizeof(f.msg), 0, 0, 0)
		if e != unix.EAGAIN && e != unix.EINTR {
			return // sent, or nobody is there any more
		}
		raw(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&f.tick)), 0, 0, 0, 0, 0)
	}
}

// sendTries times the tick of one millisecond bounds the wait for the runner.
const sendTries = 5000

//go:nosplit
//go:norace
func leave(code uintptr) {
	for {
		raw(unix.SYS_EXIT_GROUP, code, 0, 0, 0, 0, 0)
	}
}
