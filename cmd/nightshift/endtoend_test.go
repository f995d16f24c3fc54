package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/runnertest"
)

// world is what one scenario runs in: a workspace, a home, a system folder and a
// model server. Nothing of the machine's own configuration is visible in it.
type world struct {
	base, ws, home, userHome, system string
	server                           *runnertest.Server
	threads                          []string // of the steps so far
	program                          string   // "": the one under test
	spent                            int      // logins that a kill took, see restoreSpent
}

// newWorld makes the folders. They lie outside of the temporary folders, which
// commands may write to.
func newWorld(t *testing.T) *world {
	t.Helper()
	base, err := os.MkdirTemp("/var/tmp", "nightshift-scenario-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Errorf("the scenario left something that cannot be removed: %v", err)
		}
	})
	if base, err = filepath.EvalSymlinks(base); err != nil {
		t.Fatal(err)
	}
	w := &world{base: base, ws: base + "/ws", home: base + "/codex-home", userHome: base + "/home", system: base + "/system"}
	for _, dir := range []string{w.base, w.ws, w.home, w.userHome, w.system} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if w.server, err = runnertest.Start("127.0.0.1:0", nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.server.Close)
	return w
}

// fill replaces the placeholders of scenarios and cases.
func (w *world) fill(s string) string {
	pairs := []string{"{{base}}", w.base, "{{ws}}", w.ws, "{{home}}", w.home, "{{port}}", fmt.Sprint(w.server.Port)}
	for i, id := range w.threads {
		pairs = append(pairs, fmt.Sprintf("{{tid%d}}", i+1), id)
	}
	if n := len(w.threads); n > 0 {
		pairs = append(pairs, "{{tid}}", w.threads[n-1])
	}
	return strings.NewReplacer(pairs...).Replace(s)
}

// fillJSON replaces the placeholders in the strings of a JSON text.
func (w *world) fillJSON(raw []byte) []byte {
	// The folders and the port need no escape in a JSON string.
	return []byte(w.fill(string(raw)))
}

func (w *world) write(t *testing.T, path string, data []byte, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, mode); err != nil {
		t.Fatal(err)
	}
}

// git runs git in dir as nobody in particular.
func (w *world) git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=setup", "-c", "user.email=setup@example.com", "-c", "core.autocrlf=false"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(w.env(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// env is the base environment; nothing else is inherited.
func (w *world) env() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.userHome, "CODEX_HOME=" + w.home, "SHELL=/bin/bash",
		"LANG=C.UTF-8", "TERM=dumb", "CI=true", "NIGHTSHIFT_TEST_SYSTEM_DIR=" + w.system,
	}
}

// process is one run of the program.
type process struct {
	program string // "": the one under test
	args    []string
	dir     string
	env     []string
	stdin   io.Reader // nil: /dev/null
	open    bool      // stdin is a pipe that stays open and silent
	timeout time.Duration
	// oneLine: the reader of stdout goes away after the first line.
	oneLine bool
	// watch is called with each line of stdout as it comes.
	watch func(line string)
	// send sends signals while the program runs; it returns when ctx ends.
	send func(context.Context, *os.Process)
	wrap func(*exec.Cmd)
}

// result is what a run left.
type result struct {
	stdout, stderr []byte
	code           int // as a shell shows it: 128+n for death by signal n
	took           time.Duration
	rss            int64 // bytes
	ended          time.Time
}

// run runs the program to its end.
func (p process) run(t *testing.T) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), p.timeout)
	defer cancel()
	program := p.program
	if program == "" {
		program = binary(t)
	}
	cmd := exec.CommandContext(ctx, program, p.args...)
	cmd.Dir, cmd.Env, cmd.Stdin = p.dir, p.env, p.stdin
	cmd.WaitDelay = 5 * time.Second
	if p.open {
		r, keep, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer keep.Close()
		defer r.Close()
		cmd.Stdin = r
	}
	if p.wrap != nil {
		p.wrap(cmd)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	var stdout bytes.Buffer
	var readers sync.WaitGroup
	readers.Go(func() {
		defer r.Close()
		lines := bufio.NewReader(r)
		for {
			line, err := lines.ReadString('\n')
			stdout.WriteString(line)
			if p.watch != nil && line != "" {
				p.watch(strings.TrimSuffix(line, "\n"))
			}
			if err != nil || p.oneLine {
				return
			}
		}
	})
	running, stop := context.WithCancel(ctx)
	var sender sync.WaitGroup
	if p.send != nil {
		sender.Go(func() { p.send(running, cmd.Process) })
	}
	err = cmd.Wait()
	res := result{took: time.Since(begin), ended: time.Now()}
	stop()
	sender.Wait()
	readers.Wait()
	res.stdout, res.stderr = stdout.Bytes(), stderr.Bytes()
	if ctx.Err() != nil {
		t.Fatalf("the program did not end within %v\nstdout:\n%s\nstderr:\n%s", p.timeout, excerptOf(res.stdout), excerptOf(res.stderr))
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		t.Fatal(err)
	}
	res.code = cmd.ProcessState.ExitCode()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		res.code = 128 + int(ws.Signal())
	}
	if ru, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		res.rss = ru.Maxrss << 10
	}
	return res
}

func excerptOf(b []byte) string {
	const most = 6000
	if len(b) <= most {
		return string(b)
	}
	return string(b[:most/2]) + "\n[…]\n" + string(b[len(b)-most/2:])
}

// lines decodes the JSON lines of stdout; with a key that is repeated in an
// object the last one counts.
func (r result) lines(t *testing.T) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, line := range strings.Split(strings.TrimSuffix(string(r.stdout), "\n"), "\n") {
		if line == "" {
			continue
		}
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Errorf("stdout has a line that is no JSON object: %s", excerptOf([]byte(line)))
			continue
		}
		out = append(out, m)
	}
	return out
}

// thread is the thread id that the run printed.
func (r result) thread(t *testing.T) string {
	t.Helper()
	if !bytes.HasPrefix(r.stdout, []byte("{")) {
		return "" // for people
	}
	for _, line := range r.lines(t) {
		if line["type"] == "thread.started" {
			id, _ := line["thread_id"].(string)
			return id
		}
	}
	return ""
}

// at follows a dotted path through decoded JSON.
func at(v any, path string) (any, bool) {
	for _, key := range strings.Split(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[key]; !ok {
			return nil, false
		}
	}
	return v, true
}

// outputTexts returns the text of every tool output in a request's body, by call
// id.
func outputTexts(body []byte) map[string][]string {
	var req struct {
		Input []struct {
			Type   string
			CallID string `json:"call_id"`
			Output json.RawMessage
		}
	}
	out := map[string][]string{}
	if json.Unmarshal(body, &req) != nil {
		return out
	}
	for _, it := range req.Input {
		if strings.HasSuffix(it.Type, "_call_output") {
			out[it.CallID] = append(out[it.CallID], partsText(it.Output))
		}
	}
	return out
}

// partsText is a text, or the texts of a list of content parts.
func partsText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct{ Text string }
	if json.Unmarshal(raw, &parts) != nil {
		return ""
	}
	var texts []string
	for _, p := range parts {
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, "\n")
}

// notShort skips a long test under -short, which the pass with the race detector
// uses: the programs this one watches are built without.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("long, and all in programs without the race detector")
	}
}
