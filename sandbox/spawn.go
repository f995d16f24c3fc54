//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

// The runner's side of an init.

// openBound is how long an init may take to get ready: a machine under load and
// 10 000 denied paths are well inside.
const openBound = 60 * time.Second

// startBound is how long a program may take to be started.
const startBound = 30 * time.Second

// stopBound is how long a killed init may take to be gone. A process that hangs
// in the kernel, on a dead network file system for example, takes for ever.
const stopBound = 15 * time.Second

// leaveBound is how long an init may take to kill its trees and end by itself.
const leaveBound = 2 * time.Second

// initEnv is the environment of the init. Commands never see its process, but
// nothing of the runner's belongs there anyway. It waits, mostly: a second thread
// that runs Go would cost memory and wake-ups for nothing.
var initEnv = []string{"GOMAXPROCS=1", "GOTRACEBACK=single"}

// allNamespaces are those of a confined init besides the user namespace.
const allNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// initConn is a running init.
type initConn struct {
	wire   *confine.Wire
	proc   *os.Process
	facts  confine.Facts
	proxy  net.Listener
	addr   string
	stderr tailWriter
	dead   chan struct{} // closed when the init has been reaped
	// namespaces: a tree ends with its supervisor; otherwise it must be killed.
	namespaces bool
	tmpdir     string // the private /tmp where it cannot be at /tmp
	group      *group // of the sandbox, if it has one

	mu      sync.Mutex
	nextID  uint32
	pending map[uint32]*entry
	ending  int   // commands that have ended but whose Wait has not returned yet
	lost    error // why no command can be started any more
	settled bool  // only side commands are started
}

// entry is one command of an init.
type entry struct {
	p       *Process
	side    bool
	argv    []string
	account *account
	started chan error // nil when it runs; the first value counts
	exited  bool
	exit    Exit
}

// tailWriter keeps the first and the last words of the init. When Go itself gave
// up, the first say why, and are followed by stacks that help nobody.
type tailWriter struct {
	mu   sync.Mutex
	head []byte
	b    []byte
}

const (
	headSize = 1 << 10
	tailSize = 4 << 10
)

func (t *tailWriter) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.head = append(t.head, b[:min(len(b), headSize-len(t.head))]...)
	t.b = append(t.b, b...)
	if len(t.b) > 2*tailSize {
		t.b = append([]byte(nil), t.b[len(t.b)-tailSize:]...)
	}
	return len(b), nil
}

func (t *tailWriter) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, stacks := range []string{"\n\nruntime stack:", "\n\ngoroutine "} {
		if i := bytes.Index(t.head, []byte(stacks)); i >= 0 {
			return string(bytes.TrimSpace(t.head[:i]))
		}
	}
	return string(bytes.TrimSpace(t.b[max(0, len(t.b)-tailSize):]))
}

// launched is an init that waits for its plan.
type launched struct {
	c        *initConn
	planPipe *os.File
	inside   *group     // where it began its life
	joined   chan error // the result of moving it into another one, once that has begun
}

// join begins to move the init into the group, unless it is there.
func (l *launched) join(g *group) {
	if l.inside == g {
		return
	}
	before := l.joined
	l.joined = make(chan error, 1)
	go func(result chan<- error) {
		if before != nil {
			<-before
		}
		result <- g.add(l.c.proc.Pid)
	}(l.joined)
}

// launch starts an init with the namespaces of flags, in the group where that can
// be.
func launch(flags uintptr, g *group) (*launched, error) {
	ours, theirs, err := confine.WirePair()
	if err != nil {
		return nil, err
	}
	w, err := confine.NewWire(ours)
	if err != nil {
		return nil, errors.Join(err, theirs.Close())
	}
	planR, planW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirs.Close(), w.Close())
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirs.Close(), w.Close(), planR.Close(), planW.Close())
	}
	c := &initConn{wire: w, dead: make(chan struct{}), pending: map[uint32]*entry{}}
	inside, err := c.run(flags, g, theirs, planR, errW)
	err = errors.Join(err, theirs.Close(), planR.Close(), errW.Close())
	if err != nil {
		return nil, errors.Join(err, w.Close(), planW.Close(), errR.Close())
	}
	go func() {
		_, _ = io.Copy(&c.stderr, errR) // ends with the init
		_ = errR.Close()
	}()
	l := &launched{c: c, planPipe: planW}
	if inside {
		l.inside = g
	}
	return l, nil
}

