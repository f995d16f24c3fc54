//go:build linux

package confine

import (
	"errors"
	"maps"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system call filter. It is a list of refusals, since a list of permissions
// breaks with every new libc; what this program does not know at all is refused
// too (ENOSYS, which every libc answers with the older call).

// UnixSockets says how connections to sockets of the host are prevented.
type UnixSockets string

const (
	UnixByLandlock UnixSockets = "landlock" // ABI 9: the kernel looks at the server's domain
	UnixByNotify   UnixSockets = "notify"   // every connect is made by the init after a look
	UnixRefused    UnixSockets = "refused"  // no Unix sockets but socket pairs
	UnixOpen       UnixSockets = "open"     // danger-full-access
)

// filterOptions shape the filter.
type filterOptions struct {
	unix         UnixSockets
	hostNet      bool // the host's network: ICMP echo is allowed as the host allows it
	noNetns      bool // no own network namespace: nothing but Unix sockets
	noNamespaces bool // no namespace at all
	// noMounts: nothing but Landlock confines files, which does not see changes
	// of modes, owners, times and attributes: refuse them altogether.
	noMounts bool
	// lookAtThreads: the command's own processes may be looked at. Landlock and a
	// pid namespace keep those of others, the supervisor too, out of reach.
	lookAtThreads bool
}

const (
	retAllow  = unix.SECCOMP_RET_ALLOW
	retNotify = unix.SECCOMP_RET_USER_NOTIF
)

func refuse(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e)&unix.SECCOMP_RET_DATA }

// Offsets into struct seccomp_data. Arguments are 64 bits, little end first on
// every machine this is built for; flags and small numbers are in the low half.
const (
	dataNr   = 0
	dataArch = 4
	dataArgs = 16
)

func argument(n int) uint32 { return uint32(dataArgs + 8*n) }

// refusedCalls are refused with EPERM on every machine. The lists for calls that
// only some machines have are in seccomp_linux_*.go.
var refusedCalls = []uint32{
	// other processes
	unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD,
	// namespaces and mounts
	unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR,
	unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	// kernel interfaces with a history
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK, unix.SYS_LOOKUP_DCOOKIE,
	unix.SYS_NFSSERVCTL,
	// files by handle: past every mount
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT,
	// the machine
	unix.SYS_KEXEC_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF,
	unix.SYS_SYSLOG, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_VHANGUP, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME,
	unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	// memory placement
	unix.SYS_MBIND, unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES, unix.SYS_SET_MEMPOLICY, unix.SYS_SET_MEMPOLICY_HOME_NODE,
	// attributes as chattr sets them, by path
	unix.SYS_FILE_SETATTR,
}

// ipcCalls reach objects of other processes where there is no ipc namespace.
var ipcCalls = []uint32{
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
	unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
}

// metadataCalls change what Landlock does not see.
var metadataCalls = []uint32{
	unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT,
}

// namespaceFlags are CLONE_NEW* as clone(2) takes them; CLONE_NEWTIME shares its
// bit with the exit signal there and is refused for unshare only.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// setidBits are the set-user-ID and set-group-ID bits of a mode.
const setidBits = unix.S_ISUID | unix.S_ISGID

// Terminal requests that put characters into a terminal's input or take it over.
const (
	tiocsti   = 0x5412
	tioclinux = 0x541c
	tioccons  = 0x541d
)

// fsSetXattr is FS_IOC_FSSETXATTR.
const fsSetXattr = 0x401c5820

