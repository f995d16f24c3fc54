//go:build linux

package confine

import "golang.org/x/sys/unix"

const (
	auditArch  = unix.AUDIT_ARCH_AARCH64
	newestCall = unix.SYS_RSEQ_SLICE_YIELD
)

var refusedHere = []uint32{unix.SYS_KEXEC_FILE_LOAD}

var (
	metadataHere []uint32
	modeHere     []modeCall
	openHere     []openCall
)

// lookRequests are the requests of ptrace(2) that only look.
var lookRequests = []uint32{unix.PTRACE_ATTACH, unix.PTRACE_DETACH, unix.PTRACE_CONT, unix.PTRACE_KILL, unix.PTRACE_GETREGSET}
