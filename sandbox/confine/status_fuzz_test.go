//go:build linux

package confine

import "testing"

// FuzzStatus: messages of the init and files of /proc, cut anywhere.
func FuzzStatus(f *testing.F) {
	for _, s := range []string{"", "\x01\x00\x00\x00\x02\x00\x00\x00{}", "Name:\tx\nThreads:\t12\n", "Threads:", "Pss: 9999999999999999999 kB", "\nThreads:\n", "XThreads:\t3\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, id, body, ok := ParseHeader(b)
		if ok != (len(b) >= 8) || ok && len(body) != len(b)-8 {
			t.Errorf("%d %d %x %v", kind, id, body, ok)
		}
		if s, whole := ParseStatus(b); whole && (s.Kind != kind || s.ID != id) {
			t.Errorf("%+v, want %d %d", s, kind, id)
		}
		numberAfter(b, "Threads:")
	})
}