// buildFilter makes the program for this machine.
func buildFilter(o filterOptions) []unix.SockFilter {
	f := table{}
	calls := append(append([]uint32(nil), refusedCalls...), refusedHere...)
	if o.noMounts {
		calls = append(append(calls, metadataCalls...), metadataHere...)
	}
	if o.noNamespaces {
		calls = append(calls, ipcCalls...)
	}
	for _, nr := range calls {
		f.when(nr, func(b *assembler) { b.ret(refuse(unix.EPERM)) })
	}
	f.when(unix.SYS_CLONE3, func(b *assembler) { b.ret(refuse(unix.ENOSYS)) })  // its flags are in memory
	f.when(unix.SYS_OPENAT2, func(b *assembler) { b.ret(refuse(unix.ENOSYS)) }) // so is its mode
	f.when(unix.SYS_FALLOCATE, func(b *assembler) { b.ret(refuse(unix.EOPNOTSUPP)) })
	f.when(unix.SYS_CLONE, func(b *assembler) { b.refuseBits(argument(0), namespaceFlags); b.ret(retAllow) })
	f.when(unix.SYS_UNSHARE, func(b *assembler) { b.refuseBits(argument(0), namespaceFlags|unix.CLONE_NEWTIME); b.ret(retAllow) })
	f.when(unix.SYS_PERSONALITY, personalities)
	f.when(unix.SYS_IOCTL, func(b *assembler) { ioctls(b, o.noMounts) })
	f.when(unix.SYS_FCNTL, leases)
	f.when(unix.SYS_PTRACE, func(b *assembler) { tracing(b, o.lookAtThreads) })
	if o.noNamespaces {
		otherProcesses(f)
	}
	setidCalls(f)
	sockets(f, o)

	var b assembler
	b.load(dataArch)
	b.unless(auditArch, func(b *assembler) { b.ret(unix.SECCOMP_RET_KILL_PROCESS) })
	b.load(dataNr)
	// Also refuses the x32 calls of x86-64, which begin at 1<<30.
	b.above(newestCall, func(b *assembler) { b.ret(refuse(unix.ENOSYS)) })
	b.search(f, slices.Sorted(maps.Keys(f)))
	return b.code
}

// table holds what is done about each call that is not simply allowed. Every
// block ends in a return.
type table map[uint32]func(*assembler)

// when adds a call; what was said first about it counts.
func (t table) when(nr uint32, block func(*assembler)) {
	if _, ok := t[nr]; !ok {
		t[nr] = block
	}
}

// personalities allows asking, the default, and the default without address
// randomisation (what debuggers and some test suites set).
func personalities(b *assembler) {
	const noRandomize = 0x0040000
	b.load(argument(0))
	for _, v := range []uint32{0, noRandomize, 0xffffffff} {
		b.when(v, func(b *assembler) { b.ret(retAllow) })
	}
	b.ret(refuse(unix.EPERM))
}

// ioctls compares the low 32 bits, as the kernel does. Flags of a file can be
// changed through a descriptor that was opened for reading.
func ioctls(b *assembler, flags bool) {
	refused := []uint32{tiocsti, tioclinux, tioccons}
	if flags {
		refused = append(refused, unix.FS_IOC_SETFLAGS, fsSetXattr)
	}
	b.load(argument(1))
	for _, v := range refused {
		b.when(v, func(b *assembler) { b.ret(refuse(unix.EPERM)) })
	}
	b.ret(retAllow)
}

// tracing leaves what LeakSanitizer does to the threads of its own process, which
// every program built with AddressSanitizer does at its end: stop one, read its
// registers, let it go. Nothing of another process can be changed by that.
func tracing(b *assembler, look bool) {
	b.load(argument(0))
	if look {
		for _, request := range lookRequests {
			b.when(request, func(b *assembler) { b.ret(retAllow) })
		}
	}
	b.ret(refuse(unix.EPERM))
}

// leases refuses a lease on a file, which needs no more than to have it open for
// reading: until it is given back, or the kernel loses patience after most of a
// minute, everybody else who opens the file waits, the runner too.
func leases(b *assembler) {
	b.load(argument(1))
	b.when(unix.F_SETLEASE, func(b *assembler) { b.ret(refuse(unix.EPERM)) })
	b.ret(retAllow)
}

// otherProcesses refuses what changes the limits, the priority or the processors
// of other processes of the same user, where no pid namespace hides them. A
// thread's number cannot be told from theirs; 0, which is the caller, stays.
func otherProcesses(f table) {
	who := func(nr uint32, arg int) {
		f.when(nr, func(b *assembler) {
			b.load(argument(arg))
			b.unless(0, func(b *assembler) { b.ret(refuse(unix.EPERM)) })
			b.ret(retAllow)
		})
	}
	for _, nr := range []uint32{unix.SYS_PRLIMIT64, unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETATTR} {
		who(nr, 0)
	}
	// Who is the second argument; the first says whether it is a process, a group
	// or a user. 0 is the caller, its group, or all of the user's processes.
	for _, nr := range []uint32{unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET} {
		process := uint32(unix.PRIO_PROCESS)
		if nr == unix.SYS_IOPRIO_SET {
			process = ioprioProcess
		}
		f.when(nr, func(b *assembler) {
			b.load(argument(0))
			b.unless(process, func(b *assembler) { b.ret(refuse(unix.EPERM)) })
			b.load(argument(1))
			b.unless(0, func(b *assembler) { b.ret(refuse(unix.EPERM)) })
			b.ret(retAllow)
		})
	}
}

