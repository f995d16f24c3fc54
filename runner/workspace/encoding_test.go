package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// A text that is not UTF-8 keeps its bytes in the patch, and the others stay
// readable.
func TestPatchOfOtherEncodings(t *testing.T) {
	name := "caf\u00e9 [1]*.txt"
	dir := repo(t, map[string]string{name: "caf\xe9\nold\n", "plain.txt": "a\n"})
	d := opened(t, dir, Bounds{})
	if err := d.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n, text := range map[string]string{name: "caf\xe9\nnew \xff\n", "plain.txt": "b\n"} {
		if err := os.WriteFile(filepath.Join(dir, n), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	diff := d.Diff(t.Context())
	if diff.Error != "" || !utf8.ValidString(diff.Patch) || !strings.Contains(diff.Patch, "GIT binary patch") || !strings.Contains(diff.Patch, "+b\n") {
		t.Fatalf("%q\n%s", diff.Error, diff.Patch)
	}
	clone := filepath.Join(t.TempDir(), "clone")
	if out, err := exec.Command("git", "clone", "-q", dir, clone).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	apply := exec.Command("git", "apply", "-")
	apply.Dir, apply.Stdin = clone, strings.NewReader(diff.Patch)
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got, err := os.ReadFile(filepath.Join(clone, name)); err != nil || string(got) != "caf\xe9\nnew \xff\n" {
		t.Errorf("%q, %v", got, err)
	}
}
