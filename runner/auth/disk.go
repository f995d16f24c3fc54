package auth

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// disk is the part of the file system that storing a login needs. Tests put
// faults and kills between its steps; everybody else gets [osDisk].
type disk interface {
	// Resolve follows symbolic links to the file behind path, which need not
	// exist.
	Resolve(path string) (string, error)
	Open(path string, flag int, perm fs.FileMode) (diskFile, error)
	Traits(path string) (traits, error)
	Rename(from, to string) error
	Remove(path string) error
	SyncDir(dir string) error
	List(dir string) ([]string, error)
	// Flock tries an exclusive lock and does not wait.
	Flock(f diskFile) error
}

// diskFile is an open file.
type diskFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Name() string
	Stat() (os.FileInfo, error)
	Truncate(size int64) error
	Sync() error
	Chmod(mode os.FileMode) error
	Chown(uid, gid int) error
}

// traits are what decides how a file can be replaced.
type traits struct {
	links     uint32
	uid, gid  int
	mode      fs.FileMode
	sticky    bool // of a folder: only owners may rename in it
	mountRoot bool // something is mounted exactly here: rename cannot replace it
	frozen    bool // immutable or append-only
}

// osDisk is the real file system.
type osDisk struct{}

// maxLinks bounds a chain of symbolic links, as the kernel does.
const maxLinks = 40

func (osDisk) Resolve(path string) (string, error) {
	for range maxLinks {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, filepath.Base(path))
		to, err := os.Readlink(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL): // nothing there, or no link
			return path, nil
		case err != nil:
			return "", err
		case filepath.IsAbs(to):
			path = to
		default:
			path = filepath.Join(dir, to)
		}
	}
	return "", &fs.PathError{Op: "readlink", Path: path, Err: unix.ELOOP}
}

func (osDisk) Open(path string, flag int, perm fs.FileMode) (diskFile, error) {
	// Without O_NONBLOCK a FIFO in the place of the file would hang the run.
	f, err := os.OpenFile(path, flag|unix.O_CLOEXEC|unix.O_NONBLOCK, perm)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// plainTraits does without statx: mounts and immutable files are then found out
// when a step fails.
func plainTraits(path string) (traits, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return traits{}, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	return traits{
		links: uint32(st.Nlink), uid: int(st.Uid), gid: int(st.Gid),
		mode: fs.FileMode(st.Mode & 0o777), sticky: st.Mode&unix.S_ISVTX != 0,
	}, nil
}

func (osDisk) Rename(from, to string) error { return os.Rename(from, to) }

func (osDisk) Remove(path string) error { return os.Remove(path) }

func (osDisk) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, unix.EINVAL) { // some network and FUSE file systems cannot
		err = nil
	}
	return errors.Join(err, d.Close())
}

func (osDisk) List(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	return names, errors.Join(err, d.Close())
}

func (osDisk) Flock(f diskFile) error {
	file, ok := f.(*os.File)
	if !ok {
		return errors.New("not a file of the operating system")
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var lockErr error
	err = conn.Control(func(fd uintptr) {
		for {
			if lockErr = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB); lockErr != unix.EINTR {
				return
			}
		}
	})
	return errors.Join(err, lockErr)
}

// readAll reads at most limit bytes of f; a longer file is an error.
func readAll(f diskFile, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = errTooLong
	}
	return b, err
}

// errTooLong is a file that cannot be what it is taken for.
var errTooLong = errors.New("is too long to be a login")
