//go:build linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
)

// killGrace is how long a cancelled command may take to end by itself after
// SIGTERM. CI services kill the whole job 2.5 s after theirs.
const killGrace = time.Second

// drainBound is how long a reader waits for output after the tree is gone. What
// the tree wrote is in the kernel already and is delivered however late the
// reader comes; the bound only guards against a write end that was passed to a
// foreign process. maxLate bounds what is delivered after it: no pipe holds more.
const (
	drainBound = 100 * time.Millisecond
	maxLate    = 1 << 20
)

// killBound is how long the kernel and the init may take to end a killed tree.
// After that the init itself is killed, which takes every tree along.
const killBound = 5 * time.Second

// tree is what a Process needs of the tree behind it.
type tree interface {
	signal(syscall.Signal) error
	kill()
	killInit()
}

// Process is a running command and its whole tree.
//
// Its methods may be called concurrently. Output (and Stderr) must be read, or
// the command blocks when the pipe is full; Wait does not depend on it.
type Process struct {
	tree   tree
	out    *outputReader
	errOut *outputReader

	inMu sync.Mutex
	in   *os.File // the write end of stdin, or the terminal
	tty  bool

	done     chan struct{} // the main process has exited
	doneOnce sync.Once
	gone     chan struct{} // no process of the tree is left
	exit     Exit
	err      error

	afterMu sync.Mutex
	after   []func() error
}

// Output is stdout and stderr as written (stdout only with SplitStderr). It
// ends when the tree is gone and everything written has been read.
func (p *Process) Output() io.Reader { return p.out }

// Stderr is the command's stderr with Command.SplitStderr, else empty.
func (p *Process) Stderr() io.Reader {
	if p.errOut == nil {
		return eofReader{}
	}
	return p.errOut
}

type eofReader struct{}

func (eofReader) Read([]byte) (int, error) { return 0, io.EOF }

// Write sends bytes to the terminal or the kept stdin.
func (p *Process) Write(b []byte) (int, error) {
	p.inMu.Lock()
	in := p.in
	p.inMu.Unlock()
	if in == nil {
		return 0, fmt.Errorf("sandbox: the command has no open stdin: %w", os.ErrClosed)
	}
	return in.Write(b)
}

// CloseStdin ends the command's stdin. On a terminal it types the end-of-file
// character, since closing it would hang up.
func (p *Process) CloseStdin() error {
	p.inMu.Lock()
	defer p.inMu.Unlock()
	if p.in == nil {
		return nil
	}
	if p.tty {
		_, err := p.in.Write([]byte{4})
		return err
	}
	err := p.in.Close()
	p.in = nil
	return err
}

// Resize sets the size of the terminal; without one it is an error.
func (p *Process) Resize(w Winsize) error {
	p.inMu.Lock()
	defer p.inMu.Unlock()
	if !p.tty || p.in == nil {
		return errors.New("sandbox: the command has no terminal")
	}
	return pty.Setsize(p.in, &pty.Winsize{Rows: w.Rows, Cols: w.Cols})
}

// Signal sends a signal to every process of the tree.
func (p *Process) Signal(s syscall.Signal) error { return p.tree.signal(s) }

// Kill sends SIGKILL to the whole tree and returns when it is gone.
func (p *Process) Kill() {
	p.tree.kill()
	select {
	case <-p.gone:
		return
	case <-time.After(killBound):
	}
	p.tree.killInit()
	<-p.gone
}

// Done is closed when the main process has exited.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns when the main process has exited and the rest of its tree is
// gone; children it left in the background are killed. A command that fails is
// no error: errors are about the sandbox itself.
func (p *Process) Wait() (Exit, error) {
	<-p.gone
	return p.exit, p.err
}

// onGone runs f after the tree is gone and before Wait returns.
func (p *Process) onGone(f func() error) {
	p.afterMu.Lock()
	defer p.afterMu.Unlock()
	select {
	case <-p.gone:
		if err := f(); err != nil && p.err == nil {
			p.err = err
		}
	default:
		p.after = append(p.after, f)
	}
}

