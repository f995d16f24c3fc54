package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// smallDisk makes a run see dir as a disk of so many bytes, with what dir holds;
// filled leaves no room on it. What is on that disk when the run has ended is in
// dir afterwards.
func (w *world) smallDisk(t *testing.T, dir string, bytes string, filled bool) func(*exec.Cmd) {
	t.Helper()
	how := []string{"-m"}
	if os.Geteuid() != 0 {
		how = []string{"-r", "-m"}
	}
	if out, err := exec.Command("unshare", append(how, "mount", "-t", "tmpfs", "tmpfs", dir)...).CombinedOutput(); err != nil {
		t.Skipf("no disk can be made here: %v\n%s", err, out)
	}
	const script = `keep=$1 dir=$2 size=$3 fill=$4; shift 4
cp -a "$dir" "$keep" && mount -t tmpfs -o size=$size,mode=755 tmpfs "$dir" && cp -a "$keep"/. "$dir" || exit 125
[ -z "$fill" ] || cat /dev/zero > "$dir/filler" 2>/dev/null
"$@"
code=$?
rm -rf "$dir/filler" "$keep"; cp -a "$dir" "$keep"; umount -l "$dir"
find "$dir" -mindepth 1 -delete; cp -a "$keep"/. "$dir"; rm -rf "$keep"
exit $code`
	fill := ""
	if filled {
		fill = "yes"
	}
	return func(cmd *exec.Cmd) {
		args := append(how, "sh", "-c", script, "sh", w.base+"/keep", dir, bytes, fill, cmd.Path)
		cmd.Args = append(append([]string{"unshare"}, args...), cmd.Args[1:]...)
		path, err := exec.LookPath("unshare")
		if err != nil {
			t.Fatal(err)
		}
		cmd.Path = path
	}
}

