//go:build linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

// Start runs one command in the sandbox. Three things may happen:
//
//  1. The program runs: a Process, whose Wait must be called sooner or later.
//  2. The program cannot be run (missing, not executable, no such folder): a
//     [*StartError].
//  3. The sandbox itself failed: a [*SetupError], or an [*UnsupportedError] when
//     it could not be made again as it was. Nothing has run.
//
// When ctx ends, the tree gets SIGTERM and after a short grace SIGKILL.
func (b *Sandbox) Start(ctx context.Context, c Command) (*Process, error) {
	p, err := b.start(ctx, c)
	var cannot *StartError
	if err == nil || errors.As(err, &cannot) || errors.Is(err, errClosed) {
		return p, err
	}
	return nil, setupError(ctx, err)
}

func (b *Sandbox) start(ctx context.Context, c Command) (*Process, error) {
	if err := b.checkCommand(&c); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if c.Side && !b.HasSide() {
		return nil, &SetupError{errors.New("sandbox: no confinement here can be narrowed")}
	}
	conn, err := b.conn(ctx, &c)
	if err != nil {
		return nil, err
	}
	p := &Process{done: make(chan struct{}), gone: make(chan struct{})}
	s, err := openStreams(p, &c)
	if err != nil {
		return nil, err
	}
	e := &entry{p: p, side: c.Side, argv: c.Argv, started: make(chan error, 2)}
	if err := conn.order(ctx, e, &c, &s, b.group); err != nil {
		return nil, errors.Join(err, p.discard())
	}
	if c.Stdin != nil && c.TTY == nil && !c.KeepStdin {
		go p.feed(c.Stdin)
	}
	if ctx.Done() != nil {
		go p.endWith(ctx)
	}
	return p, nil
}

// order has the init start the command and waits until it runs.
func (c *initConn) order(ctx context.Context, e *entry, cmd *Command, s *childStreams, g *group) error {
	id, err := c.register(e)
	if err != nil {
		return errors.Join(err, s.close())
	}
	e.p.tree = confinedTree{c, id}
	if e.account, err = g.open(id, cmd.Limits, e.p.tree.kill); err != nil {
		c.forget(id)
		return errors.Join(err, s.close())
	}
	if c.tmpdir != "" {
		cmd.Env = append(slices.Clone(cmd.Env), "TMPDIR="+c.tmpdir)
	}
	req := confine.Request{Op: "start", ID: id, Argv: cmd.Argv, Env: cmd.Env, Dir: cmd.Dir, Helper: cmd.Helper, Side: cmd.Side, TTY: (*confine.Winsize)(cmd.TTY), Limits: confine.Limits(cmd.Limits),
		Stdin: s.in != nil, Stdout: s.out != nil, Stderr: s.err != nil}
	fds := s.fds()
	if f := e.account.entry; f != nil {
		req.Group, req.Move, fds = g.v2 != nil, g.v1 != nil, append(fds, int(f.Fd()))
	}
	err = errors.Join(c.wire.SendRequest(req, fds...), s.close())
	if err == nil {
		err = e.await(ctx)
	}
	if err != nil {
		e.p.tree.kill()
		if c.forget(id) {
			e.account.close(&Exit{})
		}
	}
	return err
}

// settle kills all commands and waits until they are gone, if need be with the
// init; none is started any more but those of the runner itself.
func (c *initConn) settle() {
	c.mu.Lock()
	c.settled = true
	c.mu.Unlock()
	for end := time.Now().Add(killBound); ; time.Sleep(confine.KillRound) {
		left, ending := c.left()
		if len(left) == 0 && ending == 0 {
			return
		}
		if time.Now().After(end) {
			break
		}
		for _, id := range left { // again and again: one may not have begun
			confinedTree{c, id}.kill()
		}
	}
	confinedTree{c: c}.killInit()
	select {
	case <-c.dead:
	case <-time.After(stopBound):
	}
}

// left lists the running commands that are not the runner's own, and counts those
// that have ended but whose Wait has not returned yet.
func (c *initConn) left() (ids []uint32, ending int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, e := range c.pending {
		if !e.side {
			ids = append(ids, id)
		}
	}
	return ids, c.ending
}

// checkCommand fills in defaults and refuses what execve would misread.
func (b *Sandbox) checkCommand(c *Command) error {
	if c.Helper == "" && (len(c.Argv) == 0 || c.Argv[0] == "") {
		return &StartError{Program: "command", Step: confine.StepExec, Reason: "no program given"}
	}
	name := c.Helper
	if name == "" {
		name = c.Argv[0]
	}
	for _, s := range append(append([]string{c.Dir, c.Helper}, c.Argv...), c.Env...) {
		if strings.ContainsRune(s, 0) {
			return &StartError{Program: strings.ReplaceAll(name, "\x00", `\0`), Step: confine.StepExec, Reason: "an argument or variable holds a zero byte"}
		}
	}
	if c.Dir == "" {
		if c.Dir = b.plan.Workspace; c.Dir == "" {
			c.Dir = "/"
		}
	}
	if !filepath.IsAbs(c.Dir) {
		return &StartError{Program: name, Step: confine.StepDir, Reason: "the folder " + c.Dir + " is not an absolute path"}
	}
	return nil
}

