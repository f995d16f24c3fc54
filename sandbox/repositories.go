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

// DefaultScan is deep enough for nested repositories and submodules that people
// make, and small enough for the start of a run.
func DefaultScan() Scan { return Scan{Depth: 64, Entries: 20000} }

// FindRepositories lists every entry named ".git" below root, root's own
// included, breadth first. It follows no links. Folders named node_modules come
// last, as far as the bounds allow. complete is false when the bounds were
// reached before that, or a folder could not be read.
func FindRepositories(root string, s Scan) (found []string, complete bool) {
	type folder struct {
		path  string
		depth int
	}
	complete = true
	left := s.Entries
	var later []folder // node_modules and what they hold
	for queue, usual := []folder{{root, 0}}, true; len(queue) > 0; queue = queue[1:] {
		d := queue[0]
		list, err := readFolder(d.path, left+1)
		complete = complete && (err == nil || !usual)
		for _, e := range list {
			if left == 0 {
				return found, complete && !usual
			}
			left--
			next := folder{filepath.Join(d.path, e.Name()), d.depth + 1}
			switch {
			case e.Name() == ".git":
				found = append(found, next.path)
			case !e.IsDir():
			case usual && e.Name() == "node_modules":
				later = append(later, next)
			case next.depth <= s.Depth:
				queue = append(queue, next)
			default:
				complete = complete && !usual
			}
		}
		if len(queue) == 1 && usual {
			queue, usual = append(queue, later...), false
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
