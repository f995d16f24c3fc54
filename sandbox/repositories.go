//go:build linux

package sandbox

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Scan bounds a search for repositories.
type Scan struct {
	Depth   int // folders below the root; deeper ones are not looked into
	Entries int // directory entries looked at in all
}

// DefaultScan is deep enough for usual nested repositories and submodules, and
// small enough for the start of a run.
func DefaultScan() Scan { return Scan{Depth: 12, Entries: 20000} }

// FindRepositories lists every entry named ".git" below root, root's own
// included, breadth first. It follows no links and skips node_modules. complete
// is false when there were too many entries or a folder could not be read.
func FindRepositories(root string, s Scan) (found []string, complete bool) {
	type folder struct {
		path  string
		depth int
	}
	complete = true
	left := s.Entries
	for queue := []folder{{root, 0}}; len(queue) > 0; queue = queue[1:] {
		d := queue[0]
		list, err := readFolder(d.path, left+1)
		if err != nil {
			complete = false
		}
		for _, e := range list {
			if left == 0 {
				return found, false
			}
			left--
			switch {
			case e.Name() == ".git":
				found = append(found, filepath.Join(d.path, ".git"))
			case e.IsDir() && e.Name() != "node_modules" && d.depth < s.Depth:
				queue = append(queue, folder{filepath.Join(d.path, e.Name()), d.depth + 1})
			}
		}
	}
	return found, complete
}

// readFolder reads at most n entries, in the folder's own order.
func readFolder(name string, n int) ([]os.DirEntry, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	list, err := f.ReadDir(n)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return list, errors.Join(err, f.Close())
}
