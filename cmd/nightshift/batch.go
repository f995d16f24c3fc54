package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/nightshift-ci/nightshift/report"
	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/batch"
)

// batchCmd runs many tasks.
type batchCmd struct {
	Run   batchRunCmd   `cmd:"" default:"withargs" help:"Run the tasks of a file (the default)."`
	Merge batchMergeCmd `cmd:"" help:"Join the results of shards and make reports over all of them."`
}

// batchRunCmd runs the tasks of a file on a bounded pool of workers.
type batchRunCmd struct {
	runFlags      `embed:""`
	Tasks         string        `required:"" placeholder:"FILE" help:"Tasks as JSON lines, or CSV when the name ends in .csv; - reads JSON lines from stdin."`
	Out           string        `required:"" placeholder:"DIR" help:"Results folder. The same folder goes on where an earlier batch stopped; several processes may share it."`
	Workers       int           `short:"j" default:"4" placeholder:"K" help:"Tasks at once (default 4)."`
	Shard         string        `placeholder:"I/N" help:"Run only this part of the tasks; auto reads the variables of the CI system."`
	Only          []string      `placeholder:"ID" help:"Run only these tasks."`
	RetryFailed   bool          `help:"Run failed tasks again."`
	Apply         string        `default:"none" enum:"branch,commit,none" placeholder:"HOW" help:"What becomes of each change besides its patch: a branch nightshift/ID in its repository, a commit in its checkout, or none (the default)."`
	Repo          string        `placeholder:"REPO" help:"Repository of tasks that name none."`
	Prompt        string        `placeholder:"TEMPLATE" help:"Prompt of tasks that have none; {column} is replaced. A long one can come from --prompt-file."`
	Depth         int           `default:"1" placeholder:"N" help:"Commits of history to fetch of a remote repository (default 1; 0: all)."`
	KeepCheckouts bool          `help:"Keep the checkouts of succeeded tasks too. Those of failed tasks, and those that hold a commit, are kept anyway."`
	Lease         time.Duration `default:"1m" placeholder:"DUR" help:"How long a claim of a process on another machine lives that no longer renews it (default 1m)."`

	BudgetCost        float64       `group:"budget of the whole batch" placeholder:"USD" help:"Money, over all processes and attempts in the results folder."`
	BudgetTokens      int64         `group:"budget of the whole batch" placeholder:"N" help:"Tokens, likewise."`
	BudgetWallTime    time.Duration `group:"budget of the whole batch" placeholder:"DUR" help:"Wall time of this invocation."`
	RequestsPerMinute int           `group:"budget of the whole batch" placeholder:"N" help:"Model requests of all workers of all processes in the results folder."`
	MaxFailureRate    float64       `group:"budget of the whole batch" placeholder:"SHARE" help:"Stop when more than this share of the finished tasks failed (0 to 1)."`
	FailureMin        int           `group:"budget of the whole batch" default:"5" placeholder:"N" help:"But not before N tasks ended (default 5)."`
}

// Validate checks what the grammar cannot.
func (c *batchRunCmd) Validate() error {
	if err := c.runFlags.Validate(); err != nil {
		return err
	}
	if c.Workers < 1 {
		return errors.New("--workers must be at least 1")
	}
	if !(c.MaxFailureRate >= 0 && c.MaxFailureRate <= 1) { // nor no number at all
		return errors.New("--max-failure-rate must be between 0 and 1")
	}
	if err := notNegative([]amount{{"--depth", float64(c.Depth)}, {"--budget-cost", c.BudgetCost}, {"--budget-tokens", float64(c.BudgetTokens)},
		{"--budget-wall-time", float64(c.BudgetWallTime)}, {"--requests-per-minute", float64(c.RequestsPerMinute)},
		{"--failure-min", float64(c.FailureMin)}, {"--lease", float64(c.Lease)}}); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		set  bool
	}{{"--cd", c.Cd != ""}, {"--output-last-message", c.LastMessage != ""}, {"--events", c.Events != ""}, {"--report-dir", c.ReportDir != ""},
		{"--report", len(c.Report) > 0}, {"--record", c.Record != ""}, {"--worktree", c.Worktree}} {
		if f.set {
			return fmt.Errorf("%s is for one run; in a batch every task has a checkout and a report folder of its own below --out", f.name)
		}
	}
	if c.Prompt != "" && c.PromptFile != "" {
		return errors.New("--prompt and --prompt-file exclude each other")
	}
	return nil
}

// showForBatch fits the help of the flags that a batch has from exec: those that
// Validate refuses are left out.
func showForBatch(flags []*kong.Flag) {
	for _, f := range flags {
		switch f.Name {
		case "cd", "output-last-message", "events", "report-dir", "record", "worktree":
			f.Hidden = true
		case "report":
			f.Hidden = !strings.Contains(f.Help, "over all runs") // merge has one of its own
		case "json":
			f.Help = "Results as JSON lines on stdout, as they come."
		}
	}
}

