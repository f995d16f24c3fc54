package batch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// Bounds of git calls.
const (
	localGit  = 10 * time.Minute
	remoteGit = 30 * time.Minute
)

// Git makes checkouts. Local repositories are only read: a task's checkout is a
// clone that borrows their objects. Remote ones are fetched once into a cache
// below Cache and borrowed from there. Every git process is confined: it may
// write below Root only, and reaches the network only to fetch a remote.
type Git struct {
	Root    string // results folder, absolute
	Cache   string // folder of fetched repositories
	Environ []string
	Require sandbox.Guarantee
}

// Local tells whether repo is on this machine, and its path.
func Local(repo string) (string, bool) {
	if p, ok := strings.CutPrefix(repo, "file://"); ok {
		return p, true
	}
	if strings.Contains(repo, "://") {
		return "", false
	}
	// scp-like: host:path, unless a file of that name is there.
	if i := strings.IndexByte(repo, ':'); i > 0 && !strings.Contains(repo[:i], "/") {
		if _, err := os.Stat(repo); err != nil {
			return "", false
		}
	}
	return repo, true
}

// Checkout clones repo at ref into dir and returns the commit.
func (g *Git) Checkout(ctx context.Context, repo, ref, dir string) (string, error) {
	source, local := Local(repo)
	if !local {
		cached, err := g.fetch(ctx, repo, ref)
		if err != nil {
			return "", err
		}
		source = cached
	}
	source, err := filepath.EvalSymlinks(source)
	if err != nil {
		return "", fmt.Errorf("repository %s: %w", repo, err)
	}
	if _, err := g.run(ctx, localGit, false, g.Root, "clone", "--quiet", "--shared", "--no-checkout", "--template=", "--", source, dir); err != nil {
		return "", fmt.Errorf("repository %s: %w", repo, err)
	}
	commit, err := g.resolve(ctx, dir, ref)
	if err != nil {
		return "", fmt.Errorf("repository %s: %w", repo, err)
	}
	if _, err := g.run(ctx, localGit, false, dir, "checkout", "--quiet", "--detach", commit); err != nil {
		return "", fmt.Errorf("repository %s: %w", repo, err)
	}
	return commit, nil
}

// resolve finds ref as a branch of the source, a tag or a commit.
func (g *Git) resolve(ctx context.Context, dir, ref string) (string, error) {
	names := []string{"HEAD"}
	if ref != "" {
		names = []string{"refs/remotes/origin/" + ref, "refs/tags/" + ref, ref}
	}
	for _, n := range names {
		out, err := g.run(ctx, localGit, false, dir, "rev-parse", "--verify", "--quiet", "--end-of-options", n+"^{commit}")
		if err == nil {
			return strings.TrimSpace(out), nil
		}
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
	}
	if ref == "" {
		return "", errors.New("it has no commit")
	}
	return "", fmt.Errorf("there is no branch, tag or commit %q", ref)
}

// fetch brings a remote into the cache. One process at a time fetches one
// remote; the others find it there.
func (g *Git) fetch(ctx context.Context, repo, ref string) (string, error) {
	sum := sha256.Sum256([]byte(repo))
	dir := filepath.Join(g.Cache, hex.EncodeToString(sum[:8])+".git")
	if err := os.MkdirAll(g.Cache, 0o755); err != nil {
		return "", err
	}
	lock := flock.New(dir + ".lock")
	if ok, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil || !ok {
		return "", fmt.Errorf("the repository cache %s is locked: %w", dir, err)
	}
	defer func() { _ = lock.Unlock() }() // the lock dies with its descriptor at the latest
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); err != nil {
		if _, err := g.run(ctx, remoteGit, true, g.Cache, "clone", "--quiet", "--mirror", "--template=", "--", repo, dir); err != nil {
			return "", fmt.Errorf("repository %s: %w", repo, err)
		}
		return dir, nil
	}
	if ref != "" {
		if _, err := g.run(ctx, localGit, false, dir, "cat-file", "-e", "--end-of-options", ref+"^{commit}"); err == nil && len(ref) == 40 {
			return dir, nil // a commit that is here already
		}
	}
	if _, err := g.run(ctx, remoteGit, true, dir, "fetch", "--quiet", "--prune", "origin", "+refs/*:refs/*"); err != nil {
		return "", fmt.Errorf("repository %s: %w", repo, err)
	}
	return dir, nil
}

