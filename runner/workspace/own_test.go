package workspace

import (
	"os"
	"path/filepath"
	"testing"
)

// What the run itself writes is no change of the workspace: neither a log that
// grows meanwhile nor a report of an earlier run, tracked or not.
func TestOwnFilesAreNoChange(t *testing.T) {
	dir := repo(t, map[string]string{"a": "1\n", "tracked.json": "old\n"})
	put(t, dir, map[string]string{"out/events.jsonl": "one\n", "stream.jsonl": ""})
	facts, err := Find(dir)
	check(t, err)
	own := []string{"out/events.jsonl", "stream.jsonl", "tracked.json", "later.md"}
	for i := range own {
		own[i] = filepath.Join(dir, own[i])
	}
	d := Open(Options{Facts: facts, Private: filepath.Join(t.TempDir(), "private"), Env: os.Environ(), Own: own})
	defer func() { check(t, d.Close()) }()
	check(t, d.Ready(t.Context()))
	put(t, dir, map[string]string{"a": "2\n", "out/events.jsonl": "one\ntwo\n", "stream.jsonl": "x\n", "tracked.json": "new\n", "later.md": "# report\n", "out/more": "mine\n"})
	diff := d.Diff(t.Context())
	if diff.Error != "" {
		t.Fatal(diff.Error)
	}
	var got []string
	for _, f := range diff.Files {
		got = append(got, f.Path)
	}
	if len(got) != 2 || got[0] != "a" || got[1] != "out/more" {
		t.Errorf("changed: %q, want a and out/more\n%s", got, diff.Patch)
	}
}