// TestFaultDiskFull fills the disk of each writer, before the run or by it. The
// run ends in time with the work done, says what could not be written, and leaves
// the old file or a whole one, never a part or a temporary.
func TestFaultDiskFull(t *testing.T) {
	notShort(t)
	const first = `{"items":[{"message":"I begin."},{"call":"exec_command","call_id":"a","args":{"cmd":"seq 20000","max_output_tokens":20000}}]}`
	long := first + "\n" + `{"items":[{"message":"` + strings.Repeat("x", 200_000) + `"}]}`
	for _, c := range []struct {
		name  string
		dir   string // of the small disk, below the world
		size  string
		args  []string
		code  int
		old   string   // a file that is there before, with the word "old" in it
		whole []string // names below dir that may be there afterwards
		says  string   // stderr
	}{
		{name: "last message", dir: "out", args: []string{"-o", "{{base}}/out/last.txt"}, code: 8, old: "last.txt", says: "out/last.txt: no space left"},
		{name: "events", dir: "out", args: []string{"--events", "{{base}}/out/events.jsonl"}, code: 8, whole: []string{"events.jsonl"}, says: "out/events.jsonl: no space left"},
		{name: "reports", dir: "out", args: []string{"--report-dir", "{{base}}/out"}, code: 8, old: "report.json", says: "out/report.json: no space left",
			whole: []string{"events.jsonl", "changes.patch", "junit.xml", "report.html", "report.md", "sarif.json"}},
		{name: "one report", dir: "out", args: []string{"--report", "markdown={{base}}/out/r.md"}, code: 8, old: "r.md", says: "out/r.md: no space left"},
		{name: "recording", dir: "out", args: []string{"--record", "{{base}}/out/record.jsonl"}, code: 8, whole: []string{"record.jsonl"}, says: "out/record.jsonl: no space left"},
		{name: "thread", dir: "codex-home", old: "config.toml", whole: []string{"sessions", "thread-writer-locks"}, says: "cannot be resumed"},
		{name: "temporary folder", dir: "tmp", size: "16k", says: "could not be captured"},
		{name: "temporary folder, with reports", dir: "tmp", size: "16k", args: []string{"--report-dir", "{{base}}/reports"}, code: 8, says: "the changes of the run were not captured"},
		{name: "workspace", dir: "ws", size: "400k", whole: []string{".git"}},
	} {
		for _, filled := range []bool{true, false} {
			name := c.name + ", filled by the run"
			if filled {
				name = c.name + ", full before"
			}
			if !filled && (c.size != "" || c.name == "one report") {
				continue // the run does not write so much there
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.layOut(t, scenario{Model: "gpt-5.5"})
				w.play(t, long)
				for _, d := range []string{"out", "tmp"} {
					if err := os.MkdirAll(filepath.Join(w.base, d), 0o755); err != nil {
						t.Fatal(err)
					}
				}
				dir := filepath.Join(w.base, c.dir)
				if c.old != "" && c.old != "config.toml" {
					w.write(t, filepath.Join(dir, c.old), []byte("old"), 0o644)
				}
				args := []string{"exec", "--json", "-s", "workspace-write"}
				for _, a := range c.args {
					args = append(args, w.fill(a))
				}
				size := c.size
				if size == "" {
					size = "64k"
				}
				env := append(w.env(), "MOCK_API_KEY=dummy-key", "TMPDIR="+w.base+"/tmp")
				res := process{args: append(args, "Do it."), dir: w.ws, env: env, timeout: time.Minute, wrap: w.smallDisk(t, dir, size, filled)}.run(t)
				t.Logf("FAULT disk full: %s | 1 | exit code %d", name, res.code)
				if res.code != c.code || !strings.Contains(string(res.stderr), c.says) || res.took > 30*time.Second {
					t.Errorf("exit code %d after %s, want %d and %q\nstdout:\n%s\nstderr:\n%s", res.code, res.took, c.code, c.says, excerptOf(res.stdout), excerptOf(res.stderr))
				}
				checkEvents(t, caseExpect{ItemsClosed: true, Events: []eventMatcher{{Type: "turn.completed", Count: &count{1, 1}}}}, res.lines(t))
				w.onlyWhole(t, dir, c.old, c.whole)
				w.cleanAfter(t)

				// With room again everything goes on as if nothing had been.
				w.play(t, sayHello)
				next := process{args: append(args, "Again."), dir: w.ws, env: env, timeout: time.Minute}.run(t)
				if next.code != 0 {
					t.Errorf("the next run ends with %d\n%s", next.code, excerptOf(next.stderr))
				}
			})
		}
	}
}

// onlyWhole: the old file is as it was, and beside it are only names that may be.
func (w *world) onlyWhole(t *testing.T, dir, old string, may []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != old && !slices.Contains(may, e.Name()) {
			t.Errorf("%s is left in %s", e.Name(), dir)
		}
	}
	if old == "" || old == "config.toml" {
		return
	}
	if text, err := os.ReadFile(filepath.Join(dir, old)); err != nil || string(text) != "old" {
		t.Errorf("%s is %.100q (%v)", old, text, err)
	}
}

// cleanAfter: no process and nothing in TMPDIR.
func (w *world) cleanAfter(t *testing.T) {
	t.Helper()
	if left := w.leftovers(10 * time.Second); len(left) > 0 {
		t.Errorf("processes live on: %v", left)
	}
	if entries, err := os.ReadDir(w.base + "/tmp"); err != nil || len(entries) > 0 {
		t.Errorf("%v are left in TMPDIR (%v)", entries, err)
	}
}

// TestFaultDiskFullLogin: a login whose renewal cannot be kept is not spent, and
// works when there is room again.
func TestFaultDiskFullLogin(t *testing.T) {
	notShort(t)
	w, tokens := killWorld(t)
	w.play(t, sayHello)
	p := process{args: []string{"exec", "--json", "Do it."}, dir: w.ws, env: w.busyEnv(tokens), timeout: time.Minute, wrap: w.smallDisk(t, w.home, "64k", true)}
	res := p.run(t)
	t.Logf("FAULT disk full: auth.json | 1 | exit code %d", res.code)
	if res.code != 5 || len(tokens.Requests()) != 0 || !strings.Contains(string(res.stderr), "free some space") {
		t.Errorf("exit code %d, %d refreshes\n%s", res.code, len(tokens.Requests()), excerptOf(res.stderr))
	}
	w.cleanAfter(t)
	p.wrap = nil
	if next := p.run(t); next.code != 0 {
		t.Errorf("the next run ends with %d\n%s", next.code, excerptOf(next.stderr))
	}
}

