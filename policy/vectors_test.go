package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestVectors runs testdata/vectors: files of the layers, a line of arguments,
// and what must come of them. A line of the section want is one of
//
//	KEY = JSON @ ORIGIN     the effective value, and where it comes from
//	notice CLASS TEXT       a notice of the class whose message holds TEXT
//	no notice CLASS
//	wire TEXT               a wire text; \n is a newline
//	error KIND PLACE TEXT   KIND usage or policy, PLACE file:line:column or -
//
// A vector that wants errors must get exactly those.
func TestVectors(t *testing.T) {
	files, err := filepath.Glob("testdata/vectors/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			runVector(t, archive)
		})
	}
}

// places are the folders of a vector's files.
var places = strings.NewReplacer("etc/", "/etc/codex/", "home/", "/home/u/.codex/", "work/", "/work/repo/", "user/", "/home/u/", "reqs/", "/reqs/")

func runVector(t *testing.T, archive *txtar.Archive) {
	content := map[string]string{"/work/repo/.git/HEAD": "ref: refs/heads/main\n"}
	want := ""
	for _, f := range archive.Files {
		if f.Name == "want" {
			want = string(f.Data)
			continue
		}
		name := f.Name
		if !strings.HasPrefix(name, "/") {
			name = places.Replace(name)
		}
		content[name] = string(f.Data)
	}
	m := inMemory(content)
	src := m.sources()
	src.GitRoot = "" // found from the .git of the working folder
	var argErr error
	for line := range strings.Lines(string(archive.Comment)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "cwd: "); ok {
			src.Cwd = rest
		}
		if rest, ok := strings.CutPrefix(line, "args: "); ok {
			args, err := splitArgs(rest)
			if err != nil {
				t.Fatal(err)
			}
			src, argErr = flags(t, src, args)
		}
	}
	var p *Policy
	err := argErr
	if err == nil {
		p, err = Load(src)
	}
	var got []*Error
	var all *Errors
	var one *Error
	switch {
	case errors.As(err, &all):
		got = all.List
	case errors.As(err, &one):
		got = []*Error{one}
	case err != nil:
		t.Fatal(err)
	}
	wanted := 0
	for line := range strings.Lines(want) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if rest, ok := strings.CutPrefix(line, "error "); ok {
			wanted++
			kind, rest, _ := strings.Cut(rest, " ")
			place, text, _ := strings.Cut(rest, " ")
			if !slices.ContainsFunc(got, func(e *Error) bool {
				return (e.Kind == KindPolicy) == (kind == "policy") && (place == "-" || e.place() == place) &&
					strings.Contains(e.Error()+"\n"+e.Hint(), text)
			}) {
				t.Errorf("no error %q", line)
			}
			continue
		}
		if p != nil {
			checkWant(t, p, line)
		}
	}
	if wanted != len(got) || wanted == 0 && err != nil {
		t.Errorf("%d errors, want %d:\n%v", len(got), wanted, err)
	}
}

func checkWant(t *testing.T, p *Policy, line string) {
	t.Helper()
	if rest, ok := strings.CutPrefix(line, "notice "); ok {
		class, text, _ := strings.Cut(rest, " ")
		if !slices.ContainsFunc(p.Notices(), func(n Notice) bool {
			return n.Class == class && strings.Contains(n.Message+"\n"+n.Hint, text)
		}) {
			t.Errorf("no %q in %+v", line, p.Notices())
		}
		return
	}
	if class, ok := strings.CutPrefix(line, "no notice "); ok {
		if slices.ContainsFunc(p.Notices(), func(n Notice) bool { return n.Class == class }) {
			t.Errorf("a notice %s: %+v", class, p.Notices())
		}
		return
	}
	if text, ok := strings.CutPrefix(line, "wire "); ok {
		text = strings.ReplaceAll(text, `\n`, "\n")
		if !slices.ContainsFunc(p.Notices(), func(n Notice) bool { return n.Wire == text }) {
			t.Errorf("no wire text %q in %q", text, p.Notices())
		}
		return
	}
	key, value, ok := strings.Cut(line, " = ")
	if !ok {
		t.Errorf("cannot read %q", line)
		return
	}
	value, origin, _ := strings.Cut(value, " @ ")
	e := p.Explain(key)
	got, err := json.Marshal(e.Value)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != value || origin != "" && e.Origin != origin {
		t.Errorf("%s = %s @ %s, want %s @ %s", key, got, e.Origin, value, origin)
	}
}

// splitArgs reads a line of arguments; single quotes join.
func splitArgs(line string) ([]string, error) {
	if strings.Count(line, "'")%2 != 0 {
		return nil, fmt.Errorf("a quote is not closed: %s", line)
	}
	quoted := false
	return strings.FieldsFunc(strings.Map(func(r rune) rune {
		switch {
		case r == '\'':
			quoted = !quoted
			return -1
		case r == ' ' && quoted:
			return r
		case r == ' ':
			return '\n'
		}
		return r
	}, line), func(r rune) bool { return r == '\n' }), nil
}
