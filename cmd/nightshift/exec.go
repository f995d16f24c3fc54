package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nightshift-ci/nightshift/runner/rollout"
)

// execCmd runs one task in a new thread.
type execCmd struct {
	runFlags `embed:""`
	Prompt   *string `arg:"" optional:"" help:"What to do; - reads it from stdin. Piped text is added to it."`
}

// Run carries out the task.
func (c *execCmd) Run(rt *runtime) error {
	return rt.session(&c.runFlags, job{mode: "exec"}).run(promptSources{arg: c.Prompt, file: c.PromptFile})
}

// threadFlags choose an earlier thread.
type threadFlags struct {
	Last bool `help:"The newest thread of this working folder."`
	All  bool `help:"With --last: of any working folder."`
}

// resumeCmd goes on with a thread.
type resumeCmd struct {
	runFlags    `embed:""`
	threadFlags `embed:""`
	SessionID   *string `arg:"" optional:"" name:"id" help:"Id of the thread."`
	Prompt      *string `arg:"" optional:"" help:"What to do next; without it, it is read from stdin."`
}

// Run resumes and carries out one more turn.
func (c *resumeCmd) Run(rt *runtime) error {
	return c.from(rt, "resume", &c.runFlags, c.SessionID, c.Prompt)
}

// from runs a turn that begins with an earlier thread. With --last the only word
// is the prompt.
func (t threadFlags) from(rt *runtime, mode string, f *runFlags, id, prompt *string) error {
	if t.Last && prompt == nil {
		id, prompt = nil, id
	}
	switch {
	case id == nil && !t.Last:
		return usageError("which thread? give its id, or --last for the newest one of this folder; a new thread is never started silently")
	case id != nil && t.Last:
		return usageError("a thread id and --last exclude each other")
	}
	pick := threadPick{last: t.Last, all: t.All}
	if id != nil {
		if pick.ref = strings.TrimSpace(*id); pick.ref == "" {
			return usageError("the thread id is empty; is it a variable that is not set?")
		}
	}
	return rt.session(f, job{mode: mode, thread: pick}).run(promptSources{arg: prompt, file: f.PromptFile, isSub: true})
}

// forkCmd starts a new thread from the history of another.
type forkCmd struct {
	runFlags    `embed:""`
	threadFlags `embed:""`
	SessionID   *string `arg:"" optional:"" name:"id" help:"Id of the thread to start from."`
	Prompt      *string `arg:"" optional:"" help:"What to do; without it, it is read from stdin."`
}

// Run forks and carries out one turn.
func (c *forkCmd) Run(rt *runtime) error {
	return c.from(rt, "fork", &c.runFlags, c.SessionID, c.Prompt)
}

// threadPick names the thread a run starts from.
type threadPick struct {
	ref       string
	last, all bool
}

func (p threadPick) wanted() bool { return p.ref != "" || p.last }

// find looks the thread up. Not finding it is an error: a resume that starts
// anew loses a night's work without a word.
func (p threadPick) find(store *rollout.Store, cwd string) (rollout.Info, error) {
	if p.last {
		if p.all {
			cwd = ""
		}
		return asUsage(store.Last(cwd))
	}
	return asUsage(store.Find(p.ref))
}

func asUsage(info rollout.Info, err error) (rollout.Info, error) {
	var missing *rollout.NotFoundError
	if errors.As(err, &missing) {
		return info, exitError{code: 1, err: fmt.Errorf("resume: no rollout found: %w", missing)}
	}
	return info, err
}
