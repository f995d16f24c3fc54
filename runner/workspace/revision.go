package workspace

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// RevisionError is a branch or commit that a run is about and that the
// repository does not have. A model that is told to look at it would look at
// something else.
type RevisionError struct{ Ref, Reason, fix string }

// Error names the revision.
func (e *RevisionError) Error() string { return fmt.Sprintf("%q: %s", e.Ref, e.Reason) }

// Hint tells how to get it.
func (e *RevisionError) Hint() string { return e.fix }

// fetchHint is for checkouts of CI systems, which hold one commit and one branch.
const fetchHint = "name a branch or commit that this checkout has; a shallow checkout must fetch it first, with its history (fetch-depth: 0, GIT_DEPTH: 0)"

// Known finds out whether the repository has a commit of that name, and with
// base set, whether HEAD has a common history with it. It starts git, confined.
func (d *Dir) Known(ctx context.Context, ref string, base bool) error {
	f := d.o.Facts
	if f.Root == "" {
		return &RevisionError{ref, "the folder is not in a git repository", "run inside the repository, or name it with -C"}
	}
	if strings.HasPrefix(ref, "-") || strings.ContainsAny(ref, "\n\x00") {
		return &RevisionError{ref, "not the name of a branch or commit", ""}
	}
	git := d.git()
	run := func(args ...string) (bool, error) {
		_, err := git.run(ctx, call{args: args, dir: f.Root, env: []string{"GIT_DIR=" + f.GitDir, "GIT_WORK_TREE=" + f.Root}})
		var failed *gitError
		if errors.As(err, &failed) {
			return false, nil
		}
		return err == nil, err
	}
	switch ok, err := run("rev-parse", "--verify", "--quiet", "--end-of-options", ref+"^{commit}"); {
	case err != nil:
		return err
	case !ok:
		fix := fetchHint
		if there, err := run("rev-parse", "--verify", "--quiet", "--end-of-options", "refs/remotes/origin/"+ref+"^{commit}"); err == nil && there {
			fix = "this checkout has it as origin/" + ref
		}
		return &RevisionError{ref, "git knows no such branch or commit", fix}
	case !base:
		return nil
	}
	switch ok, err := run("merge-base", "HEAD", ref); {
	case err != nil:
		return err
	case !ok:
		return &RevisionError{ref, "HEAD has no common history with it in this checkout", fetchHint}
	}
	return nil
}