// Commit makes a commit of everything that changed in tree.
func (g *Git) Commit(ctx context.Context, tree, subject, body string) (string, error) {
	if _, err := g.run(ctx, localGit, false, tree, "add", "-A"); err != nil {
		return "", err
	}
	if _, err := g.run(ctx, localGit, false, tree, "-c", "user.name=nightshift", "-c", "user.email=nightshift@localhost",
		"commit", "--quiet", "--no-verify", "--no-gpg-sign", "-m", subject, "-m", body); err != nil {
		return "", err
	}
	return g.resolve(ctx, tree, "")
}

// Branch brings the commit of tree into repo as branch. It is the one place
// that writes to a user's repository, and only when asked.
func (g *Git) Branch(ctx context.Context, repo, tree, branch string) error {
	source, local := Local(repo)
	if !local {
		// The branch stays in the task's checkout; pushing is a step of its own
		// whose token the agent never sees.
		_, err := g.run(ctx, localGit, false, tree, "branch", "--force", branch, "HEAD")
		return err
	}
	source, err := filepath.EvalSymlinks(source)
	if err != nil {
		return err
	}
	spec := g.spec(false, source)
	_, err = g.start(ctx, spec, localGit, source, "fetch", "--quiet", "--no-tags", "--force", "--", tree, "HEAD:refs/heads/"+branch)
	return err
}

// spec shows the host's /tmp, read-only: repositories and the objects that their
// clones borrow may lie there.
func (g *Git) spec(network bool, write string) sandbox.Spec {
	s := sandbox.Spec{Mode: sandbox.WorkspaceWrite, Workspace: write, Write: []string{write}, Require: g.Require, HostTmp: true}
	if network {
		s.Net.Mode = sandbox.NetHost
		s.Require &^= sandbox.NetConfined
	}
	return s
}

func (g *Git) run(ctx context.Context, bound time.Duration, network bool, dir string, args ...string) (string, error) {
	write := g.Root
	if network {
		write = g.Cache
	}
	return g.start(ctx, g.spec(network, write), bound, dir, args...)
}

// safe switches off what a repository's configuration could make git run.
var safe = []string{"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.pager=cat", "-c", "diff.external=",
	"-c", "protocol.ext.allow=never", "-c", "submodule.recurse=false", "-c", "core.symlinks=true", "-c", "advice.detachedHead=false",
	"-c", "safe.directory=*", "-c", "gc.auto=0", "-c", "maintenance.auto=false"}

// gitEnv is environ with git kept from asking. Each name is there once: of two,
// programs take the first.
func gitEnv(environ []string) []string {
	ours := []string{"GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_NOSYSTEM=1", "GIT_PAGER=cat", "GIT_ASKPASS=true", "LC_ALL=C.UTF-8"}
	var out []string
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if !slices.ContainsFunc(ours, func(o string) bool { return strings.HasPrefix(o, name+"=") }) {
			out = append(out, e)
		}
	}
	return append(out, ours...)
}

func (g *Git) start(ctx context.Context, spec sandbox.Spec, bound time.Duration, dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	env := gitEnv(g.Environ)
	p, err := sandbox.Start(ctx, spec, sandbox.Command{Argv: append(append([]string{"git"}, safe...), args...), Dir: dir, Env: env, SplitStderr: true})
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	var stderr bytes.Buffer
	read := make(chan error, 1)
	go func() {
		_, err := io.Copy(&stderr, io.LimitReader(p.Stderr(), 64<<10))
		_, derr := io.Copy(io.Discard, p.Stderr())
		read <- errors.Join(err, derr)
	}()
	out, err := io.ReadAll(io.LimitReader(p.Output(), 1<<20))
	exit, werr := p.Wait()
	err = errors.Join(err, <-read, werr)
	if cause := context.Cause(ctx); cause != nil {
		return "", fmt.Errorf("git %s: %w", args[0], cause)
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	if exit.Code != 0 {
		return "", fmt.Errorf("git %s ended with code %d: %s", args[0], exit.Code, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
