package auth

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// Traits asks statx, which also knows mounts and frozen files.
func (osDisk) Traits(path string) (traits, error) {
	var st unix.Statx_t
	const want = unix.STATX_BASIC_STATS
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_SYNC_AS_STAT, want, &st)
	if err == unix.ENOSYS || err == unix.EPERM { // old container runtimes forbid the call itself
		return plainTraits(path)
	}
	if err != nil {
		return traits{}, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	return traits{
		links:  st.Nlink,
		uid:    int(st.Uid),
		gid:    int(st.Gid),
		mode:   fs.FileMode(st.Mode & 0o777),
		sticky: st.Mode&unix.S_ISVTX != 0,
		// A kernel before 5.8 does not know the mount attribute; then the failed
		// rename is caught when it happens.
		mountRoot: st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0,
		frozen:    st.Attributes&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND) != 0,
	}, nil
}
