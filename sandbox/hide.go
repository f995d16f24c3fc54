//go:build linux

package sandbox

import (
	"fmt"
	"strconv"
	"unsafe"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
	"golang.org/x/sys/unix"
)

// HideSelf keeps the calling program out of reach of other processes of the
// same user: its environment, as /proc shows it, is overwritten and the process
// is made undumpable, so that neither its memory nor its descriptors can be
// opened. The Go program still sees its environment, which the runtime copied
// at start. Call it once, early, before secrets are used.
func HideSelf() error {
	if err := wipeEnviron(); err != nil {
		return fmt.Errorf("sandbox: hiding the environment: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("sandbox: making the process undumpable: %w", err)
	}
	return nil
}

// wipeEnviron zeroes the strings the kernel put on the first stack. os.Unsetenv
// does not: it only changes the runtime's copy.
func wipeEnviron() error {
	_, f, err := confine.ProcStat("self")
	if err != nil {
		return err
	}
	// Fields 50 and 51; f starts with the third.
	const envStart, envEnd = 50 - 3, 51 - 3
	if len(f) <= envEnd {
		return fmt.Errorf("/proc/self/stat has only %d fields", len(f)+2)
	}
	start, err1 := strconv.ParseUint(f[envStart], 10, 64)
	end, err2 := strconv.ParseUint(f[envEnd], 10, 64)
	if err1 != nil || err2 != nil || start == 0 || end < start {
		return fmt.Errorf("/proc/self/stat names no environment range")
	}
	clear(unsafe.Slice((*byte)(addressOf(uintptr(start))), int(end-start)))
	return nil
}

// addressOf turns a number into a pointer. It is for memory that is not Go's and
// never moves: the initial stack of the process, mappings of our own.
//
//go:nosplit
//go:norace
func addressOf(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }
