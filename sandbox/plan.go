package sandbox

// plan is what the init of a sandbox is told, over a pipe: argv and environment
// can be read by everybody. Every path is absolute and real (no links), checked
// by the runner.
type plan struct {
	// Confined is false for danger-full-access: then only Ring matters.
	Confined bool
	// UserNS says that the init starts in a user namespace whose maps it writes.
	UserNS   bool
	UID, GID int
	// Namespaces says that there are mount, pid, network, ipc and uts namespaces.
	Namespaces bool

	Roots []string // writable, shortest first
	Show  []string // stay visible, read-only, although below a folder that is replaced
	// Tmp is the host folder behind /tmp and /var/tmp; "" leaves the host's.
	Tmp      string
	TmpWrite bool

	Protect []string // exist: read-only inside a root
	Hold    []string // placeholders: empty and read-only inside a root
	Deny    []string
	Late    []string // denied, but missing so far
	Reveal  []string
	Mask    []string // sockets of the host that can be seen
	Sockets []string // sockets of the host that stay reachable

	Net    NetMode
	Limits Limits
	// Watch: no control group holds the limits.
	Watch bool
	// PIDs is a bound for the pid namespace where the kernel has one per
	// namespace; 0 is none.
	PIDs int64
	// Accept are the weaker mechanisms of Spec.Degrade.
	Accept    []string
	Workspace string
}

// facts is what the init found and did. A layer that is not in Failed works.
type facts struct {
	Failed   map[string]layerFailure
	Mounts   string // the interface: "mount_setattr" or "mount"
	Root     string // "pivot_root" or "chroot"
	Proc     string // "own", or "outer" when a new one was refused
	Landlock int    // ABI; 0: none
	Unix     unixSockets
	PIDs     bool // the bound of the pid namespace is in force
	Denied   int  // paths covered
	Skipped  []string
}

// layerFailure is one refused step.
type layerFailure struct {
	Op    string // what was called, on what
	Errno int
	Text  string
}

// Layers of the confinement.
const (
	layerUser     = "user namespace"
	layerMount    = "mount namespace"
	layerPID      = "pid namespace"
	layerNet      = "network namespace"
	layerProc     = "/proc"
	layerLandlock = "landlock"
	layerSeccomp  = "seccomp"
	layerPrivs    = "capabilities"
	layerUnix     = "unix sockets"
)

// request is one order to the init. Descriptors travel beside it.
type request struct {
	Op     string // start, signal, kill, close
	ID     uint32
	Argv   []string
	Env    []string
	Dir    string
	Path   string // PATH of the command, for the search
	Helper string
	// Which descriptors come along, in this order.
	Stdin, Stdout, Stderr bool
	Group                 bool // a folder of the control group the command starts in
	TTY                   *Winsize
	Limits                Limits
	Outside               bool // Command.Unsandboxed
	Signal                int
}

// Kinds of messages from the init side: the first word.
const (
	msgReady    uint32 = iota + 1 // JSON: readyMessage
	msgStarted                    // the program runs
	msgExited                     // the main process ended
	msgGone                       // nobody of the tree is left
	msgRefused                    // JSON: refusedMessage; nothing was started
	msgTerminal                   // the terminal's descriptor
)

// readyMessage tells that the init takes orders.
type readyMessage struct {
	Facts     facts
	ProxyAddr string
}

// refusedMessage says why the init could not start a command.
type refusedMessage struct {
	ID    uint32
	Step  string
	Text  string
	Errno int
}
