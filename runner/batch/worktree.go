package batch

import (
	"context"
	"path/filepath"
)

// Worktree adds a linked work tree of a repository at its HEAD, detached, as
// path. repo is the top of a work tree, common its git folder, which git writes
// to; path does not exist yet, its parent does. Errors are a *RepoError.
func (g *Git) Worktree(ctx context.Context, repo, common, path string) error {
	commit, err := g.resolve(ctx, repo, "")
	if err == nil {
		_, err = g.run(ctx, call{dir: repo, write: filepath.Dir(path), also: common,
			args: []string{"worktree", "add", "--quiet", "--detach", "--", path, commit}})
	}
	if err != nil {
		return &RepoError{repo, err}
	}
	return nil
}
