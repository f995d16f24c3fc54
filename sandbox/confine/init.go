//go:build linux

package confine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Names, as argv[0], under which the program starts itself again.
const (
	InitName   = "nightshift-init"
	HelperName = "nightshift-helper"
)

// Descriptors the init is started with, besides its own standard streams: the
// control socket and the plan.
const (
	fdControl = 3
	fdPlan    = 4
)

// init takes over a process that was started as the init of a sandbox. os.Exit
// is the only way out: nothing of the rest of the program may run there.
func init() {
	if len(os.Args) == 1 && os.Args[0] == InitName {
		os.Exit(initMain())
	}
}

// initProcess is the first process of a sandbox: pid 1 of its namespaces. It
// prepares them once and then forks a supervisor for every command.
type initProcess struct {
	plan      Plan
	facts     Facts
	wire      *Wire
	controlFD int

	filter       []unix.SockFilter
	listenerFlag uintptr
	listeners    *notifier // hands over the listeners of filters; nil without notify
	procSeals    []procSeal
	limits       Limits // clamped to what the init itself may use
	watch        *watcher
	keep         *keeper // nil without mounts
	room         [scripts][]call
	side         int // the open folder of requests with Side, or -1

	mu      sync.Mutex
	running map[uint32]int // supervisor by command
	jobs    chan job
}

// job is a request that only the forking thread can fulfil.
type job struct {
	req Request
	fds []int
}

// initMain is the main function of the init. Its exit ends the sandbox.
func initMain() int {
	// The forking thread is locked: what it drops, only its children lack.
	runtime.LockOSThread()
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2)
	if err := closeOnExec(fdControl); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	in := &initProcess{running: map[uint32]int{}, jobs: make(chan job), side: -1}
	if err := in.open(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go in.read()
	for j := range in.jobs {
		in.start(j.req, j.fds)
	}
	return 0
}

// open reads the plan, confines what can be confined beforehand, and reports.
func (in *initProcess) open() error {
	w, err := NewWire(os.NewFile(fdControl, "control"))
	if err != nil {
		return err
	}
	in.wire = w
	if in.controlFD, err = w.fd(); err != nil {
		return err
	}
	rehearse()
	b, err := io.ReadAll(os.NewFile(fdPlan, "plan"))
	if err != nil {
		return fmt.Errorf("sandbox: reading the plan: %w", err)
	}
	if err := Unmarshal(b, &in.plan); err != nil {
		return fmt.Errorf("sandbox: reading the plan: %w", err)
	}
	proxy := -1
	if in.plan.Confined {
		proxy = in.confine()
	} else {
		in.facts.Unix = UnixOpen
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			in.facts.fail(&layerError{LayerPID, "becoming the reaper of orphans", err})
		}
	}
	in.limits = clampLimits(in.plan.Limits)
	in.watch = newWatcher(in)
	return in.ready(proxy)
}

// rehearse does once what is done again as soon as the plan is there: the first
// time of everything takes longest, and the runner still reads its configuration.
// What fails here fails there too, and is told then.
func rehearse() {
	var p Plan
	_ = Unmarshal([]byte(`{"Roots":["/"],"Limits":{},"Overlays":[{}]}`), &p)
	_, _ = Marshal(ReadyMessage{Facts: Facts{Failed: map[string]LayerFailure{"": {}}}})
	_, _ = landlockABI()
	_, _ = filterFlags()
	buildFilter(filterOptions{})
}

// ready sends the facts and the proxy's listener, if there is one.
func (in *initProcess) ready(proxy int) error {
	msg := ReadyMessage{Facts: in.facts}
	if proxy < 0 {
		return in.wire.sendJSON(MsgReady, 0, msg)
	}
	// The runner gets it; here it would only keep the port busy.
	defer CloseFD(proxy)
	a, err := unix.Getsockname(proxy)
	if err != nil {
		return fmt.Errorf("sandbox: the proxy's listener: %w", err)
	}
	in4, ok := a.(*unix.SockaddrInet4)
	if !ok {
		return errors.New("sandbox: the proxy's listener is not a TCP listener")
	}
	msg.ProxyAddr = fmt.Sprintf("127.0.0.1:%d", in4.Port)
	return in.wire.sendJSON(MsgReady, 0, msg, proxy)
}

// confine applies the layers that the whole sandbox shares, as far as the kernel
// lets it. What is refused is recorded: the runner decides what that means.
func (in *initProcess) confine() (proxy int) {
	p, f := &in.plan, &in.facts
	proxy = -1
	if p.UserNS {
		if err := mapIDs(p.UID, p.GID); err != nil {
			f.fail(err)
		}
	}
	// Only now: the maps of an undumpable process belong to root.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		f.fail(&layerError{LayerPrivs, "prctl(PR_SET_DUMPABLE)", err})
	}
	if p.Namespaces {
		if p.Net != NetHost {
			if err := loopbackUp(); err != nil {
				f.fail(&layerError{LayerNet, "bringing up the loopback", err})
			}
		}
		if p.Net == NetProxy {
			l, err := listenLocal(p.ProxyPort)
			if err != nil {
				f.fail(&layerError{LayerNet, "listening for the proxy", err})
			} else {
				proxy = l
			}
		}
		var err error
		if in.side, err = buildView(p, f); err != nil {
			f.fail(err)
		}
		if in.procSeals = procSeals(f); f.Root != "" {
			in.keep = newKeeper(p)
		}
	}
	if abi, err := landlockABI(); err != nil {
		f.fail(err)
	} else {
		f.Landlock = abi
		if p.LandlockABI > 0 {
			f.Landlock = min(abi, p.LandlockABI)
		}
	}
	in.chooseFilter()
	if err := dropPrivileges(); err != nil {
		f.fail(err)
	}
	return proxy
}

