package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFaultProcessTable runs commands that start more processes than the user
// may have, and runs that cannot start all of their own. Whatever is refused, the
// run ends in time with a code that blames neither the command line nor the
// model, and no process is left.
func TestFaultProcessTable(t *testing.T) {
	notShort(t)
	if os.Geteuid() != 0 {
		t.Skip("the limit counts every process of the user; only root can be another one")
	}
	const script = `{"items":[{"call":"exec_command","call_id":"a","args":{"cmd":"for i in $(seq 200); do sleep 60 & done; wait","yield_time_ms":1000}}]}` + "\n" +
		`{"items":[{"message":"done"}]}`
	// Five threads are what Go takes before the program's first line.
	const least, most = 6, 60
	few := []int{least, 12, 24, most}
	if n := faultRounds(t, 0); n > 0 {
		few = nil
		for i := range n {
			few = append(few, least+i%(most-least+1))
		}
	}
	codes := map[int]int{}
	for i, limit := range few {
		mode := []string{"danger-full-access", "workspace-write"}[i%2]
		name := fmt.Sprintf("%d processes, %s", limit, mode)
		w := newWorld(t)
		w.layOut(t, scenario{Model: "gpt-5.5"})
		w.play(t, script)
		uid := 30_000 + os.Getpid()%20_000
		if err := os.Mkdir(w.base+"/tmp", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := filepath.WalkDir(w.base, func(path string, _ os.DirEntry, err error) error {
			if err == nil {
				err = os.Lchown(path, uid, uid)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		p := process{args: []string{"exec", "--json", "-s", mode, "Do it."}, dir: w.ws, timeout: time.Minute,
			env: append(w.env(), "MOCK_API_KEY=dummy-key", "TMPDIR="+w.base+"/tmp")}
		p.wrap = func(cmd *exec.Cmd) {
			cmd.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -u %d && exec "$0" "$@"`, limit), cmd.Path}, cmd.Args[1:]...)
			cmd.Path = "/bin/bash" // of a POSIX shell this limit is no part
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		}
		res := p.run(t)
		codes[res.code]++
		// Without a thread Go cannot even begin; then it is ended by SIGABRT.
		if !slices.Contains([]int{0, 4, 128 + int(unix.SIGABRT)}, res.code) || res.code == 0 && limit < 8 || res.code > 128 && limit > 40 {
			t.Errorf("%s: exit code %d\nstdout:\n%s\nstderr:\n%s", name, res.code, excerptOf(res.stdout), excerptOf(res.stderr))
		}
		if left := w.leftovers(10 * time.Second); len(left) > 0 {
			t.Errorf("%s: %d processes live on: %v", name, len(left), left[0])
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("FAULT full process table | %d | exit codes %v", len(few), codes)
}
