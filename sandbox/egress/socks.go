package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
)

// Replies of RFC 1928.
const (
	socksDone        = 0
	socksFailed      = 1
	socksNotAllowed  = 2
	socksUnreachable = 4
	socksRefused     = 5
	socksNoCommand   = 7
)

// socks serves SOCKS5: CONNECT to a name, without authentication.
func (x *exchange) socks(ctx context.Context) {
	x.out.Method = SOCKS5
	host, port, reply := x.socksRequest()
	if reply != socksDone {
		x.socksReply(reply)
		return
	}
	if !x.admit(host, port, 443) {
		x.socksReply(socksNotAllowed)
		return
	}
	upstream, err := x.connect(ctx)
	if err != nil {
		x.socksReply(replyTo(err))
		return
	}
	if _, err := x.client.Write(socksAnswer(socksDone)); err != nil {
		x.fail(err)
		return
	}
	x.tunnel(upstream)
}

// socksRequest reads greeting and request. A reply other than socksDone ends
// the exchange; noReply means that there is nobody or nothing to reply to.
func (x *exchange) socksRequest() (host string, port int, reply int) {
	read := func(n int) []byte {
		b := make([]byte, n)
		if _, err := io.ReadFull(x.in, b); err != nil {
			return nil
		}
		return b
	}
	greeting := read(2)
	if greeting == nil {
		return "", 0, noReply
	}
	methods := read(int(greeting[1]))
	open := false
	for _, m := range methods {
		open = open || m == 0
	}
	if !open {
		x.refuse("the client wants to authenticate, which the proxy does not ask for")
		x.write([]byte{5, 0xff})
		return "", 0, noReply
	}
	if _, err := x.client.Write([]byte{5, 0}); err != nil {
		return "", 0, noReply
	}
	head := read(4)
	if head == nil || head[0] != 5 {
		return "", 0, noReply
	}
	switch head[3] {
	case 1, 4:
		size := 4
		if head[3] == 4 {
			size = 16
		}
		if b := read(size); b != nil {
			a, _ := netip.AddrFromSlice(b)
			host = a.String()
		}
	case 3:
		if size := read(1); size != nil {
			host = string(read(int(size[0])))
		}
	}
	b := read(2)
	if b == nil {
		return "", 0, noReply
	}
	port = int(binary.BigEndian.Uint16(b))
	if head[1] != 1 {
		x.out.Host, x.out.Port = printable(host, 80), port
		x.refuse("of SOCKS only CONNECT is spoken here")
		return "", 0, socksNoCommand
	}
	return host, port, socksDone
}

const noReply = -1

func socksAnswer(reply int) []byte { return []byte{5, byte(reply), 0, 1, 0, 0, 0, 0, 0, 0} }

func (x *exchange) socksReply(reply int) {
	if reply != noReply {
		x.deadline(lingerTime)
		x.write(socksAnswer(reply))
	}
	x.linger()
}

// replyTo is the reply for a connection that could not be made.
func replyTo(err error) int {
	var refused *refusedError
	var dns *net.DNSError
	switch {
	case errors.As(err, &refused):
		return socksNotAllowed
	case errors.Is(err, syscall.ECONNREFUSED):
		return socksRefused
	case errors.As(err, &dns), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, context.DeadlineExceeded):
		return socksUnreachable
	}
	return socksFailed
}
