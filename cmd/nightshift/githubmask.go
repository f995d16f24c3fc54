package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nightshift-ci/nightshift/report"
)

// githubMasks writes secrets as commands that make GitHub hide them in the rest
// of the job: those of a login or of a variable that the workflow computed are
// not among the secrets that it knows. The lines of a secret with several lines
// are secrets of their own.
func githubMasks(w io.Writer) func([]string) {
	return func(secrets []string) {
		var lines []string
		for _, s := range secrets {
			if !strings.ContainsAny(s, "\r\n") {
				lines = append(lines, s)
			}
		}
		// A reader that is gone is found by what is written next.
		_ = report.Masks(w, lines)
	}
}

// The runner of GitHub is known by its process, which reads the outputs of steps
// through pipes. maxAncestors and maxDescriptors bound the search.
const (
	githubRunner   = "Runner.Worker"
	maxAncestors   = 64
	maxDescriptors = 4096
)

// runnerReads tells whether the reader of stream is GitHub's runner itself. A
// command that hides a secret holds it in plain, so it may go nowhere else: not
// to a file that stderr was sent to, nor to a program in between that may keep
// it. Variables can be set by anybody; what holds the other end of a pipe cannot
// be feigned by them.
func runnerReads(stream any) bool {
	f, ok := stream.(interface{ Fd() uintptr })
	if !ok {
		return false
	}
	pipe, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil || !strings.HasPrefix(pipe, "pipe:") {
		return false
	}
	pid := os.Getppid()
	for range maxAncestors {
		if pid <= 1 {
			return false
		}
		name, parent := procStat(pid)
		if holdsReader(pid, pipe) {
			return name == githubRunner
		}
		pid = parent
	}
	return false
}

// procStat is the name and the parent of a process; parent is 0 where they cannot
// be read.
func procStat(pid int) (name string, parent int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if err != nil || open < 0 || end < open {
		return "", 0
	}
	if fields := strings.Fields(string(stat[end+1:])); len(fields) > 1 {
		parent, _ = strconv.Atoi(fields[1]) // 0 ends the search
	}
	return string(stat[open+1 : end]), parent
}

// holdsReader tells whether the process has the reading end of the pipe.
func holdsReader(pid int, pipe string) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxDescriptors) // those that could be read will do
	for _, name := range names {
		if to, err := os.Readlink(filepath.Join(dir, name)); err != nil || to != pipe {
			continue
		}
		info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, name))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(info)) {
			flags, ok := strings.CutPrefix(line, "flags:")
			n, err := strconv.ParseInt(strings.TrimSpace(flags), 8, 64)
			if ok && err == nil && n&int64(os.O_RDONLY|os.O_WRONLY|os.O_RDWR) == int64(os.O_RDONLY) {
				return true
			}
		}
	}
	return false
}
