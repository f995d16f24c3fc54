package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nightshift-ci/nightshift/report"
	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/batch"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
)

// batchCmd runs many tasks.
type batchCmd struct {
	Run   batchRunCmd   `cmd:"" default:"withargs" help:"Run the tasks of a file (the default)."`
	Merge batchMergeCmd `cmd:"" help:"Join the results of shards and make reports over all of them."`
}

// batchRunCmd runs the tasks of a file on a bounded pool of workers.
type batchRunCmd struct {
	runFlags    `embed:""`
	Tasks       string        `required:"" placeholder:"FILE" help:"Tasks as JSON lines, or CSV when the name ends in .csv."`
	Out         string        `required:"" placeholder:"DIR" help:"Results folder. With one that is there already, the batch goes on where it stopped."`
	Workers     int           `short:"j" default:"4" placeholder:"K" help:"Tasks at once (default 4)."`
	Shard       string        `placeholder:"I/N" help:"Run only this part of the tasks; auto reads the variables of the CI system."`
	Only        []string      `placeholder:"ID" help:"Run only these tasks."`
	RetryFailed bool          `help:"Run failed tasks again."`
	Apply       string        `default:"none" enum:"branch,commit,none" placeholder:"HOW" help:"What becomes of each change besides its patch: a branch nightshift/ID in its repository, a commit in its checkout, or none (the default)."`
	Repo        string        `placeholder:"REPO" help:"Repository of tasks that name none."`
	Prompt      string        `placeholder:"TEMPLATE" help:"Prompt of tasks that have none; {column} is replaced."`
	Lease       time.Duration `default:"1m" placeholder:"DUR" help:"How long a claim of a process lives that no longer renews it (default 1m)."`

	BudgetCost        float64       `group:"budget of the whole batch" placeholder:"USD" help:"Money."`
	BudgetTokens      int64         `group:"budget of the whole batch" placeholder:"N" help:"Tokens."`
	BudgetWallTime    time.Duration `group:"budget of the whole batch" placeholder:"DUR" help:"Wall time."`
	RequestsPerMinute int           `group:"budget of the whole batch" placeholder:"N" help:"Model requests of all workers."`
	MaxFailureRate    float64       `group:"budget of the whole batch" placeholder:"SHARE" help:"Stop when more than this share of the finished tasks failed (0 to 1)."`
	FailureMin        int           `group:"budget of the whole batch" default:"5" placeholder:"N" help:"But not before N tasks ended (default 5)."`
}

// Run carries out the batch.
func (c *batchRunCmd) Run(rt *runtime) error {
	if c.Workers < 1 || c.MaxFailureRate < 0 || c.MaxFailureRate > 1 {
		return usageError("--workers must be at least 1, --max-failure-rate between 0 and 1")
	}
	data, err := os.ReadFile(rt.abs(c.Tasks))
	if err != nil {
		return usageError("--tasks: %v", err)
	}
	tasks, err := batch.ReadTasks(c.Tasks, data, batch.ReadOptions{Prompt: c.Prompt, Repo: c.Repo})
	if err != nil {
		return exitError{code: runner.ExitUsage, err: err}
	}
	tasks, err = c.complete(rt, tasks)
	if err != nil {
		return err
	}
	shard, err := c.shard(rt)
	if err != nil {
		return err
	}
	out := rt.abs(c.Out)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return usageError("--out: %v", err)
	}
	if out, err = filepath.EvalSymlinks(out); err != nil {
		return usageError("--out: %v", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("the host name cannot be read: %w", err)
	}
	git := &batch.Git{Root: out, Cache: filepath.Join(out, "cache"), Environ: rt.environ}
	w := &batchWork{rt: rt, cmd: c}
	sum, err := batch.Run(rt.ctx, batch.Options{
		Tasks: tasks, Out: out, Workers: c.Workers, Shard: shard, Only: c.Only, RetryFailed: c.RetryFailed,
		Lease: c.Lease, Owner: fmt.Sprintf("%s-%d-%d", host, os.Getpid(), time.Now().UnixNano()), Apply: batch.Apply(c.Apply),
		Budget: batch.Budget{CostUSD: c.BudgetCost, Tokens: c.BudgetTokens, WallTime: c.BudgetWallTime,
			RequestsPerMinute: c.RequestsPerMinute, FailureRate: c.MaxFailureRate, FailureMin: c.FailureMin},
		Checkout: func(ctx context.Context, t batch.Task, dir string) (string, error) {
			return git.Checkout(ctx, t.Repo, t.Ref, dir)
		},
		Work: w.run,
		Publish: func(ctx context.Context, t batch.Task, ws batch.Workspace, r batch.Result) (string, error) {
			return publish(ctx, git, c.Apply, t, ws, r)
		},
		Progress: w.progress,
	})
	return c.end(rt, out, sum, err)
}

