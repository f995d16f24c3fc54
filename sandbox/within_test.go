package sandbox

import "testing"

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		path, dir string
		want      bool
	}{
		{"/a", "/a", true}, {"/a/b", "/a", true}, {"/ab", "/a", false}, {"/", "/a", false}, {"/a", "/", true}, {"/", "/", true}, {"/a/..b", "/a", true}, {"/a/../b", "/a", false}, {"/a/b", "/a/", true},
	} {
		if got := Within(c.path, c.dir); got != c.want {
			t.Errorf("Within(%q, %q) is %v", c.path, c.dir, got)
		}
	}
}
