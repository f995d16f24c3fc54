//go:build linux

package confine

import (
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenNoLinks opens a place without following any link on the way.
func OpenNoLinks(dir int, name string) (int, error) {
	// Not with O_NOFOLLOW: that would open a link at the end of the path itself.
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(dir, name, &how)
	if err == nil || !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return fd, err
	}
	return walkNoLinks(dir, name) // before Linux 5.6, and where a filter refuses it
}

// walkNoLinks does the same one name at a time.
func walkNoLinks(dir int, name string) (int, error) {
	if strings.HasPrefix(name, "/") {
		root, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
		if err != nil {
			return -1, err
		}
		defer CloseFD(root)
		dir, name = root, strings.TrimPrefix(path.Clean(name), "/")
	}
	if name == "" {
		return unix.Dup(dir)
	}
	cur := -1
	for part := range strings.SplitSeq(name, "/") {
		at := cur
		if at < 0 {
			at = dir
		}
		next, err := unix.Openat(at, part, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		CloseFD(cur)
		if err != nil {
			return -1, err
		}
		var st unix.Stat_t
		if err := unix.Fstat(next, &st); err != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK {
			CloseFD(next)
			if err == nil {
				err = unix.ELOOP
			}
			return -1, err
		}
		cur = next
	}
	return cur, nil
}
