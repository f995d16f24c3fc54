//go:build linux

package confine

import (
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

// run interprets a filter as the kernel does. It fails the test for a program
// the kernel would refuse: a jump out of it, a path without an end.
func run(t testing.TB, code []unix.SockFilter, arch uint32, nr uint32, args ...uint64) uint32 {
	t.Helper()
	data := map[uint32]uint32{dataNr: nr, dataArch: arch}
	for i := range 6 {
		var v uint64
		if i < len(args) {
			v = args[i]
		}
		data[argument(i)], data[argument(i)+4] = uint32(v), uint32(v>>32)
	}
	var a uint32
	for pc := 0; pc < len(code); pc++ {
		in := code[pc]
		jump := func(yes bool) {
			if yes {
				pc += int(in.Jt)
			} else {
				pc += int(in.Jf)
			}
		}
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			v, ok := data[in.K]
			if !ok {
				t.Fatalf("instruction %d loads offset %d", pc, in.K)
			}
			a = v
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= in.K
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(in.K)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(a == in.K)
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			jump(a > in.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(a >= in.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(a&in.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		default:
			t.Fatalf("instruction %d has code %#x", pc, in.Code)
		}
	}
	t.Fatal("the filter ends without an answer")
	return 0
}

func TestFilter(t *testing.T) {
	const (
		allow  = unix.SECCOMP_RET_ALLOW
		notify = unix.SECCOMP_RET_USER_NOTIF
		kill   = unix.SECCOMP_RET_KILL_PROCESS
	)
	eperm, enosys := refuse(unix.EPERM), refuse(unix.ENOSYS)
	usual := filterOptions{unix: UnixByNotify}
	host := filterOptions{unix: UnixByNotify, hostNet: true}
	bare := filterOptions{unix: UnixRefused, noNetns: true, noNamespaces: true, noMounts: true}
	landlock := filterOptions{unix: UnixByLandlock}
	type args = []uint64
	for _, c := range []struct {
		name string
		o    filterOptions
		nr   uint32
		args args
		want uint32
	}{
		{"read", usual, unix.SYS_READ, nil, allow},
		{"execve", usual, unix.SYS_EXECVE, nil, allow},
		{"ptrace", usual, unix.SYS_PTRACE, nil, eperm},
		{"attaching", filterOptions{unix: UnixByNotify, lookAtThreads: true}, unix.SYS_PTRACE, []uint64{unix.PTRACE_ATTACH, 7}, allow},
		{"attaching where processes of others are", usual, unix.SYS_PTRACE, []uint64{unix.PTRACE_ATTACH, 7}, eperm},
		{"writing memory of another", filterOptions{unix: UnixByNotify, lookAtThreads: true}, unix.SYS_PTRACE, []uint64{unix.PTRACE_POKEDATA, 7}, eperm},
		{"attaching quietly", filterOptions{unix: UnixByNotify, lookAtThreads: true}, unix.SYS_PTRACE, []uint64{unix.PTRACE_SEIZE, 7}, eperm},
		{"mount", usual, unix.SYS_MOUNT, nil, eperm},
		{"bpf", usual, unix.SYS_BPF, nil, eperm},
		{"io_uring", usual, unix.SYS_IO_URING_SETUP, nil, eperm},
		{"keyctl", usual, unix.SYS_KEYCTL, nil, eperm},
		{"newest", usual, newestCall, nil, allow},
		{"newer", usual, newestCall + 1, nil, enosys},
		{"x32", usual, 1<<30 | 1, nil, enosys},
		{"negative", usual, 0xffffffff, nil, enosys},
		{"clone a thread", usual, unix.SYS_CLONE, args{unix.CLONE_VM | unix.CLONE_THREAD}, allow},
		{"clone a user namespace", usual, unix.SYS_CLONE, args{unix.CLONE_NEWUSER | 17}, eperm},
		{"clone high bits", usual, unix.SYS_CLONE, args{1<<32 | 17}, allow},
		{"clone3", usual, unix.SYS_CLONE3, nil, enosys},
		{"unshare files", usual, unix.SYS_UNSHARE, args{unix.CLONE_FILES}, allow},
		{"unshare mounts", usual, unix.SYS_UNSHARE, args{unix.CLONE_NEWNS}, eperm},
		{"unshare time", usual, unix.SYS_UNSHARE, args{unix.CLONE_NEWTIME}, eperm},
		{"TIOCSTI", usual, unix.SYS_IOCTL, args{0, 0x5412}, eperm},
		{"TIOCSTI with high bits", usual, unix.SYS_IOCTL, args{0, 0xdead<<32 | 0x5412}, eperm},
		{"TIOCGWINSZ", usual, unix.SYS_IOCTL, args{0, unix.TIOCGWINSZ}, allow},
		{"file flags", usual, unix.SYS_IOCTL, args{0, unix.FS_IOC_SETFLAGS}, allow},
		{"file flags without mounts", bare, unix.SYS_IOCTL, args{0, unix.FS_IOC_SETFLAGS}, eperm},
		{"personality", usual, unix.SYS_PERSONALITY, args{0xffffffff}, allow},
		{"personality 8", usual, unix.SYS_PERSONALITY, args{8}, eperm},
		{"fchmod", usual, unix.SYS_FCHMOD, args{3, 0o755}, allow},
		{"fchmod setuid", usual, unix.SYS_FCHMOD, args{3, 0o4755}, eperm},
		{"fchmodat setgid", usual, unix.SYS_FCHMODAT, args{0, 0, 0o2755}, eperm},
		{"fchmod without mounts", bare, unix.SYS_FCHMOD, args{3, 0o755}, eperm},
		{"utimensat without mounts", bare, unix.SYS_UTIMENSAT, nil, eperm},
		{"utimensat", usual, unix.SYS_UTIMENSAT, nil, allow},
		{"mknodat setuid", usual, unix.SYS_MKNODAT, args{0, 0, unix.S_IFREG | 0o4755}, eperm},
		{"openat", usual, unix.SYS_OPENAT, args{0, 0, unix.O_CREAT, 0o644}, allow},
		{"openat setuid", usual, unix.SYS_OPENAT, args{0, 0, unix.O_CREAT, 0o4755}, eperm},
		{"openat tmpfile setuid", usual, unix.SYS_OPENAT, args{0, 0, unix.O_TMPFILE, 0o4755}, eperm},
		{"openat a folder, garbage mode", usual, unix.SYS_OPENAT, args{0, 0, unix.O_DIRECTORY, 0o7777}, allow},
		{"openat2", usual, unix.SYS_OPENAT2, nil, enosys},
		{"fallocate", usual, unix.SYS_FALLOCATE, nil, refuse(unix.EOPNOTSUPP)},
		{"connect", usual, unix.SYS_CONNECT, nil, notify},
		{"connect with landlock", landlock, unix.SYS_CONNECT, nil, allow},
		{"tcp", usual, unix.SYS_SOCKET, args{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, 0}, allow},
		{"udp6", usual, unix.SYS_SOCKET, args{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP}, allow},
		{"raw", usual, unix.SYS_SOCKET, args{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, eperm},
		{"icmp", usual, unix.SYS_SOCKET, args{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, refuse(unix.EPROTONOSUPPORT)},
		{"icmp of the host", host, unix.SYS_SOCKET, args{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, allow},
		{"mptcp", usual, unix.SYS_SOCKET, args{unix.AF_INET, unix.SOCK_STREAM, 262}, refuse(unix.EPROTONOSUPPORT)},
		{"vsock", usual, unix.SYS_SOCKET, args{unix.AF_VSOCK, unix.SOCK_STREAM}, refuse(unix.EAFNOSUPPORT)},
		{"packet", host, unix.SYS_SOCKET, args{unix.AF_PACKET, unix.SOCK_RAW}, refuse(unix.EAFNOSUPPORT)},
		{"netlink route", usual, unix.SYS_SOCKET, args{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, allow},
		{"netlink diag", usual, unix.SYS_SOCKET, args{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG}, refuse(unix.EPROTONOSUPPORT)},
		{"unix stream", usual, unix.SYS_SOCKET, args{unix.AF_UNIX, unix.SOCK_STREAM}, allow},
		{"unix datagram", usual, unix.SYS_SOCKET, args{unix.AF_UNIX, unix.SOCK_DGRAM | unix.SOCK_NONBLOCK}, eperm},
		{"unix datagram with landlock", landlock, unix.SYS_SOCKET, args{unix.AF_UNIX, unix.SOCK_DGRAM}, allow},
		{"unix pair", usual, unix.SYS_SOCKETPAIR, args{unix.AF_UNIX, unix.SOCK_STREAM}, allow},
		{"unix datagram pair", usual, unix.SYS_SOCKETPAIR, args{unix.AF_UNIX, unix.SOCK_DGRAM}, eperm},
		{"unix raw, which is a datagram", usual, unix.SYS_SOCKET, args{unix.AF_UNIX, unix.SOCK_RAW}, eperm},
		{"unix raw pair", usual, unix.SYS_SOCKETPAIR, args{unix.AF_UNIX, unix.SOCK_RAW | unix.SOCK_CLOEXEC}, eperm},
		{"unix packets", usual, unix.SYS_SOCKET, args{unix.AF_UNIX, unix.SOCK_SEQPACKET | unix.SOCK_CLOEXEC}, allow},
		{"raw pair, bare", bare, unix.SYS_SOCKETPAIR, args{unix.AF_UNIX, unix.SOCK_RAW}, eperm},
		{"a lease", usual, unix.SYS_FCNTL, args{3, unix.F_SETLEASE, unix.F_WRLCK}, eperm},
		{"a lock", usual, unix.SYS_FCNTL, args{3, unix.F_SETLK, 0}, allow},
		{"limits of another", usual, unix.SYS_PRLIMIT64, args{7, unix.RLIMIT_NOFILE, 1}, allow},
		{"limits of another, bare", bare, unix.SYS_PRLIMIT64, args{7, unix.RLIMIT_NOFILE, 1}, eperm},
		{"own limits, bare", bare, unix.SYS_PRLIMIT64, args{0, unix.RLIMIT_NOFILE, 1}, allow},
		{"processors of another, bare", bare, unix.SYS_SCHED_SETAFFINITY, args{7, 8, 0}, eperm},
		{"own priority, bare", bare, unix.SYS_SETPRIORITY, args{unix.PRIO_PROCESS, 0, 10}, allow},
		{"priority of another, bare", bare, unix.SYS_SETPRIORITY, args{unix.PRIO_PROCESS, 7, 10}, eperm},
		{"priority of the user, bare", bare, unix.SYS_SETPRIORITY, args{unix.PRIO_USER, 0, 10}, eperm},
		{"own io priority, bare", bare, unix.SYS_IOPRIO_SET, args{1, 0, 1}, allow},
		{"io priority of another, bare", bare, unix.SYS_IOPRIO_SET, args{1, 7, 1}, eperm},
		{"tipc pair", usual, unix.SYS_SOCKETPAIR, args{unix.AF_TIPC, unix.SOCK_STREAM}, refuse(unix.EAFNOSUPPORT)},
		{"unix, bare", bare, unix.SYS_SOCKET, args{unix.AF_UNIX, unix.SOCK_STREAM}, eperm},
		{"tcp, bare", bare, unix.SYS_SOCKET, args{unix.AF_INET, unix.SOCK_STREAM}, refuse(unix.EAFNOSUPPORT)},
		{"pair, bare", bare, unix.SYS_SOCKETPAIR, args{unix.AF_UNIX, unix.SOCK_STREAM}, allow},
		{"shmget, bare", bare, unix.SYS_SHMGET, nil, eperm},
		{"shmget", usual, unix.SYS_SHMGET, nil, allow},
	} {
		if got := run(t, buildFilter(c.o), auditArch, c.nr, c.args...); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
	if got := run(t, buildFilter(usual), unix.AUDIT_ARCH_I386, 1); got != kill {
		t.Errorf("another machine's calls: %#x", got)
	}
}

// Every call gets an answer, and only the listed ones are not allowed.
func TestFilterAnswersEverything(t *testing.T) {
	for _, o := range []filterOptions{{unix: UnixByNotify, lookAtThreads: true}, {unix: UnixByLandlock, hostNet: true}, {unix: UnixRefused, noNetns: true, noNamespaces: true, noMounts: true}} {
		code := buildFilter(o)
		if len(code) > 4096 {
			t.Errorf("%d instructions", len(code))
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for nr := range uint32(newestCall + 20) {
			for range 8 {
				run(t, code, auditArch, nr, rng.Uint64(), rng.Uint64(), rng.Uint64(), rng.Uint64())
			}
		}
		for _, nr := range append(append([]uint32(nil), refusedCalls...), refusedHere...) {
			if got := run(t, code, auditArch, nr); got != refuse(unix.EPERM) {
				t.Errorf("call %d: %#x", nr, got)
			}
		}
	}
}
