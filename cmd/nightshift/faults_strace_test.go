package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// traced runs the program under strace with injected faults.
func traced(strace string, args ...string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		all := append([]string{"strace", "-f", "-qq", "-o", "/dev/null"}, args...)
		cmd.Args = append(append(all, cmd.Path), cmd.Args[1:]...)
		cmd.Path = strace
	}
}

// TestFaultStrace slows the disk down and interrupts system calls, as a network
// file system and busy signal handlers do. A run does all of its work and reports
// it, only later.
func TestFaultStrace(t *testing.T) {
	notShort(t)
	strace, err := exec.LookPath("strace")
	if err != nil || os.Getenv(roundsVariable) == "" {
		t.Skip("tracing is slow; the lane does it, and installs strace")
	}
	const (
		disk  = "fsync,fdatasync,renameat,renameat2,unlinkat,mkdirat,ftruncate,flock"
		slow  = "read,write,fsync,fdatasync,flock,openat,connect,accept4,recvmsg,sendmsg,recvfrom,sendto,wait4,waitid,epoll_pwait,ppoll,nanosleep,pselect6"
		waits = "wait4,waitid,epoll_pwait,nanosleep,clock_nanosleep,ppoll,rt_sigtimedwait"
	)
	rounds := min(faultRounds(t, 1), 2) // not much of this is chance
	for _, c := range []struct {
		name string
		args []string
	}{
		{"every change of a disk takes 30 ms", []string{"-e", "trace=" + disk, "-e", "inject=" + disk + ":delay_enter=30000"}},
		{"every write takes 3 ms", []string{"-e", "trace=write,pwrite64", "-e", "inject=write,pwrite64:delay_exit=3000"}},
		{"EINTR for every third call of the runner", []string{"-b", "execve", "-e", "trace=" + slow, "-e", "inject=" + slow + ":error=EINTR:when=2+3"}},
		{"EINTR for every third wait of anybody", []string{"-e", "trace=" + waits, "-e", "inject=" + waits + ":error=EINTR:when=2+3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range rounds {
				w, tokens := killWorld(t)
				w.play(t, busySession)
				res := process{args: w.busyArgs("Do it."), dir: w.ws, env: w.busyEnv(tokens), timeout: 3 * time.Minute, wrap: traced(strace, c.args...)}.run(t)
				if strings.Contains(string(res.stderr), "PTRACE_") && res.code != 0 {
					t.Skipf("no tracing here: %s", excerptOf(res.stderr))
				}
				t.Logf("FAULT %s | 1 | exit code %d, %s", c.name, res.code, res.took.Round(10*time.Millisecond))
				when := fmt.Sprintf("round %d", i)
				w.wholeRun(t, res, when)
				if raw, err := os.ReadFile(w.home + "/auth.json"); err != nil || !strings.Contains(string(raw), tokens.Refresh()) {
					t.Errorf("%s: the login was not kept (%v)", when, err)
				}
				w.cleanAfter(t)
				if t.Failed() {
					return
				}
			}
		})
	}
}
