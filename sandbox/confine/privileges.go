//go:build linux

package confine

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// InitCapabilities are what the init needs in its own user namespace. A program
// started by an ordinary user keeps none unless they are ambient.
var InitCapabilities = []uintptr{
	unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_SYS_CHROOT, unix.CAP_SYS_PTRACE, unix.CAP_SETUID, unix.CAP_SETGID,
	unix.CAP_SETFCAP, unix.CAP_DAC_OVERRIDE,
}

// securebits: user id 0 gives no capabilities at exec, none can become ambient,
// and all that stays so.
const secureBits = 1<<0 | 1<<1 | // SECBIT_NOROOT and its lock
	1<<2 | 1<<3 | // SECBIT_NO_SETUID_FIXUP and its lock
	1<<5 | // SECBIT_KEEP_CAPS_LOCKED
	1<<6 | 1<<7 // SECBIT_NO_CAP_AMBIENT_RAISE and its lock

// dropPrivileges takes from the calling thread what its children must never
// have: they inherit an empty bounding set and no_new_privs. The thread itself
// keeps its present capabilities, which it needs to make namespaces.
func dropPrivileges() error {
	at := func(op string, err error) error { return &layerError{LayerPrivs, op, err} }
	for c := range lastCapability() + 1 {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EPERM) && noCapabilities() {
			break // without any there is nothing that could come back
		}
		if err != nil && !errors.Is(err, unix.EINVAL) {
			return at("dropping capability "+strconv.Itoa(c)+" from the bounding set", err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return at("clearing the ambient capabilities", err)
	}
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0); err != nil && !noCapabilities() {
		return at("prctl(PR_SET_SECUREBITS)", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return at("prctl(PR_SET_NO_NEW_PRIVS)", err)
	}
	return nil
}

// lastCapability is the highest this kernel knows.
func lastCapability() int {
	const known = 63
	b, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return known
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n < 0 || n > known {
		return known
	}
	return n
}

// noCapabilities tells whether the calling thread has none at all.
func noCapabilities() bool {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&h, &d[0]); err != nil {
		return false
	}
	return d[0].Permitted|d[1].Permitted|d[0].Effective|d[1].Effective == 0
}

// HasCapability tells whether the calling thread may use c.
func HasCapability(c int) bool {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&h, &d[0]); err != nil {
		return false
	}
	return d[c/32].Effective&(1<<(c%32)) != 0
}
