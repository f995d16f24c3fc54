//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// There is no sandbox on this system, and nothing here pretends to be one: every
// guarantee is missing, so Open refuses whatever is asked for. The package only
// builds here, for those who read reports and policy elsewhere.

const why = "nightshift confines commands on Linux only"

// Init has nothing to do: no copy of the program is ever re-executed.
func Init(map[string]HelperFunc) {}

// HideSelf has nothing to hide from: no command runs beside this process.
func HideSelf() error { return nil }

// RealPath resolves the links of a path that may be missing: then its longest
// existing part is resolved. A path that is not absolute is only cleaned.
func RealPath(name string) string {
	if real, err := filepath.EvalSymlinks(name); err == nil {
		return real
	}
	if dir := filepath.Dir(name); dir != name && filepath.IsAbs(name) {
		return filepath.Join(RealPath(dir), filepath.Base(name))
	}
	return filepath.Clean(name)
}

// Sandbox cannot be opened on this system.
type Sandbox struct{}

// Process cannot be started on this system.
type Process struct{}

// Probe says that nothing can be guaranteed.
func Probe() Report {
	r := Report{Mode: WorkspaceWrite, Level: "none"}
	for _, g := range AllGuarantees {
		r.Guarantees = append(r.Guarantees, Support{Guarantee: g, Name: g.String(), Why: why, Hint: "run it on Linux, or in a Linux virtual machine"})
	}
	return r
}

// Open refuses.
func Open(context.Context, Spec) (*Sandbox, error) {
	return nil, &UnsupportedError{Missing: Probe().Guarantees}
}

// Early has nothing to start on this system.
type Early struct{}

// StartEarly starts nothing.
func StartEarly() *Early { return nil }

// Open refuses.
func (*Early) Open(ctx context.Context, s Spec) (*Sandbox, error) { return Open(ctx, s) }

// Close has nothing to end.
func (*Early) Close() error { return nil }

func (*Sandbox) Report() Report                                   { return Probe() }
func (*Sandbox) Start(context.Context, Command) (*Process, error) { return nil, errors.New(why) }
func (*Sandbox) ProxyListener() net.Listener                      { return nil }
func (*Sandbox) ProxyAddr() string                                { return "" }
func (*Sandbox) TmpDir() string                                   { return os.TempDir() }
func (*Sandbox) HasSide() bool                                    { return false }
func (*Sandbox) Shows(string) bool                                { return false }
func (*Sandbox) Rest()                                            {}
func (*Sandbox) Settle() error                                    { return nil }
func (*Sandbox) Close() error                                     { return nil }
func (*Process) Output() io.Reader                                { return eof{} }
func (*Process) Stderr() io.Reader                                { return eof{} }
func (*Process) Write([]byte) (int, error)                        { return 0, os.ErrClosed }
func (*Process) CloseStdin() error                                { return nil }
func (*Process) Resize(Winsize) error                             { return nil }
func (*Process) Signal(syscall.Signal) error                      { return os.ErrProcessDone }
func (*Process) Kill()                                            {}
func (*Process) Done() <-chan struct{}                            { return closed }
func (*Process) Wait() (Exit, error)                              { return Exit{Code: -1}, errors.New(why) }
func (*Process) onGone(func() error)                              {}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// Streams are a caller's own standard streams.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Raw      bool
}

// Foreground refuses.
func (*Sandbox) Foreground(context.Context, Command, Streams) (Exit, error) {
	return Exit{Code: -1}, errors.New(why)
}
