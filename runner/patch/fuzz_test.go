package patch

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// FuzzParse: no text makes the parser fail otherwise than with an error, and
// printing what was parsed is stable.
func FuzzParse(f *testing.F) {
	names, err := filepath.Glob("testdata/apply/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		ar, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(readable.Replace(string(ar.Files[0].Data)))
	}
	f.Fuzz(func(t *testing.T, text string) { roundTrip(t, text) })
}

// FuzzApply makes a file and an edited copy, writes the difference as a patch
// and applies it: the copy must come out. Then the reversed patch must give the
// file again, if it ended with a newline. Line ends and the byte order mark are
// varied too.
func FuzzApply(f *testing.F) {
	f.Add(uint64(1), uint8(12), uint8(3), false, false)
	f.Add(uint64(2), uint8(40), uint8(9), true, true)
	f.Add(uint64(3), uint8(0), uint8(1), false, true)
	f.Fuzz(func(t *testing.T, seed uint64, size, changes uint8, crlf, mark bool) {
		rng := rand.New(rand.NewPCG(seed, 7))
		words := []string{"alpha", "beta", "  gamma", "delta ", "", "*** End Patch", "@@ x", "+plus", "-minus", "“quote”", "\tx"}
		old := make([]string, size)
		for i := range old {
			old[i] = words[rng.IntN(len(words))]
		}
		hunk, edited := change(rng, old, int(changes))
		if len(hunk) == 0 {
			t.Skip()
		}
		end := "\n"
		if crlf {
			end = "\r\n"
		}
		file := func(lines []string) string {
			s := ""
			if mark {
				s = byteOrderMark
			}
			for _, l := range lines {
				s += l + end
			}
			return s
		}
		if len(old) == 0 || len(edited) == 0 {
			crlf, end = false, "\n" // an empty file says nothing of its line ends
		}
		forward := Patch{Changes: []Change{{Kind: Update, Path: "f", Hunks: []Hunk{{Lines: hunk}}}}}
		backward := Patch{Changes: []Change{{Kind: Update, Path: "f", Hunks: []Hunk{{Lines: reverse(hunk)}}}}}
		for _, step := range []struct {
			p        Patch
			from, to []string
		}{{forward, old, edited}, {backward, edited, old}} {
			p, err := Parse(step.p.String())
			if err != nil {
				t.Fatalf("%v\n%s", err, step.p.String())
			}
			got, err := readText(file(step.from)).apply(p.Changes[0].Hunks, "f")
			if err != nil {
				t.Fatalf("%v\n%s", err, step.p.String())
			}
			if got.String() != file(step.to) {
				t.Fatalf("got %q\nwant %q\npatch %s", got.String(), file(step.to), step.p.String())
			}
		}
	})
}

// change edits a copy of old and returns one hunk over the whole file.
func change(rng *rand.Rand, old []string, n int) (hunk []Line, edited []string) {
	remove, insert := map[int]bool{}, map[int]int{}
	for range n {
		if len(old) > 0 && rng.IntN(2) == 0 {
			remove[rng.IntN(len(old))] = true
		} else {
			insert[rng.IntN(len(old)+1)]++
		}
	}
	added := 0
	for i := 0; i <= len(old); i++ {
		for range insert[i] {
			added++
			text := "new " + strings.Repeat("n", added)
			hunk, edited = append(hunk, Line{Op: '+', Text: text}), append(edited, text)
		}
		switch {
		case i == len(old):
		case remove[i]:
			hunk = append(hunk, Line{Op: '-', Text: old[i]})
		default:
			hunk, edited = append(hunk, Line{Op: ' ', Text: old[i]}), append(edited, old[i])
		}
	}
	return hunk, edited
}

func reverse(hunk []Line) []Line {
	out := make([]Line, len(hunk))
	for i, l := range hunk {
		switch l.Op {
		case '+':
			l.Op = '-'
		case '-':
			l.Op = '+'
		}
		out[i] = l
	}
	return out
}

// FuzzHelper applies any text to a small tree beside a file that must not
// change, whatever is tried.
func FuzzHelper(f *testing.F) {
	for _, s := range []string{"a", "../out", "link/out", "d/../../out", ".git/x", "/etc/passwd", "d/./b", "new/x"} {
		f.Add(s, "one", "two")
	}
	f.Fuzz(func(t *testing.T, path, old, repl string) {
		base, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		lay(t, base, map[string]string{"ws/a": "one\n", "ws/d/b": "one\n", "ws/.git/config": "one\n", "out": "one\n"})
		if err := os.Symlink("..", filepath.Join(base, "ws/link")); err != nil {
			t.Fatal(err)
		}
		ws := filepath.Join(base, "ws")
		for _, text := range []string{
			beginMarker + "\n" + updateMarker + path + "\n@@\n-" + old + "\n+" + repl + "\n" + endMarker,
			beginMarker + "\n" + addMarker + path + "\n+" + repl + "\n" + endMarker,
			beginMarker + "\n" + updateMarker + "a\n" + moveMarker + path + "\n@@\n-one\n+" + repl + "\n" + endMarker,
			beginMarker + "\n" + deleteMarker + path + "\n" + endMarker,
		} {
			apply(t, Request{Patch: text, Scope: Scope{Workdir: ws, Roots: []string{ws}, ProtectNames: []string{".git"}}})
		}
		for _, keep := range []string{"out", "ws/.git/config"} {
			if b, err := os.ReadFile(filepath.Join(base, keep)); err != nil || string(b) != "one\n" {
				t.Fatalf("%s was changed: %q, %v", keep, b, err)
			}
		}
		if names, err := os.ReadDir(base); err != nil || len(names) != 2 {
			t.Fatalf("something new outside: %v, %v", names, err)
		}
	})
}

// FuzzFromShell: what is taken out of a script is a part of it.
func FuzzFromShell(f *testing.F) {
	f.Add("apply_patch <<'EOF'\n*** Begin Patch\n*** End Patch\nEOF\n")
	f.Add("cd 'a b' && applypatch << \"X\"\nx\nX")
	f.Fuzz(func(t *testing.T, script string) {
		dir, text, ok := FromShell(script)
		if ok && (!strings.Contains(script, dir) || !bytes.Contains([]byte(script), []byte(text))) {
			t.Fatalf("%q gave %q and %q", script, dir, text)
		}
	})
}
