package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Addresses of a network namespace of the tests' own: a "public" one, another,
// and the one where clouds keep credentials.
const (
	publicIP = "198.51.100.10"
	otherIP  = "198.51.100.20"
	metaIP   = "169.254.169.254"
)

// insideVariable tells a copy of the test binary that it runs in its own network
// namespace, with the name of the test to run.
const insideVariable = "EGRESS_TEST_INSIDE"

// inside runs test in a copy of the test binary with its own network namespace,
// where the addresses above belong to the loopback device and low ports can be
// bound. Where the kernel does not allow that, the test is skipped.
func inside(t *testing.T, test func(*testing.T)) {
	if os.Getenv(insideVariable) == t.Name() {
		for i, ip := range []string{"127.0.0.1", publicIP, otherIP, metaIP} {
			if err := addAddress(i, ip); err != nil {
				t.Fatalf("address %s: %v", ip, err)
			}
		}
		test(t)
		return
	}
	if os.Getenv(insideVariable) != "" {
		t.Skip("another test is meant")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), insideVariable+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Start()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EACCES) {
		t.Skipf("no network namespace here: %v", err)
	}
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Fatalf("inside: %v\n%s", err, out.String())
	}
	if testing.Verbose() {
		t.Logf("inside:\n%s", out.String())
	}
}

// addAddress gives the loopback device an address under its alias i, and brings
// it up.
func addAddress(i int, ip string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	name := "lo"
	if i > 0 {
		name = fmt.Sprintf("lo:%d", i)
	}
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := ifr.SetInet4Addr(netip.MustParseAddr(ip).AsSlice()); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, ifr); err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// listen binds an address of the namespace and serves it for the test.
func listen(t *testing.T, addr string, handle func(net.Conn)) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
}

// internet starts the servers of the namespace and returns a certificate file in
// dir that clients trust.
func internet(t *testing.T, dir string) (ca string) {
	t.Helper()
	cert, _ := certificate(t, "public.test", "rebind.test", "other.test")
	ca = filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o644); err != nil {
		t.Fatal(err)
	}
	web := func(where string) *http.Server {
		return &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %s %s\n", where, r.Method, r.Host)
		})}
	}
	for addr, where := range map[string]string{publicIP + ":80": "public", otherIP + ":80": "other", metaIP + ":80": "METADATA", "127.0.0.1:80": "LOOPBACK"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		s := web(where)
		go s.Serve(l)
		t.Cleanup(func() { s.Close() })
	}
	l, err := tls.Listen("tcp", publicIP+":443", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	s := web("secure")
	s.ErrorLog = log.New(io.Discard, "", 0)
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	listen(t, publicIP+":22", func(c net.Conn) { io.WriteString(c, "SSH-2.0-server\r\n"); io.Copy(io.Discard, c) })
	return ca
}

// zone is what the names of the namespace resolve to.
func zone() map[string][][]string {
	return map[string][][]string{
		"public.test": {{publicIP}}, "other.test": {{otherIP}}, "meta.test": {{metaIP}}, "local.test": {{"127.0.0.1"}},
		"rebind.test": {{publicIP}, {"127.0.0.1"}, {metaIP}}, "mixed.test": {{"127.0.0.1", metaIP, publicIP}},
	}
}