// ioprioProcess is IOPRIO_WHO_PROCESS.
const ioprioProcess = 1

// setidCalls refuses every call that could leave a set-user-ID file behind for
// somebody outside: nosuid only protects those inside.
func setidCalls(f table) {
	modeIn := func(nr uint32, arg int) {
		f.when(nr, func(b *assembler) { b.refuseBits(argument(arg), setidBits); b.ret(retAllow) })
	}
	modeIn(unix.SYS_FCHMOD, 1)
	modeIn(unix.SYS_FCHMODAT, 2)
	modeIn(unix.SYS_FCHMODAT2, 2)
	modeIn(unix.SYS_MKNODAT, 2)
	for _, c := range modeHere {
		modeIn(c.nr, c.arg)
	}
	opens := append([]openCall{{unix.SYS_OPENAT, 2, 3}}, openHere...)
	for _, c := range opens {
		f.when(c.nr, func(b *assembler) {
			// Without O_CREAT and O_TMPFILE the mode is whatever was in the register.
			b.load(argument(c.flags))
			b.ifSet(unix.O_CREAT|(unix.O_TMPFILE&^unix.O_DIRECTORY), func(b *assembler) { b.refuseBits(argument(c.mode), setidBits) })
			b.ret(retAllow)
		})
	}
}

// modeCall is a call whose argument arg is a mode.
type modeCall struct {
	nr  uint32
	arg int
}

// openCall is a call with open flags and a mode.
type openCall struct {
	nr          uint32
	flags, mode int
}

// typeMask leaves the type of a socket without SOCK_CLOEXEC and SOCK_NONBLOCK.
const typeMask = 0xf

// connectedOnly refuses Unix sockets but those that must connect first. A
// datagram goes where each sendmsg says, in memory that nobody can look at; and
// for this family the kernel makes a datagram socket of SOCK_RAW too.
func connectedOnly(b *assembler) {
	b.load(argument(1))
	b.and(typeMask)
	b.unlessOneOf([]uint32{unix.SOCK_STREAM, unix.SOCK_SEQPACKET}, func(b *assembler) { b.ret(refuse(unix.EPERM)) })
}

// sockets leaves the families that a network namespace isolates.
func sockets(f table, o filterOptions) {
	local := func(b *assembler) {
		switch o.unix {
		case UnixRefused:
			b.ret(refuse(unix.EPERM))
		case UnixByNotify:
			connectedOnly(b)
		}
		b.ret(retAllow)
	}
	internet := func(b *assembler) {
		b.load(argument(1))
		b.and(typeMask)
		b.unlessOneOf([]uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM}, func(b *assembler) { b.ret(refuse(unix.EPERM)) })
		protocols := []uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP}
		if o.hostNet {
			protocols = append(protocols, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6)
		}
		b.load(argument(2))
		b.unlessOneOf(protocols, func(b *assembler) { b.ret(refuse(unix.EPROTONOSUPPORT)) })
		b.ret(retAllow)
	}
	f.when(unix.SYS_SOCKET, func(b *assembler) {
		b.load(argument(0))
		b.when(unix.AF_UNIX, local)
		if !o.noNetns {
			b.when(unix.AF_INET, internet)
			b.when(unix.AF_INET6, internet)
			b.when(unix.AF_NETLINK, func(b *assembler) {
				b.load(argument(2))
				b.unless(unix.NETLINK_ROUTE, func(b *assembler) { b.ret(refuse(unix.EPROTONOSUPPORT)) })
				b.ret(retAllow)
			})
		}
		b.ret(refuse(unix.EAFNOSUPPORT))
	})
	f.when(unix.SYS_SOCKETPAIR, func(b *assembler) {
		b.load(argument(0))
		b.unless(unix.AF_UNIX, func(b *assembler) { b.ret(refuse(unix.EAFNOSUPPORT)) })
		if o.unix == UnixByNotify || o.unix == UnixRefused {
			connectedOnly(b)
		}
		b.ret(retAllow)
	})
	if o.unix == UnixByNotify {
		f.when(unix.SYS_CONNECT, func(b *assembler) { b.ret(retNotify) })
	}
}

