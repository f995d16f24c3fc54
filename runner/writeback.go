package runner

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// writebackBound is how long a write-back command may take: a secret store that
// does not answer must not hold the job.
const writebackBound = 60 * time.Second

// Writeback runs command with a new auth.json on its stdin. It runs outside the
// confinement, since its purpose is to reach a secret store, but as a tree that
// dies with the bound. Its output is not shown: a tool of that kind may echo
// what it was given.
func Writeback(ctx context.Context, command, dir string, environ []string, bundle []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writebackBound)
	defer cancel()
	p, err := sandbox.Start(ctx, sandbox.Spec{Mode: sandbox.FullAccess, Workspace: dir},
		sandbox.Command{Argv: []string{"/bin/sh", "-c", command}, Dir: dir, Env: environ, Stdin: bytes.NewReader(bundle)})
	if err != nil {
		return fmt.Errorf("the write-back command could not be started: %w", err)
	}
	if _, err := io.Copy(io.Discard, p.Output()); err != nil {
		p.Kill()
		return fmt.Errorf("the write-back command: %w", err)
	}
	exit, err := p.Wait()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the write-back command did not end within %s", writebackBound)
	case err != nil:
		return fmt.Errorf("the write-back command: %w", err)
	case exit.Code != 0:
		return fmt.Errorf("the write-back command ended with code %d", exit.Code)
	}
	return nil
}
