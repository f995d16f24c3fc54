// Command nightshift runs a coding agent in CI: no human is there, every effect
// is confined, and the exit code tells the truth. Invoked as "codex" it is the
// same program.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/nightshift-ci/nightshift/cmd/nightshift/early"
	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// version is set by the release build.
var version = "0.1.0-dev"

// systemDir is where a machine's administrator keeps policy. It is fixed when
// the program is linked: a variable or flag could be used to walk around it.
// Only the binaries of our tests are linked with "$NAME", which reads the
// folder from that variable.
var systemDir = "/etc/codex"

func main() {
	// Re-executed copies confine themselves and never come back.
	sandbox.Init(runner.Helpers())
	os.Exit(start())
}

func start() int {
	cwd, err := os.Getwd()
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: the working folder cannot be read: %v\n", err)
		return runner.ExitUsage
	}
	// The environment is copied first: HideSelf wipes it from /proc.
	environ := append([]string(nil), os.Environ()...)
	for i, e := range environ {
		environ[i] = string(append([]byte(nil), e...))
	}
	// When Go itself gives up (no memory, no thread), it would exit with 2, which
	// says that the command line is wrong. Ended by SIGABRT is the truth.
	debug.SetTraceback("crash")
	exposed := sandbox.HideSelf()
	collectLate(environ)
	signal.Ignore(syscall.SIGPIPE)
	end := newEnding()
	rt := &runtime{
		ctx: withSignals(context.Background(), end), stdin: os.Stdin, stdout: end.outlet(os.Stdout), stderr: end.outlet(os.Stderr), ending: end,
		environ: environ, cwd: cwd, systemDir: linkedSystemDir(), self: filepath.Base(os.Args[0]), exposed: exposed, early: early.Sandbox,
	}
	if err := rt.trustAuthorities(); err != nil {
		return explain(rt, err)
	}
	return run(rt, os.Args[1:])
}

// collectLate puts the first garbage collection off until the heap has 16 MiB:
// most runs end before, and it would fall into the time before the first
// request. What needs more memory is collected as usual from then on. A GOGC of
// the user's own stands.
func collectLate(environ []string) {
	if slices.ContainsFunc(environ, func(e string) bool { return strings.HasPrefix(e, "GOGC=") }) {
		return
	}
	const late, usual = 400, 100
	debug.SetGCPercent(late)
	goruntime.AddCleanup(new([64]byte), func(percent int) { debug.SetGCPercent(percent) }, usual)
}

// run parses args and runs the command. It returns the exit code.
func run(rt *runtime, args []string) (code int) {
	defer func() {
		if v := recover(); v != nil {
			bug := &runner.Panic{Value: v, Stack: debug.Stack()}
			code = explain(rt, bug)
			fmt.Fprintf(rt.stderr, "%s", bug.Stack)
		}
	}()
	cmd, err := parse(rt, args)
	defer func() {
		if cerr := rt.early.Close(); cerr != nil {
			code = cmp.Or(code, explain(rt, cerr))
		}
	}()
	if err != nil {
		return explain(rt, err)
	}
	if cmd == nil { // help or version was printed
		return 0
	}
	if rt.exposed != nil && startsCommands(cmd) {
		return explain(rt, &sandbox.SetupError{Err: rt.exposed})
	}
	if !showsSettings(cmd) {
		return explain(rt, cmd.Run(rt))
	}
	masked := rt.jobMask().Writer(rt.stdout)
	rt.stdout = masked
	err = cmd.Run(rt)
	return explain(rt, errors.Join(err, masked.Flush()))
}

// showsSettings tells whether a command prints what stands in files and flags. What
// runs print is masked by their logs.
func showsSettings(cmd runnable) bool {
	switch cmd.(type) {
	case *doctorCmd, *policyCheckCmd, *policyExplainCmd, *policyLintCmd, *policyDiffCmd, *policyReplayCmd:
		return true
	}
	return false
}

// startsCommands tells whether other programs run beside this one, which could
// read its keys if it were not hidden. Commands that only read and print do not
// need to be hidden.
func startsCommands(cmd runnable) bool {
	switch cmd.(type) {
	case *replayCmd, *reportMergeCmd, *reportSchemaCmd, *batchMergeCmd, *doctorCmd, *completionCmd, *manCmd, *versionCmd,
		*policyCheckCmd, *policyExplainCmd, *policyLintCmd, *policyDiffCmd, *policyReplayCmd, *policySchemaCmd:
		return false
	}
	return true
}

func linkedSystemDir() string {
	if name, ok := strings.CutPrefix(systemDir, "$"); ok {
		return os.Getenv(name)
	}
	return systemDir
}