// complete reads prompt files and finds everything that would fail a task
// before it began; all of it is told at once.
func (c *batchRunCmd) complete(rt *runtime, tasks []batch.Task) ([]batch.Task, error) {
	fe := &batch.FileError{Name: c.Tasks}
	base := filepath.Dir(rt.abs(c.Tasks))
	at := func(p string) string {
		if filepath.IsAbs(p) {
			return p
		}
		return filepath.Join(base, p)
	}
	ids := map[string]bool{}
	for i := range tasks {
		t := &tasks[i]
		ids[t.ID] = true
		wrong := func(format string, args ...any) {
			fe.Mistakes = append(fe.Mistakes, batch.Mistake{Line: t.Line, Text: fmt.Sprintf(format, args...)})
		}
		if t.PromptFile != "" {
			b, err := os.ReadFile(at(t.PromptFile))
			if err != nil {
				wrong("prompt_file: %v", err)
			} else if strings.TrimSpace(string(b)) == "" {
				wrong("prompt_file %s is empty", t.PromptFile)
			}
			t.Prompt, t.PromptFile = string(b), ""
		}
		if p, local := batch.Local(t.Repo); local {
			if fi, err := os.Stat(at(p)); err != nil {
				wrong("repo: %v", err)
			} else if !fi.IsDir() {
				wrong("repo %s is not a folder", p)
			}
			t.Repo = at(p)
		}
		if len(t.OutputSchema) > 0 {
			var path string
			schema := []byte(t.OutputSchema)
			if json.Unmarshal(schema, &path) == nil {
				b, err := os.ReadFile(at(path))
				if err != nil {
					wrong("output_schema: %v", err)
					continue
				}
				schema = b
			}
			if _, err := runner.ParseSchema("output_schema", schema); err != nil {
				wrong("%v", err)
			}
			t.OutputSchema = schema
		}
	}
	for _, id := range c.Only {
		if !ids[id] {
			return nil, usageError("--only %s: there is no such task in %s", id, c.Tasks)
		}
	}
	if len(fe.Mistakes) > 0 {
		return nil, exitError{code: runner.ExitUsage, err: fe}
	}
	return tasks, nil
}

func (c *batchRunCmd) shard(rt *runtime) (batch.Shard, error) {
	switch c.Shard {
	case "":
		return batch.Shard{Index: 0, Count: 1}, nil
	case "auto":
		sh, from, err := batch.AutoShard(rt.lookupEnv)
		if err != nil {
			return sh, usageError("--shard auto: %v", err)
		}
		if from == "" {
			from = "no variable of a CI system is set"
		}
		fmt.Fprintf(rt.stderr, "shard %d/%d (%s)\n", sh.Index+1, sh.Count, from)
		return sh, nil
	}
	sh, err := batch.ParseShard(c.Shard)
	if err != nil {
		return sh, usageError("--shard: %v", err)
	}
	return sh, nil
}

// end prints the totals and chooses the exit code: 0 when every task of the
// shard succeeded, 9 when some failed, 7 when a budget stopped the batch.
func (c *batchRunCmd) end(rt *runtime, out string, sum batch.Summary, err error) error {
	failed := 0
	for _, r := range sum.Results {
		if !r.OK() {
			failed++
			fmt.Fprintf(rt.stderr, "failed: %s (%s, exit code %d): %s\n", report.PlainLine(r.ID, 200), r.Class, r.ExitCode, report.PlainLine(r.Message, 300))
		}
	}
	fmt.Fprintf(rt.stderr, "%d tasks: %d succeeded, %d failed, %d without a result; results in %s\n",
		sum.Total, len(sum.Results)-failed, failed, len(sum.Missing), filepath.Join(out, "results.jsonl"))
	var spent *batch.BudgetError
	switch {
	case errors.As(err, &spent):
		return exitError{code: runner.ExitLimit, err: err}
	case err != nil:
		return err
	case failed > 0 || len(sum.Missing) > 0:
		return exitError{code: runner.ExitGate, err: &hintError{fmt.Errorf("%d of %d tasks did not succeed", failed+len(sum.Missing), sum.Total),
			"look at " + filepath.Join(out, "results.jsonl") + "; run the same command with --retry-failed to try them again"}}
	}
	return nil
}

