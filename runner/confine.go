package runner

import (
	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/patch"
	"github.com/nightshift-ci/nightshift/runner/workspace"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// ConfineOptions is what a confinement is made of.
type ConfineOptions struct {
	Policy    *policy.Policy
	Workdir   string // real path
	Facts     workspace.Facts
	Home      string // CODEX_HOME
	UserHome  string
	Runtime   string // private folder of the run
	LookupEnv func(string) (string, bool)
}

// Confinement is what the commands of a run may do.
type Confinement struct {
	Spec sandbox.Spec
	// Caches are the private tool caches, variable to path as commands see it.
	Caches map[string]string
	// Notices are what the user should know.
	Notices []event.Notice
}

// Confine turns policy and workspace into a sandbox.
func Confine(o ConfineOptions) (*Confinement, error) { return &Confinement{}, nil }

// Event says what is enforced.
func (c *Confinement) Event(rep sandbox.Report) event.SandboxEnforced {
	return event.SandboxEnforced{}
}

// PatchScope is where a patch may write.
func (c *Confinement) PatchScope() patch.Scope { return patch.Scope{} }

// GitEnv is the environment of the runner's own git.
func (c *Confinement) GitEnv(environ []string) []string { return nil }

// Extra are the writable roots besides the workspace.
func (c *Confinement) Extra() []string { return nil }

// childEnv is the environment of one command; callID is the tool call it
// belongs to, "" for hooks, servers and checks.
func (r *run) childEnv(callID string) []string { return nil }