// Run carries out the batch.
func (c *batchRunCmd) Run(rt *runtime) error {
	key, stdin, err := c.readKey(rt)
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
	git := &batch.Git{Root: out, Cache: filepath.Join(out, "cache"), Depth: c.Depth, Environ: rt.environ}
	check := &preflight{rt: rt, cmd: c, git: git, out: out, key: key}
	tasks, err := check.tasks(stdin)
	if err != nil {
		return err
	}
	if err := check.machine(); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("the host name cannot be read: %w", err)
	}
	w := &batchWork{rt: rt, cmd: c, git: git, key: key}
	o := batch.Options{
		Tasks: tasks, Out: out, Workers: c.Workers, Shard: shard, Only: c.Only, RetryFailed: c.RetryFailed, KeepTrees: c.KeepCheckouts,
		Lease: c.Lease, Owner: fmt.Sprintf("%s-%d-%d", host, os.Getpid(), time.Now().UnixNano()),
		Budget: batch.Budget{CostUSD: c.BudgetCost, Tokens: c.BudgetTokens, WallTime: c.BudgetWallTime,
			RequestsPerMinute: c.RequestsPerMinute, FailureRate: c.MaxFailureRate, FailureMin: c.FailureMin},
		Checkout: func(ctx context.Context, t batch.Task, dir string) (string, error) {
			return git.Checkout(ctx, t.Repo, t.Ref, dir)
		},
		Work: w.run, Progress: w.progress, Heartbeat: heartbeat,
	}
	if c.Deterministic {
		o.Now = (&fixedClock{}).now
	}
	sum, err := batch.Run(rt.ctx, o)
	return c.end(rt, out, sum, err)
}

// readKey takes the first line of stdin as the key of all tasks.
func (c *batchRunCmd) readKey(rt *runtime) (key string, rest io.Reader, err error) {
	if !c.APIKeyStdin {
		return "", rt.stdin, nil
	}
	return keyLine(rt.ctx, promptSources{reader: rt.stdin, stdin: rt.stdin, silence: c.IdlePromptWait})
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

// shownFailures is how many failed tasks are named at the end; the rest stand
// in results.jsonl.
const shownFailures = 20

// end prints the totals and chooses the exit code: 0 when every task of the
// shard succeeded, 7 when a budget stopped the batch, 6 when the service asks for a long wait, else what failureCode
// says.
func (c *batchRunCmd) end(rt *runtime, out string, sum batch.Summary, err error) error {
	failed := 0
	for _, r := range sum.Results {
		if r.OK() {
			continue
		}
		if failed++; failed <= shownFailures {
			fmt.Fprintf(rt.stderr, "failed: %s (%s, exit code %d): %s\n", report.PlainLine(r.ID, 200), r.Class, r.ExitCode, report.PlainLine(r.Message, 300))
		}
	}
	if failed > shownFailures {
		fmt.Fprintf(rt.stderr, "failed: %d more\n", failed-shownFailures)
	}
	fmt.Fprintf(rt.stderr, "%d tasks: %d succeeded, %d failed, %d without a result; results in %s\n",
		sum.Total, len(sum.Results)-failed, failed, len(sum.Missing), filepath.Join(out, "results.jsonl"))
	var spent *batch.BudgetError
	var paused *batch.PauseError
	switch {
	case errors.As(err, &paused):
		return exitError{code: runner.ExitService, err: paused}
	case errors.As(err, &spent):
		return exitError{code: runner.ExitLimit, err: spent}
	case rt.ctx.Err() == nil && unwritten(out, err):
		return exitError{code: runner.ExitOutput, err: &hintError{err, "results that are there stay; make " + out + " writable and run the same command again"}}
	case err != nil:
		return err
	case failed > 0 || len(sum.Missing) > 0:
		return exitError{code: failureCode(sum.Results), err: &hintError{fmt.Errorf("%d of %d tasks did not succeed", failed+len(sum.Missing), sum.Total),
			"look at " + filepath.Join(out, "results.jsonl") + "; run the same command with --retry-failed to try them again"}}
	}
	return nil
}

// unwritten tells whether err is about a file of the results folder: full disks
// and the like, and no fault of a task.
func unwritten(out string, err error) bool {
	var pe *fs.PathError
	return errors.As(err, &pe) && strings.HasPrefix(pe.Path, filepath.Clean(out)+string(filepath.Separator))
}

// failureCode is 9 when tasks failed. When all of them failed for one and the
// same reason that is not theirs (policy, sandbox, auth, the model service), it
// is that reason's code, so that an engine can tell what a retry may cure.
func failureCode(rs []batch.Result) int {
	code := 0
	for _, r := range rs {
		switch {
		case r.OK() || r.ExitCode == code:
		case code != 0:
			return runner.ExitGate
		default:
			code = r.ExitCode
		}
	}
	switch code {
	case runner.ExitPolicy, runner.ExitSandbox, runner.ExitAuth, runner.ExitService:
		return code
	}
	return runner.ExitGate
}

// progress writes one line after each task, and one now and then while nothing
// ends; with --json also the result itself, on stdout.
func (b *batchWork) progress(p batch.Progress) {
	left := ""
	if p.Left > 0 {
		left = ", about " + p.Left.Round(time.Second).String() + " left"
	}
	if p.CostUSD > 0 {
		left = fmt.Sprintf(", $%.2f%s", p.CostUSD, left)
	}
	perMinute := float64(p.Done-p.Skipped) / max(p.Elapsed.Minutes(), 1) // the first minute is no rate yet
	what := "working for " + p.Elapsed.Round(time.Second).String()
	if p.Wait > time.Second {
		what += ", the next model request is made in " + p.Wait.Round(time.Second).String()
	}
	if r := p.Last; r != nil {
		state := "ok"
		if !r.OK() {
			state = r.Class
		}
		what = fmt.Sprintf("%s: %s (%.1fs)", report.PlainLine(r.ID, 80), state, float64(r.DurationMS)/1000)
	}
	fmt.Fprintf(b.rt.stderr, "[%d/%d] %s | %d failed, %d running, %.1f/min%s\n", p.Done, p.Total, what, p.Failed, p.Running, perMinute, left)
	if b.cmd.JSON && p.Last != nil {
		line, err := json.Marshal(p.Last)
		if err == nil {
			_, err = fmt.Fprintf(b.rt.stdout, "%s\n", line)
		}
		if err != nil && !b.deaf {
			b.deaf = true
			fmt.Fprintf(b.rt.stderr, "error: stdout: %v; the results go on in results.jsonl\n", err)
		}
	}
}
