//go:build linux

// Package confine is the inside of a sandbox: the process that is started first
// in it, prepares namespaces and mounts once, and forks a supervisor for every
// command. Package sandbox, outside, decides and asks; both share this package's
// vocabulary: Plan, Request, Status.
//
// A copy of the program that was started as this process does its work while the
// packages of the program are still being initialised, and never reaches main:
// initialising them all takes many times as long as the work. That is why this
// is a package of its own with few imports, and why it has an init function.
package confine

// Plan is what the init of a sandbox gets, over a pipe: argv and environment
// can be read by everybody. Every path is absolute and real (no links), checked
// by the runner.
type Plan struct {
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
	// Side is a folder that only requests with Side see, and may write; "": none.
	Side string
	// Overlays are laid before the roots are taken.
	Overlays []Overlay

	Net Net
	// ProxyPort is the port of NetProxy's listener; "" is any.
	ProxyPort string
	Limits    Limits
	// Watch: no control group holds the limits.
	Watch bool
	// Accept are the weaker mechanisms of Spec.Degrade.
	Accept    []string
	Workspace string
	// LandlockABI is the newest version that is used; 0 is the kernel's.
	LandlockABI int
}

// Facts is what the init found and did. A layer that is not in Failed works.
type Facts struct {
	Failed   map[string]LayerFailure
	Mounts   string // the interface: "mount_setattr" or "mount"
	Root     string // "pivot_root" or "chroot"
	Proc     string // "own", or "outer" when a new one was refused
	Landlock int    // ABI; 0: none
	Unix     UnixSockets
	// NoOverlay are overlays that could not be had, with the reason.
	NoOverlay []string
	Denied    int // paths covered
	// Side: requests with Side can be confined as they ask for.
	Side    bool
	Skipped []string
}

// LayerFailure is one refused step.
type LayerFailure struct {
	Op    string // what was called, on what
	Errno int
	Text  string
}

// Net is the network of a sandbox.
type Net int

// Networks.
const (
	NetOff   Net = iota // an own namespace with loopback
	NetProxy            // also a listener in it that is handed to the runner
	NetHost             // the host's
)

// Limits bound the sandbox, or one command. Zero is no limit.
type Limits struct {
	MemoryBytes int64
	Processes   int64
	CPUPercent  int64
	FileBytes   int64
	DiskBytes   int64
	OpenFiles   int64
}

// Winsize is a terminal's size in characters.
type Winsize struct{ Rows, Cols uint16 }

// Layers of the confinement.
const (
	LayerUser     = "user namespace"
	LayerMount    = "mount namespace"
	LayerPID      = "pid namespace"
	LayerNet      = "network namespace"
	LayerProc     = "/proc"
	LayerLandlock = "landlock"
	LayerSeccomp  = "seccomp"
	LayerPrivs    = "capabilities"
	LayerUnix     = "unix sockets"
)

// Request is one order to the init. Descriptors travel beside it.
type Request struct {
	Op     string // start, signal, kill, rest
	ID     uint32
	Argv   []string
	Env    []string
	Dir    string
	Path   string // PATH of the command, for the search
	Helper string
	// Which descriptors come along, in this order.
	Stdin, Stdout, Stderr bool
	Group                 bool // a folder of the control group the command starts in
	Move                  bool // a file by which a thread moves itself to the command's group
	TTY                   *Winsize
	Limits                Limits
	Outside               bool // Command.Unsandboxed
	Side                  bool // everything is read-only but Plan.Side
	Signal                int
}

// Kinds of messages from the init side: the first word.
const (
	MsgReady    uint32 = iota + 1 // JSON: ReadyMessage
	MsgStarted                    // the program runs
	MsgExited                     // the main process ended
	MsgGone                       // nobody of the tree is left
	MsgRefused                    // JSON: RefusedMessage; nothing was started
	MsgTerminal                   // the terminal's descriptor
)

// ReadyMessage tells that the init takes orders.
type ReadyMessage struct {
	Facts     Facts
	ProxyAddr string
}

// RefusedMessage says why the init could not start a command.
type RefusedMessage struct {
	ID    uint32
	Step  string
	Text  string
	Errno int
}
