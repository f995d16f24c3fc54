package workspace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// maxRefFile bounds the small files of a git folder (HEAD, a ref, a .git
// file); packed-refs and config are read line by line up to maxGitFile.
const (
	maxRefFile = 4 << 10
	maxGitFile = 64 << 20
)

// Find reads the facts of dir without starting a process. Outside git only
// Facts.Dir is set. A .git that is there but unusable is reported in
// Facts.Problem, not as an error; an error means that dir itself cannot be
// used.
func Find(dir string) (Facts, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Facts{}, fmt.Errorf("working folder %s: %w", dir, err)
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return Facts{}, fmt.Errorf("working folder %s: %w", dir, reason(err))
	}
	if st, err := os.Stat(real); err != nil {
		return Facts{}, fmt.Errorf("working folder %s: %w", dir, reason(err))
	} else if !st.IsDir() {
		return Facts{}, fmt.Errorf("working folder %s: not a folder", dir)
	}
	f := Facts{Dir: real}
	for at := real; ; at = filepath.Dir(at) {
		gitDir, problem := gitFolder(at)
		if gitDir != "" {
			f.Root, f.GitDir = at, gitDir
			f.readRepository()
			return f, nil
		}
		if problem != "" && f.Problem == "" {
			f.Problem = problem
		}
		if at == filepath.Dir(at) {
			return f, nil
		}
	}
}

// State is the git part of run.started, nil outside git. Whether the tree is
// dirty is known only after the baseline (DiffCaptured.Dirty).
func (f Facts) State() *event.GitState {
	if f.Root == "" {
		return nil
	}
	return &event.GitState{Root: f.Root, Commit: f.Commit, Branch: f.Branch, Remote: f.Remote}
}

// reason drops the path that *fs.PathError repeats.
func reason(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// gitFolder returns the git folder that the .git of dir stands for. An empty
// .git folder is no repository to git either (and is what a sandbox leaves
// when it was killed), so the search goes on above it.
func gitFolder(dir string) (gitDir, problem string) {
	dot := filepath.Join(dir, ".git")
	st, err := os.Stat(dot)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Sprintf("%s: %v", dot, reason(err))
		}
		return "", ""
	}
	if st.IsDir() {
		real, err := filepath.EvalSymlinks(dot)
		if err != nil || !isGitFolder(real) {
			return "", ""
		}
		return real, ""
	}
	text, err := readSmall(dot)
	if err != nil {
		return "", fmt.Sprintf("%s: %v", dot, reason(err))
	}
	target, ok := strings.CutPrefix(strings.TrimRight(text, "\r\n"), "gitdir: ")
	if !ok {
		return "", dot + ": not a gitdir file"
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(dir, target)
	}
	real, err := filepath.EvalSymlinks(target)
	if err != nil {
		return "", fmt.Sprintf("%s points to %s: %v", dot, target, reason(err))
	}
	if !isGitFolder(real) {
		return "", fmt.Sprintf("%s points to %s, which is not a git folder", dot, target)
	}
	return real, ""
}

func isGitFolder(dir string) bool {
	if _, err := os.Lstat(filepath.Join(dir, "HEAD")); err != nil {
		return false
	}
	if _, err := os.Stat(filepath.Join(dir, "commondir")); err == nil {
		return true
	}
	st, err := os.Stat(filepath.Join(dir, "objects"))
	return err == nil && st.IsDir()
}

func (f *Facts) readRepository() {
	f.CommonDir = f.GitDir
	if text, err := readSmall(filepath.Join(f.GitDir, "commondir")); err == nil {
		common := strings.TrimRight(text, "\r\n")
		if !filepath.IsAbs(common) {
			common = filepath.Join(f.GitDir, common)
		}
		if real, err := filepath.EvalSymlinks(common); err == nil {
			f.CommonDir, f.Linked = real, real != f.GitDir
		}
	}
	f.MainRoot = f.Root
	if f.Linked && filepath.Base(f.CommonDir) == ".git" {
		f.MainRoot = filepath.Dir(f.CommonDir)
	}
	if !f.Linked && f.GitDir != filepath.Join(f.Root, ".git") {
		f.Submodule = strings.Contains(f.GitDir, string(filepath.Separator)+"modules"+string(filepath.Separator))
	}
	f.readHead()
	f.Remote = remoteURL(filepath.Join(f.CommonDir, "config"))
}

