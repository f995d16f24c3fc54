//go:build linux

package confine

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestUnescapeMount(t *testing.T) {
	for in, want := range map[string]string{
		"/plain": "/plain", `/with\040blank`: "/with blank", `/tab\011nl\012`: "/tab\tnl\n", `/back\134slash`: `/back\slash`, `/cut\04`: `/cut\04`, `/no\999`: `/no\999`,
	} {
		if got := unescapeMount(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestMountsBelow(t *testing.T) {
	ms, err := mountsBelow("/")
	if err != nil || len(ms) == 0 {
		t.Fatal(ms, err)
	}
	seen := map[string]bool{}
	for _, m := range ms {
		if seen[m.at] {
			t.Errorf("%s is listed twice", m.at)
		}
		seen[m.at] = true
	}
	if !seen["/proc"] {
		t.Error("/proc is missing")
	}
	if ms, err := mountsBelow("/proc"); err != nil || len(ms) == 0 || ms[0].at != "/proc" {
		t.Errorf("%v %v", ms, err)
	}
}

func TestBelow(t *testing.T) {
	for _, c := range []struct {
		name, dir string
		want      bool
	}{{"/a/b", "/a", true}, {"/a", "/a", true}, {"/ab", "/a", false}, {"/a", "/a/b", false}, {"/x", "/", true}, {"/", "/", true}} {
		if got := Below(c.name, c.dir); got != c.want {
			t.Errorf("%s in %s: %v", c.name, c.dir, got)
		}
	}
}

const unixTable = `Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 23456 /run/dbus/system_bus_socket
0000000000000000: 00000003 00000000 00000000 0001 03 23457
0000000000000000: 00000002 00000000 00010000 0001 01 23458 @/tmp/.X11-unix/X0
0000000000000000: 00000002 00000000 00010000 0001 01 23459 /tmp/with blank and  two
0000000000000000: 00000002 00000000 00010000 0001 01     9 /short
0000000000000000: 00000003 00000000 00000000 0001 03 23460 /run/dbus/system_bus_socket
0000000000000000: 00000002 00000000 00010000 0001 01 23461 relative
`

func TestParseUnixTable(t *testing.T) {
	got := parseUnixTable([]byte(unixTable))
	want := []string{"/run/dbus/system_bus_socket", "/tmp/with blank and  two", "/short"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func FuzzParseUnixTable(f *testing.F) {
	f.Add([]byte(unixTable))
	f.Add([]byte("\n \n/"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, name := range parseUnixTable(b) {
			if !strings.HasPrefix(name, "/") || strings.Contains(name, "\n") || !bytes.Contains(b, []byte(name)) {
				t.Fatalf("%q", name)
			}
		}
	})
}

func diagMessage(attrs ...[]byte) []byte {
	b := make([]byte, diagHeader)
	for _, a := range attrs {
		b = append(b, a...)
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
	}
	return b
}

func diagAttr(kind uint16, v []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(v)))
	return append(binary.NativeEndian.AppendUint16(b, kind), v...)
}

func TestParseDiag(t *testing.T) {
	vfs := binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, 77), 5<<20|3)
	got := parseDiag(diagMessage(diagAttr(unixDiagName, []byte("/a/b\x00")), diagAttr(unixDiagVFS, vfs)))
	if got != (boundSocket{name: "/a/b", inode: 77, dev: 5<<20 | 3, hasInode: true}) {
		t.Errorf("%+v", got)
	}
	if got := parseDiag(diagMessage(diagAttr(unixDiagVFS, vfs[:4]))); got.hasInode {
		t.Errorf("half an attribute: %+v", got)
	}
}

func FuzzParseDiag(f *testing.F) {
	f.Add(diagMessage(diagAttr(0, []byte("x")), diagAttr(1, make([]byte, 8))))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) { parseDiag(b) })
}

func TestCarve(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"a/b", "a/c", "d"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"f", "a/g", "a/b/h"} {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("d", filepath.Join(dir, "l")); err != nil {
		t.Fatal(err)
	}
	at := func(names ...string) []string {
		var out []string
		for _, n := range names {
			out = append(out, filepath.Join(dir, n))
		}
		return out
	}
	for _, c := range []struct{ closed, files, folders []string }{
		{nil, nil, []string{dir}},
		{[]string{"/elsewhere"}, nil, []string{dir}},
		{at("a/b"), at("a/g", "f"), at("a/c", "d")},
		{at("a/b", "f"), at("a/g"), at("a/c", "d")},
		{at("not-there"), at("f"), at("a", "d")},
		{[]string{dir}, nil, nil},
		{[]string{filepath.Dir(dir)}, nil, nil},
	} {
		files, folders := carve(dir, c.closed)
		slices.Sort(files)
		slices.Sort(folders)
		if !slices.Equal(files, c.files) || !slices.Equal(folders, c.folders) {
			t.Errorf("closed %v: files %v folders %v", c.closed, files, folders)
		}
	}
}

func TestNumberAfter(t *testing.T) {
	b := []byte("Name:\tx\nThreads:\t7\nVmThreads:\t9\n")
	if n := numberAfter(b, "Threads:"); n != 7 {
		t.Error(n)
	}
	if n := numberAfter(b, "Name:"); n != 0 {
		t.Error(n)
	}
	if n := numberAfter(b, "Absent:"); n != 0 {
		t.Error(n)
	}
}

func TestWasted(t *testing.T) {
	const million = 1_000_000
	for _, c := range []struct {
		before, now space
		want        bool
	}{
		{space{100, 4 * million}, space{60, 4 * million}, false},
		{space{100, 4 * million}, space{40, 4 * million}, true},
		{space{100, 4 * million}, space{100, 3 * million}, false},
		{space{100, 4 * million}, space{100, 1 * million}, true},
		{space{100, 150_000}, space{100, 60_000}, false}, // a small file system that is for such use
		{space{100, 0}, space{100, 0}, false},            // does not count files
		{space{40, 10}, space{100, 20}, false},           // somebody else tidied up
	} {
		if got := c.before.wasted(c.now, 50); got != c.want {
			t.Errorf("%+v, then %+v: %v", c.before, c.now, got)
		}
	}
}
