package patch

import (
	"io/fs"
	"os"
	"syscall"
)

// owner is who a file belongs to.
type owner struct{ uid, gid int }

func ownerOf(fi fs.FileInfo) *owner {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return &owner{int(st.Uid), int(st.Gid)}
}

// keep gives f to o and tells whether it now belongs to o.
func (o *owner) keep(f *os.File) bool {
	fi, err := f.Stat()
	if err != nil {
		return false
	}
	if now := ownerOf(fi); now != nil && *now == *o {
		return true
	}
	return f.Chown(o.uid, o.gid) == nil
}

// linksOf is the number of names of a file.
func linksOf(fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	return 1
}