// chooseFilter decides how sockets of the host are kept away and builds the
// filter.
func (in *initProcess) chooseFilter() {
	p, f := &in.plan, &in.facts
	flags, err := filterFlags()
	if err != nil {
		f.fail(&layerError{LayerSeccomp, "seccomp(SECCOMP_SET_MODE_FILTER)", err})
		return
	}
	const resolveUnixABI = 9
	switch {
	case f.Landlock >= resolveUnixABI:
		f.Unix = UnixByLandlock
	case flags != 0 && p.Namespaces:
		n, err := newNotifier(p)
		if err != nil {
			f.Unix = UnixRefused
			f.fail(&layerError{LayerUnix, "preparing notifications", err})
			break
		}
		f.Unix, in.listeners, in.listenerFlag = UnixByNotify, n, flags
	default:
		f.Unix = UnixRefused
	}
	in.filter = buildFilter(filterOptions{unix: f.Unix, hostNet: p.Net == NetHost,
		noNetns: !p.Namespaces && p.Net != NetHost, noNamespaces: !p.Namespaces, noMounts: f.Mounts == "",
		lookAtThreads: p.Namespaces && f.Landlock > 0})
}

// read takes requests until the runner is gone; then nothing may go on here.
func (in *initProcess) read() {
	buf := make([]byte, MaxInline+1024)
	for {
		req, fds, err := in.wire.receiveRequest(buf)
		if err != nil {
			in.end(err)
		}
		switch req.Op {
		case "start":
			in.jobs <- job{req, fds}
		case "signal":
			in.signal(req.ID, unix.Signal(req.Signal))
		case "kill":
			in.kill(req.ID)
		case "rest":
			ReleaseImage()
		}
	}
}

// end ends the init, and with it the pid namespace. Without one the trees must
// be killed by hand first.
func (in *initProcess) end(err error) {
	if !in.plan.Namespaces {
		in.killAll()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
		os.Exit(0)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// signal sends a signal to the tree of a command. Its supervisor passes it on
// to everybody in its pid namespace; without namespaces the tree is walked.
func (in *initProcess) signal(id uint32, s unix.Signal) {
	in.mu.Lock()
	defer in.mu.Unlock()
	pid, ok := in.running[id]
	if !ok {
		return // gone
	}
	if in.plan.Namespaces {
		IgnoreGone(unix.Kill(pid, s))
		return
	}
	for _, d := range descendants(pid) {
		IgnoreGone(unix.Kill(d, s))
	}
}

// kill ends a command's whole tree.
func (in *initProcess) kill(id uint32) {
	in.mu.Lock()
	defer in.mu.Unlock()
	pid, ok := in.running[id]
	if !ok {
		return
	}
	if in.plan.Namespaces {
		IgnoreGone(unix.Kill(pid, unix.SIGKILL))
		return
	}
	go in.killTree(id, pid)
}

// IgnoreGone is for signals: their only failure here is that nobody is left.
func IgnoreGone(error) {}

// closeOnExec makes sure that nothing from first on is inherited by programs:
// the runner may have been started with open files of the CI agent.
func closeOnExec(first uint) error {
	err := unix.CloseRange(first, ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	ds, derr := os.ReadDir("/proc/self/fd")
	if derr != nil {
		return fmt.Errorf("sandbox: finding open files: %w", errors.Join(err, derr))
	}
	for _, d := range ds {
		if n, err := strconv.Atoi(d.Name()); err == nil && n >= int(first) {
			unix.CloseOnExec(n)
		}
	}
	return nil
}

// listenLocal listens on localhost; port "0" or "" is any.
func listenLocal(port string) (fd int, err error) {
	n := 0
	if port != "" {
		if n, err = strconv.Atoi(port); err != nil {
			return -1, err
		}
	}
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	// As after a restart, when connections of before still linger.
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: n, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		CloseFD(fd)
		return -1, err
	}
	return fd, nil
}

// mapIDs maps the own user and group to themselves. The process does it itself:
// its parent cannot, being undumpable.
func mapIDs(uid, gid int) error {
	for _, m := range []struct{ file, line string }{
		{"setgroups", "deny"}, // the kernel asks for it before an unprivileged group map
		{"gid_map", fmt.Sprintf("%d %d 1", gid, gid)},
		{"uid_map", fmt.Sprintf("%d %d 1", uid, uid)},
	} {
		if err := os.WriteFile("/proc/self/"+m.file, []byte(m.line), 0); err != nil {
			return &layerError{LayerUser, "writing /proc/self/" + m.file, err}
		}
	}
	return nil
}

// loopbackUp brings up lo in a new network namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer CloseFD(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}
