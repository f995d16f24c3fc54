//go:build linux

package confine

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pair(t *testing.T) (a, b *Wire) {
	t.Helper()
	fa, fb, err := WirePair()
	if err != nil {
		t.Fatal(err)
	}
	if a, err = NewWire(fa); err != nil {
		t.Fatal(err)
	}
	if b, err = NewWire(fb); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

func TestRequestsTravel(t *testing.T) {
	a, b := pair(t)
	buf := make([]byte, MaxInline+1024)
	for _, size := range []int{0, 10, MaxInline - 200, MaxInline, 1 << 20, 4 << 20} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		want := Request{Op: "start", ID: 7, Argv: []string{"x", strings.Repeat("y", size)}, Stdout: true}
		if err := a.SendRequest(want, int(w.Fd())); err != nil {
			t.Fatal(err)
		}
		got, fds, err := b.receiveRequest(buf)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Argv, want.Argv) || got.ID != 7 || len(fds) != 1 {
			t.Errorf("size %d: %d words, %d descriptors", size, len(got.Argv), len(fds))
		}
		if flags, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("a received descriptor would be inherited: %v", err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(fds[0], []byte("z")); err != nil {
			t.Error(err)
		}
		CloseAll(fds)
		if all, err := io.ReadAll(r); err != nil || string(all) != "z" {
			t.Errorf("%q %v", all, err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMessagesTravel(t *testing.T) {
	a, b := pair(t)
	buf := make([]byte, 4096)
	want := Status{Kind: MsgGone, ID: 9, Wait: 256, Cause: killedDisk, RSS: 5}
	if err := a.sendStatus(want); err != nil {
		t.Fatal(err)
	}
	n, _, err := b.Receive(buf)
	if err != nil {
		t.Fatal(err)
	}
	kind, id, _, ok := ParseHeader(buf[:n])
	got, ok2 := ParseStatus(buf[:n])
	if !ok || !ok2 || kind != MsgGone || id != 9 || got != want {
		t.Errorf("%d %d %+v", kind, id, got)
	}
	if err := a.sendJSON(MsgRefused, 3, RefusedMessage{Step: "exec"}); err != nil {
		t.Fatal(err)
	}
	if n, _, err = b.Receive(buf); err != nil {
		t.Fatal(err)
	}
	if kind, id, body, ok := ParseHeader(buf[:n]); !ok || kind != MsgRefused || id != 3 || !strings.Contains(string(body), "exec") {
		t.Errorf("%d %d %s", kind, id, body)
	}
	if _, ok := ParseStatus(buf[:n]); ok && n != 0 {
		t.Error("JSON taken for a status")
	}
	if _, _, _, ok := ParseHeader(buf[:3]); ok {
		t.Error("three bytes taken for a message")
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Receive(buf); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

func TestArena(t *testing.T) {
	a := &arena{}
	first := a.bytes(10)
	big := a.bytes(arenaChunk * 3)
	v := a.vector([]string{"x", strings.Repeat("y", 100)})
	if a.err != nil || v == 0 || len(first) < 10 || len(big) < arenaChunk*3 || address(first)%16 != 0 {
		t.Errorf("%v %d %d", a.err, len(first), len(big))
	}
	if *(*byte)(addressOf(*(*uintptr)(addressOf(v)))) != 'x' {
		t.Error("the vector does not lead to its strings")
	}
	if err := a.release(); err != nil {
		t.Error(err)
	}
}

func TestTighter(t *testing.T) {
	for _, c := range [][3]int64{{0, 0, 0}, {0, 5, 5}, {5, 0, 5}, {3, 5, 3}, {5, 3, 3}} {
		if got := Tighter(c[0], c[1]); got != c[2] {
			t.Errorf("%d and %d: %d", c[0], c[1], got)
		}
	}
}