// publish leaves a change as a commit or a branch.
func publish(ctx context.Context, git *batch.Git, apply string, t batch.Task, w batch.Workspace, r batch.Result) (string, error) {
	subject, _, _ := strings.Cut(strings.TrimSpace(r.Final), "\n")
	if subject == "" {
		subject = "nightshift: " + t.ID
	}
	if len(subject) > 72 {
		subject = strings.ToValidUTF8(subject[:69], "") + "..."
	}
	if _, err := git.Commit(ctx, w.Tree, subject, "Task: "+t.ID); err != nil {
		return "", err
	}
	if apply == string(batch.ApplyCommit) {
		return "", nil
	}
	branch := "nightshift/" + t.Dir()
	return branch, git.Branch(ctx, t.Repo, w.Tree, branch)
}

// batchWork runs one task as a session of its own in this process.
type batchWork struct {
	rt  *runtime
	cmd *batchRunCmd
}

func (b *batchWork) run(ctx context.Context, t batch.Task, w batch.Workspace) (batch.Result, error) {
	flags := b.cmd.runFlags
	flags.Cd, flags.ReportDir, flags.NoGitHub = w.Tree, w.Out, true
	flags.Events, flags.LastMessage, flags.Record, flags.Report, flags.JSON = "", "", "", nil, false
	flags.Config = append(append([]string(nil), flags.Config...), t.Config...)
	tighten(&flags, t.Limits)
	rt := *b.rt
	rt.ctx, rt.stdin, rt.stdout = ctx, strings.NewReader(""), io.Discard
	log, err := os.Create(filepath.Join(w.Out, "log.txt"))
	if err != nil {
		return batch.Result{}, err
	}
	rt.stderr = log
	if len(t.OutputSchema) > 0 {
		flags.OutputSchema = filepath.Join(w.Out, "schema.json")
		if err := os.WriteFile(flags.OutputSchema, t.OutputSchema, 0o644); err != nil {
			return batch.Result{}, errors.Join(err, log.Close())
		}
	}
	s := rt.session(&flags, "exec")
	seen := &lastRecords{}
	s.watch = seen
	s.promptFn = func() (string, error) { return t.Prompt, nil }
	s.wrap = func(inner model.Streamer) model.Streamer { return &gated{inner, w} }
	runErr := s.run(promptSources{})
	if err := log.Close(); err != nil {
		return batch.Result{}, err
	}
	r := seen.result()
	var coded exitError
	if errors.As(runErr, &coded) {
		r.ExitCode = coded.code
	} else if runErr != nil {
		return r, runErr
	}
	return r, nil
}

// tighten applies the limits of a task where they are stricter than those of
// the command line.
func tighten(f *runFlags, l batch.Limits) {
	low(&f.MaxTurns, l.MaxTurns)
	low(&f.MaxToolCalls, l.MaxToolCalls)
	low(&f.MaxTokens, l.MaxTokens)
	low(&f.MaxCost, l.MaxCost)
	low(&f.MaxWallTime, time.Duration(l.MaxWallTime))
	low(&f.MaxIdleTime, time.Duration(l.MaxIdleTime))
}

func low[T int | int64 | float64 | time.Duration](have *T, limit T) {
	if limit > 0 && (*have == 0 || limit < *have) {
		*have = limit
	}
}

// gated passes every request through the batch's rate and tells the others of a
// wait that the service asked for.
type gated struct {
	inner model.Streamer
	w     batch.Workspace
}

