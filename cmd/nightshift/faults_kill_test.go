package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/runnertest"
)

// roundsVariable says how often the faults with a random instant are injected;
// the lane asks for hundreds.
const roundsVariable = "NIGHTSHIFT_FAULT_ROUNDS"

// killRounds is how often runs are killed when nobody asks for more.
const killRounds = 8

func faultRounds(t *testing.T, normally int) int {
	t.Helper()
	text := os.Getenv(roundsVariable)
	if text == "" {
		return normally
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is no number of rounds", roundsVariable, text)
	}
	return n
}

// busySession is a run that does everything that can be killed in the middle: it
// refreshes a login, writes by commands and patches, keeps a session open, plans,
// verifies, and reports.
const busySession = `{"model_script":[
	{"items":[{"message":"I begin."},{"call":"exec_command","call_id":"a","args":{"cmd":"echo one >> list.txt; sleep 0.05"}},
		{"call":"exec_command","call_id":"b","args":{"cmd":"for i in 1 2 3; do echo $i; sleep 0.02; done"}}]},
	{"items":[{"custom":"apply_patch","call_id":"p","input":"*** Begin Patch\n*** Add File: new.txt\n+fresh\n*** End Patch\n"},
		{"call":"exec_command","call_id":"s","args":{"cmd":"sleep 30 & sleep 31","yield_time_ms":250}}]},
	{"items":[{"call":"exec_command","call_id":"c","args":{"cmd":"head -c 200000 /dev/zero | tr '\\0' x; mkdir -p $TMPDIR/deep/deeper; chmod 0 $TMPDIR/deep"}}]},
	{"items":[{"message":"done"}]}
]}`

// killWorld is a world with a login that every run refreshes and a temporary
// folder of its own.
func killWorld(t *testing.T) (*world, *runnertest.Tokens) {
	t.Helper()
	w, tokens := loginWorld(t, time.Minute)
	tokens.Lifetime(time.Minute) // due again at once
	w.write(t, w.ws+"/list.txt", []byte("zero\n"), 0o644)
	w.git(t, w.ws, "add", "-A")
	w.git(t, w.ws, "commit", "-q", "-m", "list")
	if err := os.Mkdir(w.base+"/tmp", 0o700); err != nil {
		t.Fatal(err)
	}
	return w, tokens
}

func (w *world) busyArgs(more ...string) []string {
	return append([]string{"exec", "--json", "-s", "workspace-write", "--verify", "test -e new.txt", "--events", w.base + "/events.jsonl",
		"--report-dir", w.base + "/reports", "-o", w.base + "/last.txt"}, more...)
}

func (w *world) busyEnv(tokens *runnertest.Tokens) []string {
	return append(w.env(), "TMPDIR="+w.base+"/tmp", "CODEX_REFRESH_TOKEN_URL_OVERRIDE="+tokens.URL)
}

// undisturbed is the run of a busy session that nobody ends.
func (w *world) undisturbed(t *testing.T, tokens *runnertest.Tokens) result {
	t.Helper()
	whole := process{args: w.busyArgs("Do it."), dir: w.ws, env: w.busyEnv(tokens), timeout: time.Minute}.run(t)
	if whole.code != 0 {
		t.Fatalf("the run ends with %d when nobody ends it\n%s\n%s", whole.code, excerptOf(whole.stdout), excerptOf(whole.stderr))
	}
	return whole
}

// wholeRun tells what is missing of a busy session that was to end well.
func (w *world) wholeRun(t *testing.T, res result, when string) {
	t.Helper()
	if res.code != 0 {
		t.Errorf("%s: exit code %d\nstdout:\n%s\nstderr:\n%s", when, res.code, excerptOf(res.stdout), excerptOf(res.stderr))
	}
	checkEvents(t, caseExpect{ItemsClosed: true}, res.lines(t))
	w.wholeReports(t, w.base+"/reports", 0, when)
	if list, err := os.ReadFile(w.ws + "/list.txt"); err != nil || string(list) != "zero\none\n" {
		t.Errorf("%s: the command did %q (%v)", when, list, err)
	}
}

// TestFaultKill kills runs at random instants. Nothing of a killed run lives on,
// what it had recorded can be resumed, the login works, and the next run finds
// no lock and cleans up.
func TestFaultKill(t *testing.T) {
	notShort(t)
	w, tokens := killWorld(t)
	w.play(t, busySession)
	whole := w.undisturbed(t, tokens)
	usual := w.homeFiles(t)
	rounds := faultRounds(t, killRounds)
	phases := map[string]int{}
	for i := range rounds {
		w.play(t, busySession)
		// Spread over the run and evenly, so that few rounds meet every phase too.
		at := time.Duration((float64(i) + rand.Float64()) / float64(rounds) * 1.1 * float64(whole.took))
		p := process{args: w.busyArgs("Do it."), dir: w.ws, env: w.busyEnv(tokens), timeout: time.Minute}
		p.send = func(ctx context.Context, proc *os.Process) {
			select {
			case <-time.After(at):
				_ = proc.Kill() // it may have ended
			case <-ctx.Done():
			}
		}
		res := p.run(t)
		phases[phaseOf(res)]++
		w.afterKill(t, tokens, usual, fmt.Sprintf("round %d, killed after %s in phase %q", i, at.Round(time.Millisecond), phaseOf(res)))
		if t.Failed() {
			break
		}
	}
	t.Logf("FAULT kill -9 at a random instant | %d | %v", rounds, phases)
}

