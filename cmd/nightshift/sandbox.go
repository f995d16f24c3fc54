package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/workspace"
	"github.com/nightshift-ci/nightshift/sandbox"
	"github.com/nightshift-ci/nightshift/sandbox/egress"
)

// sandboxCmd runs one command confined, with the policy, the sandbox and the
// environment that a run in the same folder would give it.
type sandboxCmd struct {
	Mode         string   `name:"mode" aliases:"sandbox" short:"s" enum:"read-only,workspace-write,danger-full-access" default:"workspace-write" placeholder:"MODE" help:"What the command may write: read-only, workspace-write (the default) or danger-full-access."`
	Dir          string   `name:"cd" short:"C" placeholder:"DIR" help:"Work in DIR, which is also the workspace."`
	AddDirs      []string `name:"add-dir" placeholder:"DIR" sep:"none" help:"Make DIR writable too. Repeatable."`
	DenyRead     []string `name:"deny-read" placeholder:"PATH" sep:"none" help:"Hide PATH from the command. Repeatable."`
	Network      bool     `name:"network" help:"Give the command the host's network, where policy allows it."`
	Config       []string `name:"config" short:"c" sep:"none" placeholder:"KEY=VALUE" help:"Override a configuration value. Repeatable."`
	Requirements []string `name:"requirements" sep:"none" placeholder:"FILE" help:"One more requirements.toml; it can only tighten. Repeatable."`
	Raw          bool     `name:"raw" help:"Pass the output on byte for byte. Without it, what a CI service or a terminal would obey is made harmless, unless stdout is a file."`
	JSON         bool     `name:"json" help:"Print what was enforced and how the command ended as JSON lines on stderr."`
	Command      []string `arg:"" name:"command" passthrough:"" help:"The program and its arguments."`
}

// Exit codes of shells for a program that cannot be run.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// Run runs the command and ends with its exit code.
func (c *sandboxCmd) Run(rt *runtime) error {
	argv, err := programLine("sandbox", c.Command)
	if err != nil {
		return err
	}
	if len(argv) == 0 {
		return usageError("sandbox: no command given; use `nightshift sandbox -- CMD…`")
	}
	s := rt.session(c.runFlags(), job{mode: "sandbox"})
	defer s.close()
	conf, err := s.confinement()
	if err != nil {
		return err
	}
	if v := s.policy.Command(argv); v.Outcome == policy.Denied {
		return exitError{code: runner.ExitPolicy, err: fmt.Errorf("policy forbids this command: %s", v.Reason)}
	}
	box, err := rt.early.Open(rt.ctx, conf.Spec)
	if err != nil {
		return err
	}
	x, err := c.inBox(s, conf, box, argv)
	if cerr := box.Close(); cerr != nil {
		err = errors.Join(err, fmt.Errorf("closing the sandbox: %w", cerr))
	}
	if err != nil {
		return startFailure(err)
	}
	var sig runner.SignalError
	if errors.As(context.Cause(rt.ctx), &sig) {
		return exitSilently(128 + sig.Signal)
	}
	return exitSilently(x.Code)
}

// programLine is the program and its arguments that follow the flags of a
// command. The grammar hands over what it does not know as if it were a program:
// a flag that was mistyped must not become the name of one.
func programLine(command string, words []string) ([]string, error) {
	if len(words) > 0 && words[0] == "--" {
		return words[1:], nil
	}
	if len(words) > 0 && strings.HasPrefix(words[0], "-") {
		return nil, usageError("%w", &hintError{fmt.Errorf("unknown flag %s", words[0]), "see `nightshift " + command + " --help`; a program whose name begins with - goes after --"})
	}
	return words, nil
}

// runFlags says the same as flags of exec.
func (c *sandboxCmd) runFlags() *runFlags {
	f := &runFlags{Sandbox: c.Mode, Cd: c.Dir, AddDir: c.AddDirs, DenyRead: c.DenyRead, Config: c.Config, Requirements: c.Requirements,
		Color: "auto", NoGitHub: true}
	if c.Network {
		f.Config = append(append([]string(nil), f.Config...), "sandbox_workspace_write.network_access=true")
	}
	return f
}

