package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// RemoveTree is os.RemoveAll for folders that tools made read-only, as Go does with
// its module cache. It follows no links below dir.
func RemoveTree(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	openUp(root, ".")
	if err := root.Close(); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// openUp makes every folder below name writable. What it cannot change, the
// removal will report.
func openUp(root *os.Root, name string) {
	if err := root.Chmod(name, 0o700); err != nil {
		return
	}
	f, err := root.Open(name)
	if err != nil {
		return
	}
	list, err := f.ReadDir(-1)
	if cerr := f.Close(); err != nil || cerr != nil {
		return
	}
	for _, e := range list {
		if e.IsDir() {
			openUp(root, filepath.Join(name, e.Name()))
		}
	}
}