// childStreams are the ends of pipes that the command gets.
type childStreams struct{ in, out, err *os.File }

// openStreams makes the pipes of a command and keeps our ends in p. With a
// terminal there are none: it comes from the init.
func openStreams(p *Process, c *Command) (s childStreams, err error) {
	if c.TTY != nil {
		p.tty = true
		return s, nil
	}
	var r *os.File
	if r, s.out, err = os.Pipe(); err != nil {
		return s, fmt.Errorf("sandbox: a pipe for output: %w", err)
	}
	p.out = &outputReader{f: r}
	if c.SplitStderr {
		if r, s.err, err = os.Pipe(); err != nil {
			return s, errors.Join(fmt.Errorf("sandbox: a pipe for output: %w", err), s.close(), p.discard())
		}
		p.errOut = &outputReader{f: r}
	}
	if c.Stdin != nil || c.KeepStdin {
		if s.in, p.in, err = os.Pipe(); err != nil {
			return s, errors.Join(fmt.Errorf("sandbox: a pipe for input: %w", err), s.close(), p.discard())
		}
	}
	return s, nil
}

func (s childStreams) files() []*os.File {
	var out []*os.File
	for _, f := range []*os.File{s.in, s.out, s.err} {
		if f != nil {
			out = append(out, f)
		}
	}
	return out
}

func (s childStreams) fds() []int {
	var out []int
	for _, f := range s.files() {
		out = append(out, int(f.Fd()))
	}
	return out
}

func (s childStreams) close() error {
	var errs []error
	for _, f := range s.files() {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// register gives the command its number.
func (c *initConn) register(e *entry) (uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.lost != nil:
		return 0, c.lost
	case c.settled && !e.side:
		return 0, errClosed
	}
	c.nextID++
	c.pending[c.nextID] = e
	return c.nextID, nil
}

// await waits until the program runs or cannot. The init sends a terminal before
// it starts the program, and one goroutine receives both in that order: who has
// heard of the start has the terminal.
func (e *entry) await(ctx context.Context) error {
	timeout := time.NewTimer(startBound)
	defer timeout.Stop()
	select {
	case err := <-e.started:
		if err == nil && e.p.out == nil {
			err = errors.New("sandbox: the command's terminal did not arrive")
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timeout.C:
		return fmt.Errorf("sandbox: the program was not started within %s", startBound)
	}
}

// refusal makes an error of one: a StartError when the command is at fault.
func refusal(m *confine.RefusedMessage, argv []string) error {
	e := unix.Errno(m.Errno)
	if m.Step != confine.StepDir && m.Step != confine.StepExec {
		return &SetupError{&stepError{"sandbox: " + m.Step + ": " + m.Text, syscall.Errno(e)}}
	}
	name := "helper"
	if len(argv) > 0 {
		name = argv[0]
	}
	se := &StartError{Program: name, Step: m.Step, Err: syscall.Errno(e), Reason: e.Error()}
	switch {
	case m.Step == confine.StepDir && e == unix.ENOENT:
		se.Reason = "the working folder does not exist"
	case m.Step == confine.StepDir && e == unix.ENOTDIR:
		se.Reason = "the working folder is a file"
	case m.Step == confine.StepDir:
		se.Reason = "the working folder cannot be entered: " + e.Error()
	case e == unix.ENOENT && strings.Contains(name, "/"):
		se.Reason = "no such program, or the interpreter it names is missing"
	case e == unix.ENOENT || e == unix.ENOTDIR:
		se.Reason = "no such program in PATH"
	case e == unix.EACCES:
		se.Reason = "may not be executed"
	case e == unix.ENOEXEC:
		se.Reason = "is not a program that this machine can run (a script needs a first line with #!)"
	case e == unix.E2BIG:
		se.Reason = "its arguments and environment are too long for the kernel"
	}
	return se
}

// stepError is a refused step of the sandbox: in words, which hold the cause, and
// as its cause.
type stepError struct {
	text  string
	cause syscall.Errno
}

func (e *stepError) Error() string { return e.text }
func (e *stepError) Unwrap() error { return e.cause }

// feed copies stdin to the command. A command that does not read it is not an error,
// nor is one that ends before all is read.
func (p *Process) feed(r io.Reader) {
	_, _ = io.Copy(p, r)
	_ = p.CloseStdin()
}
