package batch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// Calls that are held share one sandbox for each thing they may write, what they
// may do stays the same, and the last holder closes them.
func TestGitCallsShareSandboxes(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	before := fingerprint(t, w.repo)
	release := w.git.Hold()
	var wg sync.WaitGroup
	for i := range 8 {
		dir := filepath.Join(w.git.Root, "tree"+string(rune('a'+i)))
		wg.Go(func() {
			if _, err := w.git.Checkout(ctx, w.repo, "dev", dir); err != nil {
				t.Error(err)
			}
			if text, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(text) != "two\n" {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
	wg.Wait()
	if n := len(w.git.boxes.open); n != 2 {
		t.Errorf("%d sandboxes, want one that reads and one that writes below the results", n)
	}
	// The shared ones refuse what single ones refuse.
	tree := filepath.Join(w.git.Root, "treea")
	for _, c := range []call{
		{dir: w.repo, args: []string{"update-ref", "refs/heads/new", "HEAD"}},
		{dir: w.repo, write: w.git.Root, args: []string{"update-ref", "refs/heads/new", "HEAD"}},
		{dir: tree, args: []string{"update-ref", "refs/heads/new", "HEAD"}},
	} {
		var failed *GitError
		if _, err := w.git.run(ctx, c); !errors.As(err, &failed) {
			t.Errorf("git %v in %s: %v", c.args, c.dir, err)
		}
	}
	if diff := changed(before, fingerprint(t, w.repo)); len(diff) > 0 {
		t.Errorf("the repository changed: %v", diff)
	}
	if err := errors.Join(release(), release()); err != nil {
		t.Fatal(err)
	}
	if w.git.boxes.open != nil || w.git.boxes.holders != 0 {
		t.Errorf("left open: %d, %d holders", len(w.git.boxes.open), w.git.boxes.holders)
	}
	if _, err := w.git.Resolve(ctx, w.repo, "dev"); err != nil {
		t.Error(err)
	}
}

// Where the machine's mounts changed, the next call gets a sandbox that sees
// them.
func TestSharedSandboxSeesNewMounts(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	release := w.git.Hold()
	old, err := w.git.boxes.get(ctx, "", w.git.spec(call{}))
	if err != nil || old == nil {
		t.Fatal(err)
	}
	w.git.boxes.mu.Lock()
	w.git.boxes.open = map[boxKey]*sandbox.Sandbox{{"", "other mounts"}: old}
	w.git.boxes.mu.Unlock()
	if fresh, err := w.git.boxes.get(ctx, "", w.git.spec(call{})); err != nil || fresh == nil || fresh == old {
		t.Errorf("%v: the old sandbox serves", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
}