// The usual ports, public addresses and a name that changes its mind.
func TestPublic(t *testing.T) {
	inside(t, func(t *testing.T) {
		ca := internet(t, t.TempDir())
		allow := []string{"public.test", "meta.test", "local.test", "rebind.test", "mixed.test", "public.test:22"}
		w := newWorld(t, Options{Resolver: newDNS(t, zone()).resolver(), Bounds: Bounds{HeaderTime: time.Second}}, allow...)
		get := func(url string) string {
			resp, err := w.client(nil).Get(url)
			if err != nil {
				return err.Error()
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			return fmt.Sprintf("%d %s", resp.StatusCode, b)
		}
		for _, c := range []struct{ url, want string }{
			{"http://public.test/", "200 public GET public.test\n"},
			{"http://PUBLIC.test.:80/", "200 public GET public.test\n"},
			{"http://other.test/", "not in the list"},
			{"http://rebind.test/", "200 public GET rebind.test\n"},
			{"http://rebind.test/", "it resolves to 127.0.0.1, a loopback address"},
			{"http://rebind.test/", "it resolves to 169.254.169.254, a link-local address"},
			{"http://mixed.test/", "200 public GET mixed.test\n"},
			{"http://local.test/", "it resolves to 127.0.0.1"},
			{"http://meta.test/latest/meta-data/", "it resolves to 169.254.169.254"},
			{"http://169.254.169.254/", "it is an address"},
			{"http://198.51.100.10/", "it is an address"},
			{"http://2852039166/", "it is an address"},
			{"http://[::ffff:a9fe:a9fe]/", "it is an address"},
			{"http://public.test:22/", "failed"}, // the port is named, but that server does not speak HTTP
			{"http://public.test:443/", "only port 80"},
		} {
			if got := get(c.url); !strings.Contains(got, c.want) {
				t.Errorf("%s: %q, want %q", c.url, got, c.want)
			}
		}
		// Port 443 is for TLS that names the host.
		const hello = "CONNECT public.test:443 HTTP/1.1\r\n\r\n"
		for _, text := range []string{"GET / HTTP/1.1\r\nHost: public.test\r\n\r\n", "SSH-2.0-x\r\n", "\x16\x03\x01\x00\x01\x00", "\x80\x2e\x01\x03\x01"} {
			if got := w.raw(hello + text); !strings.HasSuffix(got, string(alertUnrecognizedName)) {
				t.Errorf("%q: %q", text, got)
			}
		}
		if got := w.raw(socksRequest("public.test", "443") + "GET / HTTP/1.1\r\n\r\n"); !strings.HasSuffix(got, string(alertUnrecognizedName)) {
			t.Errorf("SOCKS: %q", got)
		}
		if got := w.raw(hello); !strings.HasSuffix(got, "\r\n\r\n") {
			t.Errorf("silence: %q", got)
		}
		if got := w.raw(socksRequest("public.test", "22") + "SSH-2.0-x\r\n"); !strings.HasSuffix(got, "SSH-2.0-server\r\n") {
			t.Errorf("SSH: %q", got)
		}
		if _, err := exec.LookPath("curl"); err == nil {
			curl(t, w, ca)
		}
	})
}

// curl is a client that many tools are built on.
func curl(t *testing.T, w *world, ca string) {
	run := func(args ...string) string {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, "curl", append([]string{"-sS", "--max-time", "15", "--cacert", ca}, args...)...)
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, ProxyEnv(w.addr)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Sprintf("%s%v", out, err)
		}
		return string(out)
	}
	socks := "socks5h://" + w.addr
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"https://public.test/"}, "secure GET public.test\n"},
		{[]string{"-x", socks, "https://public.test/"}, "secure GET public.test\n"},
		{[]string{"http://public.test/"}, "public GET public.test\n"},
		{[]string{"-H", "Host: other.test", "http://public.test/"}, "public GET public.test\n"},
		{[]string{"-d", "body", "http://public.test/"}, "public POST public.test\n"},
		{[]string{"https://other.test/"}, "response 403"},
		{[]string{"-v", "https://other.test/"}, "not in the list of allowed hosts"},
		{[]string{"http://other.test/"}, "nightshift egress: other.test:80 refused: it is not in the list of allowed hosts"},
		{[]string{"-x", socks, "https://other.test/"}, "(2)"},
		{[]string{"-x", "socks5://" + w.addr, "--resolve", "public.test:443:" + publicIP, "https://public.test/"}, "(2)"}, // resolved by the client
		{[]string{"-x", "socks4a://" + w.addr, "https://public.test/"}, "SOCKS4"},
		{[]string{"--connect-to", "other.test:443:public.test:443", "https://other.test/"}, "unrecognized name"}, // fronting
		{[]string{"https://" + publicIP + "/"}, "response 403"},
		{[]string{"telnet://public.test:80"}, "response 403"},
	} {
		if got := run(c.args...); !strings.Contains(got, c.want) {
			t.Errorf("curl %q: %q, want %q", c.args, got, c.want)
		}
	}
}
