//go:build linux

package sandbox

import "testing"

// Kept files can be read, and neither changed nor replaced; the folder around
// them stays as it was. Names that do not exist, or lie in no root, are not errors.
func TestKeep(t *testing.T) {
	_, ws, out := world(t)
	put(t, ws+"/out/log", "line")
	put(t, out+"/other", "x")
	b := openBox(t, Spec{Workspace: ws, Keep: []string{ws + "/out/log", ws + "/missing", out + "/other"}})
	tryAll(t, b, []attempt{
		{"cat out/log", "ok"},
		{"echo x >> out/log", readOnlyFS},
		{"echo x > out/new && mv out/new out/more", "ok"},
		{"echo x > missing", "ok"},
		{"mv out/more out/log", "busy"},
		{"unlink out/log", "busy"},
	})
}
