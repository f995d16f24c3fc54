package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// The folders of a session: where it works, and where it keeps what is its own.

// findWorkdir resolves -C. Relative paths of other flags stay relative to the
// folder the process was started in.
func (s *session) findWorkdir() error {
	dir, err := s.rt.folder(s.flags.Cd)
	s.workdir = dir
	return err
}

// folder is the real path of -C, or of the folder the process was started in.
func (rt *runtime) folder(cd string) (string, error) {
	dir := rt.cwd
	if cd != "" {
		dir = rt.abs(cd)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", usageError("-C %s: %v", cd, errText(err))
	}
	fi, err := os.Stat(real)
	if err != nil {
		return "", usageError("-C %s: %v", cd, errText(err))
	}
	if !fi.IsDir() {
		return "", usageError("-C %s is not a folder", cd)
	}
	return real, nil
}

// checkProject refuses a folder that is in no git repository: there is nothing
// to compare with afterwards, and often it is simply the wrong folder.
func (s *session) checkProject() error {
	if s.flags.SkipGitRepoCheck || s.flags.Bypass || insideGit(s.workdir) {
		return nil
	}
	return exitError{code: runner.ExitUsage, err: &hintError{
		//lint:ignore ST1005 the reference's sentence, which scripts look for
		errors.New("Not inside a trusted directory and --skip-git-repo-check was not specified."),
		"run inside a git repository, name one with -C, or add --skip-git-repo-check"}}
}

func insideGit(dir string) bool {
	for {
		git := filepath.Join(dir, ".git")
		if fi, err := os.Stat(git); err == nil {
			// An empty folder of that name is not a repository to git either.
			if _, err := os.Stat(filepath.Join(git, "HEAD")); err == nil || fi.Mode().IsRegular() {
				return true
			}
		}
		up := filepath.Dir(dir)
		if up == dir {
			return false
		}
		dir = up
	}
}

// makePrivate makes the run's private folder. It is outside every folder that
// commands may write, and removed at the end. Where TMPDIR does not serve (CI
// systems put it into the workspace, or name one that nobody made), the next
// usual place is taken.
func (s *session) makePrivate() (string, error) {
	var errs []error
	fixed := "" // the log names the folder
	if s.flags.Deterministic {
		sum := sha256.Sum256([]byte(cmp.Or(s.job.task.id, s.workdir)))
		fixed = hex.EncodeToString(sum[:8])
	}
	if s.unfit("/") != "" {
		return "", &hintError{usageError("the whole file system cannot be writable: no place would be left for what commands must not touch"),
			"work in a folder (-C DIR) and name others with --add-dir, or use -s danger-full-access where something else confines the run"}
	}
	for _, parent := range []string{os.TempDir(), "/tmp", "/var/tmp", "/dev/shm"} {
		real, err := filepath.EvalSymlinks(parent)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if root := s.unfit(real); root != "" {
			errs = append(errs, fmt.Errorf("%s is inside %s", parent, root))
			continue
		}
		own, err := newScratch(real, fixed)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.sweep(real)
		s.cleanup = append(s.cleanup, own.remove)
		return own.dir, nil
	}
	return "", &hintError{fmt.Errorf("no private folder for the run: %w", errors.Join(errs...)), "set TMPDIR to a folder outside the workspace"}
}

// sweep removes what killed runs left in parent. It works beside the run and ends
// with it.
func (s *session) sweep(parent string) {
	ctx, cancel := context.WithCancel(s.rt.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		sweepScratch(ctx, parent)
	}()
	s.cleanup = append(s.cleanup, func() { cancel(); <-done })
}

// unfit returns the folder around dir that keeps dir from holding private files:
// one that commands may write, or CODEX_HOME, which they cannot read.
func (s *session) unfit(dir string) string {
	cfg := s.policy.Config()
	around := []string{s.home}
	if cfg.SandboxMode == string(sandbox.WorkspaceWrite) {
		around = slices.Concat(around, []string{s.workdir}, cfg.Sandbox.WritableRoots, s.flags.AddDir,
			runner.HostTmp(cfg.SandboxMode, cfg.Sandbox, s.rt.lookupEnv))
	}
	for _, root := range around {
		real, err := filepath.EvalSymlinks(s.rt.abs(root))
		if err == nil && sandbox.Within(dir, real) {
			return real
		}
	}
	return ""
}
