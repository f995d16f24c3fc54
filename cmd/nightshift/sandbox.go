package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// sandboxCmd runs one command confined.
type sandboxCmd struct {
	Mode     string   `name:"mode" enum:"read-only,workspace-write,danger-full-access" default:"workspace-write" help:"What the command may write: ${enum}."`
	Dir      string   `name:"cd" short:"C" placeholder:"DIR" help:"Work in DIR, which is also the workspace."`
	AddDirs  []string `name:"add-dir" placeholder:"DIR" sep:"none" help:"Make DIR writable too. Repeatable."`
	DenyRead []string `name:"deny-read" placeholder:"PATH" sep:"none" help:"Hide PATH from the command. Repeatable."`
	Network  bool     `name:"network" help:"Give the command the host's network."`
	JSON     bool     `name:"json" help:"Print what was enforced and how the command ended as JSON lines on stderr."`
	Command  []string `arg:"" name:"command" passthrough:"" help:"The program and its arguments."`
}

// Run runs the command and ends with its exit code.
func (c *sandboxCmd) Run(rt *runtime) error {
	argv := c.Command
	if len(argv) > 0 && argv[0] == "--" {
		argv = argv[1:]
	}
	if len(argv) == 0 {
		return usageError("sandbox: no command given; use `nightshift sandbox -- CMD…`")
	}
	dir := rt.cwd
	if c.Dir != "" {
		dir = rt.abs(c.Dir)
	}
	p, err := sandbox.Start(rt.ctx, sandbox.Spec{Mode: sandbox.Mode(c.Mode), Workspace: dir},
		sandbox.Command{Argv: argv, Dir: dir, Env: sandbox.CleanEnv(rt.environ), Stdin: rt.stdin})
	if err != nil {
		return err
	}
	out := sandbox.NewLogWriter(rt.stdout)
	if _, err := io.Copy(out, p.Output()); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	x, err := p.Wait()
	if err != nil {
		return err
	}
	return exitSilently(x.Code)
}

// doctorCmd prints what this machine can guarantee.
type doctorCmd struct {
	JSON bool `name:"json" help:"Print the report as JSON."`
}

// Run prints it.
func (c *doctorCmd) Run(rt *runtime) error {
	r := sandbox.Probe()
	if c.JSON {
		return json.NewEncoder(rt.stdout).Encode(r)
	}
	_, err := fmt.Fprintf(rt.stdout, "sandbox: %s\n", r.Level)
	return err
}
