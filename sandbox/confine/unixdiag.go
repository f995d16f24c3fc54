//go:build linux

package confine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel lists the Unix sockets of a network namespace with the files they
// are bound to. A server of the host is in another namespace and not listed.

// boundSocket is one socket of the list.
type boundSocket struct {
	name     string // as given to bind, also relative
	inode    uint32 // of the file, its low half
	dev      uint32 // of the file system, as the kernel counts
	hasInode bool
}

// boundHere tells whether the socket file st at name was bound by somebody in
// this network namespace.
func boundHere(name string, st *unix.Stat_t) bool {
	list, err := boundSockets()
	if err != nil {
		// Without the list of files there are the names; a relative one cannot
		// be judged and stays closed.
		for _, n := range BoundNames() {
			if n == name {
				return true
			}
		}
		return false
	}
	dev := unix.Major(st.Dev)<<20 | unix.Minor(st.Dev)&0xfffff
	for _, s := range list {
		if !s.hasInode || s.inode != uint32(st.Ino) {
			continue
		}
		// Layered file systems report another device to stat than they keep.
		if s.dev == dev || s.name == name {
			return true
		}
	}
	return false
}

// Numbers of linux/unix_diag.h and linux/sock_diag.h.
const (
	sockDiagByFamily = 20
	udiagShowName    = 1
	udiagShowVFS     = 2
	unixDiagName     = 0
	unixDiagVFS      = 1
	diagHeader       = 16 // struct unix_diag_msg
)

// boundSockets asks sock_diag for every Unix socket of the namespace.
func boundSockets() ([]boundSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer CloseFD(fd)
	// struct nlmsghdr and struct unix_diag_req
	req := make([]byte, unix.NLMSG_HDRLEN+24)
	ne := binary.NativeEndian
	ne.PutUint32(req[0:], uint32(len(req)))
	ne.PutUint16(req[4:], sockDiagByFamily)
	ne.PutUint16(req[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	body := req[unix.NLMSG_HDRLEN:]
	body[0] = unix.AF_UNIX
	ne.PutUint32(body[4:], ^uint32(0)) // every state
	ne.PutUint32(body[12:], udiagShowName|udiagShowVFS)
	if err := unix.Sendto(fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	var out []boundSocket
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return nil, err
		}
		for b := buf[:n]; len(b) >= unix.NLMSG_HDRLEN; {
			size, kind := int(ne.Uint32(b)), ne.Uint16(b[4:])
			if size < unix.NLMSG_HDRLEN || size > len(b) {
				return nil, unix.EBADMSG
			}
			switch kind {
			case unix.NLMSG_DONE:
				return out, nil
			case unix.NLMSG_ERROR:
				return nil, diagError(b[unix.NLMSG_HDRLEN:size])
			}
			out = append(out, parseDiag(b[unix.NLMSG_HDRLEN:size]))
			b = b[min(len(b), (size+3)&^3):]
		}
	}
}

func diagError(b []byte) error {
	if len(b) < 4 {
		return unix.EBADMSG
	}
	if e := -int32(binary.NativeEndian.Uint32(b)); e > 0 {
		return unix.Errno(e)
	}
	return errors.New("sock_diag ended early")
}

// parseDiag reads the attributes after struct unix_diag_msg.
func parseDiag(b []byte) (s boundSocket) {
	ne := binary.NativeEndian
	const attrHeader = int(unsafe.Sizeof(unix.RtAttr{}))
	for b = b[min(len(b), diagHeader):]; len(b) >= attrHeader; {
		size, kind := int(ne.Uint16(b)), ne.Uint16(b[2:])
		if size < attrHeader || size > len(b) {
			return s
		}
		v := b[attrHeader:size]
		switch {
		case kind == unixDiagName:
			s.name = strings.TrimRight(string(v), "\x00")
		case kind == unixDiagVFS && len(v) >= 8:
			s.inode, s.dev, s.hasInode = ne.Uint32(v), ne.Uint32(v[4:]), true
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return s
}

// BoundNames reads the names from /proc/net/unix of the calling process.
func BoundNames() []string {
	b, err := os.ReadFile("/proc/self/net/unix")
	if err != nil {
		return nil
	}
	return parseUnixTable(b)
}

// parseUnixTable gives the absolute paths of /proc/net/unix, each once.
func parseUnixTable(b []byte) []string {
	var out []string
	seen := map[string]bool{}
	for line := range bytes.Lines(b) {
		// Num RefCount Protocol Flags Type St Inode Path; a path may hold blanks.
		rest := strings.TrimRight(string(line), "\n")
		for range 7 {
			rest = strings.TrimLeft(rest, " ")
			i := strings.IndexByte(rest, ' ')
			if i < 0 {
				rest = ""
				break
			}
			rest = rest[i:]
		}
		name := strings.TrimPrefix(rest, " ")
		if strings.HasPrefix(name, "/") && !seen[name] {
			seen[name] = true
			out = append(out, name)
		}
	}
	return out
}

// indexLine finds what follows a label at the beginning of a line.
func indexLine(b []byte, label string) int {
	if bytes.HasPrefix(b, []byte(label)) {
		return len(label)
	}
	if i := bytes.Index(b, []byte("\n"+label)); i >= 0 {
		return i + 1 + len(label)
	}
	return -1
}
