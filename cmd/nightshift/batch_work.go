package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/batch"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
)

// batchWork runs each task as a session of its own in this process.
type batchWork struct {
	rt   *runtime
	cmd  *batchRunCmd
	git  *batch.Git
	key  string
	deaf bool // stdout is closed; used by progress only, which is never concurrent
}

// run runs one task and applies its change.
func (b *batchWork) run(ctx context.Context, t batch.Task, w batch.Workspace) (batch.Result, error) {
	flags := b.cmd.runFlags
	flags.Cd, flags.ReportDir, flags.NoGitHub, flags.JSON, flags.PromptFile = w.Tree, w.Out, true, false, ""
	flags.Config = append(append([]string(nil), flags.Config...), t.Config...)
	tighten(&flags, t.Limits)
	rt := *b.rt
	rt.ctx, rt.stdin, rt.stdout = ctx, strings.NewReader(b.key+"\n"), io.Discard
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
	seen := &lastRecords{spend: w.Spend}
	s := rt.session(&flags, job{mode: "exec", prompt: &t.Prompt, task: taskJob{
		id: t.ID, watch: seen, gate: func(inner model.Streamer) model.Streamer { return &gated{inner, w} },
	}})
	runErr := s.run(promptSources{})
	if err := log.Close(); err != nil {
		return batch.Result{}, err
	}
	r := seen.result()
	var coded exitError
	if errors.As(runErr, &coded) {
		if r.OK() { // the run succeeded, but what was asked for could not be written
			r.Outcome, r.Class, r.Message = "output", "report", "a report, or the changes, could not be written; log.txt in the task's folder says why"
		}
		r.ExitCode = coded.code
	} else if runErr != nil {
		return r, runErr
	}
	if r.OK() && r.Files > 0 && b.cmd.Apply != string(batch.ApplyNone) {
		if err := b.apply(ctx, t, w, s.mask, &r); err != nil {
			r.Outcome, r.Class, r.ExitCode, r.Message = "output", "apply", runner.ExitOutput, s.mask.Mask(err.Error())
		}
	}
	return r, nil
}

// apply leaves a change as a commit or a branch. What a report must not show, a
// branch must not hold either.
func (b *batchWork) apply(ctx context.Context, t batch.Task, w batch.Workspace, mask *event.Redactor, r *batch.Result) (err error) {
	release := b.git.Hold()
	defer func() { err = errors.Join(err, release()) }()
	if _, err := b.git.Commit(ctx, t, w.Tree, commitMessage(t, r.Final)); err != nil {
		return err
	}
	change, err := b.git.Change(ctx, w.Tree, w.Base)
	if err != nil {
		return err
	}
	if mask.Mask(change) != change {
		return errors.New("the change holds a secret of this job, so it is not made a commit; see the masked patch")
	}
	_, local := batch.Local(t.Repo)
	r.KeepTree = b.cmd.Apply == string(batch.ApplyCommit) || !local
	if b.cmd.Apply == string(batch.ApplyBranch) {
		r.Branch, err = b.git.Publish(ctx, t, w.Tree)
	}
	return err
}

// maxSubject is what git and its hosts show of a subject line.
const maxSubject = 72

// commitMessage is the agent's last message: its first line as the subject.
func commitMessage(t batch.Task, final string) string {
	final = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(final, "")))
	subject, body, _ := strings.Cut(final, "\n")
	if subject = strings.TrimSpace(strings.TrimLeft(subject, "#*- ")); subject == "" {
		subject = "nightshift: " + t.ID
	}
	if len(subject) > maxSubject {
		body = final
		subject = strings.ToValidUTF8(subject[:maxSubject-3], "") + "..."
	}
	return strings.TrimSpace(subject + "\n\n" + strings.TrimSpace(body))
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

// gated passes every request, also one that is made again, through the batch's
// rate and tells the others of a wait that the service asked for.
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
			if perr := g.refused(ctx, err); perr != nil {
				err = errors.Join(err, perr)
			}
			if !yield(d, err) {
				return
			}
			if d.Retrying == nil {
				continue
			}
			asked := time.Duration(0)
			if d.Retrying.Err != nil {
				asked = d.Retrying.Err.RetryAfter
			}
			if err := g.w.Again(ctx, asked); err != nil {
				yield(model.Delta{}, err)
				return
			}
		}
	}
}

// refused tells the others of a wait that came with a last refusal.
func (g *gated) refused(ctx context.Context, err error) error {
	var api *model.APIError
	if !errors.As(err, &api) || api.RetryAfter <= 0 {
		return nil
	}
	if err := g.w.Pause(ctx, api.RetryAfter); err != nil {
		return fmt.Errorf("the batch's pause: %w", err)
	}
	return nil
}

// Compact passes the request on, through the same gate.
func (g *gated) Compact(ctx context.Context, r model.Request) (model.Response, error) {
	c, ok := g.inner.(model.Compactor)
	if !ok {
		return model.Response{}, &model.APIError{Class: "not_found", Message: "this model cannot shorten a history"}
	}
	if err := g.w.Gate(ctx); err != nil {
		return model.Response{}, err
	}
	return c.Compact(ctx, r)
}

// lastRecords keeps what a result is made of, and tells what each response cost.
type lastRecords struct {
	spend  func(event.Usage, float64) error
	prices map[string]event.Price
	model  string // of the last request
	thread string
	diff   event.DiffCaptured
	end    event.RunCompleted
}

// Handle picks the records out of the log.
func (l *lastRecords) Handle(r event.Record) error {
	switch e := r.Event.(type) {
	case event.RunStarted:
		if e.Prices != nil {
			l.prices = e.Prices.Models
		}
	case event.ModelRequest:
		l.model = e.Model
	case event.ModelResponse: // charged as what was asked for, as the run does
		return l.spend(e.Usage, l.prices[l.model].Cost(e.Usage))
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
