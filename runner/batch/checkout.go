package batch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// RepoError is a repository that cannot be used.
type RepoError struct {
	Repo string // without credentials
	Err  error
}

// Error names the repository.
func (e *RepoError) Error() string { return fmt.Sprintf("repository %s: %v", e.Repo, e.Err) }

// Unwrap gives the reason.
func (e *RepoError) Unwrap() error { return e.Err }

// Checkout makes a work tree of repo at ref in dir, detached, and returns the
// commit. An empty ref is the repository's HEAD. Errors are a *RepoError.
func (g *Git) Checkout(ctx context.Context, repo, ref, dir string) (string, error) {
	release := g.Hold()
	commit, err := g.checkout(ctx, repo, ref, dir)
	if err = errors.Join(err, release()); err != nil {
		return "", &RepoError{CleanURL(repo), err}
	}
	return commit, nil
}

func (g *Git) checkout(ctx context.Context, repo, ref, dir string) (string, error) {
	if path, local := Local(repo); local {
		return g.checkoutLocal(ctx, path, ref, dir)
	}
	src, err := g.fetch(ctx, repo, ref)
	if err != nil {
		return "", err
	}
	return src.commit, g.checkoutCached(ctx, src, dir)
}

// Resolve finds the commit that ref means in a local repository: a branch, a
// tag, or anything else that git can name a commit by. Checkouts of that ref
// begin at that commit from then on, whatever moves meanwhile: all tasks of a
// batch see the same code. Errors are a *RepoError.
func (g *Git) Resolve(ctx context.Context, repo, ref string) (string, error) {
	path, _ := Local(repo)
	commit, err := g.resolve(ctx, path, ref)
	if err != nil {
		return "", &RepoError{repo, err}
	}
	g.resolved.Store(repoRef{path, ref}, commit)
	return commit, nil
}

// repoRef is a ref of a local repository.
type repoRef struct{ path, ref string }

func (g *Git) resolve(ctx context.Context, dir, ref string) (string, error) {
	names := []string{"HEAD"}
	if ref != "" {
		names = []string{"refs/heads/" + ref, "refs/tags/" + ref, ref}
	}
	commit, err := g.find(ctx, dir, names)
	var failed *GitError
	switch {
	case errors.As(err, &failed) && strings.Contains(failed.Stderr, "not a git repository"):
		return "", errors.New("it is not a git repository")
	case err != nil:
		return "", err
	case commit == "" && ref == "":
		return "", errors.New("it has no commit")
	case commit == "":
		return "", fmt.Errorf("there is no branch, tag or commit %q", ref)
	}
	return commit, nil
}

// find returns the commit of the first of names that has one, "" if none has.
// The names go to git on standard input, so none can be taken for an option.
func (g *Git) find(ctx context.Context, dir string, names []string) (string, error) {
	c := call{dir: dir, args: []string{"cat-file", "--batch-check=%(objectname) %(objecttype)"}}
	for _, n := range names {
		c.stdin += n + "^{commit}\n"
	}
	out, err := g.run(ctx, c)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		if id, ok := strings.CutSuffix(strings.TrimSpace(line), " commit"); ok {
			return id, nil
		}
	}
	return "", nil
}

// checkoutLocal makes a clone that borrows the objects of source.
func (g *Git) checkoutLocal(ctx context.Context, source, ref, dir string) (string, error) {
	known, ok := g.resolved.Load(repoRef{source, ref})
	source, err := filepath.EvalSymlinks(source)
	if err != nil {
		return "", err
	}
	commit, _ := known.(string)
	if !ok {
		if commit, err = g.resolve(ctx, source, ref); err != nil {
			return "", err
		}
	}
	trust, err := g.trust()
	if err != nil {
		return "", err
	}
	// Both steps are one call, since most of a call is making its processes.
	_, err = g.run(ctx, call{dir: g.Root, write: g.Root, env: trust,
		args: []string{"clone", "--quiet", "--shared", "--no-checkout", "--template=", "--", source, dir},
		then: switchTo(commit), in: dir})
	return commit, err
}

// trustFile lets git read repositories of other users, as they are mounted into
// containers. A clone reads its source by a process that forgets -c options, so
// this is a file.
const trustFile = "git-clone.config"

