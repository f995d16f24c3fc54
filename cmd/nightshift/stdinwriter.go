package main

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
		if !callers[pid] {
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
		dir := filepath.Dir(filepath.Dir(link))
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil && pid != os.Getpid() && writable(filepath.Join(dir, "fdinfo", filepath.Base(link))) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// writable reads the open flags from an fdinfo file.
func writable(fdinfo string) bool {
	b, err := os.ReadFile(fdinfo)
	if err != nil {
		return true // nobody can say that it is not
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "flags:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(rest), 8, 64)
			return err != nil || n&syscall.O_ACCMODE != syscall.O_RDONLY
		}
	}
	return true
}

// ancestors are the processes above pid.
func ancestors(pid int) map[int]bool {
	out := map[int]bool{}
	for pid > 1 {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return out
		}
		// pid (name) state ppid …; the name may hold anything.
		_, rest, ok := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
		fields := strings.Fields(rest)
		if !ok || len(fields) < 2 {
			return out
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil || out[pid] {
			return out
		}
		out[pid] = true
	}
	return out
}
