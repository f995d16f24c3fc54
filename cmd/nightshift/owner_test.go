package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestWorkspaceOfAnother: a job in a container is root, and the checkout belongs
// to the user outside. Commands, which have no privileges, cannot make files there;
// that is told before the model wonders.
func TestWorkspaceOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	t.Parallel()
	w := newWorld(t)
	w.git(t, w.ws, "init", "-q")
	if err := os.Chown(w.ws, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	w.write(t, w.base+"/model.json", []byte(`{"items":[{"message":"done"}]}`), 0o644)
	r := process{args: []string{"exec", "-s", "workspace-write", "--model-script", w.base + "/model.json", "x"}, dir: w.ws, env: w.env(), timeout: time.Minute}.run(t)
	if text := string(r.stderr); r.code != 0 || !strings.Contains(text, "note: commands run as user 0 without privileges and may not write in "+w.ws+", which belongs to user 12345") {
		t.Errorf("exit %d\n%s", r.code, text)
	}
}
