package sandbox

import (
	"path/filepath"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

// Within tells whether path is dir or lies in it. Both are absolute. Links are
// not followed: compare what [RealPath] gives where there may be some.
func Within(path, dir string) bool {
	return confine.Below(filepath.Clean(path), filepath.Clean(dir))
}
