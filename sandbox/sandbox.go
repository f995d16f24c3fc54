// Package sandbox runs programs confined and says what was enforced.
//
// A [Spec] asks for guarantees, not mechanisms. [Probe] tells which guarantees
// this kernel and container can give, by which mechanism, or why not and what to
// do. [Open] applies a Spec once; [Sandbox.Start] runs one command in it:
//
//	func main() {
//		sandbox.Init(nil) // first: copies of the program that confine never come back
//		box, err := sandbox.Open(ctx, sandbox.Spec{
//			Mode: sandbox.WorkspaceWrite, Workspace: dir, ProtectNames: []string{".git"},
//			Deny: []string{"/home/me/.ssh"}, Require: sandbox.DefaultRequire,
//		})
//		…
//		p, err := box.Start(ctx, sandbox.Command{Argv: []string{"make", "test"}, Env: env})
//		_, err = io.Copy(log, p.Output())
//		exit, err := p.Wait()
//
// # How it works
//
// Open starts one process, the init (package confine): in new user, mount, pid,
// network, ipc and uts namespaces it builds the file system that commands see and
// prepares Landlock and the system call filter. Start has it fork a supervisor in
// a pid namespace of its own, which forks the command; when the command ends, the
// kernel ends everything else in that namespace. So a command costs two forks, a
// /proc and an exec, and no start of a Go program.
//
// Namespaces are the wall. Landlock repeats what the mounts say in another part
// of the kernel, the filter closes what neither sees, control groups limit.
// Where namespaces are refused as root, root does without the user namespace;
// where they are refused altogether, Open refuses too, unless Spec.Degrade names
// the weaker mechanism.
//
// # What is promised
//
// A required guarantee that cannot be had is an [*UnsupportedError] before
// anything runs: nothing weakens by itself. When Wait has returned, nothing of the
// command is left. When the caller dies, however it dies, its commands die. No
// function here waits without a bound, except Wait for a command that runs.
//
// # What is not
//
// Commands of one Sandbox are not confined against each other beyond their
// processes. What they may write they may fill with anything: whoever executes
// something from a workspace later has to read the diff first. Covert channels,
// and bugs of the kernel that the filter leaves reachable, are not covered.
//
// The package knows no policy files and no model, and reads no environment.
package sandbox

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Guarantee is a set of promises about a confined process tree.
type Guarantee uint

// Guarantees.
const (
	// WritesConfined: nothing outside Spec.Write changes, and nothing inside
	// Spec.Protected.
	WritesConfined Guarantee = 1 << iota
	// ReadsConfined: paths in Spec.Deny cannot be read.
	ReadsConfined
	// NetConfined: no network but Spec.Net.
	NetConfined
	// TreeDies: no process of the tree outlives the command and the sandbox.
	TreeDies
	// SyscallsConfined: dangerous system calls are refused.
	SyscallsConfined
	// SecretsHidden: environment, memory and descriptors of the runner and of
	// other processes are out of reach.
	SecretsHidden
	// Limited: Spec.Limits hold for the tree as a whole.
	Limited
)

// AllGuarantees lists every guarantee in order.
var AllGuarantees = []Guarantee{WritesConfined, ReadsConfined, NetConfined, TreeDies, SyscallsConfined, SecretsHidden, Limited}

var guaranteeNames = map[Guarantee]string{
	WritesConfined: "writes-confined", ReadsConfined: "reads-confined", NetConfined: "network-confined",
	TreeDies: "tree-dies", SyscallsConfined: "syscalls-confined", SecretsHidden: "secrets-hidden", Limited: "resources-limited",
}

// String names the guarantees of the set, joined by commas.
func (g Guarantee) String() string {
	var names []string
	for _, one := range AllGuarantees {
		if g&one != 0 {
			names = append(names, guaranteeNames[one])
		}
	}
	return strings.Join(names, ",")
}

// Mode is the coarse shape of a sandbox.
type Mode string

// Modes, as the reference names them.
const (
	ReadOnly       Mode = "read-only"
	WorkspaceWrite Mode = "workspace-write"
	FullAccess     Mode = "danger-full-access"
)

// NetMode says what network a tree has.
type NetMode int

// Network modes.
const (
	// NetOff: an own network namespace with nothing but loopback.
	NetOff NetMode = iota
	// NetProxy: as NetOff, plus a listener at 127.0.0.1 inside whose accepted
	// connections the parent serves (Sandbox.ProxyListener).
	NetProxy
	// NetHost: the host's network.
	NetHost
)

// Net is the network of a tree.
type Net struct {
	Mode NetMode
	// UnixSockets are host sockets (absolute paths) that stay reachable.
	UnixSockets []string
}

