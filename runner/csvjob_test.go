package runner

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
)

// withCSV is a run whose first response calls spawn_agents_on_csv and whose
// second one ends it; worker answers the workers' requests.
func withCSV(t *testing.T, c policy.AgentsConfig, args object, worker func(w workerView) step, overrides ...string) *loop {
	t.Helper()
	overrides = append([]string{"features.enable_fanout=true", "sandbox_mode=workspace-write"}, overrides...)
	l := withAgents(t, c, func(task string, req model.Request, n int) step {
		switch {
		case task == "":
			return worker(viewOf(req))
		case n == 1:
			return reply(callOf("job", "spawn_agents_on_csv", args))
		}
		return says("done")
	}, overrides...)
	return l
}

// workerView is what a worker was told.
type workerView struct {
	prompt, job, item string
	outputs           []string
	tools             string
}

var workerIDs = regexp.MustCompile(`(?m)^Job: (.*)\nItem: (.*)$`)

func viewOf(req model.Request) workerView {
	var w workerView
	for _, it := range req.Input {
		o, err := readItem(it)
		if err != nil {
			continue
		}
		for _, c := range o.Content {
			if m := workerIDs.FindStringSubmatch(c.Text); m != nil {
				w.prompt, w.job, w.item = c.Text, m[1], m[2]
			}
		}
		var out struct {
			Type   string
			Output string
		}
		if json.Unmarshal(it.Raw, &out) == nil && strings.HasSuffix(out.Type, "_output") {
			w.outputs = append(w.outputs, out.Output)
		}
	}
	for _, s := range req.Tools {
		w.tools += string(s)
	}
	return w
}

func (w workerView) report(result any, more ...object) step {
	args := object{"job_id": w.job, "item_id": w.item, "result": result}
	for _, m := range more {
		for k, v := range m {
			args[k] = v
		}
	}
	return reply(callOf("r", "report_agent_job_result", args))
}

