//go:build linux

package confine

import "golang.org/x/sys/unix"

const (
	auditArch  = unix.AUDIT_ARCH_X86_64
	newestCall = unix.SYS_RSEQ_SLICE_YIELD
)

var refusedHere = []uint32{
	unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_SYSFS,
	unix.SYS__SYSCTL, unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE,
}

var metadataHere = []uint32{
	unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
}

var modeHere = []modeCall{{unix.SYS_CHMOD, 1}, {unix.SYS_CREAT, 1}, {unix.SYS_MKNOD, 1}}

var openHere = []openCall{{unix.SYS_OPEN, 1, 2}}

// lookRequests are the requests of ptrace(2) that only look.
var lookRequests = []uint32{unix.PTRACE_ATTACH, unix.PTRACE_DETACH, unix.PTRACE_CONT, unix.PTRACE_KILL, unix.PTRACE_GETREGS, unix.PTRACE_GETREGSET}
