package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/runnertest"
)

// phase is a place where a run can be when a signal comes.
type phase struct {
	name   string
	script string
	config string
	args   []string
	// until tells that the run is there; delay comes after it.
	until func(w *world) bool
	delay time.Duration
	prep  func(t *testing.T, w *world)
	// early: before the run has a turn to close. items: how many items there are.
	early bool
	items int
	// noPatch: the changes cannot be told.
	noPatch bool
	// env is added to the environment.
	env []string
}

func fileThere(name string) func(*world) bool {
	return func(w *world) bool { _, err := os.Stat(filepath.Join(w.base, name)); return err == nil }
}

func asked(n int) func(*world) bool {
	return func(w *world) bool { return len(w.server.ModelRequests()) >= n }
}

// silent listens on a port and never answers.
func silent(t *testing.T) string {
	t.Helper()
	return accepting(t, func(c net.Conn) { t.Cleanup(func() { _ = c.Close() }) })
}

// accepting listens on a port and hands every connection to each.
func accepting(t *testing.T, each func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			each(c)
		}
	}()
	return l.Addr().String()
}

func phases() []phase {
	call := func(cmd string) string {
		return fmt.Sprintf(`{"items":[{"call":"exec_command","call_id":"a","args":{"cmd":%q,"yield_time_ms":30000}}]}`, cmd)
	}
	answer := `{"items":[{"message":"done"}]}`
	hang := `{"items":[{"message":"x"}],"hang_s":60}`
	return []phase{
		{name: "start, right away", script: hang, delay: time.Millisecond, early: true},
		{name: "start, login refresh hangs", script: answer, early: true, until: fileThere("reports"), delay: 200 * time.Millisecond,
			prep: func(t *testing.T, w *world) {
				w.write(t, w.home+"/auth.json", runnertest.NewTokens(t).Login(-time.Hour), 0o600)
				w.write(t, w.home+"/config.toml", []byte(w.fill("model_provider = \"mock\"\n[model_providers.mock]\nname = \"mock\"\n"+
					"base_url = \"http://127.0.0.1:{{port}}/v1\"\nrequires_openai_auth = true\n")), 0o600)
			}},
		{name: "start, prompt from a pipe that says nothing", script: answer, early: true, until: fileThere("reports"), delay: 300 * time.Millisecond,
			args: []string{"--prompt-file", "{{base}}/pipe"}, prep: func(t *testing.T, w *world) { mkfifo(t, w.base+"/pipe") }},
		{name: "first request, no headers", script: `{"items":[],"delay_s":60}`, until: asked(1)},
		{name: "stream", script: hang, until: asked(1), delay: 200 * time.Millisecond},
		{name: "trickle", script: `{"items":[{"message":"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz","deltas":52},{"message":"y"},{"message":"z"}],"gap_s":30}`, until: asked(1), delay: 200 * time.Millisecond},
		{name: "command", script: call("touch {{ws}}/up; sleep 60"), until: fileThere("ws/up"), items: 1},
		{name: "command that ignores signals", script: call("trap '' TERM INT HUP; touch {{ws}}/up; while :; do sleep 1; done"), until: fileThere("ws/up"), items: 1},
		{name: "command that floods", script: call("touch {{ws}}/up; cat /dev/zero"), until: fileThere("ws/up"), items: 1},
		{name: "command with a tree", script: call("for i in $(seq 50); do (setsid sleep 60 &) ; done; touch {{ws}}/up; sleep 60"), until: fileThere("ws/up"), items: 1},
		{name: "terminal", script: `{"items":[{"call":"exec_command","call_id":"a","args":{"cmd":"touch {{ws}}/up; cat","tty":true,"yield_time_ms":30000}}]}`, until: fileThere("ws/up"), items: 1},
		{name: "retry sleep", script: `{"status":503,"headers":{"Retry-After":"60"},"body":{"error":{"message":"busy"}}}`, until: asked(1), delay: 300 * time.Millisecond},
		{name: "compaction", script: `{"usage":{"input":90000,"output":10},"items":[{"call":"exec_command","call_id":"a","args":{"cmd":"seq 20000"}}]}` + "\n" + hang,
			args: []string{"-c", "model_auto_compact_token_limit=1000"}, until: asked(2), delay: 200 * time.Millisecond, items: 1},
		{name: "closing summary", script: call("true") + "\n" + hang, args: []string{"--max-turns", "2"}, until: asked(2), delay: 200 * time.Millisecond, items: 1},
		{name: "verify", script: call("echo x > {{ws}}/f") + "\n" + answer, args: []string{"--verify", "touch {{ws}}/up; sleep 60"}, until: fileThere("ws/up"), items: 2},
		{name: "stop hook", script: answer, config: "[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = \"command\"\ncommand = \"touch {{ws}}/up; sleep 60\"\n", until: fileThere("ws/up"), items: 1},
		{name: "tool hook", script: call("true"), config: "[[hooks.PreToolUse]]\n[[hooks.PreToolUse.hooks]]\ntype = \"command\"\ncommand = \"touch {{ws}}/up; sleep 60\"\n", until: fileThere("ws/up")},
		{name: "start of a server that says nothing", script: answer, config: "[mcp_servers.s]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"trap '' TERM; touch {{ws}}/up; sleep 60; sleep 60\"]\nstartup_timeout_sec = 60\nrequired = true\n",
			until: fileThere("ws/up"), early: true},
		{name: "diff of a repository that cannot be read", script: call("mkfifo {{ws}}/.gitignore") + "\n" + answer, until: asked(2), delay: 600 * time.Millisecond, items: 2, noPatch: true},
		{name: "command, collector that says nothing", script: call("touch {{ws}}/up; sleep 60"), until: fileThere("ws/up"), items: 1,
			config: "[otel]\nflush_timeout = \"60s\"\nexporter = { otlp-http = { endpoint = \"http://{{silent}}/v1/logs\", protocol = \"binary\" } }\n"},
		{name: "delivery to a collector that says nothing", script: answer, until: asked(1), delay: 500 * time.Millisecond, items: 1,
			config: "[otel]\nflush_timeout = \"60s\"\nexporter = { otlp-http = { endpoint = \"http://{{silent}}/v1/logs\", protocol = \"binary\" } }\n"},
	}
}

func mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

// phaseWorld is a world ready for p.
func phaseWorld(t *testing.T, p phase) (*world, process) {
	t.Helper()
	w := newWorld(t)
	quiet := silent(t)
	fill := func(s string) string { return strings.ReplaceAll(w.fill(s), "{{silent}}", quiet) }
	w.git(t, w.ws, "init", "-q", "-b", "main")
	w.git(t, w.ws, "commit", "-q", "--allow-empty", "-m", "start")
	w.write(t, w.home+"/config.toml", []byte(fill("model = \"gpt-5.5\"\nmodel_provider = \"mock\"\n"+p.config+`
[model_providers.mock]
name = "mock"
base_url = "http://127.0.0.1:{{port}}/v1"
wire_api = "responses"
env_key = "MOCK_API_KEY"
`)), 0o600)
	w.play(t, fill(p.script))
	if p.prep != nil {
		p.prep(t, w)
	}
	args := []string{"exec", "--json", "-s", "workspace-write", "--report-dir", w.base + "/reports", "--events", w.base + "/events.jsonl"}
	for _, a := range p.args {
		args = append(args, fill(a))
	}
	if !strings.Contains(strings.Join(p.args, " "), "--prompt-file") {
		args = append(args, "Do it.")
	}
	if err := os.Mkdir(w.base+"/tmp", 0o700); err != nil {
		t.Fatal(err)
	}
	env := append(w.env(), "MOCK_API_KEY=dummy-key", "TMPDIR="+w.base+"/tmp", "CODEX_REFRESH_TOKEN_URL_OVERRIDE=http://"+quiet+"/oauth/token")
	return w, process{args: args, dir: w.ws, env: append(env, p.env...), timeout: time.Minute}
}

// signalBound is how long a run may take after a signal.
const signalBound = 7 * time.Second