// mainExited tells that the main process has ended, its tree perhaps not.
func (p *Process) mainExited() { p.doneOnce.Do(func() { close(p.done) }) }

// finish records the end of the tree.
func (p *Process) finish(x Exit, err error) {
	p.exit, p.err = x, err
	p.afterMu.Lock()
	defer p.afterMu.Unlock()
	for _, f := range p.after {
		if e := f(); e != nil && p.err == nil {
			p.err = e
		}
	}
	for _, r := range []*outputReader{p.out, p.errOut} {
		if r != nil {
			r.treeGone()
		}
	}
	p.inMu.Lock()
	if p.in != nil && !p.tty {
		_ = p.in.Close() // what was not read is lost with the reader
		p.in = nil
	}
	p.inMu.Unlock()
	p.mainExited()
	close(p.gone)
}

// discard closes the files of a command that was never started.
func (p *Process) discard() error {
	var errs []error
	for _, r := range []*outputReader{p.out, p.errOut} {
		if r != nil {
			errs = append(errs, r.f.Close())
		}
	}
	p.inMu.Lock()
	defer p.inMu.Unlock()
	if p.in != nil && !p.tty {
		errs = append(errs, p.in.Close())
		p.in = nil
	}
	return errors.Join(errs...)
}

// endWith ends the tree when ctx is cancelled: SIGTERM, a short grace, SIGKILL.
func (p *Process) endWith(ctx context.Context) {
	select {
	case <-p.gone:
		return
	case <-ctx.Done():
	}
	// The tree may be gone by now; then there is nobody to signal.
	if err := p.tree.signal(syscall.SIGTERM); err == nil {
		if err := p.tree.signal(syscall.SIGCONT); err == nil {
			select {
			case <-p.gone:
				return
			case <-time.After(killGrace):
			}
		}
	}
	p.Kill()
}

// outputReader reads a pipe or terminal that ends with the tree, not with its
// last write end: a process outside the tree may hold that.
type outputReader struct {
	f    *os.File
	mu   sync.Mutex
	gone bool
	eof  bool
	late int // bytes delivered after the bound
}

func (r *outputReader) treeGone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = true
	// Wakes a blocked Read; what is in the pipe is still delivered first.
	// A terminal is written through the same file.
	if err := r.f.SetDeadline(time.Now().Add(drainBound)); err != nil {
		r.eof = true // closed by the reader already
	}
}

// rest reads what the pipe holds without waiting. After a deadline os.File does
// not even look, and a busy machine may let the reader come late.
func (r *outputReader) rest(b []byte) int {
	if left := maxLate - r.late; len(b) > left {
		b = b[:left]
	}
	raw, err := r.f.SyscallConn()
	if err != nil || len(b) == 0 {
		return 0
	}
	n := 0
	err = raw.Control(func(fd uintptr) {
		for {
			n, err = syscall.Read(int(fd), b)
			if !errors.Is(err, syscall.EINTR) {
				return
			}
		}
	})
	if err != nil || n < 0 {
		return 0
	}
	r.late += n
	return n
}

// Read gives what was written, and io.EOF once the tree is gone and the pipe
// empty.
func (r *outputReader) Read(b []byte) (int, error) {
	r.mu.Lock()
	if r.eof {
		r.mu.Unlock()
		return 0, io.EOF
	}
	r.mu.Unlock()
	if len(b) == 0 {
		return 0, nil
	}
	n, err := r.f.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		n = r.rest(b)
	}
	if n > 0 {
		return n, nil
	}
	if err == nil {
		return 0, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.eof {
		r.eof = true
		// The kernel says EIO when the last slave of a terminal is closed.
		if cerr := r.f.Close(); cerr != nil && err == nil {
			err = cerr
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.EIO) || errors.Is(err, os.ErrClosed) {
		err = io.EOF
	}
	return 0, err
}
