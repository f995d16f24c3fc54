//go:build linux

package confine

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A network namespace does not isolate Unix sockets that have a path: whoever
// can see the path can connect, also through a read-only mount, and what listens
// there runs commands for its clients (container engines, agents, terminal
// multiplexers). Landlock closes that from version 9. Before, the filter sends
// every connect here: the init copies the address, looks whether the server
// belongs to this sandbox, and makes the call itself on a duplicate of the
// socket. It never lets the original call go on, since its address could be
// changed by another thread after the look.

// notifier serves the filters of all commands of a sandbox.
type notifier struct {
	plan    *Plan
	childFD int // commands send theirs here

	mu   sync.Mutex
	open map[uint32]*os.File
	busy chan struct{} // bounds the connects being made
}

// maxConnects bounds the connects that are being made at once: each may hold a
// thread until its server accepts.
const maxConnects = 256

// newNotifier prepares for filters; it fails where the kernel lacks a part.
func newNotifier(p *Plan) (*notifier, error) {
	if err := canDuplicate(); err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	w, err := NewWire(os.NewFile(uintptr(fds[0]), "listeners"))
	if err != nil {
		CloseFD(fds[1])
		return nil, err
	}
	n := &notifier{plan: p, childFD: fds[1], open: map[uint32]*os.File{}, busy: make(chan struct{}, maxConnects)}
	go n.accept(w)
	return n, nil
}

// canDuplicate tries what a connect will need.
func canDuplicate() error {
	fd, err := unix.PidfdOpen(unix.Getpid(), 0)
	if err != nil {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	defer CloseFD(fd)
	dup, err := unix.PidfdGetfd(fd, 0, 0)
	if err != nil {
		return fmt.Errorf("pidfd_getfd: %w", err)
	}
	CloseFD(dup)
	return nil
}

// message prepares what a command sends: its number, and the listener in the
// slot at address.
func (n *notifier) message(a *arena, id uint32) (msg, slot uintptr) {
	body := place(a, id)
	control := a.bytes(unix.CmsgSpace(4))
	h := (*unix.Cmsghdr)(unsafe.Pointer(unsafe.SliceData(control)))
	h.Level, h.Type = unix.SOL_SOCKET, unix.SCM_RIGHTS
	h.SetLen(unix.CmsgLen(4))
	iov := place(a, unix.Iovec{Base: (*byte)(unsafe.Pointer(body)), Len: uint64(unsafe.Sizeof(*body))})
	m := place(a, unix.Msghdr{Iov: iov, Iovlen: 1, Control: unsafe.SliceData(control), Controllen: uint64(unix.CmsgSpace(4))})
	return uintptr(unsafe.Pointer(m)), address(control) + uintptr(unix.CmsgLen(0))
}

// accept takes listeners as commands start.
func (n *notifier) accept(w *Wire) {
	buf := make([]byte, 16)
	for {
		got, fds, err := w.Receive(buf)
		if err != nil {
			return // the init ends
		}
		if got != 4 || len(fds) != 1 {
			CloseAll(fds)
			continue
		}
		id := uint32(buf[0]) | uint32(buf[1])<<8 | uint32(buf[2])<<16 | uint32(buf[3])<<24
		if err := unix.SetNonblock(fds[0], true); err != nil {
			CloseAll(fds)
			continue // connects of that command fail: closed is safe
		}
		f := os.NewFile(uintptr(fds[0]), "listener")
		n.mu.Lock()
		n.open[id] = f
		n.mu.Unlock()
		go n.serve(f)
	}
}

// drop closes the listener of a command that is gone.
func (n *notifier) drop(id uint32) {
	n.mu.Lock()
	f := n.open[id]
	delete(n.open, id)
	n.mu.Unlock()
	if f != nil {
		_ = f.Close() // nobody is left who could call
	}
}

// notification is struct seccomp_notif.
type notification struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// answer is struct seccomp_notif_resp.
type answer struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

// serve answers the calls of one command until it is gone.
func (n *notifier) serve(f *os.File) {
	rc, err := f.SyscallConn()
	if err != nil {
		return
	}
	for {
		var note notification
		var e unix.Errno
		err := rc.Read(func(fd uintptr) bool {
			if !readable(int(fd)) {
				return false // wait
			}
			note = notification{}
			_, _, e = unix.Syscall(unix.SYS_IOCTL, fd, unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&note)))
			return true
		})
		if err != nil || e == unix.EBADF || e == unix.EINVAL {
			return // closed by drop
		}
		if e != 0 {
			continue // ENOENT: the caller died meanwhile
		}
		n.busy <- struct{}{}
		go func() {
			defer func() { <-n.busy }()
			n.reply(rc, &note)
		}()
	}
}

// readable looks without waiting: the receiving ioctl itself ignores O_NONBLOCK.
func readable(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&unix.POLLIN != 0
}

// reply makes the call for its caller and reports what came of it.
func (n *notifier) reply(rc syscall.RawConn, note *notification) {
	valid := func() bool {
		ok := false
		err := rc.Control(func(fd uintptr) {
			_, _, e := unix.Syscall(unix.SYS_IOCTL, fd, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, uintptr(unsafe.Pointer(&note.id)))
			ok = e == 0
		})
		return err == nil && ok
	}
	e := unix.EPERM
	if note.nr == unix.SYS_CONNECT {
		e = n.connect(note, valid)
	}
	resp := answer{id: note.id, errno: -int32(e)}
	// A caller that died does not wait for an answer.
	_ = rc.Control(func(fd uintptr) {
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, fd, unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&resp)))
	})
}

