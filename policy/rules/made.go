package rules

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// madeFile is a file that the text itself makes, by base name. Running it runs
// what the text put there.
type madeFile struct {
	name  string
	text  string // its content, if known
	known bool
	// source is the program it is a copy or a link of, by base name.
	source string
}

// maxFiles bounds how many made files are remembered.
const maxFiles = 64

func (u *unwrapper) made(f madeFile) {
	if f.name == "." || f.name == "/" || f.name == "null" {
		return
	}
	if len(u.files) >= maxFiles {
		u.r.lose("more files are made than are remembered")
		return
	}
	u.files = append(u.files, f)
	if slices.Contains(startFiles, f.name) {
		// A shell reads it without being told to.
		if !f.known && f.source == "" {
			u.r.lose("`" + f.name + "`, which shells read when they start, gets a content that is not in the text")
			return
		}
		u.runsMade(f.name, bash, nil, possible, stdin{})
	}
}

// startFiles are read by shells when they start.
var startFiles = []string{".bashrc", ".bash_profile", ".bash_login", ".profile", ".bash_logout", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".kshrc"}

// runsMade reads a file that the text has made before running it. rest are the
// arguments it gets.
func (u *unwrapper) runsMade(name string, d dialect, rest []word, k kind, in stdin) {
	if u.inner >= maxWrappers || u.r.full {
		return
	}
	u.inner++
	defer func() { u.inner-- }()
	for _, f := range u.files {
		switch {
		case f.name != path.Base(name):
		case f.source != "":
			if f.source != f.name && u.r.spend(1) {
				u.command(append([]word{fixedWord(f.source)}, rest...), max(k, possible), in)
				u.runsMade(f.source, d, rest, k, in)
			}
		case f.known:
			u.script(f.text, d, nil, max(k, possible))
		default:
			u.r.lose("`" + shorten(name, 60) + "` is made by the same text, with content that is not in it")
		}
	}
}

// runsSome is a script whose name is not all known: by its last part, or any
// that the text has made.
func (u *unwrapper) runsSome(file word, d dialect, k kind, in stdin) {
	if name := file.base(); name != "" {
		u.runsMade(name, d, nil, k, in)
		return
	}
	for _, f := range slices.Clone(u.files) {
		u.runsMade(f.name, d, nil, max(k, possible), in)
	}
}

// makes notes files that a command makes from others.
func (u *unwrapper) makes(name string, words []word, in stdin) {
	var operands []string
	fixed := true
	for _, w := range words[1:] {
		fixed = fixed && w.known
		if w.known && !strings.HasPrefix(w.text, "-") {
			operands = append(operands, w.text)
		}
	}
	switch name {
	case "cp", "mv", "ln", "install":
		switch last := words[len(words)-1]; {
		case !last.known:
		case !fixed:
			u.made(madeFile{name: path.Base(last.text)})
		default:
			// The last operand is the new name, or a folder in which the names stay;
			// the value of an option among them does no harm.
			for _, o := range operands[:max(0, len(operands)-1)] {
				u.made(madeFile{name: path.Base(last.text), source: path.Base(o)})
			}
		}
	case "tee":
		for _, o := range operands {
			u.made(madeFile{name: path.Base(o), text: in.text, known: in.known && in.piped})
		}
	case "dd":
		for _, o := range operands {
			if out, ok := strings.CutPrefix(o, "of="); ok {
				u.made(madeFile{name: path.Base(out)})
			}
		}
	case "curl", "wget":
		for i, w := range words[1:] {
			if (w.text == "-o" || w.text == "--output" || w.text == "-O" || w.text == "--output-document") && i+2 < len(words) {
				u.made(madeFile{name: path.Base(words[i+2].text)})
			}
		}
		for _, o := range operands {
			u.made(madeFile{name: path.Base(o)})
		}
	}
}

// written remembers what a statement writes to a named file.
func (s *script) written(stmt *syntax.Stmt) {
	for _, r := range stmt.Redirs {
		switch r.Op {
		case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll, syntax.RdrInOut:
		default:
			continue
		}
		name := s.splitQuoted(r.Word)
		if !name.known {
			continue
		}
		var rest []*syntax.Redirect
		for _, other := range stmt.Redirs {
			if other != r {
				rest = append(rest, other)
			}
		}
		f := madeFile{name: path.Base(name.text)}
		f.text, f.known = s.stmtOutput(&syntax.Stmt{Cmd: stmt.Cmd, Redirs: rest})
		s.u.made(f)
	}
}
