package batch

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// Bounds of git calls.
const (
	localGit  = 10 * time.Minute
	remoteGit = 30 * time.Minute
	// maxGitOutput bounds what is kept of a call's output; we ask for names only.
	maxGitOutput = 1 << 20
	maxGitError  = 64 << 10
	maxGitDiff   = 256 << 20
)

// Git makes checkouts. Local repositories are only read: a task's checkout
// borrows their objects. Remote ones are fetched into a cache below Cache,
// which all tasks share, and borrowed from there. Every git process is
// confined: it may write below Root only (or the one repository that Branch is
// asked to write to), and reaches the network only to fetch a remote. Its
// methods are safe for concurrent use.
type Git struct {
	Root  string // results folder, absolute and real
	Cache string // folder of fetched repositories
	// Depth is how many commits of a remote's history are fetched; 0: all.
	Depth   int
	Environ []string
	Require sandbox.Guarantee

	boxes    boxes
	resolved sync.Map // repoRef -> commit, by Resolve
}

// GitError is a git call that failed.
type GitError struct {
	Command string
	Code    int
	Stderr  string
}

// Error names the command and what git said.
func (e *GitError) Error() string {
	return fmt.Sprintf("git %s ended with code %d: %s", e.Command, e.Code, e.Stderr)
}

// call is one git process.
type call struct {
	dir   string // where it runs
	write string // what it may write; "" nothing
	also  string // one more folder, "" none
	env   []string
	net   bool
	all   bool // the whole output is wanted, not only names
	stdin string
	args  []string
	// then is a second git command, run in the folder in when the first succeeds;
	// env is for the first one only.
	then []string
	in   string
}

// argv is git, or a shell that runs it twice.
func (c call) argv() []string {
	first := slices.Concat([]string{"git"}, safe, c.args)
	if c.then == nil {
		return first
	}
	script := ""
	for _, e := range c.env {
		name, value, _ := strings.Cut(e, "=")
		script += name + "=" + quoted([]string{value}) + " "
	}
	script += quoted(first) + " && cd " + quoted([]string{c.in}) + " && exec " + quoted(slices.Concat([]string{"git"}, safe, c.then))
	return []string{"sh", "-c", script}
}

// quoted writes arguments so that a shell reads them as they are.
func quoted(args []string) string {
	var out []string
	for _, a := range args {
		out = append(out, "'"+strings.ReplaceAll(a, "'", `'\''`)+"'")
	}
	return strings.Join(out, " ")
}

// safe switches off what a repository's configuration could make git run.
var safe = []string{"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.pager=cat", "-c", "diff.external=",
	"-c", "protocol.ext.allow=never", "-c", "submodule.recurse=false", "-c", "core.symlinks=true", "-c", "advice.detachedHead=false",
	"-c", "safe.directory=*", "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "fetch.writeCommitGraph=false",
	"-c", "core.logAllRefUpdates=false", "-c", "commit.gpgSign=false", "-c", "core.attributesFile=/dev/null"}

// quiet keeps git and ssh from ever asking somebody, and from hanging on a dead
// connection.
var quiet = []string{"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=true", "SSH_ASKPASS=true", "SSH_ASKPASS_REQUIRE=never", "GIT_CONFIG_NOSYSTEM=1",
	"GIT_PAGER=cat", "GIT_LFS_SKIP_SMUDGE=1", "GIT_HTTP_LOW_SPEED_LIMIT=1", "GIT_HTTP_LOW_SPEED_TIME=120", "LC_ALL=C.UTF-8", "LANGUAGE=C"}

// dropped are variables that would point git somewhere else.
var dropped = []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR",
	"GIT_NAMESPACE", "GIT_CEILING_DIRECTORIES", "GIT_EXTERNAL_DIFF", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_PREFIX", "GIT_TEMPLATE_DIR",
	"GIT_SHALLOW_FILE", "GIT_GRAFT_FILE", "GIT_REPLACE_REF_BASE", "GIT_CONFIG", "GIT_QUARANTINE_PATH", "GIT_DEFAULT_HASH", "GIT_DEFAULT_REF_FORMAT",
	"GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS", "GIT_DIFF_OPTS"}

// environ is the environment of git: the job's, without what would mislead git.
func (g *Git) environ(c call) []string {
	var out []string
	ssh := false
	for _, e := range g.Environ {
		name, _, _ := strings.Cut(e, "=")
		ssh = ssh || name == "GIT_SSH_COMMAND" || name == "GIT_SSH"
		drop := strings.HasPrefix(name, "GIT_TRACE")
		for _, d := range dropped {
			drop = drop || name == d
		}
		if !drop {
			out = append(out, e)
		}
	}
	if c.net && !ssh {
		out = append(out, "GIT_SSH_COMMAND=ssh -oBatchMode=yes -oConnectTimeout=30 -oServerAliveInterval=30 -oServerAliveCountMax=4")
	}
	out = append(out, quiet...)
	if c.then != nil {
		return out
	}
	return append(out, c.env...)
}

