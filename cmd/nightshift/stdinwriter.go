package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// heldByCallers tells whether r is a pipe whose write end is held by callers of
// this process only: its parent, that one's parent and so on. What cannot be
// seen (processes of other users, other kinds of stdin) counts as somebody who
// may still write.
func heldByCallers(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	fi, err := f.Stat()
	if err != nil || fi.Mode()&os.ModeNamedPipe == 0 {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	writers := pipeWriters("pipe:[" + strconv.FormatUint(st.Ino, 10) + "]")
	callers := ancestors(os.Getpid())
	for _, pid := range writers {
		if !slices.Contains(callers, pid) {
			return false
		}
	}
	return len(writers) > 0
}

// pipeWriters lists the processes, as far as they can be looked into, that can
// write to the pipe that /proc calls name.
func pipeWriters(name string) (pids []int) {
	links, err := filepath.Glob("/proc/[0-9]*/fd/[0-9]*")
	if err != nil {
		return nil
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err != nil || target != name {
			continue // gone, or not ours to see
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(link))))
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Nobody can say of one that cannot be seen that it does not write.
		if mode, ok := accessMode(pid, filepath.Base(link)); !ok || mode != syscall.O_RDONLY {
			pids = append(pids, pid)
		}
	}
	return pids
}
