//go:build linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Streams are a caller's own standard streams.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Raw passes the output on byte for byte. Otherwise it goes through a
	// [LogWriter], unless Out is a regular file, which nobody obeys.
	Raw bool
}

// Foreground runs a command with the caller's streams and returns how it ended.
// Where stdin and stdout are terminals the command gets one of its own. The
// streams themselves are never given to the command: a file could be truncated
// through its descriptor, a terminal be made to type.
func (b *Sandbox) Foreground(ctx context.Context, c Command, s Streams) (x Exit, err error) {
	in, out := terminalOf(s.In), terminalOf(s.Out)
	if in != nil && out != nil {
		return b.onTerminal(ctx, c, s, in, out)
	}
	c.Stdin, c.SplitStderr = s.In, true
	p, err := b.Start(ctx, c)
	if err != nil {
		return Exit{}, err
	}
	errs := make(chan error, 1)
	go func() { errs <- relay(p.Stderr(), s.Err, s.Raw) }()
	err = relay(p.Output(), s.Out, s.Raw)
	err = errors.Join(err, <-errs)
	if err != nil {
		p.Kill() // nobody can read it
	}
	x, werr := p.Wait()
	return x, errors.Join(err, werr)
}

// onTerminal runs the command on a terminal of its own.
func (b *Sandbox) onTerminal(ctx context.Context, c Command, s Streams, in, out *os.File) (Exit, error) {
	c.TTY = &Winsize{Rows: 24, Cols: 80}
	if w, h, err := term.GetSize(int(out.Fd())); err == nil {
		c.TTY = &Winsize{Rows: uint16(h), Cols: uint16(w)}
	}
	c.Stdin = nil
	p, err := b.Start(ctx, c)
	if err != nil {
		return Exit{}, err
	}
	old, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		p.Kill()
		return Exit{}, fmt.Errorf("sandbox: the terminal: %w", err)
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	go func() {
		for range resized {
			if w, h, err := term.GetSize(int(out.Fd())); err == nil {
				_ = p.Resize(Winsize{Rows: uint16(h), Cols: uint16(w)}) // a size is only a courtesy
			}
		}
	}()
	// Ends when the terminal does; a read of the caller's cannot be broken off.
	go p.feedTerminal(s.In)
	err = relay(p.Output(), &rawTerminal{s.Out}, s.Raw)
	if err != nil {
		p.Kill()
	}
	x, werr := p.Wait()
	signal.Stop(resized)
	close(resized)
	return x, errors.Join(err, werr, term.Restore(int(in.Fd()), old))
}

func (p *Process) feedTerminal(r io.Reader) { _, _ = io.Copy(p, r) }

// rawTerminal writes to a terminal that does not make new lines itself.
type rawTerminal struct{ w io.Writer }

func (t *rawTerminal) Write(b []byte) (int, error) {
	out := make([]byte, 0, len(b)+16)
	for i, c := range b {
		if c == '\n' && (i == 0 || b[i-1] != '\r') {
			out = append(out, '\r')
		}
		out = append(out, c)
	}
	if _, err := t.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// relay copies output until the tree is gone.
func relay(from io.Reader, to io.Writer, raw bool) error {
	if raw || isRegular(to) {
		_, err := io.Copy(to, from)
		return outputError(err)
	}
	l := NewLogWriter(to)
	_, err := io.Copy(l, from)
	return outputError(errors.Join(err, l.Flush()))
}

// outputError drops the error of a reader that went away, as head does.
func outputError(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// terminalOf is the file behind a stream if it is a terminal.
func terminalOf(stream any) *os.File {
	if f, ok := stream.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

func isRegular(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	fi, err := f.Stat()
	return err == nil && fi.Mode().IsRegular()
}