// spec shows the host's /tmp, read-only: repositories and the objects that their
// clones borrow may lie there.
func (g *Git) spec(c call) sandbox.Spec {
	s := sandbox.Spec{Mode: sandbox.ReadOnly, Require: g.Require, HostTmp: true}
	if c.write != "" {
		s.Mode, s.Workspace, s.Write = sandbox.WorkspaceWrite, c.write, []string{c.write}
		if c.also != "" {
			s.Write = append(s.Write, c.also)
		}
	}
	if c.net {
		s.Net.Mode = sandbox.NetHost
		s.Require &^= sandbox.NetConfined
		for _, e := range g.Environ {
			if sock, ok := strings.CutPrefix(e, "SSH_AUTH_SOCK="); ok && filepath.IsAbs(sock) {
				s.Net.UnixSockets = append(s.Net.UnixSockets, sock)
			}
		}
	}
	return s
}

// run runs git and returns its output.
func (g *Git) run(ctx context.Context, c call) (string, error) {
	bound := localGit
	if c.net {
		bound = remoteGit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("git %s took more than %s", c.args[0], bound))
	defer cancel()
	command := sandbox.Command{Argv: c.argv(), Dir: c.dir, Env: g.environ(c), SplitStderr: true, Stdin: strings.NewReader(c.stdin)}
	p, err := g.start(ctx, c, command)
	if err != nil {
		return "", fmt.Errorf("git %s: %w", c.args[0], err)
	}
	var stderr bytes.Buffer
	read := make(chan error, 1)
	go func() {
		_, err := io.Copy(&stderr, io.LimitReader(p.Stderr(), maxGitError))
		_, derr := io.Copy(io.Discard, p.Stderr())
		read <- errors.Join(err, derr)
	}()
	limit := int64(maxGitOutput)
	if c.all {
		limit = maxGitDiff
	}
	out, err := io.ReadAll(io.LimitReader(p.Output(), limit+1))
	if err == nil && int64(len(out)) > limit { // half a list, or half a change, is the wrong one
		err = fmt.Errorf("its output is larger than %d MiB", limit>>20)
	}
	_, derr := io.Copy(io.Discard, p.Output())
	exit, werr := p.Wait()
	err = errors.Join(err, derr, <-read, werr)
	if cause := context.Cause(ctx); cause != nil {
		return "", fmt.Errorf("git %s: %w", c.args[0], cause)
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", c.args[0], err)
	}
	if exit.Code != 0 {
		return "", &GitError{c.args[0], exit.Code, strings.TrimSpace(stderr.String())}
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// Local tells whether repo is on this machine, and its path.
func Local(repo string) (string, bool) {
	if p, ok := strings.CutPrefix(repo, "file://"); ok {
		return strings.TrimPrefix(p, "localhost"), true
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

// CleanURL is repo without user name and password, where they are secrets: a
// user of ssh is part of the address.
func CleanURL(repo string) string {
	clean, _ := splitURL(repo)
	return clean
}

// splitURL takes the credentials out of a URL.
func splitURL(repo string) (clean string, user *url.Userinfo) {
	u, err := url.Parse(repo)
	if err != nil || u.User == nil {
		return repo, nil
	}
	user = u.User
	if strings.HasSuffix(u.Scheme, "ssh") || u.Scheme == "git" {
		u.User = url.User(user.Username())
	} else {
		u.User = nil
	}
	return u.String(), user
}

// credential hands the credentials of a URL to git in its environment: not in
// its arguments, which others see, nor in a configuration that stays on disk.
// The header goes to that host only, also when it redirects. It comes after the
// settings that environ gives git already.
func credential(clean string, user *url.Userinfo, environ []string) []string {
	u, err := url.Parse(clean)
	if user == nil || err != nil || !strings.HasPrefix(u.Scheme, "http") {
		return nil
	}
	pass, _ := user.Password()
	basic := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + pass))
	settings := 0
	for _, e := range environ {
		if n, ok := strings.CutPrefix(e, "GIT_CONFIG_COUNT="); ok {
			settings, err = strconv.Atoi(n)
		}
	}
	if err != nil || settings < 0 {
		settings = 0 // git would refuse such a number
	}
	n := strconv.Itoa(settings)
	return []string{"GIT_CONFIG_COUNT=" + strconv.Itoa(settings+1), "GIT_CONFIG_KEY_" + n + "=http." + u.Scheme + "://" + u.Host + "/.extraHeader",
		"GIT_CONFIG_VALUE_" + n + "=Authorization: Basic " + basic}
}
