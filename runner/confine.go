package runner

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/patch"
	"github.com/nightshift-ci/nightshift/runner/workspace"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// ConfineOptions is what a confinement is made of.
type ConfineOptions struct {
	accountHome string // of the user database; "": looked up
	Policy      *policy.Policy
	Workdir     string // real path
	Facts       workspace.Facts
	Home        string // CODEX_HOME
	UserHome    string
	Private     string   // folder of the run, out of reach of commands, removed by the caller
	Outputs     []string // of Options
	LookupEnv   func(string) (string, bool)
}

// Confinement is what the commands of a run may do. It is made once and not
// changed after that.
type Confinement struct {
	Spec sandbox.Spec
	// Caches are the private tool caches, variable to value.
	Caches map[string]string
	// Notices are what the user should know about this confinement.
	Notices []event.Notice
	// Secrets are credentials found where commands can read them and nothing can
	// be done about it; they must be masked. Name to values.
	Secrets map[string][]string

	facts     workspace.Facts
	workdir   string
	work      []string // real paths of the working folder and of those that may be written
	userHome  string
	private   string // private writable folder for caches, "" if there is none
	tmp       string // $TMPDIR of commands, "" leaves the host's
	lookupEnv func(string) (string, bool)
}

// ConfineError is a workspace or root that cannot be confined.
type ConfineError struct {
	Path   string
	Reason string
	Advice string
}

// Error names the path and the reason.
func (e *ConfineError) Error() string { return "sandbox: " + e.Path + ": " + e.Reason }

// Hint tells what to do.
func (e *ConfineError) Hint() string { return e.Advice }

// Confine turns policy and the facts about the workspace into a sandbox. Errors
// are a [*ConfineError] or mistakes of the policy.
func Confine(o ConfineOptions) (*Confinement, error) {
	p, err := o.Policy.Permissions(o.Workdir)
	if err != nil {
		return nil, err
	}
	if o.LookupEnv == nil {
		o.LookupEnv = func(string) (string, bool) { return "", false }
	}
	c := &Confinement{facts: o.Facts, workdir: o.Workdir, userHome: o.UserHome, lookupEnv: o.LookupEnv, Secrets: map[string][]string{}}
	write, missing := existing(p.Write)
	for _, dir := range missing {
		c.Notices = append(c.Notices, event.Notice{Class: "missing_root", Message: "the writable folder " + dir + " does not exist, so nothing is opened there"})
	}
	c.Spec = sandbox.Spec{
		Mode: sandbox.Mode(p.Mode), Workspace: p.Workspace, Write: write, ProtectNames: p.ProtectNames,
		Keep: slices.Clone(o.Outputs), Net: sandbox.Net{Mode: netMode(p.Network.Mode), UnixSockets: p.Network.UnixSockets}, Limits: limitsOf(p.Sandbox),
		Require: required(p), Degrade: p.Sandbox.Degrade, HostTmp: p.Sandbox.HostTmp, Private: filepath.Join(o.Private, "sandbox"),
	}
	if c.Spec.Mode == sandbox.FullAccess {
		return c, nil
	}
	if c.Spec.Workspace != "" && !slices.Contains(p.Write, p.Workspace) {
		// A profile may open folders but not the workspace itself.
		c.Spec.Show, c.Spec.Workspace = append(c.Spec.Show, p.Workspace), ""
	}
	// Servers and hooks that the configuration names often lie beside it; a
	// CODEX_HOME below a temporary folder would be hidden by the private /tmp.
	if exists(o.Home) {
		c.Spec.Show = append(c.Spec.Show, o.Home)
	}
	// So would the git folder of a linked work tree, and objects that a clone
	// borrows.
	c.Spec.Show = append(c.Spec.Show, o.Facts.GitFolders()...)
	// And the rest of the repository, when the run works in a folder of it: a
	// package without its siblings and its history is no checkout. A repository
	// that is the temporary folder itself would show what belongs to others.
	if root := o.Facts.Root; root != "" && root != o.Workdir && !slices.Contains([]string{"/tmp", "/var/tmp", "/run", "/"}, root) {
		c.Spec.Show = append(c.Spec.Show, root)
	}
	if err := c.checkRoots(c.Spec.Write, o); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Spec.Private, 0o700); err != nil {
		return nil, fmt.Errorf("sandbox: its private folder cannot be made: %w", err)
	}
	c.Spec.Write = append(c.Spec.Write, HostTmp(string(c.Spec.Mode), p.Sandbox, c.lookupEnv)...)
	c.deny(p.Deny, o)
	c.gitCredentials()
	c.upstreamProxy()
	c.Spec.TmpReadOnly = p.Sandbox.ExcludeSlashTmp && !c.Spec.HostTmp
	return c, c.openPrivate(p.Sandbox, o)
}

