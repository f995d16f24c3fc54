package patch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Scope says where a patch may write. All paths are absolute.
type Scope struct {
	// Workdir is what relative paths of the patch start from.
	Workdir string `json:"workdir"`
	// Roots are the writable folders; none means that nothing may be written.
	Roots []string `json:"roots"`
	// ProtectNames cannot be changed or created directly inside a root; ".git"
	// nowhere below one.
	ProtectNames []string `json:"protect_names,omitempty"`
	// Protected are folders and files that cannot be changed, unless one of the
	// roots lies inside.
	Protected []string `json:"protected,omitempty"`
}

// Reasons of a [RejectedError].
const (
	Outside   = "outside"   // not below a writable root
	Guarded   = "protected" // below a protected path
	NoWriting = "read_only" // there is no writable root
)

// RejectedError is a path that a patch may not change.
type RejectedError struct {
	Reason string // Outside, Guarded, NoWriting
	Path   string // as the patch names it
	// Target is where the path really leads.
	Target string
}

// Error says which path and why.
func (e *RejectedError) Error() string {
	where := e.Path
	if e.Target != "" && e.Target != e.Path {
		where += " (which is " + e.Target + ")"
	}
	switch e.Reason {
	case NoWriting:
		return "a patch cannot change " + where + ": the sandbox is read-only"
	case Guarded:
		return "a patch cannot change " + where + ": the path is protected"
	}
	return "a patch cannot change " + where + ": it is outside the writable folders"
}

// root is one open writable folder.
type root struct {
	path string // real
	dir  *os.Root
}

// scope is a Scope with its folders open. A path is resolved first, link by
// link, and then used below one of the roots only; the os.Root keeps that true
// if the folders change meanwhile.
type scope struct {
	workdir   string
	roots     []root // deepest first
	names     []string
	protected []string
	// gone tells of files that an earlier change of the patch removes.
	gone func(path string) bool
}

func openScope(s Scope) (*scope, error) {
	out := &scope{workdir: realPath(s.Workdir), names: s.ProtectNames}
	for _, p := range s.Protected {
		out.protected = append(out.protected, realPath(p))
	}
	for _, p := range s.Roots {
		p = realPath(p)
		if slices.ContainsFunc(out.roots, func(r root) bool { return r.path == p }) {
			continue
		}
		dir, err := os.OpenRoot(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a root that does not exist holds nothing to change
		}
		if err != nil {
			out.close()
			return nil, fmt.Errorf("writable folder %s: %w", p, err)
		}
		out.roots = append(out.roots, root{p, dir})
	}
	slices.SortStableFunc(out.roots, func(a, b root) int { return len(b.path) - len(a.path) })
	return out, nil
}

func (s *scope) close() {
	for _, r := range s.roots {
		r.dir.Close() // only read from and renamed in: closing cannot lose data
	}
}

// realPath resolves links where the path exists.
func realPath(p string) string {
	if real, err := filepath.EvalSymlinks(p); err == nil {
		return real
	}
	return filepath.Clean(p)
}

// Writable tells whether a patch may change path.
func (s Scope) Writable(path string) bool {
	open, err := openScope(s)
	if err != nil {
		return false
	}
	defer open.close()
	_, err = open.place(path, false)
	return err == nil
}

// place is a resolved path below a root.
type place struct {
	named string // absolute, as the patch names it: for people and events
	path  string // absolute and free of links
	root  root
	rel   string // path relative to root
}

// place resolves a path of the patch. With link set the last element is not
// followed. Errors are [*RejectedError] or describe the path.
func (s *scope) place(name string, link bool) (place, error) {
	if strings.ContainsRune(name, 0) {
		return place{}, fmt.Errorf("the path %q holds a NUL byte", name)
	}
	named := name
	if !filepath.IsAbs(named) {
		named = s.workdir + "/" + name
	}
	target, err := s.follow(named, link)
	if err != nil {
		return place{}, err
	}
	p := place{named: filepath.Clean(named), path: target}
	if slices.Contains(strings.Split(name, "/"), "..") {
		// Behind a link ".." is another folder than the text says.
		p.named = target
	}
	if len(s.roots) == 0 {
		return p, &RejectedError{NoWriting, name, target}
	}
	for _, r := range s.roots {
		rel, ok := below(target, r.path)
		if !ok {
			continue
		}
		p.root, p.rel = r, rel
		if s.guarded(target, r.path, rel) {
			return p, &RejectedError{Guarded, name, target}
		}
		return p, nil
	}
	return p, &RejectedError{Outside, name, target}
}

// below returns path relative to dir if it lies in it.
func below(path, dir string) (string, bool) {
	if path == dir {
		return ".", true
	}
	rel, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
	return rel, ok
}

// Below tells whether path lies in one of dirs, after following links.
func Below(path string, dirs []string) bool {
	real, err := (&scope{}).follow(path, false)
	if err != nil {
		return false
	}
	for _, d := range dirs {
		if _, in := below(real, realPath(d)); in {
			return true
		}
	}
	return false
}

func (s *scope) guarded(target, root, rel string) bool {
	parts := strings.Split(rel, "/")
	for _, n := range s.names {
		if parts[0] == n || n == ".git" && slices.Contains(parts, n) {
			return true
		}
	}
	for _, p := range s.protected {
		if _, in := below(target, p); !in {
			continue
		}
		if _, inner := below(root, p); !inner {
			return true
		}
	}
	return false
}

// maxLinks is how many links one path may go through, as in the kernel.
const maxLinks = 40

// follow resolves an absolute path as the kernel would: links are followed
// before ".." is applied. What does not exist is taken as it is written.
func (s *scope) follow(path string, keepLast bool) (string, error) {
	rest := strings.Split(path, "/")
	done, links := "/", 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			done = filepath.Dir(done)
			continue
		}
		next := filepath.Join(done, part)
		fi, err := os.Lstat(next)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return "", fmt.Errorf("cannot look at %s: %s", next, SystemText(err))
		}
		if err != nil || fi.Mode()&fs.ModeSymlink == 0 || keepLast && empty(rest) || s.gone != nil && s.gone(next) {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("cannot resolve %s: %s", path, SystemText(syscall.ELOOP))
		}
		to, err := os.Readlink(next)
		if err != nil {
			return "", fmt.Errorf("cannot read the link %s: %s", next, SystemText(err))
		}
		if filepath.IsAbs(to) {
			done = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return done, nil
}

// empty tells whether nothing but "" and "." is left of a path.
func empty(parts []string) bool {
	for _, p := range parts {
		if p != "" && p != "." {
			return false
		}
	}
	return true
}

// SystemText is the system's own text for an error, with its number, as the
// reference words it.
func SystemText(err error) string {
	var no syscall.Errno
	if !errors.As(err, &no) {
		return err.Error()
	}
	text := no.Error()
	return fmt.Sprintf("%s%s (os error %d)", strings.ToUpper(text[:1]), text[1:], int(no))
}