func readCSV(t *testing.T, path string) []map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]string
	for _, line := range all[1:] {
		row := map[string]string{}
		for i, h := range all[0] {
			row[h] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// answerOf is what the model was told of the job.
func answerOf(t *testing.T, l *loop) map[string]any {
	t.Helper()
	var a map[string]any
	if err := json.Unmarshal([]byte(l.output("job")), &a); err != nil {
		t.Fatalf("the answer is %q: %v", l.output("job"), err)
	}
	return a
}

// TestCSVJob: one worker a row, each told its own row, in the run's folder, and
// the table of results beside the input.
func TestCSVJob(t *testing.T) {
	t.Parallel()
	l := withCSV(t, policy.AgentsConfig{MaxThreads: 3}, object{"csv_path": "in.csv", "id_column": "name",
		"instruction": "Weigh {name} of {the shelf}; keep {{braces}}, {unknown} and {", "output_csv_path": "out/results.csv"},
		func(w workerView) step {
			if len(w.outputs) == 0 {
				return reply(shell("s", "echo "+w.item+" >> seen-"+strings.ReplaceAll(w.item, " ", "_")))
			}
			return w.report(object{"weight": len(w.item)})
		})
	const input = "\ufeffname,the shelf\npear,\"top, left\"\n\"{name} \"\"q\"\"\",low\npear,again\n,\n  ,none\n"
	if err := os.WriteFile(l.ws+"/in.csv", []byte(input), 0o644); err != nil {
		t.Fatal(err)
	}
	res := l.play()
	l.want(res, "success", "completed", 0)
	a := answerOf(t, l)
	for k, want := range map[string]any{"status": "completed", "total_items": 4.0, "completed_items": 4.0, "failed_items": 0.0,
		"job_error": nil, "failed_item_errors": nil, "output_csv_path": l.ws + "/out/results.csv"} {
		if a[k] != want {
			t.Errorf("%s is %v, want %v", k, a[k], want)
		}
	}
	rows := readCSV(t, l.ws+"/out/results.csv")
	var ids []string
	for i, r := range rows {
		ids = append(ids, r["item_id"])
		if r["status"] != "completed" || r["attempt_count"] != "1" || r["last_error"] != "" || r["row_index"] != fmt.Sprint(i) || r["job_id"] != a["job_id"] ||
			r["result_json"] != fmt.Sprintf(`{"weight":%d}`, len(r["item_id"])) || r["reported_at"] == "" || r["completed_at"] == "" {
			t.Errorf("row %v", r)
		}
	}
	if want := []string{"pear", `{name} "q"`, "pear-2", "row-4"}; !slices.Equal(ids, want) {
		t.Errorf("items %q, want %q", ids, want)
	}
	if rows[0]["the shelf"] != "top, left" || rows[0]["source_id"] != "pear" || rows[2]["source_id"] != "pear" || rows[3]["source_id"] != "" {
		t.Errorf("%v", rows)
	}
	prompts := map[string]workerView{}
	for _, req := range l.model.requests {
		if w := viewOf(req); w.item != "" {
			prompts[w.item] = w
		}
	}
	for item, want := range map[string]string{"pear": "Weigh pear of top, left; keep {braces}, {unknown} and {",
		`{name} "q"`: `Weigh {name} "q" of low; keep {braces}`, "pear-2": `"the shelf": "again"`} {
		w := prompts[item]
		if !strings.Contains(w.prompt, want) {
			t.Errorf("the worker of %s was told %q, want %q in it", item, w.prompt, want)
		}
		if !strings.Contains(w.tools, `"report_agent_job_result"`) || strings.Contains(w.tools, `"spawn_agents_on_csv"`) || strings.Contains(w.tools, `"spawn_agent"`) {
			t.Errorf("the worker's tools: %s", w.tools)
		}
	}
	if strings.Contains(string(slices.Concat(l.model.requests[0].Tools...)), `"report_agent_job_result"`) {
		t.Error("the main agent has the workers' tool")
	}
	if _, err := os.Stat(l.ws + "/seen-pear"); err != nil {
		t.Errorf("the workers do not work in the run's folder: %v", err)
	}
	// A report ends the worker: two requests each.
	if c := res.Completed; c.Totals.Agents != 4 || c.Totals.ModelResponses != 10 || c.Usage.Input != 1000 || c.ThreadUsage.Input != 200 {
		t.Errorf("totals %+v, usage %+v, of the thread %+v", c.Totals, c.Usage, c.ThreadUsage)
	}
	if left, err := filepath.Glob(l.opts.Private + "/agent-*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	items := finished[event.CollabToolCall](l.seen)
	if len(items) != 1 || len(items[0].ReceiverThreadIDs) != 4 || items[0].Status != event.Completed {
		t.Errorf("%+v", items)
	}
}

// TestCSVJobRows: what goes wrong with one row is that row's result.
func TestCSVJobRows(t *testing.T) {
	t.Parallel()
	schema := object{"type": "object", "properties": object{"n": object{"type": "integer"}}, "required": []string{"n"}}
	l := withCSV(t, policy.AgentsConfig{}, object{"csv_path": "in.csv", "id_column": "id", "instruction": "go", "output_schema": schema, "max_runtime_seconds": 2},
		func(w workerView) step {
			last := ""
			if len(w.outputs) > 0 {
				last = w.outputs[len(w.outputs)-1]
			}
			switch w.item {
			case "mute":
				return says("I am done.")
			case "broken":
				return breaks("bad_request", "no such thing")
			case "slow":
				return hangs
			case "list":
				if last == "" {
					return w.report([]int{1})
				}
				return says(last)
			case "mends":
				if last == "" {
					return w.report(object{"n": "text"})
				}
				if !strings.Contains(last, "does not fit the schema: /properties/n:") {
					return says(last)
				}
				return w.report(object{"n": 2})
			case "other's":
				if last == "" {
					return w.report(object{"n": 3}, object{"item_id": "mends"})
				}
				return says(last)
			case "twice":
				return reply(callOf("r1", "report_agent_job_result", object{"job_id": w.job, "item_id": w.item, "result": object{"n": 1}}),
					callOf("r2", "report_agent_job_result", object{"job_id": w.job, "item_id": w.item, "result": object{"n": 2}}))
			}
			return w.report(object{"n": 1})
		})
	if err := os.WriteFile(l.ws+"/in.csv", []byte("id\nmute\nbroken\nslow\nlist\nmends\nother's\ntwice\nfine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	l.want(l.play(), "success", "completed", 0)
	a := answerOf(t, l)
	if a["status"] != "completed" || a["completed_items"] != 3.0 || a["failed_items"] != 5.0 || len(a["failed_item_errors"].([]any)) != 5 {
		t.Errorf("%v", a)
	}
	out := a["output_csv_path"].(string)
	if !regexp.MustCompile(`^in\.agent-job-[0-9a-f]{8}\.csv$`).MatchString(filepath.Base(out)) || filepath.Dir(out) != l.ws {
		t.Errorf("the output is %s", out)
	}
	want := map[string]string{"mute": "worker finished without calling report_agent_job_result", "broken": "no such thing",
		"slow": "worker exceeded max runtime of 2s", "list": "worker finished without", "other's": "worker finished without"}
	for _, r := range readCSV(t, out) {
		id := r["item_id"]
		if problem, bad := want[id]; bad != (r["status"] == "failed") || !strings.Contains(r["last_error"], problem) || bad != (r["result_json"] == "") {
			t.Errorf("%s: %v", id, r)
		}
		if id == "twice" && r["result_json"] != `{"n":1}` || id == "mends" && r["result_json"] != `{"n":2}` {
			t.Errorf("%s: %v", id, r)
		}
	}
}

// TestCSVJobBounds: never more workers than the job and the configuration allow;
// a worker's stop keeps the rest from being begun.
func TestCSVJobBounds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		config policy.AgentsConfig
		args   object
		most   int32
	}{
		{policy.AgentsConfig{MaxThreads: 2}, object{"max_concurrency": 9}, 2},
		{policy.AgentsConfig{MaxThreads: 9}, object{"max_workers": 3}, 3},
		{policy.AgentsConfig{}, object{"max_concurrency": 0}, 1},
	} {
		t.Run(fmt.Sprint(tc.args), func(t *testing.T) {
			t.Parallel()
			var now, most atomic.Int32
			tc.args["csv_path"], tc.args["instruction"] = "in.csv", "go"
			l := withCSV(t, tc.config, tc.args, func(w workerView) step {
				most.Store(max(most.Load(), now.Add(1)))
				return after(func() { time.Sleep(20 * time.Millisecond); now.Add(-1) }, w.report(object{}))
			})
			if err := os.WriteFile(l.ws+"/in.csv", []byte("n\n"+strings.Repeat("x\n", 8)), 0o644); err != nil {
				t.Fatal(err)
			}
			l.want(l.play(), "success", "completed", 0)
			if n := most.Load(); n > tc.most {
				t.Errorf("%d workers at once, want %d at most", n, tc.most)
			}
		})
	}
	t.Run("stop", func(t *testing.T) {
		t.Parallel()
		l := withCSV(t, policy.AgentsConfig{}, object{"csv_path": "in.csv", "instruction": "go", "max_concurrency": 1}, func(w workerView) step {
			return w.report(object{}, object{"stop": w.item == "row-2"})
		})
		if err := os.WriteFile(l.ws+"/in.csv", []byte("n\nx\nx\nx\nx\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		l.want(l.play(), "success", "completed", 0)
		a := answerOf(t, l)
		states := map[string]int{}
		for _, r := range readCSV(t, a["output_csv_path"].(string)) {
			states[r["status"]]++
		}
		if a["status"] != "cancelled" || a["job_error"] != "cancelled by worker request" || states["completed"] != 2 || states["pending"] != 2 {
			t.Errorf("%v %v", a, states)
		}
	})
}

// TestCSVJobRefused: what cannot work is told before the first worker starts.
func TestCSVJobRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, csv, want string
		args            object
		sandbox         string
	}{
		{"no instruction", "n\n1\n", "missing field `instruction`", object{"csv_path": "in.csv"}, ""},
		{"no path", "n\n1\n", "missing field `csv_path`", object{"instruction": "go"}, ""},
		{"blank instruction", "n\n1\n", "instruction must be non-empty", object{"csv_path": "in.csv", "instruction": " "}, ""},
		{"no file", "n\n1\n", "/ws/none.csv: No such file or directory (os error 2)", object{"csv_path": "none.csv", "instruction": "go"}, ""},
		{"a folder", "n\n1\n", "it is not a file", object{"csv_path": ".", "instruction": "go"}, ""},
		{"empty", "", "csv input must include a header row", object{"csv_path": "in.csv", "instruction": "go"}, ""},
		{"uneven", "a,b\n1\n", "csv row 2 has 1 fields but header has 2", object{"csv_path": "in.csv", "instruction": "go"}, ""},
		{"twice", "a,a\n1,2\n", "csv header a is duplicated", object{"csv_path": "in.csv", "instruction": "go"}, ""},
		{"broken", "a\n\"x\n", "failed to parse csv input", object{"csv_path": "in.csv", "instruction": "go"}, ""},
		{"id column", "a\n1\n", "id_column b was not found in csv headers", object{"csv_path": "in.csv", "instruction": "go", "id_column": "b"}, ""},
		{"no time", "a\n1\n", "max_runtime_seconds must be >= 1", object{"csv_path": "in.csv", "instruction": "go", "max_runtime_seconds": 0}, ""},
		{"no number", "a\n1\n", "failed to parse function arguments", object{"csv_path": "in.csv", "instruction": "go", "max_concurrency": -1}, ""},
		{"schema", "a\n1\n", "output_schema", object{"csv_path": "in.csv", "instruction": "go", "output_schema": object{"type": 7}}, ""},
		{"onto itself", "a\n1\n", "output_csv_path is the input", object{"csv_path": "in.csv", "instruction": "go", "output_csv_path": "./in.csv"}, ""},
		{"outside", "a\n1\n", "cannot be written", object{"csv_path": "in.csv", "instruction": "go", "output_csv_path": "/etc/out.csv"}, ""},
		{"into git", "a\n1\n", "cannot be written", object{"csv_path": "in.csv", "instruction": "go", "output_csv_path": ".git/out.csv"}, ""},
		{"read-only", "a\n1\n", "cannot be written", object{"csv_path": "in.csv", "instruction": "go"}, "read-only"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := withCSV(t, policy.AgentsConfig{}, tc.args, func(workerView) step {
				t.Error("a worker was started")
				return says("no")
			}, "sandbox_mode="+cmp.Or(tc.sandbox, "workspace-write"))
			if err := os.WriteFile(l.ws+"/in.csv", []byte(tc.csv), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(l.ws+"/.git", 0o755); err != nil {
				t.Fatal(err)
			}
			res := l.play()
			l.want(res, "success", "completed", 0)
			if got := l.output("job"); !strings.Contains(got, tc.want) {
				t.Errorf("the model was told %q, want %q in it", got, tc.want)
			}
			if res.Completed.Totals.FailedTools != 1 || res.Completed.Totals.Agents != 0 {
				t.Errorf("%+v", res.Completed.Totals)
			}
			if b, err := os.ReadFile(l.ws + "/in.csv"); err != nil || string(b) != tc.csv {
				t.Errorf("the input is %q now, %v", b, err)
			}
		})
	}
}

// TestCSVJobIsOffered only behind the feature, as in those versions of the
// reference that had it.
func TestCSVJobIsOffered(t *testing.T) {
	t.Parallel()
	for on, want := range map[string]bool{"true": true, "false": false} {
		l := withAgents(t, policy.AgentsConfig{}, func(string, model.Request, int) step { return says("done") }, "features.enable_fanout="+on)
		l.want(l.play(), "success", "completed", 0)
		if got := strings.Contains(string(slices.Concat(l.model.requests[0].Tools...)), `"spawn_agents_on_csv"`); got != want {
			t.Errorf("enable_fanout=%s: offered %v", on, got)
		}
	}
}

// TestCSVJobInterrupted: a signal ends the workers, and the table tells what was
// finished.
func TestCSVJobInterrupted(t *testing.T) {
	t.Parallel()
	ctx, stop := signalled()
	var once sync.Once
	l := withCSV(t, policy.AgentsConfig{}, object{"csv_path": "in.csv", "instruction": "go", "max_concurrency": 1, "output_csv_path": "out.csv"},
		func(w workerView) step {
			if w.item == "row-1" || len(w.outputs) > 0 {
				return w.report(object{"done": true})
			}
			return after(func() { once.Do(stop) }, hangs)
		})
	if err := os.WriteFile(l.ws+"/in.csv", []byte("n\nx\nx\nx\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	soon(t, time.Minute, func() { l.want(l.playIn(ctx), "interrupted", "signal", 143) })
	states := map[string]string{}
	for _, r := range readCSV(t, l.ws+"/out.csv") {
		states[r["item_id"]] = r["status"]
	}
	if len(states) != 3 || states["row-1"] != "completed" || states["row-2"] != "pending" || states["row-3"] != "pending" {
		t.Errorf("%v", states)
	}
}
