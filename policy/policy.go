// Package policy decides what a run may do. It is pure: bytes in, one immutable
// [Policy] out, each value with the layer it came from. It starts no process
// and opens no connection; files are read through [Sources.Files].
//
// The usual call: fill a [Sources], [Load] it, tell the user [Policy.Notices],
// then ask: [Policy.Config] for values, [Policy.Permissions] for the sandbox,
// [Policy.Command], [Policy.Shell], [Policy.Host] and [Policy.MCPTool] for single
// actions.
//
// Layers, lowest first: defaults, system config.toml, user config.toml, profile,
// project files (only of trusted projects, and only to tighten what protects),
// -c and its kin, managed_config.toml, dedicated flags. Requirements stand above
// all of them and choose nothing; they bound. Several requirement files are cut
// to what all allow, so a further one never widens. A value from a file that
// they do not allow is replaced by the strictest allowed one, with a notice; a
// flag that asks for it is an error. Nothing falls back in silence.
//
// An unattended run never asks. Whatever would need a person's approval is
// denied, and requirements under which something must be asked end the run.
//
// Two things stop a forbidden command: reading the command line, which sees what
// is written in it (package rules), and refusing to execute the program, which
// also holds inside other programs ([Policy.ForbiddenExecutables], kept by the
// sandbox where the kernel allows). Rules on sub-commands, as git push, exist
// only in the first.
package policy

import (
	"io/fs"

	"github.com/nightshift-ci/nightshift/policy/rules"
)

// Files reads the files that layers are made of. Errors must satisfy
// errors.Is(err, fs.ErrNotExist) where a file is missing.
type Files interface {
	ReadFile(name string) ([]byte, error)
	ReadDir(name string) ([]fs.DirEntry, error)
	// RealPath resolves symbolic links; a missing path comes back cleaned.
	RealPath(name string) string
	Stat(name string) (fs.FileInfo, error)
}

// Sources is everything a policy is made of.
type Sources struct {
	Files     Files
	SystemDir string // "/etc/codex"
	Home      string // CODEX_HOME
	UserHome  string // ~
	Cwd       string // real path of the working folder
	// GitRoot is the root of the main checkout when Cwd is in a repository.
	GitRoot      string
	Profile      string
	Overrides    []Override // -c, --enable, --disable, in order
	Flags        Flags
	Requirements []string // --requirements, absolute paths
	Rules        []string // further rules files, absolute paths
	IgnoreUser   bool
	IgnoreRules  bool
	Strict       bool // --strict-config
	Hostname     string
	LookupEnv    func(string) (string, bool)
}

// Override is one -c key=value; Flag is how the user wrote it.
type Override struct{ Key, Value, Flag string }

// Flags are the dedicated flags that were given; they are applied last, and a
// requirement that refuses one is an error, never a silent fallback.
type Flags struct {
	Model        string
	Sandbox      string
	Bypass       bool // --dangerously-bypass-approvals-and-sandbox
	AddDirs      []string
	WebSearch    string
	Verify       []string
	Limits       Limits // set fields win over config
	LimitsSet    map[string]bool
	Writeback    string
	Fallback     []string
	NetworkAllow []string
	DenyRead     []string
	// ApproveForMe is --approve-for-me: workspace-write; there is no automatic
	// reviewer here, so whatever it would review is denied.
	ApproveForMe bool
	Degrade      []string // --degrade
}

// Notice is something the user must be told; Class is a stable word
// ("unknown_key", "requirement_fallback", "project_untrusted", …).
type Notice struct {
	Class, Message, Origin, Hint string
	// Wire marks notices that the reference also shows as error items.
	Wire string
}

// Decision kinds of an action in an unattended run.
const (
	Sandboxed   = "sandboxed"
	Unsandboxed = "unsandboxed"
	Denied      = "denied"
	// Allowed is the outcome of actions that no sandbox of ours confines.
	Allowed = "allowed"
)

// Verdict is the outcome for one command.
type Verdict struct {
	rules.Decision
	Outcome string // Sandboxed, Unsandboxed, Allowed, Denied
	Reason  string // sentence, when denied
	Source  string // rule, danger, approval, requirement
	// Rule is the pattern or key that decided, Origin its file:line.
	Rule, Origin string
}
