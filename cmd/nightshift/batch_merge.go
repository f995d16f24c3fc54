package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nightshift-ci/nightshift/report"
	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/batch"
	"github.com/nightshift-ci/nightshift/runner/event"
)

// batchMergeCmd joins results folders.
type batchMergeCmd struct {
	Dirs   []string `arg:"" name:"dir" help:"Results folders of the shards, or earlier merges."`
	Out    string   `required:"" placeholder:"DIR" help:"Where to write results.jsonl, the patches and the reports."`
	Report []string `sep:"none" placeholder:"FORMAT=PATH" help:"One more report over all runs: junit, sarif, markdown, html, ctrf, checkstyle, codequality."`
	Tasks  string   `placeholder:"FILE" help:"The tasks file: a task without a result is named and counts as failed."`
	Gate   bool     `help:"Exit with 9 when a task failed or has no result."`
}

// patchDir holds the patches of a merge, one for each task with a change.
const patchDir = "patches"

// merged is one task's result and where its files are.
type merged struct {
	batch.Result
	dir string // folder that the result came from
}

// Run merges. The result does not depend on the order of the folders, and
// merging merged results changes nothing.
func (c *batchMergeCmd) Run(rt *runtime) error {
	outputs, err := c.outputs(rt)
	if err != nil {
		return err
	}
	all, missing, err := c.read(rt)
	if err != nil {
		return err
	}
	out := rt.abs(c.Out)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return usageError("--out: %v", errText(err))
	}
	set, err := c.runs(all, missing)
	if err != nil {
		return err
	}
	if err := writeMerge(out, all, set, &report.Options{Create: rt.orStdout(createFile), Append: rt.orStdout(appendFile), Outputs: outputs}, rt.stderr); err != nil {
		return exitError{code: runner.ExitOutput, err: err}
	}
	failed := 0
	for _, m := range all {
		if !m.OK() {
			failed++
		}
	}
	fmt.Fprintf(rt.stderr, "%d results, %d failed, %d missing; see %s\n", len(all), failed, len(missing), filepath.Join(out, "summary.md"))
	for _, id := range missing[:min(len(missing), shownFailures)] {
		fmt.Fprintf(rt.stderr, "missing: %s\n", report.PlainLine(id, 200))
	}
	if c.Gate && failed+len(missing) > 0 {
		return exitError{code: runner.ExitGate, err: fmt.Errorf("%d of %d tasks did not succeed", failed+len(missing), len(all)+len(missing))}
	}
	return nil
}

// outputs are the reports to write; the names of the usual ones are relative.
func (c *batchMergeCmd) outputs(rt *runtime) ([]report.Output, error) {
	out := rt.abs(c.Out)
	list := []report.Output{{Format: "markdown", Path: filepath.Join(out, "summary.md")}, {Format: "html", Path: filepath.Join(out, "summary.html")},
		{Format: "junit", Path: filepath.Join(out, "junit.xml")}, {Format: "sarif", Path: filepath.Join(out, "sarif.json")}}
	asked, _, err := rt.reportOutputs(c.Report, false)
	return append(list, asked...), err
}

// read merges the results of all folders and finds the tasks without one.
func (c *batchMergeCmd) read(rt *runtime) (all []merged, missing []string, err error) {
	var lists [][]batch.Result
	from := map[batch.Result]string{}
	for _, d := range c.Dirs {
		dir := rt.abs(d)
		rs, err := batch.ReadResults(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil, usageError("batch merge: %s is not a results folder: it holds no results.jsonl", d)
		}
		if err != nil {
			return nil, nil, usageError("batch merge: %v", err)
		}
		for _, r := range rs {
			if old, ok := from[r]; !ok || dir < old {
				from[r] = dir
			}
		}
		lists = append(lists, rs)
	}
	have := map[string]bool{}
	for _, r := range batch.Merge(lists...) {
		all = append(all, merged{r, from[r]})
		have[r.ID] = true
	}
	if c.Tasks == "" {
		return all, nil, nil
	}
	data, err := rt.readInput(rt.abs(c.Tasks), maxTasksFile)
	if err != nil {
		return nil, nil, usageError("--tasks %s: %v", c.Tasks, errText(err))
	}
	tasks, err := batch.ReadTasks(c.Tasks, data, batch.ReadOptions{Prompt: "any", Repo: "any"})
	if err != nil {
		return nil, nil, exitError{code: runner.ExitUsage, err: err}
	}
	for _, t := range tasks {
		if !have[t.ID] {
			missing = append(missing, t.ID)
		}
	}
	return all, missing, nil
}

