package main

import (
	"context"
	"io"
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

// TestKeyThatNeverComes: --api-key-stdin waits for its line no longer than for a
// prompt, ends at a signal, and takes no endless one.
func TestKeyThatNeverComes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	batch := []string{"batch", "--tasks", "x.jsonl", "--out", "out", "--api-key-stdin"}
	for name, c := range map[string]struct {
		args   []string
		stdin  io.Reader
		signal bool
		code   int
		want   string
	}{
		"silent": {[]string{"exec", "--api-key-stdin", "--idle-prompt-wait", "300ms", "x"}, nil, false, 2, "--api-key-stdin: stdin is open, but nothing came from it for 300ms\n"},
		"batch":  {append(batch, "--idle-prompt-wait=300ms"), nil, false, 2, "--api-key-stdin: stdin is open, but nothing came from it for 300ms\n"},
		"signal": {[]string{"exec", "--api-key-stdin", "x"}, nil, true, 143, "interrupted by SIGTERM"},
		"long":   {[]string{"exec", "--api-key-stdin", "x"}, strings.NewReader(strings.Repeat("k", 70_000)), false, 2, "longer than 64 KiB"},
	} {
		p := process{args: c.args, dir: dir, timeout: time.Minute, env: []string{"HOME=" + dir, "PATH=/usr/bin:/bin"}, stdin: c.stdin, open: c.stdin == nil}
		if c.signal {
			p.send = func(_ context.Context, child *os.Process) {
				time.Sleep(500 * time.Millisecond)
				_ = child.Signal(syscall.SIGTERM)
			}
		}
		if r := p.run(t); r.code != c.code || !strings.Contains(string(r.stderr), c.want) {
			t.Errorf("%s: exit %d\n%s", name, r.code, r.stderr)
		}
	}
}
