package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// redirect runs the program with streams as a shell opens them; in the words
// {{pipe}} is a pipe that is open and never read.
func (w *world) redirect(t *testing.T, words string) func(*exec.Cmd) {
	t.Helper()
	pipe := filepath.Join(w.base, "unread")
	if strings.Contains(words, "{{pipe}}") {
		mkfifo(t, pipe)
		keep, err := os.OpenFile(pipe, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = keep.Close() })
	}
	return func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"sh", "-c", `exec "$0" "$@" ` + strings.ReplaceAll(words, "{{pipe}}", pipe), cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
	}
}

// TestFaultStreams closes, fills and blocks stdout and stderr. A run that can do
// its work does it; one whose reader never reads ends at its limit, or at a
// signal, and not before its reports are complete.
func TestFaultStreams(t *testing.T) {
	notShort(t)
	const long = `{"items":[{"call":"exec_command","call_id":"a","args":{"cmd":"seq 40000","max_output_tokens":50000}}]}` + "\n" +
		`{"items":[{"call":"exec_command","call_id":"b","args":{"cmd":"seq 40000; echo ran >> side.txt","max_output_tokens":50000}}]}` + "\n" + `{"items":[{"message":"done"}]}`
	for _, c := range []struct {
		words  string
		args   []string
		signal bool
		code   int
	}{
		{words: ">&-", args: []string{"--json"}},
		{words: "2>&-", args: []string{"--json"}},
		{words: "<&- >&- 2>&-", args: []string{"--json"}},
		{words: "<&- >&- 2>&-"},
		{words: ">/dev/full", args: []string{"--json"}, code: 8},
		{words: ">/dev/full", code: 8},
		{words: "2>/dev/full", args: []string{"--json"}},
		{words: ">{{pipe}}", args: []string{"--json", "--max-wall-time", "3s"}, code: 7},
		{words: "2>{{pipe}}", args: []string{"--max-wall-time", "3s"}, code: 8}, // only the last words are too many
		{words: ">{{pipe}} 2>{{pipe}}", args: []string{"--json", "--max-wall-time", "3s"}, code: 7},
		{words: ">{{pipe}}", args: []string{"--json"}, signal: true, code: 143},
		{words: "2>{{pipe}}", signal: true, code: 143},
		{words: ">{{pipe}} 2>{{pipe}}", args: []string{"--json"}, signal: true, code: 143},
	} {
		name := strings.Trim(fmt.Sprint(c.words, " ", strings.Join(c.args, " ")), " ")
		if c.signal {
			name += ", then SIGTERM"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.layOut(t, scenario{Model: "gpt-5.5"})
			w.play(t, long)
			if err := os.Mkdir(w.base+"/tmp", 0o700); err != nil {
				t.Fatal(err)
			}
			p := process{args: append(append([]string{"exec", "-s", "workspace-write", "--report-dir", w.base + "/reports"}, c.args...), "Do it."), dir: w.ws,
				env: append(w.env(), "MOCK_API_KEY=dummy-key", "TMPDIR="+w.base+"/tmp"), timeout: time.Minute, wrap: w.redirect(t, c.words)}
			var sent time.Time
			if c.signal {
				p.send = func(ctx context.Context, child *os.Process) {
					for !asked(1)(w) && ctx.Err() == nil {
						time.Sleep(5 * time.Millisecond)
					}
					time.Sleep(500 * time.Millisecond) // the pipe is full by then, or soon
					sent = time.Now()
					_ = child.Signal(syscall.SIGTERM)
				}
			}
			res := p.run(t)
			t.Logf("FAULT streams: %s | 1 | exit code %d, %s", name, res.code, res.took.Round(10*time.Millisecond))
			if c.code == 8 && res.code == 7 && strings.Contains(c.words, "pipe") {
				c.code = 7 // on a slow machine the limit comes before the last words
			}
			if res.code != c.code {
				t.Errorf("exit code %d, want %d\nstdout:\n%s\nstderr:\n%s", res.code, c.code, excerptOf(res.stdout), excerptOf(res.stderr))
			}
			if took := res.ended.Sub(sent); c.signal && took > signalBound {
				t.Errorf("it ended %s after the signal", took)
			}
			if side, _ := os.ReadFile(w.ws + "/side.txt"); !strings.Contains(c.words, "pipe") && string(side) != "ran\n" {
				t.Errorf("the work was not done: %q", side)
			}
			inReport := c.code
			if c.code == 8 {
				inReport = 0 // what the run itself came to
			}
			w.wholeReports(t, w.base+"/reports", inReport, name)
			w.cleanAfter(t)
		})
	}
}

