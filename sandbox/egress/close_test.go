package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func TestBounds(t *testing.T) {
	p := echo(t)
	short := Bounds{Connections: 2, HeaderBytes: 2000, HeaderTime: 300 * time.Millisecond, IdleTime: 300 * time.Millisecond, Bytes: 100 << 10}
	w := newWorld(t, Options{AllowLocal: true, Bounds: short}, "ok.test:"+p)
	if got := w.raw("GET http://ok.test/ HTTP/1.1\r\nX: " + strings.Repeat("a", 3000) + "\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 431 ") {
		t.Errorf("big header: %q", got)
	}
	// Slow ones use up both slots; the third waits and is served after them.
	var slow []net.Conn
	for _, text := range []string{"GET http://ok.te", "\x05\x01"} {
		c, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, text)
		slow = append(slow, c)
	}
	if got := w.raw("CONNECT ok.test:" + p + " HTTP/1.1\r\n\r\nx"); !strings.HasSuffix(got, "hello;x;bye") {
		t.Errorf("after slow ones: %q", got)
	}
	if b, _ := io.ReadAll(slow[0]); !strings.HasPrefix(string(b), "HTTP/1.1 408 ") {
		t.Errorf("slow header: %q", b)
	}
	// Idle: the tunnel ends though both sides keep it open.
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(c, "CONNECT ok.test:%s HTTP/1.1\r\n\r\n", p)
	if b, _ := io.ReadAll(c); !strings.HasSuffix(string(b), "hello;") {
		t.Errorf("idle: %q", b)
	}
	// Size.
	got := w.raw("CONNECT ok.test:" + p + " HTTP/1.1\r\n\r\n" + strings.Repeat("x", 300<<10))
	if len(got) > 200<<10 || strings.HasSuffix(got, "bye") {
		t.Errorf("%d bytes came through", len(got))
	}
}

func TestLifeTime(t *testing.T) {
	p := echo(t)
	w := newWorld(t, Options{AllowLocal: true, Bounds: Bounds{LifeTime: 300 * time.Millisecond}}, "ok.test:"+p)
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(c, "CONNECT ok.test:%s HTTP/1.1\r\n\r\n", p)
	if b, _ := io.ReadAll(c); !strings.HasSuffix(string(b), "hello;") {
		t.Errorf("%q", b)
	}
}

func TestCloseEndsTunnels(t *testing.T) {
	p := echo(t)
	list, _ := newRules([]string{"ok.test:" + p}, nil)
	dns := newDNS(t, map[string][][]string{"ok.test": {{"127.0.0.1"}}})
	proxy := New(Options{Decide: list.decide, Resolver: dns.resolver(), AllowLocal: true})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- proxy.Serve(l) }()
	var open []net.Conn
	for range 5 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(c, "CONNECT ok.test:%s HTTP/1.1\r\n\r\n", p)
		b := make([]byte, 60)
		if n, _ := io.ReadAtLeast(c, b, 45); !bytes.Contains(b[:n], []byte("200")) {
			t.Fatalf("%q", b)
		}
		open = append(open, c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := proxy.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := proxy.Close(ctx); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	for _, c := range open {
		if _, err := io.ReadAll(c); errors.Is(err, context.DeadlineExceeded) {
			t.Error("a tunnel is still open")
		}
	}
	l2, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := proxy.Serve(l2); err == nil {
		t.Error("a closed proxy serves")
	}
}

// Close does not wait longer than its context for a callback that hangs.
func TestCloseIsBounded(t *testing.T) {
	release, asked := make(chan struct{}), make(chan struct{})
	proxy := New(Options{Decide: func(string, int, string) Decision { close(asked); <-release; return Decision{} }})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go proxy.Serve(l)
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "CONNECT ok.test:443 HTTP/1.1\r\n\r\n")
	<-asked
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := proxy.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	close(release)
	if err := proxy.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
