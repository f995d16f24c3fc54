//go:build linux

package confine

import (
	"maps"
	"os"
	"strings"
	"testing"
)

func TestCleanImage(t *testing.T) {
	const smaps = `00400000-00be5000 r-xp 00000000 fe:00 4329                               /bin/nightshift
Size:               8084 kB
Rss:                6276 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
00be5000-01d00000 r--p 007e5000 fe:00 4329                               /bin/nightshift (deleted)
Anonymous:             0 kB
01d00000-01d10000 r--p 01900000 fe:00 4329                               /bin/relocated
Anonymous:            64 kB
01d10000-01dba000 rw-p 01910000 fe:00 4329                               /bin/nightshift
Anonymous:             0 kB
01dba000-01dbb000 r--s 00000000 fe:00 77                                 /some/index
Anonymous:             0 kB
c000000000-c000400000 rw-p 00000000 00:00 0
Anonymous:             0 kB
7f0000000000-7f0000002000 r-xp 00000000 00:00 0                          [vdso]
Anonymous:             0 kB
7f0000003000-7f0000002000 r-xp 00000000 fe:00 9                          /backwards
Anonymous:             0 kB
`
	want := map[uintptr]uintptr{0x400000: 0x7e5000, 0xbe5000: 0x111b000}
	if got := maps.Collect(cleanImage(strings.NewReader(smaps))); !maps.Equal(got, want) {
		t.Errorf("%#x, not %#x", got, want)
	}
}

func TestReleaseImage(t *testing.T) {
	mapped := func() int64 {
		b, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		return numberAfter(b, "RssFile:")
	}
	before := mapped()
	ReleaseImage()
	if after := mapped(); after >= before {
		t.Errorf("of %d kB of the program's file %d are still mapped", before, after)
	}
}