func netMode(word string) sandbox.NetMode {
	switch word {
	case "host":
		return sandbox.NetHost
	case "proxy":
		return sandbox.NetProxy
	}
	return sandbox.NetOff
}

// limitsOf takes what the configuration names and the defaults for the rest.
func limitsOf(s policy.SandboxConfig) sandbox.Limits {
	l := sandbox.DefaultLimits()
	set := func(to *int64, v int64) {
		if v != 0 {
			*to = v
		}
	}
	set(&l.MemoryBytes, s.MemoryBytes)
	set(&l.Processes, s.Processes)
	set(&l.CPUPercent, s.CPUPercent)
	set(&l.FileBytes, s.FileBytes)
	return l
}

// upstreamProxy tells that commands do without the proxy of the job, since what
// our own lets out goes to the host itself.
func (c *Confinement) upstreamProxy() {
	if c.Spec.Net.Mode != sandbox.NetProxy {
		return
	}
	for _, name := range proxyNames {
		if value, _ := c.lookupEnv(name); value != "" && !strings.EqualFold(name, "no_proxy") {
			c.Notices = append(c.Notices, event.Notice{Class: "job_proxy",
				Message: "commands reach the allowed hosts directly: the job's proxy (" + name + ") is for the model's requests only",
				Hint:    "where nothing goes out but through that proxy, open the way to the allowed hosts"})
			return
		}
	}
}

// required is the set of guarantees without which the run does not start.
func required(p policy.Permissions) sandbox.Guarantee {
	var set sandbox.Guarantee
	for _, g := range sandbox.AllGuarantees {
		if slices.Contains(p.Sandbox.Require, g.String()) {
			set |= g
		}
	}
	switch {
	case p.Sandbox.Require != nil:
		return set
	case p.Mode == string(sandbox.FullAccess):
		return sandbox.TreeDies
	}
	return sandbox.DefaultRequire
}

// checkRoots refuses writable folders from which commands could take over the
// user's account or the run.
func (c *Confinement) checkRoots(roots []string, o ConfineOptions) error {
	for _, r := range roots {
		real := sandbox.RealPath(r)
		switch {
		case real == "/":
			return &ConfineError{r, "the root of the file system cannot be writable", "work in a folder of its own (-C DIR), or use danger-full-access inside a container"}
		case o.UserHome != "" && sandbox.Within(sandbox.RealPath(o.UserHome), real) && !(real == sandbox.RealPath(o.Workdir) && o.borrowedHome()):
			return &ConfineError{r, "the home folder cannot be writable: what commands put into its start-up files would run outside the sandbox",
				"work in a folder below it (-C DIR)"}
		case o.Home != "" && real == sandbox.RealPath(o.Home):
			return &ConfineError{r, "CODEX_HOME cannot be writable: it holds credentials and configuration", "set CODEX_HOME to a folder outside the workspace"}
		case o.UserHome != "" && sandbox.Within(sandbox.RealPath(o.UserHome), real):
			c.Notices = append(c.Notices, event.Notice{Class: "home_writable", Message: "HOME (" + o.UserHome + ") is writable: what commands put into start-up files there works on later steps that use it"})
		}
	}
	return nil
}

// borrowedHome tells whether HOME is not the account's own home folder but one
// that a CI system chose, often the workspace: no login reads start-up files
// there.
func (o ConfineOptions) borrowedHome() bool {
	own := o.ownHome()
	return own == "" || sandbox.RealPath(own) != sandbox.RealPath(o.UserHome)
}

// ownHome is the home folder of the account, "" if it has none.
func (o ConfineOptions) ownHome() string {
	if o.accountHome != "" {
		return o.accountHome
	}
	account, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		return ""
	}
	return account.HomeDir
}

// existing leaves out writable folders that do not exist: nothing can be opened
// there. The reference says nothing either; samples name folders that only some
// machines have.
func existing(roots []string) (kept, missing []string) {
	for _, r := range roots {
		if exists(r) {
			kept = append(kept, r)
		} else {
			missing = append(missing, r)
		}
	}
	return kept, missing
}

