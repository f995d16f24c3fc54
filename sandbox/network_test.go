//go:build linux

package sandbox

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// needPython skips without it: sockets cannot be tried from a shell.
func needPython(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 here")
	}
}

func py(t testing.TB, b *Sandbox, script string, args ...string) (string, Exit) {
	t.Helper()
	out, x := finish(t, start(t, b, Command{Argv: append([]string{"python3", "-c", script}, args...)}))
	return strings.TrimSpace(out), x
}

// serveUnix answers "host" to everybody at a path and counts them.
func serveUnix(t testing.TB, path string) *atomic.Int64 {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var seen atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			seen.Add(1)
			if _, err := io.WriteString(c, "host\n"); err != nil {
				t.Log(err)
			}
			if err := c.Close(); err != nil {
				t.Log(err)
			}
		}
	}()
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return &seen
}

const connectUnix = `
import socket, sys
def go(how, f):
    try:
        print(how, f())
    except OSError as e:
        print(how, "refused")
def stream(p, kind=socket.SOCK_STREAM):
    s = socket.socket(socket.AF_UNIX, kind); s.settimeout(5); s.connect(p); return s.recv(10).decode().strip()
import os
p = sys.argv[1]
go("absolute", lambda: stream(p))
go("through /proc", lambda: stream("/proc/self/root" + p))
go("seqpacket", lambda: stream(p, socket.SOCK_SEQPACKET))
os.chdir(os.path.dirname(p))
go("relative", lambda: stream(os.path.basename(p)))
go("dotdot", lambda: stream("../" + os.path.basename(os.path.dirname(p)) + "/" + os.path.basename(p)))
def dgram():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.sendto(b"x", p); return "sent"
go("datagram", dgram)
def pair():
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b"x", p); return "sent"
go("pair", pair)
`

func TestUnixSocketsOfTheHost(t *testing.T) {
	needPython(t)
	dir, ws, out := world(t)
	early := serveUnix(t, filepath.Join(out, "early.sock"))
	inside := serveUnix(t, filepath.Join(ws, "inside.sock"))
	listed := serveUnix(t, filepath.Join(dir, "listed.sock"))
	for _, mode := range []NetMode{NetOff, NetHost} {
		b := openBox(t, Spec{Workspace: ws, Net: Net{Mode: mode, UnixSockets: []string{filepath.Join(dir, "listed.sock")}}})
		sh(t, b, "true") // the sandbox is up before the next one appears
		late := serveUnix(t, filepath.Join(out, fmt.Sprintf("late%d.sock", mode)))
		lateIn := serveUnix(t, filepath.Join(ws, fmt.Sprintf("late%d.sock", mode)))
		link := filepath.Join(ws, fmt.Sprintf("link%d", mode))
		if err := os.Symlink(filepath.Join(out, fmt.Sprintf("late%d.sock", mode)), link); err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{out + "/early.sock", ws + "/inside.sock", fmt.Sprintf("%s/late%d.sock", out, mode), link} {
			got, _ := py(t, b, connectUnix, p)
			if n := strings.Count(got, "refused"); n != 7 {
				t.Errorf("network %d: %s: %s", mode, p, got)
			}
		}
		if mode == NetOff {
			got, _ := py(t, b, connectUnix, fmt.Sprintf("%s/late%d.sock", ws, mode))
			if n := strings.Count(got, "refused"); n != 7 {
				t.Errorf("late in the workspace: %s", got)
			}
			if lateIn.Load() > 0 {
				t.Error("a server in the workspace was reached")
			}
		}
		if early.Load()+inside.Load()+late.Load() > 0 {
			t.Errorf("servers of the host were reached: %d %d %d times", early.Load(), inside.Load(), late.Load())
		}
		got, _ := py(t, b, connectUnix, filepath.Join(dir, "listed.sock"))
		if !strings.Contains(got, "absolute host") {
			t.Errorf("the listed socket: %s", got)
		}
		if listed.Swap(0) == 0 {
			t.Error("the listed server saw nobody")
		}
	}
}