// Limits bound a tree. Zero means no limit of that kind.
type Limits struct {
	MemoryBytes int64
	Processes   int64 // less where the user or the container may not have so many: some are kept for the runner
	CPUPercent  int64 // of one core; 150 is one and a half
	FileBytes   int64 // one file
	DiskBytes   int64 // what the file systems of the writable roots may lose meanwhile
	OpenFiles   int64 // of one process
}

// DefaultLimits keep one careless command from taking the machine along.
func DefaultLimits() Limits {
	return Limits{MemoryBytes: 5 << 30, Processes: 2048, FileBytes: 32 << 30, DiskBytes: 20 << 30, OpenFiles: 8192}
}

// Spec is what a tree may do. Paths are absolute; they are resolved to real
// paths once, by Open. Under danger-full-access only TreeDies is given and the
// paths mean nothing.
type Spec struct {
	Mode Mode
	// Workspace is the main root; it is in Write under workspace-write.
	Workspace string
	// Write are the writable roots. Everything else is read-only.
	Write []string
	// ProtectNames are names that stay read-only, and cannot be created, inside
	// every writable root (".git", ".codex", ".agents", ".aws"), with the git
	// folders they point to, unless such a path is itself listed in Write.
	ProtectNames []string
	// Plain are those of Write that hold nothing of the user's and go with the run:
	// ProtectNames are names like others in them.
	Plain []string
	// Keep are single paths in writable roots that stay as they are: readable,
	// neither changed nor replaced. A missing path is not an error and is not kept.
	Keep []string
	// Deny are paths that cannot be read. A missing path is not an error.
	Deny []string
	// Reveal are paths below a denied folder that stay readable.
	Reveal []string
	// Show are paths that stay visible, read-only, although they lie below /tmp
	// or /run, which commands see replaced. The workspace needs no mention.
	Show []string
	// Overlays are folders in a writable root that begin with the content of a
	// folder outside, which stays as it is. Where the kernel has none, they begin
	// empty, and the report notes it.
	Overlays []Overlay
	Net      Net
	Limits
	// Require are the guarantees without which Open refuses.
	Require Guarantee
	// Degrade names weaker mechanisms that may stand in for a guarantee
	// (DegradeLandlock, DegradeOuterProc). Nothing else weakens one.
	Degrade []string
	// TmpDir is a host folder that commands see as /tmp and /var/tmp ("" : a
	// fresh one that Close removes). HostTmp shows the host's /tmp instead.
	TmpDir  string
	HostTmp bool
	// TmpReadOnly keeps commands from writing there under workspace-write too.
	TmpReadOnly bool
	// Side is a folder of the run, outside the writable roots and the denied paths,
	// for Command.Side. To all others it is closed.
	Side string
	// Private is a folder of the run, out of reach of commands, for the sandbox's own state.
	Private string
}

// Overlay shows Lower at At; changes go to Private, an empty folder on the file
// system of the run. At must exist.
type Overlay struct{ At, Lower, Private string }

// Command is one program to run in a sandbox.
type Command struct {
	// Argv is the program and its arguments; Helper, if set, names a function
	// given to Init instead, which runs in the confined child with Argv as its
	// arguments.
	Argv   []string
	Helper string
	Dir    string
	Env    []string
	// TTY, if set, gives the command a pseudo-terminal of that size.
	TTY *Winsize
	// Stdin is copied to the command; nil is an empty input. With a TTY or
	// KeepStdin, use Process.Write.
	Stdin     io.Reader
	KeepStdin bool
	// SplitStderr sends stderr to Process.Stderr instead of Output.
	SplitStderr bool
	// Unsandboxed runs outside the confinement but as a tree that dies; only a
	// caller whose policy allows it may set this.
	Unsandboxed bool
	// Side narrows the confinement: everything is read-only but Spec.Side. It is
	// for the runner's own looks at what commands did, and wants Sandbox.HasSide.
	Side   bool
	Limits Limits
}

// Weaker mechanisms, for Spec.Degrade.
const (
	// DegradeLandlock: where there are no namespaces, Landlock and the system call
	// filter alone confine. Nothing can be created at the top of a root, modes,
	// owners and times cannot be changed at all, nothing can be denied to readers
	// inside a readable folder, and there are no servers on localhost.
	DegradeLandlock = "landlock"
	// DegradeOuterProc: where no new /proc can be mounted, commands see the
	// outer one: names and command lines of other processes, not their memory.
	DegradeOuterProc = "outer-proc"
)

// DefaultRequire is what a run should not go without.
const DefaultRequire = WritesConfined | ReadsConfined | NetConfined | TreeDies | SyscallsConfined | SecretsHidden

// Winsize is a terminal's size in characters.
type Winsize struct{ Rows, Cols uint16 }

