package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

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
	for i, pid := range ancestors(os.Getpid()) {
		if i == maxAncestors || pid <= 1 {
			break
		}
		if holdsReader(pid, pipe) {
			name, _ := procStat(pid)
			return name == githubRunner
		}
	}
	return false
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
		if mode, ok := accessMode(pid, name); ok && mode == syscall.O_RDONLY {
			return true
		}
	}
	return false
}