// readHead follows HEAD through symbolic refs. With a reftable backend HEAD is
// a placeholder, and the commit stays unknown.
func (f *Facts) readHead() {
	const maxDepth = 5 // git's own bound for symbolic refs
	name := "HEAD"
	for range maxDepth {
		text, err := readSmall(f.refFile(name))
		if err != nil {
			f.Commit = packedRef(filepath.Join(f.CommonDir, "packed-refs"), name)
			return
		}
		text = strings.TrimSpace(text)
		target, symbolic := strings.CutPrefix(text, "ref:")
		if !symbolic {
			if isObjectID(text) {
				f.Commit = text
			}
			return
		}
		target = strings.TrimSpace(target)
		if !safeRef(target) || target == "refs/heads/.invalid" {
			return
		}
		if name == "HEAD" {
			f.Branch = strings.TrimPrefix(target, "refs/heads/")
		}
		name = target
	}
}

// refFile is where a loose ref lies: HEAD and a few others belong to the work
// tree, the rest to the repository.
func (f *Facts) refFile(name string) string {
	if !strings.HasPrefix(name, "refs/") || strings.HasPrefix(name, "refs/bisect/") || strings.HasPrefix(name, "refs/worktree/") {
		return filepath.Join(f.GitDir, name)
	}
	return filepath.Join(f.CommonDir, name)
}

// safeRef keeps a hostile HEAD from naming a file outside the git folder.
func safeRef(name string) bool {
	return strings.HasPrefix(name, "refs/") && filepath.IsLocal(name) && !strings.ContainsAny(name, "\x00\n\\")
}

func isObjectID(s string) bool {
	if len(s) != 40 && len(s) != 64 {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}

func packedRef(file, name string) string {
	f, err := openRegular(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	sc := bufio.NewScanner(io.LimitReader(f, maxGitFile))
	for sc.Scan() {
		id, ref, ok := strings.Cut(sc.Text(), " ")
		if ok && ref == name && isObjectID(id) {
			return id
		}
	}
	return ""
}

// remoteURL reads remote.origin.url from a git configuration file, without
// following includes, and drops credentials from it.
func remoteURL(file string) string {
	f, err := openRegular(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	inOrigin, found := false, ""
	sc := bufio.NewScanner(io.LimitReader(f, maxGitFile))
	for sc.Scan() {
		line := strings.TrimSpace(sc.Text())
		if strings.HasPrefix(line, "[") {
			head, _, _ := strings.Cut(strings.ToLower(line), "]")
			inOrigin = strings.Join(strings.Fields(strings.Trim(head, "[]")), " ") == `remote "origin"`
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if inOrigin && ok && strings.EqualFold(strings.TrimSpace(key), "url") {
			found = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return withoutCredentials(found)
}

func withoutCredentials(remote string) string {
	if !strings.Contains(remote, "://") { // a path, or user@host:path
		if user, rest, ok := strings.Cut(remote, "@"); ok && user != "git" && !strings.ContainsAny(user, "/\\") {
			return rest
		}
		return remote
	}
	u, err := url.Parse(remote)
	if err != nil {
		return "" // cannot be shown without risking a secret
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

func readSmall(file string) (string, error) {
	f, err := openRegular(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRefFile+1))
	if err != nil {
		return "", err
	}
	if len(b) > maxRefFile || bytes.IndexByte(b, 0) >= 0 {
		return "", errors.New("not a small text file")
	}
	return string(b), nil
}

// openFlags keeps the open of a FIFO from waiting for a writer.
const openFlags = os.O_RDONLY | syscall.O_NONBLOCK

// openRegular opens a regular file; a FIFO or device is an error, not a wait.
func openRegular(file string) (*os.File, error) {
	f, err := os.OpenFile(file, openFlags, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