// Exit is how a command ended.
type Exit struct {
	Code   int // exit code, 128+n after signal n
	Signal int
	// Killed names the limit that ended it ("memory", "processes"), if any.
	Killed    string
	CPU       time.Duration
	PeakBytes int64
	OOMKills  int
	// Measured is "cgroup" or "rusage".
	Measured string
}

// Support says for one guarantee whether it can be had.
type Support struct {
	Guarantee Guarantee `json:"-"`
	Name      string    `json:"name"`
	Held      bool      `json:"held"`
	Mechanism string    `json:"mechanism,omitempty"`
	Why       string    `json:"why,omitempty"`
	Hint      string    `json:"hint,omitempty"`
}

// Report says what a sandbox enforces.
type Report struct {
	Mode        Mode      `json:"mode"`
	Level       string    `json:"level"` // full, degraded, none
	LandlockABI int       `json:"landlock_abi"`
	Guarantees  []Support `json:"guarantees"`
	Writable    []string  `json:"writable,omitempty"`
	Protected   []string  `json:"protected,omitempty"`
	Denied      []string  `json:"denied,omitempty"`
	Notes       []string  `json:"notes,omitempty"`
}

// SpecError says what is wrong with a Spec. Nothing was started.
type SpecError struct {
	Field  string // of Spec
	Path   string
	Reason string
	Advice string
}

// Error names the field, the path and the reason.
func (e *SpecError) Error() string {
	s := "sandbox: " + e.Field
	if e.Path != "" {
		s += " " + e.Path
	}
	return s + ": " + e.Reason
}

// Hint tells what to do.
func (e *SpecError) Hint() string { return e.Advice }

// UnsupportedError is a required guarantee that cannot be had here.
type UnsupportedError struct {
	Missing []Support
}

// Error names the guarantees and why they are missing, each reason once.
func (e *UnsupportedError) Error() string {
	var reasons []string
	names := map[string][]string{}
	for _, s := range e.Missing {
		if names[s.Why] == nil {
			reasons = append(reasons, s.Why)
		}
		names[s.Why] = append(names[s.Why], s.Name)
	}
	var parts []string
	for _, why := range reasons {
		parts = append(parts, "cannot guarantee "+strings.Join(slices.Compact(names[why]), ", ")+": "+why)
	}
	return "sandbox: " + strings.Join(parts, "; ")
}

// Hint tells what to do about the first missing guarantee.
func (e *UnsupportedError) Hint() string {
	for _, s := range e.Missing {
		if s.Hint != "" {
			return s.Hint
		}
	}
	return ""
}

// A SetupError is a confinement that could not be built although the machine
// seemed to allow it: a step that the kernel refused, a folder that could not be
// made. Nothing of a command has run.
type SetupError struct {
	Err error
}

// Error is the reason.
func (e *SetupError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *SetupError) Unwrap() error { return e.Err }

// Hint names the command that shows what this machine allows.
func (e *SetupError) Hint() string {
	var errno syscall.Errno
	if errors.As(e.Err, &errno) {
		if hint := makeRoom(errno); hint != "" {
			return hint
		}
	}
	return "`nightshift doctor` shows what this machine can enforce and what to change"
}

// makeRoom is the hint for what a process or the machine has run out of; "" for
// other errors.
func makeRoom(errno syscall.Errno) string {
	switch errno {
	case syscall.EAGAIN:
		return "there is no room for another process: run fewer at once, or raise the limit of the user (`ulimit -u`) or of the container (`--pids-limit`)"
	case syscall.EMFILE:
		return "the limit of open files is too low (`ulimit -n` shows it): 256 are enough for a run, 1024 are usual"
	case syscall.ENFILE:
		return "the machine has no room for another open file: see `sysctl fs.file-max`"
	}
	return ""
}

// A StartError says why a command could not be started: no such program, no
// such folder. It is the command's fault and nothing of it has run.
type StartError struct {
	Program string // as given
	Step    string // what was refused: "exec", "chdir", …
	Reason  string // one sentence for the person or the model
	Err     error  // the errno, if there is one
}

// Error names the program and the reason.
func (e *StartError) Error() string { return e.Program + ": " + e.Reason }

// Unwrap gives the errno.
func (e *StartError) Unwrap() error { return e.Err }

// HelperFunc runs inside the confined child. Its result is the exit code.
type HelperFunc func(args []string, stdin io.Reader, stdout, stderr io.Writer) int

// Start runs one command in a sandbox of its own that closes with it.
func Start(ctx context.Context, s Spec, c Command) (*Process, error) {
	box, err := Open(ctx, s)
	if err != nil {
		return nil, err
	}
	p, err := box.Start(ctx, c)
	if err != nil {
		return nil, errors.Join(err, box.Close())
	}
	p.onGone(box.Close)
	return p, nil
}
