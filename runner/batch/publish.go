package batch

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/nightshift-ci/nightshift/runner/workspace"
)

// Apply says what becomes of a task's change.
type Apply string

// Ways of applying.
const (
	ApplyNone   Apply = "none"   // a patch in the task's folder
	ApplyCommit Apply = "commit" // a commit in the task's checkout
	ApplyBranch Apply = "branch" // a branch nightshift/ID in the task's repository
)

// taskTrailer marks our commits, so that a branch of ours can be told from one
// that somebody has worked on.
const taskTrailer = "Nightshift-Task: "

// Branch is the name of the branch that a task's change becomes.
func (t Task) Branch() string {
	name := strings.Trim(t.Dir(), ".")
	for strings.Contains(name, "..") {
		name = strings.ReplaceAll(name, "..", ".")
	}
	return "nightshift/" + name
}

// Commit makes a commit of everything that changed in tree, on top of base, and
// returns it. Author and committer are those of the environment
// (GIT_AUTHOR_NAME and so on), else nightshift itself.
func (g *Git) Commit(ctx context.Context, t Task, tree, message string) (string, error) {
	steps := [][]string{
		{"add", "--all"},
		{"-c", "user.name=nightshift", "-c", "user.email=nightshift@localhost", "commit", "--quiet", "--no-verify", "--no-gpg-sign", "--cleanup=verbatim",
			"-m", strings.TrimSpace(message) + "\n\n" + taskTrailer + t.ID + "\n"},
	}
	for _, args := range steps {
		if _, err := g.run(ctx, call{dir: tree, write: g.Root, args: args}); err != nil {
			return "", err
		}
	}
	return g.resolve(ctx, tree, "")
}

// Change is the text of what a commit in tree changed since base.
func (g *Git) Change(ctx context.Context, tree, base string) (string, error) {
	return g.run(ctx, call{dir: tree, all: true,
		args: []string{"diff", "--no-color", "--no-ext-diff", "--no-textconv", "--text", base, "HEAD"}})
}

// ForeignBranchError is a branch of ours that holds somebody else's work.
type ForeignBranchError struct{ Branch string }

// Error names the branch.
func (e *ForeignBranchError) Error() string {
	return fmt.Sprintf("branch %s exists, and its last commit is not nightshift's", e.Branch)
}

// Hint tells what to do.
func (e *ForeignBranchError) Hint() string {
	return "merge, rename or delete the branch, then run the task again"
}

// Publish brings the commit of tree into the task's repository as t.Branch(). It
// is the one place that writes to a user's repository, and only when asked. A
// remote's branch stays in the checkout: pushing is a step of its own, whose
// token the agent never sees.
func (g *Git) Publish(ctx context.Context, t Task, tree string) (branch string, err error) {
	branch = t.Branch()
	source, local := Local(t.Repo)
	if !local {
		_, err := g.run(ctx, call{dir: tree, write: g.Root, args: []string{"branch", "--force", branch, "HEAD"}})
		return branch, err
	}
	if source, err = filepath.EvalSymlinks(source); err != nil {
		return "", err
	}
	if err := g.ours(ctx, source, branch); err != nil {
		return "", err
	}
	write := source
	if f, err := workspace.Find(source); err == nil && f.CommonDir != "" {
		write = f.CommonDir
	}
	_, err = g.run(ctx, call{dir: write, write: write,
		args: []string{"--git-dir=" + write, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--force", "--", tree, "HEAD:refs/heads/" + branch}})
	return branch, err
}

// ours makes sure that branch is missing or was made by us.
func (g *Git) ours(ctx context.Context, repo, branch string) error {
	ref := "refs/heads/" + branch
	have, err := g.find(ctx, repo, []string{ref})
	if err != nil || have == "" {
		return err
	}
	text, err := g.run(ctx, call{dir: repo, args: []string{"log", "-1", "--format=%B", ref}})
	if err != nil {
		return err
	}
	if !strings.Contains(text, "\n"+taskTrailer) {
		return &ForeignBranchError{branch}
	}
	return nil
}