// TestFaultSignalAtRandom ends runs by signals at random instants. Each ends in
// time with the signal's code and whole reports, leaves nothing, and can be
// resumed.
func TestFaultSignalAtRandom(t *testing.T) {
	notShort(t)
	w, tokens := killWorld(t)
	w.play(t, busySession)
	whole := w.undisturbed(t, tokens)
	usual := w.homeFiles(t)
	rounds := faultRounds(t, killRounds)
	signals := []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT}
	phases, slowest := map[string]int{}, time.Duration(0)
	for i := range rounds {
		w.play(t, busySession)
		if err := os.RemoveAll(w.base + "/reports"); err != nil {
			t.Fatal(err)
		}
		sig := signals[i%len(signals)]
		at := time.Duration((float64(i) + rand.Float64()) / float64(rounds) * 1.1 * float64(whole.took))
		var sent time.Time
		p := process{args: w.busyArgs("Do it."), dir: w.ws, env: w.busyEnv(tokens), timeout: time.Minute}
		p.send = func(ctx context.Context, proc *os.Process) {
			select {
			case <-time.After(at):
				sent = time.Now()
				_ = proc.Signal(sig) // it may have ended
			case <-ctx.Done():
			}
		}
		res := p.run(t)
		phase := phaseOf(res)
		phases[phase]++
		when := fmt.Sprintf("round %d, signal %d after %s in phase %q", i, sig, at.Round(time.Millisecond), phase)
		if took := res.ended.Sub(sent); !sent.IsZero() {
			slowest = max(slowest, took)
			if took > signalBound {
				t.Errorf("%s: it ended %s later", when, took)
			}
		}
		if sig == syscall.SIGQUIT && res.code == 2 && len(res.stdout) == 0 && bytes.HasPrefix(res.stderr, []byte("SIGQUIT: quit")) {
			res.code = 128 + int(sig) // before its first line a Go program ends so
		}
		if want := []int{128 + int(sig), 0}; !slices.Contains(want, res.code) || res.code == 0 && !sent.IsZero() && phase != "ended" {
			t.Errorf("%s: exit code %d, want %d\nstdout:\n%s\nstderr:\n%s", when, res.code, want[0], excerptOf(res.stdout), excerptOf(res.stderr))
		}
		if _, err := os.Stat(w.base + "/reports/report.json"); err == nil || phase != "start" {
			w.wholeReports(t, w.base+"/reports", res.code, when)
		}
		w.cleanAfter(t)
		w.afterKill(t, tokens, usual, when)
		if t.Failed() {
			break
		}
	}
	t.Logf("FAULT a signal at a random instant | %d | slowest end %s, %v", rounds, slowest.Round(10*time.Millisecond), phases)
}

// TestFaultStorm stops, continues and signals every process of a run hundreds of
// times a second, so that its system calls are interrupted all the time. It does
// its work as if nothing had been.
func TestFaultStorm(t *testing.T) {
	notShort(t)
	w, tokens := killWorld(t)
	rounds := faultRounds(t, 2)
	sent := 0
	for i := range rounds {
		w.play(t, busySession)
		p := process{args: w.busyArgs("Do it."), dir: w.ws, env: w.busyEnv(tokens), timeout: 2 * time.Minute}
		p.send = func(ctx context.Context, _ *os.Process) {
			for ctx.Err() == nil {
				for _, pid := range w.pids() {
					for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT, syscall.SIGWINCH, syscall.SIGURG, syscall.SIGCHLD} {
						if syscall.Kill(pid, sig) == nil {
							sent++
						}
					}
				}
				time.Sleep(time.Millisecond)
			}
		}
		res := p.run(t)
		when := fmt.Sprintf("round %d", i)
		w.wholeRun(t, res, when)
		w.cleanAfter(t)
		w.git(t, w.ws, "checkout", "-q", "list.txt")
		if err := os.Remove(w.ws + "/new.txt"); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("FAULT a storm of signals | %d | %d signals", rounds, sent)
}

// pids are the processes of this world.
func (w *world) pids() []int {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var found []int
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		environ, _ := os.ReadFile(dir + "/environ") // somebody else's cannot be read
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		if strings.Contains(string(environ), w.base) || strings.Contains(string(cmdline), w.base) {
			found = append(found, pid)
		}
	}
	return found
}
