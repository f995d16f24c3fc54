package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// askHelper starts a helper in the sandbox and reads its answer, one JSON value
// that holds up to size bytes of data, into answer. ctx bounds it.
func askHelper(ctx context.Context, box *sandbox.Sandbox, helper sandbox.Command, size int64, answer any) error {
	p, err := box.Start(ctx, helper)
	if err != nil {
		return err
	}
	most := size*4/3 + 4096 // base64 and the rest of the answer
	decoded := json.NewDecoder(io.LimitReader(p.Output(), most)).Decode(answer)
	if decoded != nil {
		p.Kill()
	}
	_, waited := p.Wait()
	switch cause := context.Cause(ctx); {
	case decoded == nil:
		return nil
	case cause != nil:
		return cause
	case waited != nil:
		return waited
	}
	return fmt.Errorf("the answer of its reader cannot be read: %w", decoded)
}
