package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/tool"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// maxPatch bounds the patch on stdin, in bytes.
const maxPatch = 64 << 20

// applyPatchCmd applies one patch as a run would: same tool, same policy, same
// sandbox. It is there to look at a patch that a run refused, and for tests.
type applyPatchCmd struct {
	Sandbox string   `name:"sandbox" short:"s" default:"workspace-write" placeholder:"MODE" help:"read-only, workspace-write or danger-full-access."`
	Dir     string   `name:"cd" short:"C" placeholder:"DIR" help:"Working folder, which relative paths start from."`
	AddDirs []string `name:"add-dir" sep:"none" placeholder:"DIR" help:"One more writable folder. Repeatable."`
}

// Run prints what the model would get. The exit code is 0 only if the
// whole patch was applied.
func (c *applyPatchCmd) Run(rt *runtime) error {
	text, err := io.ReadAll(io.LimitReader(rt.stdin, maxPatch+1))
	if err != nil {
		return usageError("reading the patch from stdin: %v", err)
	}
	if len(text) > maxPatch {
		return usageError("the patch on stdin is larger than %d MiB", maxPatch>>20)
	}
	flags := &runFlags{Sandbox: c.Sandbox, Cd: c.Dir, AddDir: c.AddDirs, Color: "auto", NoGitHub: true}
	if err := flags.Validate(); err != nil {
		return usageError("%v", err)
	}
	s := rt.session(flags, job{mode: "apply-patch"})
	defer s.close()
	conf, err := s.confinement()
	if err != nil {
		return err
	}
	box, err := sandbox.Open(rt.ctx, conf.Spec)
	if err != nil {
		return err
	}
	defer func() {
		if err := box.Close(); err != nil {
			fmt.Fprintf(rt.stderr, "error: closing the sandbox: %v\n", err)
		}
	}()
	set := tool.Builtin(tool.Deps{Log: event.NewLog(nil, nil), Policy: s.policy, Workdir: s.workdir, Scope: conf.PatchScope(),
		Box: func(context.Context) (*sandbox.Sandbox, error) { return box, nil }, Env: func(string) []string { return s.policy.Environment(rt.environ) }})
	return c.apply(rt, set, string(text))
}

func (c *applyPatchCmd) apply(rt *runtime, set *tool.Set, text string) error {
	call := tool.Call{ID: "apply-patch", Name: "apply_patch", Custom: true, Input: text}
	for _, t := range set.Tools() {
		if t.Name() != call.Name {
			continue
		}
		res, err := t.Call(rt.ctx, call)
		if err != nil {
			return err
		}
		var said string
		if err := json.Unmarshal(res.Output, &said); err != nil {
			return fmt.Errorf("the answer of apply_patch is not text: %w", err)
		}
		if res.Status == event.Completed {
			_, err := fmt.Fprintln(rt.stdout, said)
			return err
		}
		if res.Denied != nil {
			return exitError{code: runner.ExitGate, err: fmt.Errorf("%s (%s)", said, res.Denied.Reason)}
		}
		return exitError{code: runner.ExitFailed, err: fmt.Errorf("%s", said)}
	}
	return fmt.Errorf("there is no tool %s", call.Name)
}
