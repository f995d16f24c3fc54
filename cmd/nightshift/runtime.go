package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// runtime is what the process gives a command: streams, arguments, environment.
// Nothing below cmd reads any of these by itself, so one process can hold many
// runs (tests, batch).
type runtime struct {
	ctx     context.Context
	stdin   io.Reader
	stdout  io.Writer
	stderr  io.Writer
	environ []string
	cwd     string
	// systemDir holds the machine's config.toml and requirements.toml.
	systemDir string
	// ending knows whether the process has to end; nil: it never has to.
	ending *ending
	// exposed says why this process could not be hidden from others of its user.
	exposed error
	// early is the start of the sandbox that the command will want; nil: none was
	// begun.
	early *sandbox.Early
	// self is argv[0]'s base name: the program also answers to "codex".
	self string
}

// getenv returns a variable of the environment, "" when unset.
func (rt *runtime) getenv(name string) string {
	v, _ := rt.lookupEnv(name)
	return v
}

// lookupEnv finds a variable; of two equal names the last wins, as in a shell.
func (rt *runtime) lookupEnv(name string) (string, bool) {
	for i := len(rt.environ) - 1; i >= 0; i-- {
		e := rt.environ[i]
		if len(e) > len(name) && e[len(name)] == '=' && e[:len(name)] == name {
			return e[len(name)+1:], true
		}
	}
	return "", false
}

// jobMask masks the secrets of the job's environment. They are known before
// anything is read, so that no error can show one.
func (rt *runtime) jobMask() *event.Redactor {
	mask := event.NewRedactor()
	for name, value := range runner.JobSecrets(rt.environ) {
		mask.Add(value, name)
	}
	return mask
}

// userHome is $HOME. Services and cron jobs may have none: then it is the home
// of the account, as the reference has it, and "/" for one that is not listed.
func (rt *runtime) userHome() string {
	if h := rt.getenv("HOME"); filepath.IsAbs(h) {
		return h
	}
	if account, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil && filepath.IsAbs(account.HomeDir) {
		return account.HomeDir
	}
	return "/"
}

// codexHome is the folder of config.toml and auth.json. A CODEX_HOME that is
// named but missing is an error, since the wrong login or policy would be used
// otherwise; the default folder is only read here and made by whoever writes.
func (rt *runtime) codexHome() (string, error) {
	if dir, ok := rt.lookupEnv("CODEX_HOME"); ok && dir != "" {
		fi, err := os.Stat(dir)
		if err != nil {
			return "", usageHint("make the folder in a step before, or leave the variable out", "CODEX_HOME points to %q, but that path does not exist", dir)
		}
		if !fi.IsDir() {
			return "", usageHint("name the folder that config.toml and auth.json are in", "CODEX_HOME points to %q, which is not a folder", dir)
		}
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", fmt.Errorf("CODEX_HOME: %w", err)
		}
		return filepath.EvalSymlinks(abs)
	}
	return filepath.Join(rt.userHome(), ".codex"), nil
}

// abs makes a path given on the command line absolute, from the folder the
// process was started in (not from -C).
func (rt *runtime) abs(p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(rt.cwd, p)
}