// inBox runs the command in the open sandbox.
func (c *sandboxCmd) inBox(s *session, conf *runner.Confinement, box *sandbox.Sandbox, argv []string) (sandbox.Exit, error) {
	rt := s.rt
	say := json.NewEncoder(rt.stderr)
	if c.JSON {
		if err := say.Encode(sandboxRecord{"sandbox.enforced", conf.Event(box.Report())}); err != nil {
			return sandbox.Exit{}, err
		}
	}
	stop := s.serveEgress(conf, box)
	cmd := sandbox.Command{Argv: argv, Dir: s.workdir,
		Env: conf.Environ(runner.CommandEnv{Base: s.policy.Environment(rt.environ), Version: version, ProxyAddr: box.ProxyAddr()})}
	x, err := box.Foreground(rt.ctx, cmd, sandbox.Streams{In: rt.stdin, Out: rt.stdout, Err: rt.stderr, Raw: c.Raw})
	if err = errors.Join(err, stop()); err != nil {
		return x, err
	}
	switch {
	case c.JSON:
		return x, say.Encode(sandboxRecord{"sandbox.exited", exitRecord{x.Code, x.Signal, x.Killed, x.CPU.Milliseconds(), x.PeakBytes, x.OOMKills, x.Measured}})
	case x.Killed != "":
		_, err = fmt.Fprintf(rt.stderr, "nightshift: the command was killed: it passed the limit of %s\n", x.Killed)
	}
	return x, err
}

// sandboxRecord is one JSON line of --json.
type sandboxRecord struct {
	Type string `json:"type"`
	Body any    `json:"body"`
}

// exitRecord is how a command ended.
type exitRecord struct {
	Code      int    `json:"exit_code"`
	Signal    int    `json:"signal,omitempty"`
	Killed    string `json:"killed,omitempty"` // the limit that ended it
	CPUMS     int64  `json:"cpu_ms"`
	PeakBytes int64  `json:"peak_memory_bytes"`
	OOMKills  int    `json:"oom_kills,omitempty"`
	Source    string `json:"source"` // cgroup, rusage
}

// confinement finds what a run with the same flags would be allowed. It makes
// the private folder, which cleanup removes.
func (s *session) confinement() (*runner.Confinement, error) {
	err := s.openQuietly()
	if err != nil {
		return nil, err
	}
	if s.private, err = s.makePrivate(); err != nil {
		return nil, err
	}
	facts, err := workspace.Find(s.workdir)
	if err != nil {
		return nil, err
	}
	return runner.Confine(runner.ConfineOptions{Policy: s.policy, Workdir: s.workdir, Facts: facts, Home: s.home,
		UserHome: s.rt.userHome(), Private: s.private, LookupEnv: s.rt.lookupEnv})
}

// serveEgress serves the proxy of an allow list and tells what it refused.
func (s *session) serveEgress(conf *runner.Confinement, box *sandbox.Sandbox) (stop func() error) {
	listener := box.ProxyListener()
	if conf.Spec.Net.Mode != sandbox.NetProxy || listener == nil {
		return func() error { return nil }
	}
	tell := func(o egress.Outcome) {
		if !o.Allowed {
			fmt.Fprintf(s.rt.stderr, "nightshift: no connection to %s:%d: %s\n", o.Host, o.Port, o.Reason)
		}
	}
	stopServing := runner.ServeEgress(s.policy, listener, tell)
	return func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.rt.ctx), egressBound)
		defer cancel()
		return stopServing(ctx)
	}
}

// egressBound is how long connections of a command that is gone may take to end.
const egressBound = shutdownBound / 4

// startFailure gives a program that cannot be run the exit code of shells.
func startFailure(err error) error {
	var se *sandbox.StartError
	if !errors.As(err, &se) {
		return err
	}
	code := exitNotExecutable
	if errors.Is(se.Err, syscall.ENOENT) && se.Step == "exec" {
		code = exitNotFound
	}
	return exitError{code: code, err: err}
}
