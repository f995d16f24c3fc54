//go:build linux

package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// removeTree is os.RemoveAll for folders whose owner took away the own rights,
// as the module cache of Go does. It follows no links.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
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
