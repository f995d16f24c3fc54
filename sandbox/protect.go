//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

// Names that stay read-only inside every writable root, and the git folders they
// lead to. A root that is listed itself is never protected: a linked worktree
// can commit when its git folder is a root too.

// findProtected fills r.protect and r.hold.
func (r *resolved) findProtected(s *Spec) error {
	names := s.ProtectNames
	var missing []Support
	refuse := func(p, why, hint string) {
		missing = append(missing, Support{Guarantee: WritesConfined, Name: WritesConfined.String(),
			Why: p + " " + why, Hint: hint})
	}
	for _, root := range r.write {
		if r.insideGitFolder(root) || slices.Contains(s.Plain, root) {
			continue // a git folder made writable by name, or one that is nobody's
		}
		for _, name := range names {
			p := filepath.Join(root, name)
			if slices.Contains(r.write, p) {
				continue
			}
			fi, err := os.Lstat(p)
			switch {
			case errors.Is(err, os.ErrNotExist):
				r.hold = append(r.hold, p)
			case err != nil:
				return &SpecError{Field: "protected path", Path: p, Reason: reasonOf(err)}
			case fi.Mode()&os.ModeSymlink != 0:
				hint := "make it a folder; what lies in it may be links"
				if name == ".git" {
					hint = "make it a folder, or a file with `gitdir: PATH`"
				}
				refuse(p, "is a symbolic link, which a command could replace", hint)
			case fi.IsDir() && leftBehind(p):
				r.hold = append(r.hold, p)
			case fi.IsDir() || fi.Mode().IsRegular():
				r.protectPath(p)
				if name == ".git" {
					r.protectGit(p, fi)
				}
			default:
				refuse(p, "is neither a file nor a folder", "remove it")
			}
		}
		if slices.Contains(names, ".git") {
			r.protectNested(root)
		}
	}
	if len(missing) > 0 {
		return &UnsupportedError{Missing: missing}
	}
	for _, p := range s.Keep {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			r.protectPath(real)
		}
	}
	slices.SortFunc(r.protect, byLength)
	r.protect = slices.Compact(r.protect)
	slices.Sort(r.hold)
	r.hold = slices.Compact(r.hold)
	return nil
}

// insideGitFolder tells whether a root is a git folder or lies in one.
func (r *resolved) insideGitFolder(root string) bool {
	for d := root; d != "/" && d != "."; d = filepath.Dir(d) {
		if filepath.Base(d) == ".git" {
			return true
		}
	}
	return isFile(filepath.Join(root, "HEAD")) && isFolder(filepath.Join(root, "objects")) && isFolder(filepath.Join(root, "refs"))
}

// protectPath adds a path that lies in a writable root and is none itself.
func (r *resolved) protectPath(p string) {
	if slices.Contains(r.write, p) {
		return
	}
	nearest := ""
	for _, w := range r.write {
		if confine.Below(p, w) && len(w) > len(nearest) {
			nearest = w
		}
	}
	if nearest != "" && r.insideGitFolder(nearest) {
		return // part of a git folder made writable by name: a work tree's state, say
	}
	if nearest != "" && !slices.ContainsFunc(r.protect, func(q string) bool { return confine.Below(p, q) }) {
		r.protect = append(r.protect, p)
	}
}

// protectGit follows a .git that is a pointer (worktree, submodule), and the
// links that git-new-workdir and its like make inside a .git.
func (r *resolved) protectGit(p string, fi os.FileInfo) {
	dir := p
	if !fi.IsDir() {
		target := gitPointer(p)
		if target == "" {
			return
		}
		real, err := filepath.EvalSymlinks(target)
		if err != nil {
			return // leads nowhere: nothing there can be trusted by git either
		}
		dir = real
		r.protectPath(dir)
	}
	if text, err := readPointer(filepath.Join(dir, "commondir")); err == nil {
		common := strings.TrimSpace(text)
		if !filepath.IsAbs(common) {
			common = filepath.Join(dir, common)
		}
		if real, err := filepath.EvalSymlinks(common); err == nil {
			r.protectPath(real)
		}
	}
	for _, name := range []string{"config", "hooks", "HEAD", "index", "refs", "objects", "info", "packed-refs", "logs", "config.worktree"} {
		inner := filepath.Join(dir, name)
		if fi, err := os.Lstat(inner); err == nil && fi.Mode()&os.ModeSymlink != 0 {
			if real, err := filepath.EvalSymlinks(inner); err == nil {
				r.protectPath(real)
			}
		}
	}
}

// maxPointer bounds a `gitdir:` file.
const maxPointer = 16 << 10

// readPointer reads a small file of git. A pipe or device is an error, not a
// wait: the folder may be anybody's work.
func readPointer(file string) (string, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxPointer {
		return "", fmt.Errorf("%s is not a small file", file)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxPointer))
	return string(b), err
}

// gitPointer reads `gitdir: PATH`; "" if the file is something else.
func gitPointer(file string) string {
	text, err := readPointer(file)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(text, "\n")
	target, ok := strings.CutPrefix(line, "gitdir:")
	if !ok {
		return ""
	}
	target = strings.TrimSpace(target)
	if target == "" || filepath.IsAbs(target) {
		return target
	}
	return filepath.Join(filepath.Dir(file), target)
}

// protectNested protects the repositories below a root.
func (r *resolved) protectNested(root string) {
	found, complete := FindRepositories(root, DefaultScan())
	for _, p := range found {
		fi, err := os.Lstat(p)
		if err != nil || filepath.Dir(p) == root {
			continue
		}
		if fi.Mode()&os.ModeSymlink != 0 {
			// The link can be replaced, as a new repository could be made there. What
			// it leads to can be kept.
			r.notes = append(r.notes, p+" is a symbolic link: what it leads to is protected, the link itself is not")
			real, err := filepath.EvalSymlinks(p)
			if err != nil {
				continue // leads nowhere
			}
			if fi, err = os.Lstat(real); err != nil {
				continue
			}
			p = real
		}
		r.protectPath(p)
		r.protectGit(p, fi)
	}
	if !complete {
		r.notes = append(r.notes, fmt.Sprintf("%s is too large to look for nested repositories everywhere: those found are protected", root))
	}
}

func isFile(p string) bool {
	fi, err := os.Lstat(p)
	return err == nil && fi.Mode().IsRegular()
}

func isFolder(p string) bool {
	fi, err := os.Lstat(p)
	return err == nil && fi.IsDir()
}
