// Package workspace knows the folder a run works in: which git repository it
// belongs to, what it looked like before the run, what the run changed, and
// which instructions (AGENTS.md) it holds for the model.
//
// [Find] reads files only, so a run can ask the model before any git process
// has started. [Open] gives a [Dir] whose baseline is taken in the background
// ([Dir.Start]); [Dir.Ready] must be awaited before anything that may write in
// the workspace runs, and [Dir.Diff] tells afterwards what changed.
//
// Every git process runs confined, everything read-only and without network, in the
// run's sandbox ([Dir.Share]) or one of its own, on a private
// git folder with a configuration of our own, so that nothing the repository's
// configuration names (hooks, monitors, filters, drivers, pagers) is run, and
// neither the user's index nor the user's objects change.
package workspace

import (
	"context"
	"time"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// Facts is what files tell about a folder. Paths are absolute and real.
type Facts struct {
	Dir       string // the working folder
	Root      string // top of the git work tree, "" outside git
	GitDir    string // git folder of this work tree
	CommonDir string // git folder shared by all work trees of the repository
	MainRoot  string // top of the main checkout; Root unless a linked work tree
	Commit    string // "" before the first commit, or when only git can tell
	Branch    string // "" when detached
	Remote    string // URL of origin without credentials
	Linked    bool   // a linked work tree
	Submodule bool
	// Problem says why a .git that is there could not be used.
	Problem string
}

// Options configures [Open].
type Options struct {
	Facts Facts
	// Private is an empty or missing folder of this run for the baseline's
	// objects; it must lie outside the workspace. Close removes it.
	Private string
	// Spec confines git: Deny, Require, Private and Limits are used as given;
	// mode, write roots and network are replaced by the strictest ones.
	Spec sandbox.Spec
	// Own are files that the run itself writes (reports, logs), as real paths.
	// They are no change of the workspace, whatever becomes of them.
	Own []string
	// Env is the environment of git: PATH and HOME matter.
	Env []string
	Bounds
}

// Bounds limits what a baseline may cost. Zero fields mean the defaults.
type Bounds struct {
	Timeout      time.Duration // of one baseline or diff; default 60 s
	FileBytes    int64         // one file; larger ones are named, not diffed; default 16 MiB
	UntrackedAll int64         // untracked bytes kept by the baseline; default 128 MiB
	Entries      int           // untracked files looked at; default 50 000
	PatchBytes   int64         // whole patch; default 64 MiB
}

// Sandbox is what git calls need of a sandbox.
type Sandbox interface {
	Start(context.Context, sandbox.Command) (*sandbox.Process, error)
}
