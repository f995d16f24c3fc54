package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/batch"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/workspace"
)

// enterWorktree moves the run into a work tree of its own (--worktree): HEAD of
// the repository, detached, in CODEX_HOME/worktrees/XXXX/NAME. It stays there
// afterwards, since the work of the run is in it.
func (s *session) enterWorktree() error {
	if !s.flags.Worktree {
		return nil
	}
	facts, err := workspace.Find(s.workdir)
	if err != nil {
		return err
	}
	if facts.Root == "" {
		return exitError{code: runner.ExitUsage, err: &hintError{
			fmt.Errorf("--worktree: %s is in no git work tree%s", s.workdir, because(facts.Problem)), "run inside a git repository, or name one with -C"}}
	}
	below, err := filepath.Rel(facts.Root, s.workdir)
	if err != nil {
		return fmt.Errorf("--worktree: %w", err)
	}
	place, err := freshFolder(filepath.Join(s.home, "worktrees"))
	if err != nil {
		return fmt.Errorf("--worktree: %w", err)
	}
	tree := filepath.Join(place, filepath.Base(facts.MainRoot))
	git := &batch.Git{Root: place, Environ: s.rt.environ}
	if err := git.Worktree(s.rt.ctx, facts.Root, facts.CommonDir, tree); err != nil {
		return errors.Join(fmt.Errorf("--worktree: %w", err), os.Remove(place))
	}
	dir := filepath.Join(tree, below)
	if err := os.MkdirAll(dir, 0o755); err != nil { // a folder that no commit knows
		return fmt.Errorf("--worktree: %w", err)
	}
	s.workdir = dir
	s.notices = append(s.notices, event.Notice{Class: "worktree", Message: "the run works in " + tree + ", which stays; remove it with `git worktree remove`"})
	return nil
}

func because(problem string) string {
	if problem == "" {
		return ""
	}
	return " (" + problem + ")"
}

// freshFolder makes a new folder with a name of four hex digits in dir.
func freshFolder(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for range 100 {
		var b [2]byte
		if _, err := rand.Read(b[:]); err != nil {
			return "", err
		}
		path := filepath.Join(dir, hex.EncodeToString(b[:]))
		if err := os.Mkdir(path, 0o755); !errors.Is(err, os.ErrExist) {
			return path, err
		}
	}
	return "", fmt.Errorf("%s is full", dir)
}
