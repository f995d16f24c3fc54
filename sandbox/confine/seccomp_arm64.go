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
