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
	writers, ok := writersOf(r)
	if !ok || len(writers) == 0 {
		return false
	}
	callers := ancestors(os.Getpid())
	return !slices.ContainsFunc(writers, func(w pipeWriter) bool { return !slices.Contains(callers, w.pid) })
}

// pipeProducer finds a process that is known to hold the write end of r, a pipe,
// and is no caller of this one: the other half of a pipeline.
func pipeProducer(r io.Reader) (pid int, ok bool) {
	writers, ok := writersOf(r)
	if !ok {
		return 0, false
	}
	callers := ancestors(os.Getpid())
	for _, w := range writers {
		if w.sure && !slices.Contains(callers, w.pid) {
			return w.pid, true
		}
	}
	return 0, false
}

// writersOf lists the writers of r; ok is false when it is no pipe.
func writersOf(r io.Reader) (writers []pipeWriter, ok bool) {
	f, ok := r.(*os.File)
	if !ok {
		return nil, false
	}
	fi, err := f.Stat()
	if err != nil || fi.Mode()&os.ModeNamedPipe == 0 {
		return nil, false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, false
	}
	return pipeWriters("pipe:[" + strconv.FormatUint(st.Ino, 10) + "]"), true
}

// pipeWriter is a process that may write to a pipe; sure when it certainly can.
type pipeWriter struct {
	pid  int
	sure bool
}

// pipeWriters lists the processes, as far as they can be looked into, that can
// write to the pipe that /proc calls name.
func pipeWriters(name string) (writers []pipeWriter) {
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
			writers = append(writers, pipeWriter{pid, ok})
		}
	}
	return writers
}
