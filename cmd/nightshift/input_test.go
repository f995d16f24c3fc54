package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSilentPipes: no command waits for ever at a pipe where a file should be.
func TestSilentPipes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "results.jsonl"), nil, 0o644); err != nil { // for the merge
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"batch", "--tasks", pipe, "--out", filepath.Join(dir, "out")},
		{"batch", "merge", "--tasks", pipe, "--out", filepath.Join(dir, "merged"), dir},
		{"policy", "lint", pipe}, {"debug", "server", pipe},
		{"exec", "--skip-git-repo-check", "--prompt-file", pipe},
		{"exec", "--skip-git-repo-check", "--output-schema", pipe, "hello"},
	} {
		t.Run(strings.Join(args[:2], " "), func(t *testing.T) {
			t.Parallel()
			p := process{args: args, dir: dir, timeout: time.Minute, env: []string{"HOME=" + dir, "PATH=/usr/bin:/bin"}}
			if r := p.run(t); r.code == 0 || !strings.Contains(string(r.stderr), "did not come to an end within 5s") {
				t.Errorf("exit %d\n%s", r.code, r.stderr)
			}
		})
	}
}

// TestSignalWhileReading: a signal that comes while an input is awaited ends
// the process as a signal, not as a mistake in the input.
func TestSignalWhileReading(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	p := process{
		args: []string{"batch", "--tasks", pipe, "--out", filepath.Join(dir, "out")},
		dir:  dir, timeout: time.Minute, env: []string{"HOME=" + dir, "PATH=/usr/bin:/bin"},
		send: func(ctx context.Context, child *os.Process) {
			for ctx.Err() == nil { // without a reader the open fails at once
				w, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
				if err == nil {
					_ = child.Signal(syscall.SIGTERM)
					<-ctx.Done()
					_ = w.Close()
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
		},
	}
	if r := p.run(t); r.code != 143 || string(r.stderr) != "error: interrupted by SIGTERM\n" {
		t.Errorf("exit %d\n%s", r.code, r.stderr)
	}
}

// TestLateProducer: beside a prompt a silent stdin is left after two seconds, and
// waited for as long as the user asks.
func TestLateProducer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ option, want string }{
		{"--idle-prompt-wait=1m", "late words"},
		{"", "stdin is open but silent for 2s; going on with the prompt argument alone (--idle-prompt-wait waits longer)"},
	} {
		dir := t.TempDir()
		cmd := exec.Command("/bin/sh", "-c", "(sleep 4; echo late words) | "+binary(t)+" debug prompt-input --skip-git-repo-check "+c.option+" 'explain this'")
		cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=/usr/bin:/bin"}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%q: %v: no %q in\n%s", c.option, err, c.want, out)
		}
	}
}
