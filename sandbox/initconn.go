//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

// What an init and its supervisors say, and how it ends.

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
			if err := confine.Unmarshal(body, &m); err != nil {
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
	if err := confine.Unmarshal(body, &m); err != nil {
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

// finishing notes that a command has ended but its Wait has not returned yet;
// calling over takes that back.
func (c *initConn) finishing(e *entry) (over func()) {
	count := func(n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !e.side {
			c.ending += n
		}
	}
	count(1)
	return func() { count(-1) }
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
		defer c.finishing(e)()
		c.forget(s.ID)
		x := e.exit
		if !e.exited {
			// The supervisor was killed, and the command with it.
			x = exitOf(syscall.WaitStatus(unix.SIGKILL))
		}
		// The supervisor itself only forks, which is too little to measure.
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
		default: // Start has its answer already
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