// runs are the reports of the tasks, in the order of their ids. A task that
// never became a run has one too, made of its result, and so has one without a
// result: whoever reads only the report must not take it for done.
func (c *batchMergeCmd) runs(all []merged, missing []string) (*report.Set, error) {
	set := &report.Set{SchemaVersion: report.SchemaVersion, Runs: []*report.Summary{}}
	earlier := map[string]map[string]*report.Summary{} // by folder and task: of a merge
	for _, m := range all {
		if _, ok := earlier[m.dir]; !ok {
			list, err := readRuns(filepath.Join(m.dir, "runs.json"))
			if err != nil {
				return nil, err
			}
			earlier[m.dir] = map[string]*report.Summary{}
			for _, s := range list {
				earlier[m.dir][s.Run.Task] = s
			}
		}
		s := earlier[m.dir][m.ID]
		if s == nil {
			list, err := readRuns(filepath.Join(m.dir, m.Dir, "report.json"))
			if err != nil {
				return nil, err
			}
			if len(list) > 0 {
				s = list[len(list)-1]
			} else {
				s = noRun(m.Result)
			}
		}
		agree(s, m.Result)
		s, err := placeless(s, m.Result)
		if err != nil {
			return nil, err
		}
		set.Runs = append(set.Runs, s)
	}
	for _, id := range missing {
		set.Runs = append(set.Runs, noRun(batch.Result{ID: id, Outcome: "failed", Class: "missing", ExitCode: runner.ExitFailed,
			Message: "there is no result of this task in any of the merged folders"}))
	}
	slices.SortFunc(set.Runs, func(a, b *report.Summary) int { return strings.Compare(a.Run.Task, b.Run.Task) })
	return set, nil
}

// noRun is the report of a task whose run never began.
func noRun(r batch.Result) *report.Summary {
	f := report.NewFold()
	end := r.Started.Add(time.Duration(r.DurationMS) * time.Millisecond)
	f.Add(event.Record{Time: r.Started, Event: event.RunStarted{Version: version, Mode: "batch", Task: r.ID}})
	f.Add(event.Record{Time: end, Event: event.RunCompleted{Outcome: r.Outcome, Class: r.Class, ExitCode: r.ExitCode, Message: r.Message, DurationMS: r.DurationMS}})
	s := f.Summary()
	s.Records = 0
	return s
}

// agree makes a report say what the result says: a run may have succeeded and
// its change could not be applied.
func agree(s *report.Summary, r batch.Result) {
	s.Run.Task = r.ID
	if s.Complete && s.ExitCode == r.ExitCode {
		return
	}
	s.Complete = true
	s.Outcome, s.Class, s.ExitCode, s.Message, s.Hint = r.Outcome, r.Class, r.ExitCode, r.Message, ""
}

// placeless makes the paths of a report relative to the results folder of its
// task and leaves out the lists of the machine's own folders, which stand in the
// report of the task itself. They mean nothing after the merge, and the same
// work would differ by where it was done.
func placeless(s *report.Summary, r batch.Result) (*report.Summary, error) {
	if s.Sandbox != nil {
		box := *s.Sandbox
		box.Writable, box.Protected, box.Denied, box.Caches = nil, nil, nil, nil
		s.Sandbox = &box
	}
	root, ok := r.Root(s.Run.Workdir)
	if !ok {
		return s, nil // merged before, or moved by hand
	}
	name, err := json.Marshal(root + string(filepath.Separator))
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var out report.Summary
	if err := json.Unmarshal(bytes.ReplaceAll(data, bytes.Trim(name, `"`), nil), &out); err != nil {
		return nil, fmt.Errorf("report of task %q: %w", r.ID, err)
	}
	return &out, nil
}

// readRuns reads a report; a missing file has none.
func readRuns(path string) ([]*report.Summary, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, usageError("batch merge: %v", err)
	}
	runs, err := report.ReadRuns(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, usageError("batch merge: %s: %v", path, err)
	}
	return runs, nil
}

// writeMerge writes the files of a merge.
func writeMerge(out string, all []merged, set *report.Set, o *report.Options, notes io.Writer) error {
	rs := make([]batch.Result, 0, len(all))
	for _, m := range all {
		rs = append(rs, m.Result)
	}
	list, err := batch.EncodeResults(rs)
	if err != nil {
		return err
	}
	runs, err := json.MarshalIndent(set, "", "  ")
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range all {
		errs = append(errs, copyPatch(out, m, notes))
	}
	return errors.Join(append(errs, writeFile(filepath.Join(out, "results.jsonl"), list), writeFile(filepath.Join(out, "runs.json"), append(runs, '\n')),
		report.WriteAll(set.Runs, o))...)
}

// copyPatch brings the patch of a task into the merge. It must be the one that
// the result names: one that somebody changed on the way is left out.
func copyPatch(out string, m merged, notes io.Writer) error {
	if m.Patch == "" {
		return nil
	}
	name := batch.Task{ID: m.ID}.Dir() + ".patch"
	data, err := os.ReadFile(filepath.Join(m.dir, m.Dir, "changes.patch"))
	if errors.Is(err, fs.ErrNotExist) {
		data, err = os.ReadFile(filepath.Join(m.dir, patchDir, name))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // only the results were brought here
	}
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(data); m.Patch != "sha256:"+hex.EncodeToString(sum[:]) {
		fmt.Fprintf(notes, "notice: the patch of task %s in %s is not the one that its result names, so it is left out: it was changed, or secrets in it were masked\n",
			report.PlainLine(m.ID, 200), m.dir)
		return nil
	}
	if err := os.MkdirAll(filepath.Join(out, patchDir), 0o755); err != nil {
		return err
	}
	return writeFile(filepath.Join(out, patchDir, name), data)
}

func writeFile(path string, data []byte) error {
	w, err := createFile(path)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return errors.Join(err, w.Close())
}
