package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Disk is the machine's file system as [Files].
type Disk struct{}

// ReadFile reads a whole file.
func (Disk) ReadFile(name string) ([]byte, error) {
	data, err := os.ReadFile(name)
	return data, Absent(name, err)
}

// ReadDir lists a folder, sorted by name.
func (Disk) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(name)
	return entries, Absent(name, err)
}

// Absent tells a file that is not there from one that cannot be reached: a link
// that leads nowhere, as to a volume that is not mounted, was put there by
// somebody who wanted its file to count. err is the failure to open name; what
// comes back is fs.ErrNotExist only where nothing was put.
func Absent(name string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for at := filepath.Clean(name); ; at = filepath.Dir(at) {
		info, e := os.Lstat(at)
		switch {
		case e == nil && info.Mode()&fs.ModeSymlink != 0:
			if _, e := os.Stat(at); e == nil {
				return err // the link is good, what lies behind it is missing
			}
			target, e := os.Readlink(at)
			if e != nil {
				return e
			}
			return &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("%s is a link to %s, which does not exist", at, target)}
		case e == nil, at == filepath.Dir(at):
			return err
		}
	}
}

// Stat follows symbolic links.
func (Disk) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

// RealPath resolves symbolic links as far as the path exists.
func (Disk) RealPath(name string) string {
	name = filepath.Clean(name)
	rest := ""
	for at := name; ; {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		parent := filepath.Dir(at)
		if parent == at {
			return name
		}
		rest = filepath.Join(filepath.Base(at), rest)
		at = parent
	}
}
