//go:build linux

package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

// Folders without any right go, also the outermost; what a link leads to stays as
// it is. (Root needs no rights, so only an ordinary user tries the first part.)
func TestRemoveTree(t *testing.T) {
	base := t.TempDir()
	outside := filepath.Join(base, "outside")
	tree := filepath.Join(base, "tree")
	for _, dir := range []string{outside, filepath.Join(tree, "a", "b")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(tree, "a", "b", "file"), "x")
	if err := os.Symlink(outside, filepath.Join(tree, "a", "link")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{outside, filepath.Join(tree, "a", "b"), filepath.Join(tree, "a"), tree} {
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(tree, 0); err != nil {
		t.Fatal(err)
	}
	if err := RemoveTree(tree); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(tree); !os.IsNotExist(err) {
		t.Errorf("the tree is still there: %v", err)
	}
	if st, err := os.Stat(outside); err != nil || st.Mode().Perm() != 0o500 {
		t.Errorf("what a link leads to was changed: %v %v", st, err)
	}
	if err := RemoveTree(tree); err != nil {
		t.Errorf("a tree that is gone: %v", err)
	}
}
