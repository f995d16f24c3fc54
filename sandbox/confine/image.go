//go:build linux

package confine

import (
	"bufio"
	"bytes"
	"io"
	"iter"
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
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	for start, size := range cleanImage(f) {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, start, size, unix.MADV_DONTNEED)
	}
}

// cleanImage lists the mappings of files that nothing was written to and nothing
// can be written to, as start and size in bytes, by the text of smaps, as far as
// it can be read. It keeps no memory worth mentioning: it is asked at each wait.
func cleanImage(smaps io.Reader) iter.Seq2[uintptr, uintptr] {
	return func(yield func(start, size uintptr) bool) {
		lines := bufio.NewReaderSize(smaps, 8<<10)
		var start, size uintptr
		for {
			line, err := lines.ReadSlice('\n')
			if err != nil {
				return
			}
			pages, isPages := bytes.CutPrefix(line, []byte("Anonymous:"))
			switch {
			case isPages:
				// The pages that are not the file's any more.
				if size > 0 && string(bytes.TrimSpace(pages)) == "0 kB" && !yield(start, size) {
					return
				}
			case line[0] < 'A' || line[0] > 'Z': // an address; what is said of it begins with a capital
				start, size = fileMapping(bytes.Fields(line))
			}
		}
	}
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