// run starts the process and waits for it on one thread: the kernel kills the
// init when the thread that forked it ends.
func (c *initConn) run(flags uintptr, g *group, control, plan, stderr *os.File) (inside bool, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	// Until it is the init, it shares this process's memory, as any other child of
	// Go's does. Package syscall would copy the memory for a new user namespace,
	// since with mappings the child has to wait for its parent; there are none here,
	// and after a copy every page that is written to is copied once more.
	sys := &syscall.SysProcAttr{Cloneflags: flags | unix.CLONE_VM | unix.CLONE_VFORK, Setsid: true}
	if flags&unix.CLONE_NEWPID != 0 {
		// Its death kills everybody in its namespace. Without a namespace it must
		// outlive the runner to kill the trees.
		sys.Pdeathsig = syscall.SIGKILL
	}
	if flags&unix.CLONE_NEWUSER != 0 {
		sys.AmbientCaps = confine.InitCapabilities
	}
	attr := &os.ProcAttr{Dir: "/", Env: initEnv, Files: []*os.File{null, null, stderr, control, plan}, Sys: sys}
	result := make(chan error, 1)
	go func() {
		// Never unlocked: the thread must not be used for anything else, and ends
		// with this goroutine, after the init.
		runtime.LockOSThread()
		var leave func() error
		inside, leave = g.enter(sys)
		p, err := os.StartProcess("/proc/self/exe", []string{confine.InitName}, attr)
		if err != nil && sys.UseCgroupFD { // no clone3, or not into this group
			sys.UseCgroupFD, inside = false, false
			p, err = os.StartProcess("/proc/self/exe", []string{confine.InitName}, attr)
		}
		if lerr := leave(); lerr != nil && err == nil { // whoever ends the group would end this process
			_ = p.Kill()
			_, _ = p.Wait()
			err = lerr
		}
		c.proc = p
		result <- err
		if err != nil {
			close(c.dead)
			return
		}
		if _, err := p.Wait(); err != nil {
			_, _ = fmt.Fprintln(&c.stderr, err)
		}
		close(c.dead)
	}()
	err = errors.Join(<-result, null.Close())
	return inside, err
}

// configure sends the plan and waits until the init is ready.
func (l *launched) configure(ctx context.Context, p *confine.Plan) error {
	c := l.c
	if c.namespaces = p.Namespaces; p.Confined && !p.Namespaces && p.TmpWrite {
		c.tmpdir = p.Tmp
	}
	b, err := confine.Marshal(p)
	if err != nil {
		return errors.Join(fmt.Errorf("sandbox: plan: %w", err), l.planPipe.Close())
	}
	if err := l.planPipe.SetWriteDeadline(time.Now().Add(openBound)); err != nil {
		return errors.Join(fmt.Errorf("sandbox: plan: %w", err), l.planPipe.Close())
	}
	_, err = l.planPipe.Write(b)
	if err = errors.Join(err, l.planPipe.Close()); err != nil {
		return fmt.Errorf("sandbox: sending the plan: %w%s", err, c.lastWords())
	}
	ready := make(chan error, 1)
	go c.receive(ready)
	timeout := time.NewTimer(openBound)
	defer timeout.Stop()
	select {
	case err := <-ready:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timeout.C:
		return fmt.Errorf("sandbox: the init was not ready within %s", openBound)
	}
}

// lastWords is what the dying init said.
func (c *initConn) lastWords() string {
	select {
	case <-c.dead:
	case <-time.After(time.Second):
	}
	if s := c.stderr.String(); s != "" {
		return ": " + s
	}
	return ""
}
