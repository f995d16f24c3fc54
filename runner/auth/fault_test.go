package auth

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// stepper counts the steps of a run and kills the process before one of them.
type stepper struct {
	mu     sync.Mutex
	n      int
	killAt int
	log    string
}

func (s *stepper) step(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	if s.log != "" {
		f, err := os.OpenFile(s.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err == nil {
			fmt.Fprintf(f, "%d %s\n", s.n, what)
			f.Close()
		}
	}
	if s.n == s.killAt {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// faultyDisk is the real disk with steps between its operations and with
// errors where a test wants them.
type faultyDisk struct {
	disk
	steps *stepper
	bar   string                             // opening a name with this fails with EROFS
	fault func(op, path string, n int) error // n counts the calls of op
	count map[string]int
}

func (d *faultyDisk) at(op, path string) error {
	name := filepath.Base(path)
	if d.steps != nil {
		d.steps.step(op + " " + name)
	}
	if d.count == nil {
		d.count = map[string]int{}
	}
	d.count[op]++
	if d.fault != nil {
		if err := d.fault(op, path, d.count[op]); err != nil {
			return &fs.PathError{Op: op, Path: path, Err: err}
		}
	}
	return nil
}

func (d *faultyDisk) Open(path string, flag int, perm fs.FileMode) (diskFile, error) {
	if d.bar != "" && flag&os.O_CREATE != 0 && strings.Contains(path, d.bar) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: unix.EROFS}
	}
	if flag&(os.O_WRONLY|os.O_RDWR) != 0 {
		if err := d.at("open", path); err != nil {
			return nil, err
		}
	}
	f, err := d.disk.Open(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultyFile{f, d}, nil
}

func (d *faultyDisk) Rename(from, to string) error {
	if err := d.at("rename", to); err != nil {
		return err
	}
	return d.disk.Rename(from, to)
}

func (d *faultyDisk) Remove(path string) error {
	if err := d.at("remove", path); err != nil {
		return err
	}
	return d.disk.Remove(path)
}

func (d *faultyDisk) SyncDir(dir string) error {
	if err := d.at("syncdir", dir); err != nil {
		return err
	}
	return d.disk.SyncDir(dir)
}

func (d *faultyDisk) Flock(f diskFile) error {
	if err := d.at("flock", f.Name()); err != nil {
		return err
	}
	return d.disk.Flock(f.(*faultyFile).diskFile)
}

type faultyFile struct {
	diskFile
	d *faultyDisk
}

// WriteAt writes in pieces, so that a kill can fall into the middle of a write.
func (f *faultyFile) WriteAt(b []byte, off int64) (int, error) {
	done := 0
	if len(b) == 0 {
		return 0, nil
	}
	for _, part := range []int{1, len(b) / 3, 2 * len(b) / 3, len(b) - 1, len(b)} {
		if err := f.d.at("write", f.Name()); err != nil {
			return done, err
		}
		if part <= done {
			continue
		}
		n, err := f.diskFile.WriteAt(b[done:part], off+int64(done))
		if done += n; err != nil {
			return done, err
		}
	}
	return done, nil
}

func (f *faultyFile) Truncate(n int64) error {
	if err := f.d.at("truncate", f.Name()); err != nil {
		return err
	}
	return f.diskFile.Truncate(n)
}

func (f *faultyFile) Sync() error {
	if err := f.d.at("sync", f.Name()); err != nil {
		return err
	}
	return f.diskFile.Sync()
}

func (f *faultyFile) Chmod(m os.FileMode) error {
	if err := f.d.at("chmod", f.Name()); err != nil {
		return err
	}
	return f.diskFile.Chmod(m)
}

func (f *faultyFile) Chown(uid, gid int) error {
	if err := f.d.at("chown", f.Name()); err != nil {
		return err
	}
	return f.diskFile.Chown(uid, gid)
}

// steppingTransport puts steps around a request and into its answer.
type steppingTransport struct {
	steps *stepper
	next  http.RoundTripper
}

func (s *steppingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	s.steps.step("http send")
	resp, err := s.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	s.steps.step("http header")
	resp.Body = &steppingBody{resp.Body, s.steps}
	return resp, nil
}

func (s *steppingTransport) CloseIdleConnections() {}

type steppingBody struct {
	io.ReadCloser
	steps *stepper
}

func (b *steppingBody) Read(p []byte) (int, error) {
	b.steps.step("http body")
	if len(p) > 256 {
		p = p[:256]
	}
	return b.ReadCloser.Read(p)
}

// memFile is a file in memory whose writes stop after limit bytes.
type memFile struct {
	diskFile
	b     []byte
	limit *int
}

func (m *memFile) WriteAt(p []byte, off int64) (int, error) {
	for i, c := range p {
		if *m.limit <= 0 {
			return i, io.ErrShortWrite
		}
		*m.limit--
		for int64(len(m.b)) <= off+int64(i) {
			m.b = append(m.b, 0)
		}
		m.b[off+int64(i)] = c
	}
	return len(p), nil
}

func (m *memFile) Truncate(n int64) error {
	if *m.limit <= 0 {
		return io.ErrShortWrite
	}
	*m.limit--
	if n < int64(len(m.b)) {
		m.b = m.b[:n]
	}
	return nil
}

func (m *memFile) Sync() error { return nil }