// Stream waits for its turn, then streams.
func (g *gated) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		if err := g.w.Gate(ctx); err != nil {
			yield(model.Delta{}, err)
			return
		}
		for d, err := range g.inner.Stream(ctx, r) {
			if d.Retrying != nil && d.Retrying.Err != nil && d.Retrying.Err.RetryAfter > 0 {
				g.w.Pause(d.Retrying.Err.RetryAfter)
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// lastRecords keeps what a result is made of.
type lastRecords struct {
	thread string
	diff   event.DiffCaptured
	end    event.RunCompleted
}

// Handle picks the records out of the log.
func (l *lastRecords) Handle(r event.Record) error {
	switch e := r.Event.(type) {
	case event.ThreadStarted:
		l.thread = e.ThreadID
	case event.DiffCaptured:
		l.diff = e
		l.diff.Patch = ""
	case event.RunCompleted:
		l.end = e
	}
	return nil
}

// Close has nothing to finish: the records are read by result.
func (l *lastRecords) Close(context.Context) error { return nil }

func (l *lastRecords) result() batch.Result {
	r := batch.Result{Outcome: l.end.Outcome, Class: l.end.Class, ExitCode: l.end.ExitCode, Message: l.end.Message,
		Final: l.end.FinalMessage, Files: len(l.diff.Files), Usage: l.end.Usage, CostUSD: l.end.CostUSD, Thread: l.thread}
	if len(l.diff.Files) > 0 {
		r.Patch = l.diff.Digest
	}
	return r
}

// progress writes one line after each task.
func (b *batchWork) progress(p batch.Progress) {
	left := ""
	if p.Left > 0 {
		left = ", about " + p.Left.Round(time.Second).String() + " left"
	}
	perMinute := float64(p.Done-p.Skipped) / max(p.Elapsed.Minutes(), 1) // the first minute is no rate yet
	state := "ok"
	if !p.Last.OK() {
		state = p.Last.Class
	}
	fmt.Fprintf(b.rt.stderr, "[%d/%d] %s: %s (%.1fs) | %d failed, %d running, %.1f/min%s\n", p.Done, p.Total,
		report.PlainLine(p.Last.ID, 80), state, float64(p.Last.DurationMS)/1000, p.Failed, p.Running, perMinute, left)
}

// batchMergeCmd joins results folders.
type batchMergeCmd struct {
	Dirs   []string `arg:"" name:"dir" help:"Results folders of the shards."`
	Out    string   `required:"" placeholder:"DIR" help:"Where to write results.jsonl and the reports."`
	Report []string `sep:"none" placeholder:"FORMAT=PATH" help:"One more report over all runs: junit, sarif, markdown, html, ctrf, checkstyle, codequality."`
}

// Run merges. The result does not depend on the order of the folders, and
// merging merged results changes nothing.
func (c *batchMergeCmd) Run(rt *runtime) error {
	var all [][]batch.Result
	var runs []*report.Summary
	for _, d := range c.Dirs {
		dir := rt.abs(d)
		f, err := os.Open(filepath.Join(dir, "results.jsonl"))
		if err != nil {
			return usageError("batch merge: %v", err)
		}
		rs, err := batch.DecodeResults(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return usageError("batch merge: %s: %v", filepath.Join(dir, "results.jsonl"), err)
		}
		all = append(all, rs)
		more, err := readRuns(dir, rs)
		if err != nil {
			return err
		}
		runs = append(runs, more...)
	}
	merged := batch.Merge(all...)
	data, err := batch.EncodeResults(merged)
	if err != nil {
		return fmt.Errorf("batch merge: %w", err)
	}
	out := rt.abs(c.Out)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return usageError("--out: %v", err)
	}
	if err := writeFile(filepath.Join(out, "results.jsonl"), data); err != nil {
		return exitError{code: runner.ExitOutput, err: err}
	}
	o := report.Options{Create: createFile, Append: appendFile}
	for _, name := range []string{"markdown=summary.md", "html=summary.html", "junit=junit.xml", "sarif=sarif.json"} {
		one, err := report.ParseOutput(name)
		if err != nil {
			return err
		}
		one.Path = filepath.Join(out, one.Path)
		o.Outputs = append(o.Outputs, one)
	}
	for _, arg := range c.Report {
		one, err := report.ParseOutput(arg)
		if err != nil {
			return usageError("%w", err)
		}
		one.Path = rt.abs(one.Path)
		o.Outputs = append(o.Outputs, one)
	}
	set := report.Merge(runs...)
	runsFile, err := json.MarshalIndent(set, "", "  ")
	if err != nil {
		return fmt.Errorf("batch merge: %w", err)
	}
	if err := errors.Join(writeFile(filepath.Join(out, "runs.json"), append(runsFile, '\n')), report.WriteAll(set.Runs, &o)); err != nil {
		return exitError{code: runner.ExitOutput, err: err}
	}
	fmt.Fprintf(rt.stderr, "%d results in %s\n", len(merged), out)
	return nil
}

// readRuns reads the reports of finished tasks; a folder that is itself a merge
// has all of them in one file.
func readRuns(dir string, rs []batch.Result) ([]*report.Summary, error) {
	var out []*report.Summary
	paths := []string{filepath.Join(dir, "runs.json")}
	for _, r := range rs {
		paths = append(paths, filepath.Join(dir, r.Dir, "report.json"))
	}
	for _, p := range paths {
		f, err := os.Open(p)
		if errors.Is(err, os.ErrNotExist) {
			continue // merged elsewhere, or a task whose checkout failed
		}
		if err != nil {
			return nil, usageError("batch merge: %v", err)
		}
		runs, err := report.ReadRuns(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, usageError("batch merge: %s: %v", p, err)
		}
		out = append(out, runs...)
	}
	return out, nil
}

func writeFile(path string, data []byte) error {
	w, err := createFile(path)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return errors.Join(err, w.Close())
}