// linearCalls is how many calls are compared one after the other.
const linearCalls = 3

// search finds the block of a call by halves: the kernel runs the program over
// every call number when a filter is installed, and a list of a hundred
// comparisons would make that the dearest part of starting a command.
func (b *assembler) search(t table, calls []uint32) {
	if len(calls) <= linearCalls {
		for _, nr := range calls {
			b.when(nr, t[nr])
		}
		b.ret(retAllow)
		return
	}
	middle := len(calls) / 2
	var low assembler
	low.search(t, calls[:middle])
	// A conditional jump reaches 255 instructions, the plain one anything.
	b.code = append(b.code, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: calls[middle], Jf: 1})
	b.op(unix.BPF_JMP|unix.BPF_JA, uint32(len(low.code)))
	b.code = append(b.code, low.code...)
	b.search(t, calls[middle:])
}

// assembler writes classic BPF. Every block it is given ends with ret, or falls
// through to what follows it; the accumulator is then what the block loaded.
type assembler struct{ code []unix.SockFilter }

func (b *assembler) op(code uint16, k uint32) {
	b.code = append(b.code, unix.SockFilter{Code: code, K: k})
}

func (b *assembler) load(offset uint32) { b.op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset) }
func (b *assembler) and(mask uint32)    { b.op(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, mask) }
func (b *assembler) ret(action uint32)  { b.op(unix.BPF_RET|unix.BPF_K, action) }

// block appends a jump over the block: taken says which outcome enters it.
func (b *assembler) block(test uint16, k uint32, taken bool, block func(*assembler)) {
	var inner assembler
	block(&inner)
	if len(inner.code) > 255 {
		panic("sandbox: a filter block is too long for a jump")
	}
	j := unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, K: k}
	if taken {
		j.Jf = uint8(len(inner.code))
	} else {
		j.Jt = uint8(len(inner.code))
	}
	b.code = append(append(b.code, j), inner.code...)
}

func (b *assembler) when(k uint32, block func(*assembler))   { b.block(unix.BPF_JEQ, k, true, block) }
func (b *assembler) unless(k uint32, block func(*assembler)) { b.block(unix.BPF_JEQ, k, false, block) }
func (b *assembler) above(k uint32, block func(*assembler))  { b.block(unix.BPF_JGT, k, true, block) }
func (b *assembler) ifSet(bits uint32, block func(*assembler)) {
	b.block(unix.BPF_JSET, bits, true, block)
}

// refuseBits refuses with EPERM when a bit of the word at offset is set.
func (b *assembler) refuseBits(offset, bits uint32) {
	b.load(offset)
	b.ifSet(bits, func(b *assembler) { b.ret(refuse(unix.EPERM)) })
}

// unlessOneOf enters the block when the accumulator is none of ks.
func (b *assembler) unlessOneOf(ks []uint32, block func(*assembler)) {
	var inner assembler
	block(&inner)
	for i, k := range ks {
		// over the tests that are left and the block
		b.code = append(b.code, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jt: uint8(len(ks) - 1 - i + len(inner.code))})
	}
	b.code = append(b.code, inner.code...)
}

// storeFilter puts a program and its header (struct sock_fprog) into the arena.
func storeFilter(a *arena, code []unix.SockFilter) uintptr {
	m := a.bytes(len(code) * int(unsafe.Sizeof(unix.SockFilter{})))
	copy(unsafe.Slice((*unix.SockFilter)(unsafe.Pointer(unsafe.SliceData(m))), len(code)), code)
	p := place(a, unix.SockFprog{Len: uint16(len(code)), Filter: (*unix.SockFilter)(unsafe.Pointer(unsafe.SliceData(m)))})
	return uintptr(unsafe.Pointer(p))
}

// filterFlags finds out whether this kernel takes filters, and with which flags
// a listener: asking with no program is answered with EFAULT by a kernel that
// knows the flags.
func filterFlags() (listener uintptr, err error) {
	ask := func(flags uintptr) unix.Errno {
		_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, 0)
		return e
	}
	if e := ask(0); e != unix.EFAULT {
		if e == 0 {
			return 0, errors.New("seccomp: the kernel took a filter that is not there")
		}
		return 0, e
	}
	for _, flags := range []uintptr{unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER} {
		if ask(flags) == unix.EFAULT {
			return flags, nil
		}
	}
	return 0, nil
}
