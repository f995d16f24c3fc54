package sandbox

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/creack/pty"
)

// Sandbox is one confinement in which commands are started.
type Sandbox struct {
	spec   Spec
	report Report
	tmp    string

	mu      sync.Mutex
	running map[*Process]struct{}
	closed  bool
}

// Open checks the Spec and prepares the confinement.
func Open(ctx context.Context, s Spec) (*Sandbox, error) {
	b := &Sandbox{spec: s, running: map[*Process]struct{}{}}
	b.report = Report{Mode: s.Mode, Level: "none", Writable: s.Write, Denied: s.Deny}
	var missing []Support
	for _, g := range AllGuarantees {
		sup := Support{Guarantee: g, Name: g.String(), Why: "not built yet"}
		b.report.Guarantees = append(b.report.Guarantees, sup)
		if s.Require&g != 0 {
			missing = append(missing, sup)
		}
	}
	if len(missing) > 0 {
		return nil, &UnsupportedError{Missing: missing}
	}
	if b.tmp = s.TmpDir; b.tmp == "" {
		d, err := os.MkdirTemp("", "nightshift-")
		if err != nil {
			return nil, err
		}
		b.tmp = d
	}
	return b, nil
}

// Probe tells what this machine can give.
func Probe() Report { return Report{Mode: WorkspaceWrite, Level: "none"} }

// Init must be the first call in main.
func Init(helpers map[string]HelperFunc) {}

// Report says what is enforced.
func (b *Sandbox) Report() Report { return b.report }

// TmpDir is the host folder behind /tmp.
func (b *Sandbox) TmpDir() string { return b.tmp }

// ProxyListener accepts the connections commands make to the proxy.
func (b *Sandbox) ProxyListener() net.Listener { return nil }

// ProxyAddr is the proxy's address as commands see it.
func (b *Sandbox) ProxyAddr() string { return "" }

type plainTree struct{ pid int }

func (t plainTree) signal(s syscall.Signal) error { return syscall.Kill(-t.pid, s) }
func (t plainTree) kill() {
	if err := syscall.Kill(-t.pid, syscall.SIGKILL); err != nil {
		return // gone already
	}
}

// Start runs one command.
func (b *Sandbox) Start(ctx context.Context, c Command) (*Process, error) {
	if len(c.Argv) == 0 {
		return nil, &StartError{Reason: "no program given"}
	}
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Env = c.Dir, c.Env
	p := &Process{done: make(chan struct{}), gone: make(chan struct{})}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var closeAfter []*os.File
	if c.TTY != nil {
		m, s, err := pty.Open()
		if err != nil {
			return nil, err
		}
		if err := pty.Setsize(m, &pty.Winsize{Rows: c.TTY.Rows, Cols: c.TTY.Cols}); err != nil {
			return nil, err
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = s, s, s
		cmd.SysProcAttr.Setctty = true
		p.in, p.tty = m, true
		p.out = &outputReader{f: m}
		closeAfter = append(closeAfter, s)
	} else {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		p.out = &outputReader{f: r}
		cmd.Stdout, cmd.Stderr = w, w
		closeAfter = append(closeAfter, w)
		if c.SplitStderr {
			er, ew, err := os.Pipe()
			if err != nil {
				return nil, err
			}
			p.errOut = &outputReader{f: er}
			cmd.Stderr = ew
			closeAfter = append(closeAfter, ew)
		}
		if c.Stdin != nil || c.KeepStdin {
			ir, iw, err := os.Pipe()
			if err != nil {
				return nil, err
			}
			cmd.Stdin = ir
			p.in = iw
			closeAfter = append(closeAfter, ir)
		}
	}
	if err := cmd.Start(); err != nil {
		return nil, &StartError{Program: c.Argv[0], Step: "exec", Reason: err.Error(), Err: err}
	}
	for _, f := range closeAfter {
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	if c.Stdin != nil && c.TTY == nil && !c.KeepStdin {
		go func() {
			_, err := io.Copy(p, c.Stdin)
			if cerr := p.CloseStdin(); cerr != nil && err == nil {
				return
			}
		}()
	}
	p.tree = plainTree{cmd.Process.Pid}
	b.mu.Lock()
	b.running[p] = struct{}{}
	b.mu.Unlock()
	go func() {
		err := cmd.Wait()
		p.tree.kill()
		x := Exit{Code: cmd.ProcessState.ExitCode(), Measured: "rusage", CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
		if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			x.Signal, x.Code = int(ws.Signal()), 128+int(ws.Signal())
		}
		var ee *exec.ExitError
		if errors.As(err, &ee) {
			err = nil
		}
		b.mu.Lock()
		delete(b.running, p)
		b.mu.Unlock()
		p.finish(x, err)
	}()
	go p.endWith(ctx)
	return p, nil
}

// Close kills everything left.
func (b *Sandbox) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	var ps []*Process
	for p := range b.running {
		ps = append(ps, p)
	}
	b.mu.Unlock()
	for _, p := range ps {
		p.Kill()
	}
	if b.spec.TmpDir == "" {
		return os.RemoveAll(b.tmp)
	}
	return nil
}

func joinClose(err error, c io.Closer) error { return errors.Join(err, c.Close()) }