// TestFaultSignal sends SIGTERM in every phase of a run. Each ends in time with
// exit code 143, closed items and complete reports, and leaves nothing.
func TestFaultSignal(t *testing.T) {
	notShort(t)
	for _, p := range phases() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			w, proc := phaseWorld(t, p)
			var sent time.Time
			proc.send = func(ctx context.Context, child *os.Process) {
				for p.until != nil && !p.until(w) {
					select {
					case <-ctx.Done():
						return
					case <-time.After(5 * time.Millisecond):
					}
				}
				time.Sleep(p.delay)
				sent = time.Now()
				_ = child.Signal(syscall.SIGTERM)
			}
			res := proc.run(t)
			took := res.ended.Sub(sent)
			t.Logf("FAULT SIGTERM: %s | 1 | ended after %s", p.name, took.Round(10*time.Millisecond))
			if res.code != 143 || took > signalBound {
				t.Errorf("exit code %d, %s after the signal\nstdout:\n%s\nstderr:\n%s", res.code, took, excerptOf(res.stdout), excerptOf(res.stderr))
			}
			lines := res.lines(t)
			if !p.early || len(lines) > 0 {
				checkEvents(t, caseExpect{ItemsClosed: true}, lines)
			}
			done := 0
			for _, l := range lines {
				if l["type"] == "item.completed" {
					done++
				}
			}
			if done < p.items {
				t.Errorf("%d items, want %d\n%s", done, p.items, excerptOf(res.stdout))
			}
			switch {
			case p.delay == time.Millisecond: // the process may not even have begun
			case p.noPatch:
				w.wholeReports(t, w.base+"/reports", 143, p.name, "changes.patch")
			default:
				w.wholeReports(t, w.base+"/reports", 143, p.name)
			}
			if left := w.leftovers(5 * time.Second); len(left) > 0 {
				t.Errorf("processes live on: %v", left)
			}
			if entries, err := os.ReadDir(w.base + "/tmp"); err != nil || len(entries) > 0 {
				t.Errorf("%v are left in TMPDIR (%v)", entries, err)
			}
		})
	}
}

// TestFaultSignalTwice: a second signal ends everything at once.
func TestFaultSignalTwice(t *testing.T) {
	notShort(t)
	t.Parallel()
	w, proc := phaseWorld(t, phase{script: `{"items":[{"call":"exec_command","call_id":"a","args":{"cmd":"trap '' TERM INT HUP; touch {{ws}}/up; while :; do sleep 1; done","yield_time_ms":30000}}]}`})
	var sent time.Time
	proc.send = func(ctx context.Context, child *os.Process) {
		for !fileThere("ws/up")(w) && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		_ = child.Signal(syscall.SIGINT)
		time.Sleep(100 * time.Millisecond)
		sent = time.Now()
		_ = child.Signal(syscall.SIGINT)
	}
	res := proc.run(t)
	if took := res.ended.Sub(sent); res.code != 130 || took > 2*time.Second {
		t.Errorf("exit code %d after %s", res.code, took)
	}
	if left := w.leftovers(10 * time.Second); len(left) > 0 {
		t.Errorf("processes live on: %v", left)
	}
}

// TestFaultSignalAfterTheReport: once the report tells of an exit code, no signal
// changes it, and be it the tenth.
func TestFaultSignalAfterTheReport(t *testing.T) {
	notShort(t)
	t.Parallel()
	for i := range faultRounds(t, 4) {
		w, proc := phaseWorld(t, phase{script: `{"items":[{"message":"done"}]}`})
		sent := 0
		proc.send = func(ctx context.Context, child *os.Process) {
			for ctx.Err() == nil && !fileThere("reports/report.json")(w) {
				time.Sleep(50 * time.Microsecond)
			}
			for ctx.Err() == nil && child.Signal(syscall.SIGTERM) == nil {
				sent++
				time.Sleep(200 * time.Microsecond)
			}
		}
		res := proc.run(t)
		if res.code != 0 {
			t.Errorf("round %d: exit code %d after %d signals\n%s", i, res.code, sent, excerptOf(res.stderr))
		}
		w.wholeReports(t, w.base+"/reports", res.code, fmt.Sprint("round ", i))
	}
}
