//go:build linux

package confine

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ReleaseImage unmaps the pages of the program's own file. The kernel maps
// sixteen of them around each one that is touched, and most are of use while a
// program starts only; a process that waits for minutes need not be charged for
// them. They stay in the page cache, and what is needed again is mapped again.
//
// What cannot be given back stays: nothing depends on it.
func ReleaseImage() {
	// smaps and not maps: only it tells whether a mapping has pages of its own,
	// which would be lost.
	b, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for start, size := range cleanImage(b) {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, start, size, unix.MADV_DONTNEED)
	}
}

// cleanImage lists the mappings of files that nothing was written to and nothing
// can be written to, as start and size in bytes, by the text of smaps.
func cleanImage(smaps []byte) map[uintptr]uintptr {
	out := map[uintptr]uintptr{}
	var start, size uintptr
	for line := range bytes.Lines(smaps) {
		f := bytes.Fields(line)
		switch {
		case len(f) < 2:
		case bytes.HasSuffix(f[0], []byte(":")):
			// The pages that are not the file's any more.
			if size > 0 && string(f[0]) == "Anonymous:" && string(f[1]) == "0" {
				out[start] = size
			}
		default:
			start, size = fileMapping(f)
		}
	}
	return out
}

// fileMapping reads the first line of a mapping. The size is 0 when it can be
// written to, is shared, or has no file.
func fileMapping(f [][]byte) (start, size uintptr) {
	if len(f) < 6 || len(f[1]) != 4 || f[1][1] == 'w' || f[1][3] != 'p' || string(f[4]) == "0" {
		return 0, 0
	}
	from, to, _ := bytes.Cut(f[0], []byte("-"))
	a, err1 := strconv.ParseUint(string(from), 16, 64)
	b, err2 := strconv.ParseUint(string(to), 16, 64)
	if err1 != nil || err2 != nil || b <= a {
		return 0, 0
	}
	return uintptr(a), uintptr(b - a)
}