// trust is the environment of a clone of a local repository.
func (g *Git) trust() ([]string, error) {
	const text = "[safe]\n\tdirectory = *\n"
	path := filepath.Join(g.Root, trustFile)
	if have, err := os.ReadFile(path); err != nil || string(have) != text {
		if err := writeDurable(path, []byte(text)); err != nil {
			return nil, err
		}
	}
	return []string{"GIT_CONFIG_GLOBAL=" + path}, nil
}

func switchTo(commit string) []string {
	return []string{"checkout", "--quiet", "--detach", "--force", commit}
}

// cached is a commit of a remote in the cache.
type cached struct {
	dir     string // bare repository
	commit  string
	branch  string // of the remote, if it is the tip of one
	origin  string // URL without credentials
	format  string // sha1 or sha256
	shallow []byte // commits whose parents are not there
}

// remote is one that is being fetched; its cache is locked.
type remote struct {
	g *Git
	cached
	env []string // credentials
}

// fetch brings the commit of a remote's ref into the cache. One process at a
// time fetches one remote; the others find it there.
func (g *Git) fetch(ctx context.Context, repo, ref string) (cached, error) {
	clean, user := splitURL(repo)
	sum := sha256.Sum256([]byte(clean))
	r := &remote{g: g, env: credential(clean, user, g.Environ),
		cached: cached{dir: filepath.Join(g.Cache, hex.EncodeToString(sum[:8])+".git"), origin: clean}}
	if err := os.MkdirAll(g.Cache, 0o755); err != nil {
		return cached{}, err
	}
	lock := flock.New(r.dir + ".lock")
	if ok, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil || !ok {
		return cached{}, fmt.Errorf("the repository cache %s is locked: %w", r.dir, err)
	}
	defer func() { _ = lock.Close() }() // the lock ends with its descriptor
	if err := r.get(ctx, ref); err != nil {
		return cached{}, err
	}
	var err error
	if r.shallow, err = os.ReadFile(filepath.Join(r.dir, "shallow")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return cached{}, err
	}
	return r.cached, nil
}

// get finds out what ref is, and fetches it unless it is there.
func (r *remote) get(ctx context.Context, ref string) error {
	if isObjectID(ref) {
		r.commit = ref
		return r.bring(ctx, ref, ref)
	}
	id, name, err := r.lookUp(ctx, ref)
	if err != nil {
		return err
	}
	if id == "" {
		return r.guess(ctx, ref)
	}
	return r.bring(ctx, id, name)
}

// lookUp asks the remote for a branch or tag; "" if it has neither.
func (r *remote) lookUp(ctx context.Context, ref string) (id, name string, err error) {
	names := []string{"HEAD"}
	if ref != "" {
		names = []string{"refs/heads/" + ref, "refs/tags/" + ref + "^{}", "refs/tags/" + ref}
	}
	out, err := r.network(ctx, append([]string{"ls-remote", "--quiet", "--symref", "--", r.origin}, names...)...)
	if err != nil {
		return "", "", err
	}
	ids := map[string]string{}
	for line := range strings.Lines(out) {
		id, name, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if target, ok := strings.CutPrefix(id, "ref: refs/heads/"); ok && name == "HEAD" {
			r.branch = target
			continue
		}
		ids[name] = id
	}
	for _, n := range names {
		if id := ids[n]; id != "" {
			if ref != "" {
				r.branch, _ = strings.CutPrefix(n, "refs/heads/")
				if r.branch == n {
					r.branch = ""
				}
			}
			return id, strings.TrimSuffix(n, "^{}"), nil
		}
	}
	return "", "", nil
}

// bring fetches name, which was at id a moment ago.
func (r *remote) bring(ctx context.Context, id, name string) error {
	if err := r.init(ctx, id); err != nil {
		return err
	}
	_, serr := os.Stat(filepath.Join(r.dir, "shallow"))
	deepen := r.g.Depth == 0 && serr == nil
	if have, err := r.g.find(ctx, r.dir, []string{id}); err != nil || have != "" && !deepen {
		r.commit = have
		return err
	}
	to := "refs/nightshift/" + strings.TrimPrefix(name, "refs/")
	args := []string{"fetch", "--quiet", "--no-tags", "--no-write-fetch-head"}
	switch {
	case r.g.Depth > 0:
		args = append(args, "--depth="+strconv.Itoa(r.g.Depth))
	case deepen:
		args = append(args, "--unshallow")
	}
	if _, err := r.network(ctx, append(args, "--", r.origin, "+"+name+":"+to)...); err != nil {
		if isObjectID(name) && ctx.Err() == nil {
			return r.guess(ctx, name) // not every server hands out single commits
		}
		return err
	}
	var ferr error
	if r.commit, ferr = r.g.find(ctx, r.dir, []string{to}); ferr == nil && r.commit == "" {
		ferr = fmt.Errorf("%s is not a commit", name)
	}
	return ferr
}

