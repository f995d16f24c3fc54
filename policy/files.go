package policy

import (
	"io/fs"
	"os"
	"path/filepath"
)

// Disk is the machine's file system as [Files].
type Disk struct{}

// ReadFile reads a whole file.
func (Disk) ReadFile(name string) ([]byte, error) { return os.ReadFile(name) }

// ReadDir lists a folder, sorted by name.
func (Disk) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

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