func TestOwnUnixSockets(t *testing.T) {
	needPython(t)
	_, ws, _ := world(t)
	b := openBox(t, Spec{Workspace: ws})
	got, x := py(t, b, `
import socket, os, tempfile, threading
def serve(s):
    c, _ = s.accept(); c.sendall(b"ok"); c.close()
def check(p, connect_as=None, kind=socket.SOCK_STREAM):
    s = socket.socket(socket.AF_UNIX, kind); s.bind(p); s.listen(1)
    th = threading.Thread(target=serve, args=(s,)); th.start()
    c = socket.socket(socket.AF_UNIX, kind); c.connect(connect_as or p); assert c.recv(2) == b"ok"; th.join(); s.close()
d = tempfile.mkdtemp()
check(d + "/a"); check("ws.sock"); check("/dev/shm/b"); check(d + "/c", kind=socket.SOCK_SEQPACKET)
os.chdir(d); check("rel"); os.mkdir("deep"); os.symlink(d + "/l", "deep/link"); check(d + "/l", connect_as="deep/../deep/link")
check("\0abstract")
a, b = socket.socketpair(); a.send(b"x"); assert b.recv(1) == b"x"
c = socket.socket(socket.AF_UNIX); c.setblocking(False)
for p, want in (("/no/such", FileNotFoundError), ("/etc/passwd", ConnectionRefusedError)):
    try: c.connect(p); print(p, "connected")
    except want: pass
print("fine")`)
	if got != "fine" {
		t.Errorf("%s (code %d)", got, x.Code)
	}
	// A server in one command, a client in the next.
	p := start(t, b, Command{Argv: []string{"python3", "-u", "-c", `
import socket
s = socket.socket(socket.AF_UNIX); s.bind("/tmp/shared.sock"); s.listen(1); print("ready")
c, _ = s.accept(); c.sendall(b"shared")`}})
	if line, err := lineReader(p.Output())(); err != nil || line != "ready" {
		t.Fatalf("%q %v", line, err)
	}
	got, _ = py(t, b, `
import socket
c = socket.socket(socket.AF_UNIX); c.connect("/tmp/shared.sock"); print(c.recv(10).decode())`)
	if got != "shared" && !strings.Contains(fmt.Sprint(b.Report().Guarantees), "by Landlock") {
		t.Errorf("%q", got)
	}
	p.Kill()
}

func TestNetworkIsOff(t *testing.T) {
	needPython(t)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, ws, _ := world(t)
	script := `
import socket, sys
def go(how, f):
    try: f(); print(how, "worked")
    except OSError as e: print(how, e.errno)
go("tcp", lambda: socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5))
go("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 255))
go("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
go("icmp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP))
go("mptcp", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
go("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
go("uevent", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 15))
go("route", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 0))`
	b := openBox(t, Spec{Workspace: ws})
	got, _ := py(t, b, script, port)
	want := "tcp 111\nraw 1\npacket 97\nicmp 93\nmptcp 93\nvsock 97\nuevent 93\nroute worked"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	b = openBox(t, Spec{Workspace: ws, Net: Net{Mode: NetHost}})
	got, _ = py(t, b, script, port)
	if !strings.HasPrefix(got, "tcp worked\nraw 1\npacket 97\n") {
		t.Errorf("with the host's network: %s", got)
	}
}

func TestProxyListener(t *testing.T) {
	needPython(t)
	_, ws, _ := world(t)
	b := openBox(t, Spec{Workspace: ws, Net: Net{Mode: NetProxy}})
	l := b.ProxyListener()
	if l == nil || !strings.HasPrefix(b.ProxyAddr(), "127.0.0.1:") || l.Addr() == nil {
		t.Fatalf("listener %v at %q", l, b.ProxyAddr())
	}
	done := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				done <- err
				return
			}
			if _, err := io.WriteString(c, "from outside"); err != nil {
				t.Error(err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	host, port, err := net.SplitHostPort(b.ProxyAddr())
	if err != nil {
		t.Fatal(err)
	}
	script := `
import socket, sys
print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).recv(100).decode())`
	if got, _ := py(t, b, script, host, port); got != "from outside" {
		t.Errorf("%q", got)
	}
	if c, err := net.Dial("tcp", b.ProxyAddr()); err == nil {
		t.Error("the proxy's address answers outside too")
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	// A new init gets the same address, and its connections come out here.
	if err := b.init.proc.Kill(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return b.init.isLost() != nil })
	if got, _ := py(t, b, script, host, port); got != "from outside" {
		t.Errorf("after a new init: %q", got)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !isClosed(err) {
		t.Errorf("%v", err)
	}
}
