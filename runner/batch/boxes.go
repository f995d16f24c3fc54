package batch

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// boxes are the sandboxes that local git calls share while somebody holds them.
// A checkout needs several calls, and many checkouts begin at once: each call in
// a sandbox of its own would spend most of its time on making it. A shared one
// allows exactly what one for a single call would. It is safe for concurrent
// use; the zero value is ready.
type boxes struct {
	mu      sync.Mutex
	holders int
	open    map[boxKey]*sandbox.Sandbox
}

// boxKey tells what makes sandboxes differ: what they may write, and the mounts
// of the machine when they were made. One does not see what is mounted later,
// as a network folder that is mounted when somebody first asks for it.
type boxKey struct{ write, mounts string }

// Hold keeps the sandboxes of local git calls for the next one until the
// returned function is called. Calls that nobody holds them for have one each.
func (g *Git) Hold() (release func() error) {
	b := &g.boxes
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holders++
	return sync.OnceValue(b.release)
}

func (b *boxes) release() error {
	b.mu.Lock()
	b.holders--
	var idle map[boxKey]*sandbox.Sandbox
	if b.holders == 0 {
		idle, b.open = b.open, nil
	}
	b.mu.Unlock()
	var errs []error
	for _, box := range idle {
		errs = append(errs, box.Close())
	}
	return errors.Join(errs...)
}

// start runs git in a shared sandbox where there may be one. Only calls that
// stay on this machine and write nothing, or below Root, share.
func (g *Git) start(ctx context.Context, c call, command sandbox.Command) (*sandbox.Process, error) {
	share := !c.net && c.also == "" && (c.write == "" || c.write == g.Root)
	if share {
		box, err := g.boxes.get(ctx, c.write, g.spec(c))
		if err != nil {
			return nil, err
		}
		if box != nil {
			return box.Start(ctx, command)
		}
	}
	return sandbox.Start(ctx, g.spec(c), command)
}

// get returns the shared sandbox for s, nil when nobody holds them.
func (b *boxes) get(ctx context.Context, write string, s sandbox.Spec) (*sandbox.Sandbox, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, nil // then a sandbox may not outlive a call
	}
	key := boxKey{write, string(mounts)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holders == 0 {
		return nil, nil
	}
	if box := b.open[key]; box != nil {
		return box, nil
	}
	box, err := sandbox.Open(ctx, s)
	if err != nil {
		return nil, err
	}
	if b.open == nil {
		b.open = map[boxKey]*sandbox.Sandbox{}
	}
	b.open[key] = box
	return box, nil
}