// guess fetches everything, since ref is neither a branch nor a tag.
func (r *remote) guess(ctx context.Context, ref string) error {
	missing := fmt.Errorf("there is no branch, tag or commit %q", ref)
	if ref == "" {
		return errors.New("it has no commit")
	}
	if strings.Trim(ref, "0123456789abcdef") != "" || len(ref) < 7 {
		return missing
	}
	if err := r.init(ctx, ref); err != nil {
		return err
	}
	args := []string{"fetch", "--quiet", "--no-write-fetch-head"}
	if _, err := os.Stat(filepath.Join(r.dir, "shallow")); err == nil {
		args = append(args, "--unshallow")
	}
	if _, err := r.network(ctx, append(args, "--", r.origin, "+refs/*:refs/nightshift/*")...); err != nil {
		return err
	}
	var err error
	if r.commit, err = r.g.find(ctx, r.dir, []string{ref}); err == nil && r.commit == "" {
		err = missing
	}
	return err
}

// init makes the cache's repository in the object format of id.
func (r *remote) init(ctx context.Context, id string) error {
	r.format = "sha1"
	if len(id) == sha256.Size*2 {
		r.format = "sha256"
	}
	if _, err := os.Stat(filepath.Join(r.dir, "HEAD")); err == nil {
		return nil
	}
	_, err := r.g.run(ctx, call{dir: r.g.Cache, write: r.g.Cache,
		args: []string{"init", "--quiet", "--bare", "--template=", "--object-format=" + r.format, r.dir}})
	return err
}

// network runs git against the remote, again where the network failed.
func (r *remote) network(ctx context.Context, args ...string) (string, error) {
	dir := r.dir
	if _, err := os.Stat(dir); err != nil {
		dir = r.g.Cache
	}
	wait := time.Second
	for try := 1; ; try++ {
		out, err := r.g.run(ctx, call{dir: dir, write: r.g.Cache, net: true, env: r.env, args: args})
		if err == nil || try == fetchTries || !transient(err) {
			return out, err
		}
		if err := sleep(ctx, wait); err != nil {
			return "", err
		}
		wait *= 4
	}
}

// fetchTries is how often a remote is asked before its task fails.
const fetchTries = 3

// transient tells whether git failed for a reason that may pass. git has one
// exit code for everything, so its words must be read (in the C locale).
func transient(err error) bool {
	var ge *GitError
	if !errors.As(err, &ge) {
		return false
	}
	for _, text := range []string{"Could not resolve host", "Temporary failure", "Connection timed out", "Connection reset", "Connection refused",
		"timed out", "early EOF", "hung up unexpectedly", "RPC failed", "returned error: 429", "returned error: 5", "index-pack failed", "Broken pipe"} {
		if strings.Contains(ge.Stderr, text) {
			return true
		}
	}
	return false
}

// checkoutCached makes a work tree that borrows the cache's objects.
func (g *Git) checkoutCached(ctx context.Context, src cached, dir string) error {
	if _, err := g.run(ctx, call{dir: g.Root, write: g.Root,
		args: []string{"init", "--quiet", "--template=", "--initial-branch=main", "--object-format=" + src.format, dir}}); err != nil {
		return err
	}
	info := filepath.Join(dir, ".git", "objects", "info")
	err := os.MkdirAll(info, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(info, "alternates"), []byte(filepath.Join(src.dir, "objects")+"\n"), 0o644)
	}
	if err == nil && len(src.shallow) > 0 {
		err = os.WriteFile(filepath.Join(dir, ".git", "shallow"), src.shallow, 0o644)
	}
	if err != nil {
		return err
	}
	if _, err := g.run(ctx, call{dir: dir, write: g.Root, args: []string{"remote", "add", "origin", src.origin}}); err != nil {
		return err
	}
	if src.branch != "" {
		if _, err := g.run(ctx, call{dir: dir, write: g.Root, args: []string{"update-ref", "refs/remotes/origin/" + src.branch, src.commit}}); err != nil {
			return err
		}
	}
	_, err = g.run(ctx, call{dir: dir, write: g.Root, args: switchTo(src.commit)})
	return err
}

func isObjectID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}