// sockaddrMax is the size of struct sockaddr_storage.
const sockaddrMax = 128

// connect does connect(fd, addr, len) for the thread note.pid.
func (n *notifier) connect(note *notification, valid func() bool) unix.Errno {
	size := int32(note.args[2])
	if size < 0 || size > sockaddrMax {
		return unix.EINVAL
	}
	addr := make([]byte, size)
	if e := readMemory(int(note.pid), uintptr(note.args[1]), addr); e != 0 {
		return e
	}
	fd, e := duplicate(int(note.pid), int32(note.args[0]))
	if e != 0 {
		return e
	}
	defer CloseFD(fd)
	// The thread's number could have been reused before it was read from.
	if !valid() {
		return unix.EINTR
	}
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return Errno(err)
	}
	const familySize = 2
	if domain != unix.AF_UNIX || size <= familySize || uint16(addr[0])|uint16(addr[1])<<8 != unix.AF_UNIX {
		return connectTo(fd, addr)
	}
	if addr[familySize] == 0 { // an abstract name lives in the network namespace
		if n.plan.Net == NetHost {
			return unix.ECONNREFUSED
		}
		return connectTo(fd, addr)
	}
	return n.connectPath(fd, int(note.pid), cString(addr[familySize:]))
}

// connectPath connects to a socket with a path if it belongs to the sandbox.
func (n *notifier) connectPath(fd, pid int, path string) unix.Errno {
	cwd := unix.AT_FDCWD
	if path[0] != '/' {
		d, err := unix.Open(fmt.Sprintf("/proc/%d/cwd", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return unix.EACCES
		}
		defer CloseFD(d)
		cwd = d
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	at, err := unix.Openat2(cwd, path, &how)
	if err != nil {
		if e := Errno(err); e != unix.ELOOP {
			return e
		}
		return unix.ENOENT
	}
	defer CloseFD(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return Errno(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return unix.ECONNREFUSED
	}
	name, err := os.Readlink(fdPath(at))
	if err != nil {
		return unix.EACCES
	}
	if !n.ours(name, &st) {
		return unix.EACCES
	}
	// The descriptor names the very file that was looked at.
	sa := make([]byte, 2, 32)
	sa[0] = unix.AF_UNIX
	return connectTo(fd, append(append(sa, fdPath(at)...), 0))
}

// ours tells whether a socket file may be connected to: it is bound inside this
// sandbox, or listed.
func (n *notifier) ours(name string, st *unix.Stat_t) bool {
	for _, s := range n.plan.Sockets {
		if s == name {
			return true
		}
	}
	if n.plan.Net != NetHost {
		return boundHere(name, st)
	}
	// In the host's network namespace the kernel's list holds everybody's sockets.
	// What only this sandbox can write is its own; what was in a root before it
	// began is covered.
	for _, dir := range append([]string{"/tmp", "/var/tmp", "/dev/shm"}, n.plan.Roots...) {
		if n.plan.Tmp != "" && Below(name, dir) {
			return true
		}
	}
	return false
}

func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// connectTo is connect(2) with an address of raw bytes.
func connectTo(fd int, addr []byte) unix.Errno {
	var p unsafe.Pointer
	if len(addr) > 0 {
		p = unsafe.Pointer(&addr[0])
	}
	_, _, e := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(p), uintptr(len(addr)))
	return e
}

// readMemory copies memory of another process.
func readMemory(pid int, from uintptr, to []byte) unix.Errno {
	if len(to) == 0 {
		return 0
	}
	local := []unix.Iovec{{Base: &to[0], Len: uint64(len(to))}}
	remote := []unix.RemoteIovec{{Base: from, Len: len(to)}}
	got, err := unix.ProcessVMReadv(pid, local, remote, 0)
	switch {
	case errors.Is(err, unix.EPERM):
		return unix.EACCES // a program that may not be looked into
	case err != nil:
		return Errno(err)
	case got != len(to):
		return unix.EFAULT
	}
	return 0
}

// duplicate copies a descriptor of another process.
func duplicate(tid int, fd int32) (int, unix.Errno) {
	if fd < 0 {
		return -1, unix.EBADF
	}
	const pidfdThread = unix.O_EXCL // Linux 6.9
	p, err := unix.PidfdOpen(tid, pidfdThread)
	if errors.Is(err, unix.EINVAL) {
		p, err = unix.PidfdOpen(processOf(tid), 0)
	}
	if err != nil {
		return -1, unix.EACCES
	}
	defer CloseFD(p)
	dup, err := unix.PidfdGetfd(p, int(fd), 0)
	if err != nil {
		return -1, Errno(err)
	}
	return dup, 0
}

// processOf finds the process of a thread.
func processOf(tid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return tid
	}
	var tgid int
	if i := indexLine(b, "Tgid:"); i >= 0 {
		if _, err := fmt.Sscan(string(b[i:]), &tgid); err == nil {
			return tgid
		}
	}
	return tid
}
