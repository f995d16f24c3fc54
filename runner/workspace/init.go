package workspace

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// Init makes a git repository of dir with one commit of all its files. Of env
// it uses PATH only: the user's git configuration must not matter.
func Init(ctx context.Context, dir string, env []string, message string) (err error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("new repository: %w", err)
	}
	box, err := sandbox.Open(ctx, sandbox.Spec{Mode: sandbox.WorkspaceWrite, Workspace: real, Write: []string{real}})
	if err != nil {
		return fmt.Errorf("new repository: %w", err)
	}
	defer func() {
		if e := box.Close(); err == nil {
			err = e
		}
	}()
	git := newGitRunner(env, func(context.Context) (Sandbox, error) { return box, nil })
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch=main", "--template="},
		{"add", "--all"},
		{"-c", "user.name=nightshift", "-c", "user.email=nightshift@example.com", "-c", "commit.gpgSign=false",
			"commit", "--quiet", "--no-verify", "--message", message},
	} {
		c := call{args: args, dir: real, env: []string{"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CEILING_DIRECTORIES=" + filepath.Dir(real)}}
		if _, err := git.run(ctx, c); err != nil {
			return fmt.Errorf("new repository %s: %w", dir, err)
		}
	}
	return nil
}