// HostTmp are the temporary folders of the host that commands may write, as the
// configuration asks for with sandbox.host_tmp.
func HostTmp(mode string, s policy.SandboxConfig, lookupEnv func(string) (string, bool)) []string {
	if !s.HostTmp || mode != string(sandbox.WorkspaceWrite) {
		return nil
	}
	var dirs []string
	if !s.ExcludeSlashTmp {
		dirs = append(dirs, "/tmp")
	}
	if dir, ok := lookupEnv("TMPDIR"); ok && !s.ExcludeTmpdir && filepath.IsAbs(dir) && isFolder(dir) && !sandbox.Within(sandbox.RealPath(dir), "/tmp") {
		dirs = append(dirs, dir)
	}
	return dirs
}

// openPrivate makes the run's private writable folder, for the caches of build
// tools and, where /tmp is not writable but $TMPDIR may be, for temporary files.
// Where a writable folder of the user's holds it, it is hidden instead.
func (c *Confinement) openPrivate(s policy.SandboxConfig, o ConfineOptions) error {
	if !c.Spec.HostTmp {
		c.tmp = "/tmp"
	}
	ownTmp := c.Spec.TmpReadOnly && !s.ExcludeTmpdir
	if c.Spec.Mode != sandbox.WorkspaceWrite || !s.PrivateCaches && !ownTmp {
		return nil
	}
	private := sandbox.RealPath(o.Private)
	if slices.ContainsFunc(c.Spec.Write, func(r string) bool { return sandbox.Within(private, sandbox.RealPath(r)) }) {
		c.Spec.Deny = append(c.Spec.Deny, private)
		c.Notices = append(c.Notices, event.Notice{Class: "no_private_caches",
			Message: "build tools get no private caches: a writable folder holds the runner's own temporary folder " + private,
			Hint:    "set TMPDIR to a folder outside the writable ones"})
		return nil
	}
	c.private = filepath.Join(private, "private")
	if err := os.MkdirAll(filepath.Join(c.private, "tmp"), 0o700); err != nil {
		return fmt.Errorf("sandbox: the private folder of commands: %w", err)
	}
	c.Spec.Write, c.Spec.Plain = append(c.Spec.Write, c.private), []string{c.private}
	if ownTmp {
		c.tmp = filepath.Join(c.private, "tmp")
	}
	if !s.PrivateCaches {
		return nil
	}
	return c.openCaches()
}

// Event says what is enforced, guarantee by guarantee.
func (c *Confinement) Event(rep sandbox.Report) event.SandboxEnforced {
	e := event.SandboxEnforced{Mode: string(rep.Mode), Level: rep.Level, LandlockABI: rep.LandlockABI,
		Writable: rep.Writable, Protected: rep.Protected, Denied: rep.Denied, Caches: c.Caches}
	for _, s := range rep.Guarantees {
		e.Guarantees = append(e.Guarantees, event.GuaranteeStatus{Name: s.Name, Held: s.Held, Required: c.Spec.Require&s.Guarantee != 0,
			Mechanism: s.Mechanism, Why: s.Why, Hint: s.Hint})
	}
	return e
}

// PatchScope is where a patch may write. The kernel holds it too, since patches
// are applied inside the sandbox; the scope is what explains a refusal.
func (c *Confinement) PatchScope() patch.Scope {
	s := patch.Scope{Workdir: c.workdir, ProtectNames: c.Spec.ProtectNames}
	switch c.Spec.Mode {
	case sandbox.FullAccess:
		return patch.Scope{Workdir: c.workdir, Roots: []string{"/"}}
	case sandbox.ReadOnly:
		return s
	}
	s.Roots = c.roots()
	// Around a workspace below /tmp commands see an empty folder of their own: a
	// patch that leaves the workspace there would seem to work and be lost.
	if !c.Spec.TmpReadOnly && !c.Spec.HostTmp && !strings.HasPrefix(c.workdir, "/tmp/") {
		s.Roots = append(s.Roots, "/tmp")
	}
	for _, dir := range []string{c.facts.GitDir, c.facts.CommonDir} {
		if dir != "" && !slices.Contains(s.Protected, dir) {
			s.Protected = append(s.Protected, dir)
		}
	}
	s.Protected = append(s.Protected, c.Spec.Deny...)
	return s
}

// roots are the writable folders that the user knows of.
func (c *Confinement) roots() []string {
	var list []string
	for _, r := range c.Spec.Write {
		if r != c.private {
			list = append(list, r)
		}
	}
	return list
}

// Extra are the writable folders besides the workspace.
func (c *Confinement) Extra() []string {
	var list []string
	for _, r := range c.roots() {
		if r != c.Spec.Workspace {
			list = append(list, r)
		}
	}
	return list
}

func isFolder(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
