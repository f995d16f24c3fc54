package workspace

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// maxAlternates is git's own bound on how deep object folders borrow.
const maxAlternates = 5

// GitFolders are the folders besides Root that git reads for this work tree: the
// git folder of a linked work tree or submodule, the repository's common folder,
// and the object folders it borrows from. Commands that see a replaced /tmp need
// them shown where they lie below it.
func (f Facts) GitFolders() []string {
	if f.GitDir == "" {
		return nil
	}
	out := []string{}
	add := func(dir string) {
		if !sandbox.Within(dir, f.Root) && !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	add(f.GitDir)
	add(f.CommonDir)
	objects := []string{filepath.Join(f.CommonDir, "objects")}
	for range maxAlternates {
		var next []string
		for _, dir := range objects {
			next = append(next, alternates(dir)...)
		}
		for _, dir := range next {
			add(dir)
		}
		objects = next
	}
	return out
}

// alternates are the object folders that one borrows from. Names that are not
// object folders are left out, as are quoted ones.
func alternates(objects string) []string {
	text, err := readSmall(filepath.Join(objects, "info", "alternates"))
	if err != nil {
		return nil
	}
	var out []string
	for line := range strings.Lines(text) {
		dir := strings.TrimRight(line, "\r\n")
		if dir == "" || dir[0] == '#' || dir[0] == '"' {
			continue
		}
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(objects, dir)
		}
		real, err := filepath.EvalSymlinks(dir)
		if err != nil || filepath.Base(real) != "objects" {
			continue
		}
		if fi, err := os.Stat(filepath.Join(real, "pack")); err == nil && fi.IsDir() {
			out = append(out, real)
		}
	}
	return out
}
