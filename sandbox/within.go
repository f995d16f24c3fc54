package sandbox

import (
	"path/filepath"
	"strings"
)

// Within tells whether path is dir or lies in it. Both are absolute. Links are
// not followed: compare what [RealPath] gives where there may be some.
func Within(path, dir string) bool {
	path, dir = filepath.Clean(path), filepath.Clean(dir)
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