// phaseOf is how far a run came, by its last event.
func phaseOf(r result) string {
	if r.code == 0 {
		return "ended"
	}
	lines := bytes.Split(bytes.TrimSpace(r.stdout), []byte("\n"))
	var e struct {
		Type string `json:"type"`
		Item struct {
			Type string `json:"type"`
		} `json:"item"`
	}
	if json.Unmarshal(lines[len(lines)-1], &e) != nil {
		return "start"
	}
	return strings.Trim(e.Type+" "+e.Item.Type, " ")
}

// afterKill checks what a killed run left.
func (w *world) afterKill(t *testing.T, tokens *runnertest.Tokens, usual []string, when string) {
	t.Helper()
	if left := w.leftovers(10 * time.Second); len(left) > 0 {
		t.Errorf("%s: processes live on: %v", when, left)
	}
	w.checkLog(t, when)
	if raw, err := os.ReadFile(w.home + "/auth.json"); err != nil || !json.Valid(raw) {
		t.Errorf("%s: auth.json is %q (%v)", when, raw, err)
	}
	w.restoreSpent(t, tokens, when)
	threads := w.threadFiles(t)

	// The next run resumes the killed one, or says that there is nothing yet.
	w.play(t, sayHello)
	args := []string{"exec", "--json", "-s", "workspace-write", "--report-dir", w.base + "/reports", "-o", w.base + "/last.txt"}
	if len(threads) > 0 {
		args = append(args, "resume", "--last", "Go on.")
	} else {
		args = append(args, "Begin.")
	}
	next := process{args: args, dir: w.ws, env: w.busyEnv(tokens), timeout: time.Minute}.run(t)
	if next.code != 0 {
		t.Errorf("%s: the next run (%q) ended with %d\nstdout:\n%s\nstderr:\n%s", when, args, next.code, excerptOf(next.stdout), excerptOf(next.stderr))
	}
	if next.took > 30*time.Second {
		t.Errorf("%s: the next run took %s", when, next.took)
	}
	for _, name := range []string{".codex", ".agents", ".aws"} {
		if _, err := os.Lstat(filepath.Join(w.ws, name)); err == nil {
			t.Errorf("%s: %s is left in the workspace", when, name)
		}
	}
	if out := w.git(t, w.ws, "status", "--porcelain"); strings.Trim(strings.ReplaceAll(strings.ReplaceAll(out, " M list.txt\n", ""), "?? new.txt\n", ""), " ") != "" {
		t.Errorf("%s: git status says\n%s", when, out)
	}
	w.git(t, w.ws, "checkout", "-q", "list.txt")
	if err := os.Remove(w.ws + "/new.txt"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(w.base + "/tmp"); err != nil || len(entries) > 0 {
		t.Errorf("%s: after the next run there are %v in TMPDIR (%v)", when, entries, err)
	}
	w.wholeReports(t, w.base+"/reports", next.code, when)
	for _, e := range w.homeFiles(t) {
		if !slices.Contains(usual, e) {
			t.Errorf("%s: %s is left in CODEX_HOME", when, e)
		}
	}
	if err := os.RemoveAll(w.home + "/sessions"); err != nil {
		t.Fatal(err)
	}
}

// restoreSpent signs in again where the kill came between the endpoint's answer
// and the disk: no client can help then. It is a short while, so it may not
// happen often.
func (w *world) restoreSpent(t *testing.T, tokens *runnertest.Tokens, when string) {
	t.Helper()
	files, err := filepath.Glob(w.home + "/*auth*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte(strconv.Quote(tokens.Refresh()))) {
			return
		}
	}
	t.Logf("%s: the login was spent in the moment of the kill", when)
	if w.spent++; w.spent > faultRounds(t, killRounds)/4 {
		t.Errorf("%s: the login was lost %d times", when, w.spent)
	}
	w.write(t, w.home+"/auth.json", tokens.Login(time.Minute), 0o600)
}

