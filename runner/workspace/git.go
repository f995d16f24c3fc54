package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// Limits of one git process: what it may print, and what is kept of stderr.
const (
	maxGitOutput = 64 << 20
	maxGitStderr = 4 << 10
)

// gitRunner starts git processes in a sandbox.
type gitRunner struct {
	// side is the run's own sandbox, where git can be a side command; nil if it
	// cannot, or could not.
	side *sandbox.Sandbox
	// own opens a sandbox for git alone.
	own func(context.Context) (Sandbox, error)
	env []string // PATH, HOME and XDG_CONFIG_HOME of the caller
}

// safety switches off everything by which a repository's configuration could
// make git run a program, ask, page or reach out. The private git folder has a
// configuration of our own, so for most calls this is the second lock.
var safety = []string{
	"--no-pager", "--no-optional-locks",
	"-c", "core.fsmonitor=false",
	"-c", "core.hooksPath=/dev/null",
	"-c", "core.pager=cat",
	"-c", "core.untrackedCache=false",
	"-c", "core.sshCommand=false",
	"-c", "core.askPass=false",
	"-c", "credential.helper=",
	"-c", "protocol.allow=never",
	"-c", "submodule.recurse=false",
	"-c", "fetch.recurseSubmodules=false",
	"-c", "gc.auto=0",
	"-c", "maintenance.auto=false",
	"-c", "log.showSignature=false",
	"-c", "advice.detachedHead=false",
}

// newGitRunner keeps of env only what git needs: a GIT_DIR or GIT_EXTERNAL_DIFF
// of the caller must not steer these calls.
func newGitRunner(env []string, own func(context.Context) (Sandbox, error)) *gitRunner {
	g := &gitRunner{own: own}
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "PATH", "HOME", "XDG_CONFIG_HOME":
			g.env = append(g.env, kv)
		}
	}
	g.env = append(g.env,
		"LC_ALL=C", "TZ=UTC",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=false", "SSH_ASKPASS=false",
		"GIT_PAGER=cat", "PAGER=cat", "GIT_EDITOR=false",
		"GIT_OPTIONAL_LOCKS=0", "GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1",
		"GIT_LITERAL_PATHSPECS=1", "GIT_FLUSH=0",
	)
	return g
}

// call is one git process.
type call struct {
	args  []string
	env   []string
	dir   string
	stdin string
	max   int // bytes of stdout; 0: maxGitOutput
}

// gitError is a git process that did not end with code 0.
type gitError struct {
	args   []string
	code   int
	signal int // that killed it
	stderr string
}

func (e *gitError) Error() string {
	text := strings.TrimSpace(e.stderr)
	if text == "" {
		text = fmt.Sprintf("exit code %d", e.code)
	}
	return fmt.Sprintf("git %s: %s", e.args[0], text)
}

// errTooMuchOutput is a git process that printed more than its bound.
var errTooMuchOutput = errors.New("more output than can be held")

// run starts git and returns its standard output. It returns when the process
// and all it started are gone.
func (g *gitRunner) run(ctx context.Context, c call) ([]byte, error) {
	if g.side != nil {
		out, err := c.in(ctx, g.side, g.env, true)
		if err == nil || ctx.Err() != nil || !disturbed(err) {
			return out, err
		}
		// Commands share memory and processes with this sandbox and may have left
		// too little of them. They must not decide whether their changes are seen.
		g.side = nil
		if err := c.unlock(); err != nil {
			return nil, err
		}
	}
	box, err := g.own(ctx)
	if err != nil {
		return nil, err
	}
	return c.in(ctx, box, g.env, false)
}

// disturbed tells whether a call may have failed for reasons that are not git's.
func disturbed(err error) bool {
	var failed *gitError
	if errors.As(err, &failed) {
		return failed.signal != 0
	}
	return !errors.Is(err, errTooMuchOutput)
}

// unlock removes what a git that was killed in the middle left.
func (c call) unlock() error {
	for _, kv := range c.env {
		if index, ok := strings.CutPrefix(kv, "GIT_INDEX_FILE="); ok {
			if err := os.Remove(index + ".lock"); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// in makes the call in a sandbox.
func (c call) in(ctx context.Context, box Sandbox, env []string, side bool) ([]byte, error) {
	argv := append([]string{"git"}, safety...)
	cmd := sandbox.Command{
		Argv:        append(argv, c.args...),
		Dir:         c.dir,
		Env:         overlay(env, c.env),
		Side:        side,
		SplitStderr: true,
	}
	if c.stdin != "" {
		cmd.Stdin = strings.NewReader(c.stdin)
	}
	p, err := box.Start(ctx, cmd)
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", c.args[0], err)
	}
	said := make(chan string, 1)
	go func() { said <- tail(p.Stderr(), maxGitStderr) }()
	limit := c.max
	if limit == 0 {
		limit = maxGitOutput
	}
	var out bytes.Buffer
	n, readErr := io.Copy(&out, io.LimitReader(p.Output(), int64(limit)+1))
	tooMuch := n > int64(limit)
	if tooMuch || readErr != nil {
		p.Kill()
	}
	exit, waitErr := p.Wait()
	stderr := <-said
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("git %s: %w", c.args[0], context.Cause(ctx))
	case tooMuch:
		return nil, fmt.Errorf("git %s: %w", c.args[0], errTooMuchOutput)
	case readErr != nil:
		return nil, fmt.Errorf("git %s: %w", c.args[0], readErr)
	case waitErr != nil:
		return nil, fmt.Errorf("git %s: %w", c.args[0], waitErr)
	case exit.Code != 0:
		return nil, &gitError{args: c.args, code: exit.Code, signal: exit.Signal, stderr: stderr}
	}
	return out.Bytes(), nil
}

// overlay joins two environments. A name that both have comes once, with the
// later value: programs read the first one they find.
func overlay(base, more []string) []string {
	var env []string
	at := map[string]int{}
	for _, kv := range slices.Concat(base, more) {
		name, _, _ := strings.Cut(kv, "=")
		if i, ok := at[name]; ok {
			env[i] = kv
			continue
		}
		at[name] = len(env)
		env = append(env, kv)
	}
	return env
}

// tail reads r to its end and keeps the last max bytes.
func tail(r io.Reader, max int) string {
	var kept []byte
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		kept = append(kept, buf[:n]...)
		if len(kept) > max {
			kept = kept[len(kept)-max:]
		}
		if err != nil {
			return string(kept)
		}
	}
}