// TestFaultDiskFullBatch: a batch whose folder is full says so; the same command
// goes on when there is room again, and pays nothing twice that was kept.
func TestFaultDiskFullBatch(t *testing.T) {
	notShort(t)
	w := newWorld(t)
	w.layOut(t, scenario{Model: "gpt-5.5"})
	var tasks strings.Builder
	for i := range tasksOfBatch {
		fmt.Fprintf(&tasks, `{"id":"t%d","prompt":"Do it."}`+"\n", i)
	}
	w.write(t, w.base+"/tasks.jsonl", []byte(tasks.String()), 0o644)
	for _, d := range []string{"out", "tmp"} {
		if err := os.MkdirAll(filepath.Join(w.base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.play(t, `{"model_script":[],"on_exhausted":{"items":[{"message":"`+strings.Repeat("x", 30_000)+`"}]}}`)
	p := process{args: []string{"batch", "--tasks", w.base + "/tasks.jsonl", "--out", w.base + "/out", "--workers", "2", "--repo", w.ws}, dir: w.ws,
		env: append(w.env(), "MOCK_API_KEY=dummy-key", "TMPDIR="+w.base+"/tmp"), timeout: time.Minute, wrap: w.smallDisk(t, w.base+"/out", "1000k", false)}
	res := p.run(t)
	t.Logf("FAULT disk full: batch results | 1 | exit code %d", res.code)
	if res.code != 8 || !strings.Contains(string(res.stderr), "no space left") || !strings.Contains(string(res.stderr), "run the same command again") {
		t.Errorf("exit code %d\n%s", res.code, excerptOf(res.stderr))
	}
	w.cleanAfter(t)
	kept, err := filepath.Glob(w.base + "/out/done/*.json")
	if err != nil || len(kept) == 0 || len(kept) == tasksOfBatch {
		t.Fatalf("%d results are kept (%v): the disk has another size than this test needs", len(kept), err)
	}
	good := 0 // a task that failed for want of room is kept too, and is to be tried again
	for _, name := range kept {
		if r, err := os.ReadFile(name); err == nil && strings.Contains(string(r), `"exit_code":0`) {
			good++
		}
	}
	t.Logf("%d of %d results kept, %d of them good", len(kept), tasksOfBatch, good)
	asked := len(w.server.ModelRequests())
	p.wrap = nil
	p.args = append(p.args, "--retry-failed") // a checkout may have failed for want of room
	if next := p.run(t); next.code != 0 {
		t.Errorf("the same command ends with %d when there is room\n%s", next.code, excerptOf(next.stderr))
	}
	for _, name := range kept {
		if r, err := os.ReadFile(name); err != nil || !json.Valid(r) {
			t.Errorf("%s is %.200q (%v)", name, r, err)
		}
	}
	if again := len(w.server.ModelRequests()) - asked; again > tasksOfBatch-good {
		t.Errorf("%d good results were kept, and %d of %d tasks were asked for again", good, again, tasksOfBatch)
	}
	if list, err := os.ReadFile(w.base + "/out/results.jsonl"); err != nil || strings.Count(string(list), `"exit_code":0`) != tasksOfBatch {
		t.Errorf("results.jsonl: %v\n%s", err, excerptOf(list))
	}
	for _, pattern := range []string{"/out/.new-*", "/out/done/.new-*", "/out/tasks/*/*/tree", "/out/claims/[^.]*"} {
		if left, err := filepath.Glob(w.base + pattern); err != nil || len(left) > 0 {
			t.Errorf("%v are left (%v)", left, err)
		}
	}
}

const tasksOfBatch = 10