// wholeReports: the folder holds each report but those that are named, complete,
// and nothing else.
func (w *world) wholeReports(t *testing.T, dir string, code int, when string, without ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Errorf("%s: %v", when, err)
		return
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{"changes.patch", "events.jsonl", "junit.xml", "report.html", "report.json", "report.md", "sarif.json"}
	want = slices.DeleteFunc(want, func(name string) bool { return slices.Contains(without, name) })
	if !slices.Equal(names, want) {
		t.Errorf("%s: the reports are %v, want %v", when, names, want)
		return
	}
	var report struct {
		ExitCode int `json:"exit_code"`
	}
	raw, err := os.ReadFile(dir + "/report.json")
	if err != nil || json.Unmarshal(raw, &report) != nil || report.ExitCode != code {
		t.Errorf("%s: report.json tells of exit code %d, want %d (%v)\n%.500s", when, report.ExitCode, code, err, raw)
	}
	log, err := os.ReadFile(dir + "/events.jsonl")
	if lines := bytes.Split(bytes.TrimSpace(log), []byte("\n")); err != nil || !bytes.Contains(lines[len(lines)-1], []byte(`"type":"run.completed"`)) {
		t.Errorf("%s: the log does not end with run.completed (%v)", when, err)
	}
	for name, end := range map[string]string{"junit.xml": "</testsuites>", "report.html": "</html>", "sarif.json": "}"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.HasSuffix(strings.TrimSpace(string(text)), end) {
			t.Errorf("%s: %s is not complete (%v)", when, name, err)
		}
	}
}

// homeFiles are the names in CODEX_HOME and its folders, but for the threads.
func (w *world) homeFiles(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(w.home, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path == w.home+"/sessions" {
			return fs.SkipDir
		}
		names = append(names, strings.TrimPrefix(path, w.home))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// checkLog: every line of the log is a record, but for a last one that was cut.
func (w *world) checkLog(t *testing.T, when string) {
	t.Helper()
	raw, err := os.ReadFile(w.base + "/events.jsonl")
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(raw, []byte("\n"))
	for i, line := range lines {
		if len(line) > 0 && !json.Valid(line) && i < len(lines)-1 {
			t.Errorf("%s: line %d of the log is no record: %.200q", when, i+1, line)
		}
	}
	_ = os.Remove(w.base + "/events.jsonl")
}

// threadFiles are the threads on disk that hold a prompt.
func (w *world) threadFiles(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(w.home+"/sessions", func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if err == nil && bytes.Contains(raw, []byte("Do it.")) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// leftovers are processes of this world that are still there after the bound:
// all of them have its folder in their environment, arguments or working folder.
func (w *world) leftovers(bound time.Duration) []string {
	var left []string
	for end := time.Now().Add(bound); ; time.Sleep(20 * time.Millisecond) {
		if left = w.processes(); len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

func (w *world) processes() []string {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for _, dir := range dirs {
		if pid := filepath.Base(dir); pid == strconv.Itoa(os.Getpid()) {
			continue
		}
		cmdline, err := os.ReadFile(dir + "/cmdline")
		if err != nil {
			continue // it is gone
		}
		environ, _ := os.ReadFile(dir + "/environ") // somebody else's cannot be read
		cwd, _ := os.Readlink(dir + "/cwd")
		if strings.HasPrefix(cwd, w.base) || bytes.Contains(cmdline, []byte(w.base)) || bytes.Contains(environ, []byte(w.base)) {
			stat, _ := os.ReadFile(dir + "/stat")
			found = append(found, fmt.Sprintf("%s %s", bytes.ReplaceAll(cmdline, []byte{0}, []byte(" ")), stat))
		}
	}
	return found
}

// TestFaultKillWhileWaiting kills a second runner that waits for the thread of
// the first, and the first: the lock of a dead one holds nobody.
func TestFaultKillWhileWaiting(t *testing.T) {
	notShort(t)
	w, tokens := killWorld(t)
	w.play(t, sayHello)
	if res := (process{args: []string{"exec", "--json", "Begin."}, dir: w.ws, env: w.busyEnv(tokens), timeout: time.Minute}).run(t); res.code != 0 {
		t.Fatalf("exit code %d\n%s", res.code, res.stderr)
	}
	w.play(t, `{"model_script":[{"items":[{"message":"x"}],"hang_s":60}]}`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := process{args: []string{"exec", "--json", "resume", "--last", "Go on."}, dir: w.ws, env: w.busyEnv(tokens), timeout: time.Minute}
	first.send = func(_ context.Context, proc *os.Process) {
		<-ctx.Done()
		_ = proc.Signal(syscall.SIGKILL)
	}
	started := make(chan struct{})
	first.watch = func(line string) {
		if strings.Contains(line, "turn.started") {
			close(started)
		}
	}
	ended := make(chan result, 1)
	go func() { ended <- first.run(t) }()
	<-started
	second := process{args: []string{"exec", "--json", "resume", "--last", "Go on."}, dir: w.ws, env: w.busyEnv(tokens), timeout: time.Minute}.run(t)
	if second.code == 0 || !strings.Contains(string(second.stderr), "thread") {
		t.Errorf("two runs write one thread: exit code %d\n%s", second.code, second.stderr)
	}
	cancel()
	<-ended
	w.play(t, sayHello)
	third := process{args: []string{"exec", "--json", "resume", "--last", "Go on."}, dir: w.ws, env: w.busyEnv(tokens), timeout: time.Minute}.run(t)
	if third.code != 0 {
		t.Errorf("the lock of a killed run holds: exit code %d\n%s", third.code, third.stderr)
	}
}
