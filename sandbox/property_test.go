//go:build linux

package sandbox

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

// For random Specs, a command can write exactly the folders the Spec says, and
// read exactly those it does not deny. The model below is the Spec's text in
// twenty lines; the kernel is asked by trying.
func TestSpecsMeanWhatTheySay(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for round := range rounds {
		dir, _, _ := world(t)
		w := randomWorld(t, rng, dir)
		b := openBox(t, w.spec)
		var script strings.Builder
		for _, d := range w.folders {
			script.WriteString("if ( : > " + d + "/probe ) 2>/dev/null; then echo W " + d + "; rm " + d + "/probe; fi\n")
			script.WriteString("if ls " + d + "/ >/dev/null 2>&1 && cat " + d + "/file >/dev/null 2>&1; then echo R " + d + "; fi\n")
		}
		out, _ := sh(t, b, script.String())
		got := strings.Fields(strings.ReplaceAll(out, " ", "="))
		slices.Sort(got)
		want := w.expected()
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d round %d\nspec %+v\ngot only:  %v\nwant only: %v", seed, round, w.spec, without(got, want), without(want, got))
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		for _, d := range w.folders {
			if !w.existed[d] {
				if _, err := os.Lstat(d); err == nil {
					t.Fatalf("%s was left behind", d)
				}
			}
		}
	}
}

type randomSpec struct {
	spec    Spec
	folders []string        // all that are tried
	existed map[string]bool // before
}

func randomWorld(t *testing.T, rng *rand.Rand, dir string) *randomSpec {
	w := &randomSpec{existed: map[string]bool{}}
	var folders []string
	for _, d := range []string{"a", "a/b", "a/b/c", "a/d", "e", "e/f", "e/f/g", "h"} {
		folders = append(folders, filepath.Join(dir, "x", d))
	}
	for _, d := range folders {
		put(t, d+"/file", "x")
		for _, n := range []string{".git", ".codex"} {
			if rng.IntN(3) == 0 {
				put(t, d+"/"+n+"/file", "x")
			}
		}
	}
	pick := func(n int) []string {
		var out []string
		for range rng.IntN(n + 1) {
			out = append(out, folders[rng.IntN(len(folders))])
		}
		return out
	}
	s := Spec{Mode: []Mode{ReadOnly, WorkspaceWrite}[rng.IntN(2)], Write: pick(4), ProtectNames: []string{".git", ".codex"}}
	s.Workspace = folders[rng.IntN(len(folders))]
	if rng.IntN(3) == 0 && len(s.Write) > 0 {
		if extra := s.Write[0] + "/.git"; exists(extra) {
			s.Write = append(s.Write, extra) // made writable by name
		}
	}
	for _, d := range pick(3) {
		if !slices.ContainsFunc(append(s.Write, s.Workspace), func(r string) bool { return confine.Below(r, d) }) {
			s.Deny = append(s.Deny, d)
		}
	}
	w.spec = s
	for _, d := range folders {
		w.folders = append(w.folders, d, d+"/.git", d+"/.codex")
	}
	for _, d := range w.folders {
		w.existed[d] = exists(d)
	}
	return w
}

func exists(name string) bool { _, err := os.Lstat(name); return err == nil }

// expected is the model.
func (w *randomSpec) expected() []string {
	roots := slices.Clone(w.spec.Write)
	if w.spec.Mode == WorkspaceWrite {
		roots = append(roots, w.spec.Workspace)
	}
	var protected []string
	for _, r := range roots {
		if filepath.Base(r) == ".git" {
			continue // a git folder made writable by name protects nothing inside
		}
		for _, n := range w.spec.ProtectNames {
			if p := filepath.Join(r, n); !slices.Contains(roots, p) {
				protected = append(protected, p)
			}
		}
	}
	// Repositories below a root are found.
	for _, d := range w.folders {
		if filepath.Base(d) == ".git" && w.existed[d] && !slices.Contains(roots, d) && slices.ContainsFunc(roots, func(r string) bool { return confine.Below(d, r) }) {
			protected = append(protected, d)
		}
	}
	longest := func(list []string, d string) int {
		n := -1
		for _, p := range list {
			if confine.Below(d, p) {
				n = max(n, len(p))
			}
		}
		return n
	}
	var out []string
	for _, d := range w.folders {
		if longest(w.spec.Deny, d) >= 0 {
			continue
		}
		if w.existed[d] {
			out = append(out, "R="+d)
		}
		if w.existed[d] && longest(roots, d) > longest(protected, d) {
			out = append(out, "W="+d)
		}
	}
	slices.Sort(out)
	return out
}

func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}
