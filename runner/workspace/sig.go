package workspace

import (
	"context"
	"errors"

	"github.com/nightshift-ci/nightshift/runner/event"
)

var errRough = errors.New("workspace: not finished")

// Find reads the facts of dir, which must exist, without starting a process.
func Find(dir string) (Facts, error) { return Facts{Dir: dir}, errRough }

// State is the git part of run.started, nil outside git.
func (f Facts) State() *event.GitState { return nil }

// Dir is a workspace during a run.
type Dir struct{}

// Open prepares a workspace; nothing runs yet.
func Open(o Options) *Dir { return &Dir{} }

// Start takes the baseline in the background.
func (d *Dir) Start(ctx context.Context) {}

// Ready waits for the baseline, starting it if need be.
func (d *Dir) Ready(ctx context.Context) error { return errRough }

// Diff tells what changed since the baseline. It always answers; what could
// not be told is in Error.
func (d *Dir) Diff(ctx context.Context) event.DiffCaptured { return event.DiffCaptured{} }

// Close removes the private folder and ends what still runs.
func (d *Dir) Close() error { return nil }

// Instructions collects the AGENTS.md chain; only with a Ref it starts git.
func (d *Dir) Instructions(ctx context.Context, o InstructionsOptions) (Instructions, error) {
	return Instructions{}, errRough
}

// Text is the <environment_context> part of the first user message.
func (e Environment) Text() string { return "" }
