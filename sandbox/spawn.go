//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
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
// nothing of the runner's belongs there anyway.
var initEnv = []string{"GOMAXPROCS=2", "GOTRACEBACK=single"}

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
	lost    error // why no command can be started any more
}

// entry is one command of an init.
type entry struct {
	p       *Process
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
	sys := &syscall.SysProcAttr{Cloneflags: flags, Setsid: true}
	if flags&unix.CLONE_NEWPID != 0 {
		// Its death is that of everybody in its namespace. Without one it must
		// live to kill the trees when the runner is gone.
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
	b, err := json.Marshal(p)
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

// receive handles everything the init and its supervisors say.
func (c *initConn) receive(ready chan<- error) {
	buf := make([]byte, confine.MaxInline+1024)
	isReady := false
	for {
		n, fds, err := c.wire.Receive(buf)
		if err != nil {
			if !isReady {
				ready <- errors.New("sandbox: the init ended before it was ready" + c.lastWords())
			}
			c.end()
			return
		}
		kind, id, body, ok := confine.ParseHeader(buf[:n])
		if !ok {
			confine.CloseAll(fds)
			continue
		}
		switch kind {
		case confine.MsgReady:
			isReady = true
			ready <- c.ready(body, fds)
		case confine.MsgTerminal:
			c.terminal(id, fds)
		case confine.MsgRefused:
			var m confine.RefusedMessage
			if err := json.Unmarshal(body, &m); err != nil {
				m = confine.RefusedMessage{Step: "start", Text: err.Error()}
			}
			c.refused(id, &m)
		default:
			confine.CloseAll(fds)
			if s, ok := confine.ParseStatus(buf[:n]); ok {
				c.status(s)
			}
		}
	}
}

func (c *initConn) ready(body []byte, fds []int) error {
	var m confine.ReadyMessage
	if err := json.Unmarshal(body, &m); err != nil {
		confine.CloseAll(fds)
		return fmt.Errorf("sandbox: the init's report: %w", err)
	}
	c.facts, c.addr = m.Facts, m.ProxyAddr
	if len(fds) == 0 {
		return nil
	}
	f := os.NewFile(uintptr(fds[0]), "proxy")
	l, err := net.FileListener(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("sandbox: the proxy's listener: %w", err)
	}
	c.proxy = l
	return nil
}

func (c *initConn) entry(id uint32) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending[id]
}

// terminal keeps the master of a command's terminal. Under the lock: a start that
// was given up has left the list, and closes what is there by then.
func (c *initConn) terminal(id uint32, fds []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.pending[id]
	if e == nil || !e.p.tty || e.p.out != nil || len(fds) != 1 || unix.SetNonblock(fds[0], true) != nil {
		confine.CloseAll(fds)
		return
	}
	f := os.NewFile(uintptr(fds[0]), "terminal")
	// Here and not where it is awaited: the command may end before that.
	e.p.in, e.p.out = f, &outputReader{f: f}
}

func (c *initConn) refused(id uint32, m *confine.RefusedMessage) {
	e := c.entry(id)
	if e == nil {
		return
	}
	if c.forget(id) {
		e.account.close(&Exit{})
	}
	e.started <- refusal(m, e.argv)
}

// forget takes a command off the list; false if it was not on it.
func (c *initConn) forget(id uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.pending[id]
	delete(c.pending, id)
	return ok
}

// status handles a supervisor's word, or the init's that it is gone.
func (c *initConn) status(s confine.Status) {
	e := c.entry(s.ID)
	if e == nil {
		return
	}
	switch s.Kind {
	case confine.MsgStarted:
		e.started <- nil
	case confine.MsgExited:
		e.exited = true
		e.exit = exitOf(syscall.WaitStatus(s.Wait))
		e.exit.CPU = time.Duration(s.Utime.Nano() + s.Stime.Nano())
		e.exit.PeakBytes = s.RSS << 10
		e.p.mainExited()
		if !c.namespaces {
			e.p.tree.kill() // what it left in the background
		}
	case confine.MsgGone:
		c.forget(s.ID)
		x := e.exit
		if !e.exited {
			// The supervisor was killed, and the command with it.
			x = exitOf(syscall.WaitStatus(unix.SIGKILL))
		}
		// The supervisor's own use is that of a fork: below what is measured.
		if cpu := time.Duration(s.Utime.Nano() + s.Stime.Nano()); cpu > x.CPU {
			x.CPU = cpu
		}
		x.Measured = "rusage"
		e.account.close(&x)
		if s.Cause != confine.KilledNot {
			x.Killed = confine.KilledNames[s.Cause]
		}
		select {
		case e.started <- errors.New("sandbox: the command's supervisor was killed"):
		default: // it has been told already
		}
		e.p.finish(x, nil)
	}
}

// exitOf reads a wait status.
func exitOf(ws syscall.WaitStatus) Exit {
	if ws.Signaled() {
		return Exit{Code: 128 + int(ws.Signal()), Signal: int(ws.Signal())}
	}
	return Exit{Code: ws.ExitStatus()}
}

// end is called when the control socket is closed: the init is dead or dying,
// and with it every command.
func (c *initConn) end() {
	<-c.dead
	c.mu.Lock()
	c.lost = &SetupError{errors.New("sandbox: the init is gone" + c.lastWords())}
	left := c.pending
	c.pending = map[uint32]*entry{}
	c.mu.Unlock()
	for _, e := range left {
		select {
		case e.started <- c.lost:
		default:
		}
		x := e.exit
		if !e.exited {
			x = exitOf(syscall.WaitStatus(unix.SIGKILL))
		}
		x.Measured = "rusage"
		e.account.close(&x)
		e.p.finish(x, nil)
	}
}

// stop kills the init and waits until it and everything in it is gone.
func (c *initConn) stop() error {
	var err error
	if c.proc != nil {
		if !c.namespaces && c.busy() {
			c.leave()
		}
		if err = c.proc.Kill(); errors.Is(err, os.ErrProcessDone) {
			err = nil
		}
		select {
		case <-c.dead:
		case <-time.After(stopBound):
			err = errors.Join(err, fmt.Errorf("sandbox: the killed init is not gone after %s: a process hangs in the kernel", stopBound))
		}
	}
	if c.proxy != nil {
		if cerr := c.proxy.Close(); cerr != nil && !isClosed(cerr) {
			err = errors.Join(err, cerr)
		}
	}
	if cerr := c.wire.Close(); cerr != nil && !isClosed(cerr) {
		err = errors.Join(err, cerr)
	}
	return err
}

// busy tells whether a command is left.
func (c *initConn) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending) > 0
}

// leave closes the socket and gives the init the time to kill its trees: its own
// death would leave that to their supervisors, and nobody could wait for them.
func (c *initConn) leave() {
	_ = c.wire.Close() // what there is to say about it, the end of stop says
	select {
	case <-c.dead:
	case <-time.After(leaveBound):
	}
}

func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) }

// confinedTree is the tree of a command of an init.
type confinedTree struct {
	c  *initConn
	id uint32
}

func (t confinedTree) signal(s syscall.Signal) error {
	return t.c.wire.SendRequest(confine.Request{Op: "signal", ID: t.id, Signal: int(s)})
}

func (t confinedTree) killInit() {
	// Already dead is as good.
	_ = t.c.proc.Kill()
	t.c.group.kill()
}

func (t confinedTree) kill() {
	// A socket that is closed means that the init, and the tree with it, is gone.
	_ = t.c.wire.SendRequest(confine.Request{Op: "kill", ID: t.id})
}
