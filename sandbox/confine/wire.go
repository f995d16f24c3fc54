//go:build linux

package confine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Package net is kept out of this one: what it needs is initialised late, after
// half of the program, and the init of a sandbox takes over before that.

// The control socket joins the runner and the init: packets, so that messages
// stay whole, with descriptors beside them. Requests are JSON; a large one
// travels in a memory file. Replies begin with a status header.

const (
	// MaxInline is below the smallest socket buffer that systems configure.
	MaxInline = 32 << 10
	// sendBound is how long the other side may leave the socket full.
	sendBound = 30 * time.Second
	// maxFDs is how many descriptors one message carries at most.
	maxFDs = 8
)

// Wire is one end of the control socket. Its methods may be called concurrently,
// except Receive.
type Wire struct {
	f      *os.File
	raw    syscall.RawConn
	closed atomic.Bool
}

// Close closes this end; the other sees the end of its input.
func (w *Wire) Close() error {
	w.closed.Store(true)
	return w.f.Close()
}

// NewWire makes a Wire of an open socket, which it takes over.
func NewWire(f *os.File) (*Wire, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if cerr := f.Close(); cerr != nil && err == nil {
		err = cerr
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		CloseFD(fd)
		return nil, fmt.Errorf("sandbox: control socket: %w", err)
	}
	w := &Wire{f: os.NewFile(uintptr(fd), "control")}
	if w.raw, err = w.f.SyscallConn(); err == nil {
		err = w.f.SetDeadline(time.Time{}) // fails where nothing can wait for it
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sandbox: control socket: %w", err), w.f.Close())
	}
	return w, nil
}

// fd is the number of the descriptor, for those who use it without the Wire.
func (w *Wire) fd() (n int, err error) {
	err = w.raw.Control(func(fd uintptr) { n = int(fd) })
	return n, err
}

// done gives the failure of a call: of waiting for it, or its own.
func (w *Wire) done(wait, call error) error {
	if w.closed.Load() {
		return os.ErrClosed
	}
	return errors.Join(wait, call)
}

// WirePair makes a connected pair of packet sockets.
func WirePair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("sandbox: control socket: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control of the init"), nil
}

// SendRequest sends r with the descriptors, which stay the caller's.
func (w *Wire) SendRequest(r Request, fds ...int) error {
	b, err := Marshal(r)
	if err != nil {
		return fmt.Errorf("sandbox: request: %w", err)
	}
	head := byte('i')
	if len(b) > MaxInline {
		f, err := memoryFile(b)
		if err != nil {
			return err
		}
		defer f.Close()
		head, b = 'm', nil
		fds = append([]int{int(f.Fd())}, fds...)
	}
	return w.send(append([]byte{head}, b...), fds...)
}

func (w *Wire) send(b []byte, fds ...int) error {
	if err := w.f.SetWriteDeadline(time.Now().Add(sendBound)); err != nil {
		return fmt.Errorf("sandbox: control socket: %w", err)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	var call error
	wait := w.raw.Write(func(fd uintptr) bool {
		call = again(func() error { return unix.Sendmsg(int(fd), b, oob, nil, unix.MSG_NOSIGNAL) })
		return call != unix.EAGAIN
	})
	if err := w.done(wait, call); err != nil {
		return fmt.Errorf("sandbox: control socket: %w", err)
	}
	return nil
}

// Receive reads one message. The caller owns the descriptors.
func (w *Wire) Receive(buf []byte) (n int, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*maxFDs))
	var oobn, flags int
	var call error
	wait := w.raw.Read(func(fd uintptr) bool {
		call = again(func() (err error) {
			n, oobn, flags, _, err = unix.Recvmsg(int(fd), buf, oob, unix.MSG_CMSG_CLOEXEC)
			return err
		})
		return call != unix.EAGAIN
	})
	if err := w.done(wait, call); err != nil {
		return 0, nil, err
	}
	if n == 0 {
		return 0, nil, io.EOF
	}
	if oobn > 0 {
		ms, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return 0, nil, fmt.Errorf("sandbox: control message: %w", err)
		}
		for _, m := range ms {
			got, err := unix.ParseUnixRights(&m)
			if err != nil {
				return 0, nil, fmt.Errorf("sandbox: control message: %w", err)
			}
			fds = append(fds, got...)
		}
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		CloseAll(fds)
		return 0, nil, errors.New("sandbox: a control message was cut off")
	}
	return n, fds, nil
}

// again repeats a call that a signal interrupted.
func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// receiveRequest reads one request.
func (w *Wire) receiveRequest(buf []byte) (r Request, fds []int, err error) {
	n, fds, err := w.Receive(buf)
	if err != nil {
		return r, nil, err
	}
	body := buf[1:n]
	if buf[0] == 'm' {
		if len(fds) == 0 {
			return r, nil, errors.New("sandbox: a request without its memory file")
		}
		f := os.NewFile(uintptr(fds[0]), "request")
		fds = fds[1:]
		body, err = readWhole(f)
		if err != nil {
			CloseAll(fds)
			return r, nil, err
		}
	}
	if err := Unmarshal(body, &r); err != nil {
		CloseAll(fds)
		return r, nil, fmt.Errorf("sandbox: request: %w", err)
	}
	return r, fds, nil
}

func readWhole(f *os.File) ([]byte, error) {
	defer f.Close()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("sandbox: request: %w", err)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("sandbox: request: %w", err)
	}
	return b, nil
}

// memoryFile holds b in a file without a name.
func memoryFile(b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("request", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("sandbox: memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), "request")
	if _, err := f.Write(b); err != nil {
		return nil, errors.Join(fmt.Errorf("sandbox: memory file: %w", err), f.Close())
	}
	return f, nil
}

// sendJSON sends a message whose body is JSON.
func (w *Wire) sendJSON(kind uint32, id uint32, v any, fds ...int) error {
	b, err := Marshal(v)
	if err != nil {
		return fmt.Errorf("sandbox: message: %w", err)
	}
	return w.send(append(header(kind, id), b...), fds...)
}

// sendStatus sends a status as a supervisor does.
func (w *Wire) sendStatus(s Status, fds ...int) error {
	return w.send(unsafe.Slice((*byte)(unsafe.Pointer(&s)), int(unsafe.Sizeof(s))), fds...)
}

func header(kind, id uint32) []byte {
	var b []byte
	for _, v := range []uint32{kind, id} {
		b = append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
	}
	return b
}

// ParseHeader splits a message.
func ParseHeader(b []byte) (kind, id uint32, body []byte, ok bool) {
	if len(b) < 8 {
		return 0, 0, nil, false
	}
	le := func(b []byte) uint32 {
		return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
	}
	return le(b), le(b[4:]), b[8:], true
}

// ParseStatus reads a whole status message.
func ParseStatus(b []byte) (s Status, ok bool) {
	if len(b) != int(unsafe.Sizeof(s)) {
		return s, false
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&s)), len(b)), b)
	return s, true
}

// CloseAll closes descriptors that are not wanted any more.
func CloseAll(fds []int) {
	for _, fd := range fds {
		CloseFD(fd)
	}
}

// CloseFD closes a descriptor nothing was written through: its result tells
// nothing that could be acted on.
func CloseFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}
