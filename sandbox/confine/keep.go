//go:build linux

package confine

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Mounts can be lost. Whoever replaces or removes a covered file on the host
// silently takes every mount on it away, in every namespace: a login that is
// refreshed, a tool that rewrites its settings. And what did not exist at the
// start may exist now. So before each command the init looks whether its mounts
// changed, which costs one call, and puts back what is missing.

// PlaceholderMode marks a placeholder for a protected name that does not exist:
// an empty folder that nobody may write.
const PlaceholderMode = 0o555

// keeper knows what must stay covered.
type keeper struct {
	places   []covered
	late     []string // denied, but missing so far
	overlays []Overlay
	events   int // an open mountinfo, which can be polled for changes
}

// covered is a path with a mount on it.
type covered struct {
	name string
	kind coverKind
}

type coverKind int

const (
	coverDeny coverKind = iota
	coverProtect
	coverHold
)

// newKeeper is made after the view was entered.
func newKeeper(p *Plan) *keeper {
	k := &keeper{late: p.Late, overlays: p.Overlays, events: -1}
	for kind, names := range map[coverKind][]string{coverDeny: p.Deny, coverProtect: p.Protect, coverHold: p.Hold} {
		for _, n := range names {
			if isMountRoot(n) {
				k.places = append(k.places, covered{n, kind})
			}
		}
	}
	fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		k.events = fd
		k.changed() // what was done so far is no change
	}
	return k
}

// check restores what was lost. An error means that a promise cannot be kept
// any more.
func (k *keeper) check() error {
	if k == nil {
		return nil
	}
	still := k.late[:0]
	for _, name := range k.late {
		// There are many, looked at before each command: the cheapest call first.
		var st unix.Stat_t
		if unix.Lstat(name, &st) == unix.ENOENT {
			still = append(still, name)
			continue
		}
		fd, err := OpenNoLinks(unix.AT_FDCWD, name)
		if err != nil {
			still = append(still, name)
			continue
		}
		CloseFD(fd)
		if err := coverNow(name); err != nil {
			return fmt.Errorf("covering %s, which came to be: %w", name, err)
		}
		k.places = append(k.places, covered{name, coverDeny})
		if err := k.coverCopies(name); err != nil {
			return err
		}
	}
	k.late = still
	if !k.changed() {
		return nil
	}
	for _, c := range k.places {
		if isMountRoot(c.name) {
			continue
		}
		if err := k.restore(c); err != nil {
			return fmt.Errorf("covering %s again: %w", c.name, err)
		}
	}
	k.changed()
	return nil
}

// coverCopies hides what overlays show of a denied path that came to be.
func (k *keeper) coverCopies(name string) error {
	for _, o := range k.overlays {
		if !Below(name, o.Lower) {
			continue
		}
		at := o.At + name[len(o.Lower):]
		if _, err := os.Lstat(at); err != nil {
			continue // deleted in the private copy, or no overlay was laid
		}
		if err := coverNow(at); err != nil {
			return fmt.Errorf("covering %s, which shows %s: %w", at, name, err)
		}
		k.places = append(k.places, covered{at, coverDeny})
	}
	return nil
}

// restore covers a place whose mount was lost.
func (k *keeper) restore(c covered) error {
	if _, err := os.Lstat(c.name); err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		switch c.kind {
		case coverDeny:
			k.late = append(k.late, c.name)
			return nil
		case coverHold, coverProtect:
			if err := os.Mkdir(c.name, PlaceholderMode); err != nil {
				return err
			}
		}
	}
	if c.kind == coverDeny {
		return coverNow(c.name)
	}
	fd, err := OpenNoLinks(unix.AT_FDCWD, c.name)
	if err != nil {
		return err
	}
	defer CloseFD(fd)
	if err := unix.Mount(fdPath(fd), fdPath(fd), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return remountTree(c.name, readOnlyAttr)
}

// coverNow hides a path in the finished view: with a folder nobody can open, or
// with the null device.
func coverNow(name string) error {
	fd, err := OpenNoLinks(unix.AT_FDCWD, name)
	if err != nil {
		return err
	}
	defer CloseFD(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return unix.Mount("tmpfs", fdPath(fd), "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0000,size=4k")
	}
	return unix.Mount("/dev/null", fdPath(fd), "", unix.MS_BIND, "")
}

// changed tells whether mounts of this namespace changed since it was last asked.
func (k *keeper) changed() bool {
	if k.events < 0 {
		return true
	}
	p := []unix.PollFd{{Fd: int32(k.events), Events: unix.POLLPRI}}
	n, err := unix.Poll(p, 0)
	return err != nil || n > 0
}

// isMountRoot tells whether something is mounted exactly there; true where the
// kernel (before 5.8) does not tell.
func isMountRoot(name string) bool {
	var stx unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &stx); err != nil {
		return false
	}
	return stx.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 || stx.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
