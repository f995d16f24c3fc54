//go:build linux

package confine

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The runner looks at what commands did with programs of its own, which shall
// change nothing. A sandbox for them would cost as much as the one there is. So
// they run in the same view, narrowed: their supervisor, which has a mount
// namespace of its own anyway, makes every mount in it read-only and uncovers the
// one folder that they may write and nobody else sees. Landlock repeats it.

// coverSide closes the folder to everybody whose supervisor does not uncover it.
func (v *view) coverSide() error {
	if v.p.Side == "" {
		return nil
	}
	fd, err := v.open(v.p.Side)
	if err != nil {
		return atMount("opening", v.p.Side, err)
	}
	v.side = fd
	return atMount("covering", v.p.Side, v.grafter.graft(v.masks.deny, fd, 0))
}

// narrow gives the supervisor the view that a request with Side asks for.
func (in *initProcess) narrow(s *script) {
	at := s.a.str(in.plan.Side)
	s.do("uncovering the side folder", unix.SYS_UMOUNT2, at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	attr := func(set, clear uint64) (address, size uintptr) {
		a := place(s.a, unix.MountAttr{Attr_set: set, Attr_clr: clear})
		return uintptr(unsafe.Pointer(a)), unsafe.Sizeof(*a)
	}
	readOnly, size := attr(unix.MOUNT_ATTR_RDONLY, 0)
	s.do("making everything read-only", unix.SYS_MOUNT_SETATTR, atCWD, s.a.str("/"), unix.AT_RECURSIVE, readOnly, size)
	writable, size := attr(0, unix.MOUNT_ATTR_RDONLY)
	s.do("opening the side folder", unix.SYS_MOUNT_SETATTR, atCWD, at, unix.AT_SYMLINK_NOFOLLOW, writable, size)
}

// planOf is the plan as it holds for one request.
func (in *initProcess) planOf(r *Request) *Plan {
	if !r.Side {
		return &in.plan
	}
	p := in.plan
	p.Roots, p.Sockets, p.TmpWrite = []string{fdPath(in.side)}, nil, false
	return &p
}
