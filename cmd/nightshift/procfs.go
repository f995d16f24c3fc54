package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// What /proc shows of other processes. Nothing is seen of those of other users and
// in other namespaces.

// procStat is the name and the parent of a process; parent is 0 where they cannot
// be read.
func procStat(pid int) (name string, parent int) {
	name, fields, err := sandbox.ProcStat(pid)
	if err != nil {
		return "", 0
	}
	if len(fields) > 1 {
		parent, _ = strconv.Atoi(fields[1]) // 0 ends a search
	}
	return name, parent
}

// ancestors are the processes above pid, the nearest first.
func ancestors(pid int) []int {
	var out []int
	for pid > 1 {
		if _, pid = procStat(pid); pid <= 0 || slices.Contains(out, pid) {
			break
		}
		out = append(out, pid)
	}
	return out
}

// accessMode is how a process holds a descriptor: O_RDONLY, O_WRONLY or O_RDWR;
// not ok where it cannot be read.
func accessMode(pid int, fd string) (mode int64, ok bool) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, fd))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(info)) {
		if flags, found := strings.CutPrefix(line, "flags:"); found {
			n, err := strconv.ParseInt(strings.TrimSpace(flags), 8, 64)
			return n & syscall.O_ACCMODE, err == nil
		}
	}
	return 0, false
}
