package rules

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// walk finds every command of a file, wherever it would run.
func (s *script) walk(file *syntax.File) {
	s.declare(file)
	inputs := map[*syntax.Stmt]stdin{}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch x := n.(type) {
		case *syntax.File, *syntax.Word, *syntax.DblQuoted, nil:
		case *syntax.Lit, *syntax.SglQuoted:
		case *syntax.Stmt:
			s.statement(x, inputs)
		case *syntax.BinaryCmd:
			s.pipe(x, inputs)
		case *syntax.CallExpr:
			// Reached through its statement, which knows its input.
		case *syntax.ArithmCmd, *syntax.ArithmExp, *syntax.LetClause, *syntax.TestClause, *syntax.DeclClause:
			s.u.r.plain = false
			s.subscripts(x)
		default:
			s.u.r.plain = false
		}
		return true
	})
}

// subscripts looks at quoted text where numbers are computed: a subscript is
// expanded again when it is used.
func (s *script) subscripts(n syntax.Node) {
	syntax.Walk(n, func(inner syntax.Node) bool {
		switch x := inner.(type) {
		case *syntax.SglQuoted:
			s.injected(fixedWord("x[" + x.Value + "]"))
		case *syntax.Lit:
			s.injected(fixedWord(unescapeAll(x.Value)))
		}
		return true
	})
}

// takesNames are commands that read words as names of variables or as numbers.
var takesNames = []string{
	"test", "[", "printf", "read", "unset", "declare", "typeset", "local", "export", "readonly", "let", "mapfile", "readarray",
	"wait", "getopts", "builtin", "command",
}

// declare notes aliases, which may be defined after their use in the text.
func (s *script) declare(file *syntax.File) {
	syntax.Walk(file, func(n syntax.Node) bool {
		switch x := n.(type) {
		case *syntax.CallExpr:
			if name, rest := builtinName(x); name == "alias" {
				s.aliases(rest)
			}
		}
		return true
	})
}

func (s *script) aliases(args []*syntax.Word) {
	for _, a := range args {
		for _, w := range s.words(a) {
			name, value, defines := strings.Cut(w.text, "=")
			if !defines {
				continue
			}
			if !w.known {
				s.u.r.lose("alias whose text is not fixed: " + shorten(w.text, 60))
				continue
			}
			s.alias[name] = append(s.alias[name], value)
			// What it would run counts wherever it is used.
			s.u.script(value, s.dialect(), nil, max(s.kind, possible))
		}
	}
}

func (s *script) dialect() dialect {
	switch s.lang {
	case syntax.LangPOSIX:
		return posix
	case syntax.LangMirBSDKorn:
		return korn
	case syntax.LangZsh:
		return zsh
	}
	return bash
}

// pipe gives the output of the left side to the right one, when it is fixed.
func (s *script) pipe(x *syntax.BinaryCmd, inputs map[*syntax.Stmt]stdin) {
	switch x.Op {
	case syntax.Pipe, syntax.PipeAll:
	default:
		return
	}
	if x.Op == syntax.PipeAll {
		s.u.r.plain = false
	}
	in := stdin{piped: true}
	in.text, in.known = s.stmtOutput(x.X)
	inputs[x.Y] = in
	// a | b && c: the parser nests by precedence, so Y is one statement; a group
	// or a pipeline on the right reads the same input in its first command.
	s.inherit(x.Y, in, inputs)
}

// inherit passes an input on to the commands inside a compound statement.
func (s *script) inherit(stmt *syntax.Stmt, in stdin, inputs map[*syntax.Stmt]stdin) {
	syntax.Walk(stmt, func(n syntax.Node) bool {
		switch x := n.(type) {
		case *syntax.Stmt:
			if _, set := inputs[x]; !set {
				inputs[x] = in
			}
		case *syntax.CmdSubst, *syntax.ProcSubst:
			return false
		}
		return true
	})
}

// statement handles one statement: its redirections, and its command if it is a
// simple one.
func (s *script) statement(stmt *syntax.Stmt, inputs map[*syntax.Stmt]stdin) {
	if stmt.Background || stmt.Negated || stmt.Coprocess || stmt.Disown || len(stmt.Redirs) > 0 {
		s.u.r.plain = false
	}
	s.written(stmt)
	in := inputs[stmt]
	if redirected, ok := s.redirected(stmt); ok {
		in = redirected
		if _, simple := stmt.Cmd.(*syntax.CallExpr); !simple && stmt.Cmd != nil {
			s.inherit(&syntax.Stmt{Cmd: stmt.Cmd}, in, inputs)
		}
	}
	switch x := stmt.Cmd.(type) {
	case *syntax.CallExpr:
		s.call(x, in)
	case *syntax.DeclClause:
		s.assignments(x.Args, true)
	}
}

// redirected is the standard input that redirections give.
func (s *script) redirected(stmt *syntax.Stmt) (in stdin, ok bool) {
	for _, r := range stmt.Redirs {
		if r.N != nil && r.N.Value != "0" {
			continue
		}
		switch r.Op {
		case syntax.Hdoc, syntax.DashHdoc:
			in, ok = stdin{piped: true}, true
			in.text, in.known = s.heredoc(r)
		case syntax.WordHdoc:
			in, ok = stdin{piped: true}, true
			if words := s.splitQuoted(r.Word); words.known {
				in.text, in.known = words.text+"\n", true
			}
		case syntax.DplIn:
			// Another descriptor: what it holds is not followed.
			in, ok = stdin{piped: true}, true
		case syntax.RdrIn, syntax.RdrInOut:
			in, ok = stdin{piped: true, file: true, name: s.splitQuoted(r.Word).text}, true
			if len(r.Word.Parts) == 1 {
				if p, isProc := r.Word.Parts[0].(*syntax.ProcSubst); isProc {
					in = stdin{piped: true}
					in.text, in.known = s.outputOf(p.Stmts)
				}
			}
		}
	}
	return in, ok
}

// injected looks at commands that the shell would run while it reads a word as
// arithmetic: a subscript like x[$(cmd)], even in single quotes, where a
// variable name or a number is expected.
func (s *script) injected(w word) {
	if !w.known || !strings.Contains(w.text, "[") {
		return
	}
	_, subscript, _ := strings.Cut(w.text, "[")
	if !strings.Contains(subscript, "$(") && !strings.Contains(subscript, "`") {
		return
	}
	escaped := strings.ReplaceAll(strings.ReplaceAll(w.text, `\`, ""), `"`, "")
	for _, text := range []string{": $((" + w.text + "))", `: "` + escaped + `"`} {
		if parses(text) {
			s.u.script(text, bash, nil, max(s.kind, possible))
			return
		}
	}
	s.u.r.lose("`" + shorten(w.text, 60) + "`: a subscript that runs commands")
}

// parses tells whether bash would take a text.
func parses(text string) bool {
	if len(text) > maxScript {
		return true // and reading it says so
	}
	valid := true
	for _, err := range syntax.NewParser().StmtsSeq(newDepthReader(text)) {
		valid = valid && err == nil
	}
	return valid
}

// splitQuoted is the value of a word where no splitting happens.
func (s *script) splitQuoted(w *syntax.Word) word {
	var p piece
	source := s.source(w)
	for i, part := range w.Parts {
		s.assigned(&p, part, source, i == 0)
	}
	p.quote = true
	return p.finish(source)[0]
}

// heredoc is the text of a here-document.
func (s *script) heredoc(r *syntax.Redirect) (string, bool) {
	if r.Hdoc == nil {
		return "", true
	}
	quoted := false
	for _, part := range r.Word.Parts {
		if lit, isLit := part.(*syntax.Lit); !isLit || strings.Contains(lit.Value, `\`) {
			quoted = true
		}
	}
	var b strings.Builder
	known := true
	for _, part := range r.Hdoc.Parts {
		lit, isLit := part.(*syntax.Lit)
		switch {
		case isLit && quoted:
			b.WriteString(lit.Value)
		case isLit:
			b.WriteString(unescape(lit.Value, "$`\\")) // quotes mean nothing here
		default:
			var p piece
			s.quotedPart(&p, part)
			b.WriteString(p.text.String())
			known = known && !p.unknown
		}
	}
	text := b.String()
	if r.Op == syntax.DashHdoc {
		lines := strings.Split(text, "\n")
		for i, l := range lines {
			lines[i] = strings.TrimLeft(l, "\t")
		}
		text = strings.Join(lines, "\n")
	}
	return text, known
}

// call handles a simple command.
func (s *script) call(x *syntax.CallExpr, in stdin) {
	if len(x.Assigns) > 0 {
		s.u.r.plain = false
		s.assignments(x.Assigns, len(x.Args) == 0)
	}
	var words []word
	for _, a := range x.Args {
		words = append(words, s.words(a)...)
	}
	if len(words) == 0 {
		if len(x.Args) > 0 {
			// Every word vanished, as `$EMPTY` does.
			s.u.r.plain = false
		}
		return
	}
	if len(words) > 1 && words[0].known && words[0].text == "--" {
		words = words[1:] // of the keyword time
	}
	s.u.user = s
	s.u.command(words, s.kind, in)
	if _, static := staticText(x.Args[0]); words[0].known && !static && changesShell(words[0].text) {
		s.u.r.lose("`" + shorten(s.source(x), 60) + "` changes the shell by a name that is not in the text")
	}
	if !words[0].known || slices.Contains(takesNames, words[0].text) {
		for _, w := range words[1:] {
			s.injected(w)
		}
	}
	if words[0].known {
		s.u.runsMade(words[0].text, s.dialect(), words[1:], s.kind, in)
		s.u.makes(words[0].base(), words, in)
	}
	s.guess(x, words, in)
	s.aliased(words, in)
}

// guess looks at the commands that a first word may turn into.
func (s *script) guess(x *syntax.CallExpr, words []word, in stdin) {
	if words[0].known || len(x.Args[0].Parts) == 0 {
		return
	}
	for _, part := range x.Args[0].Parts {
		if q, ok := part.(*syntax.DblQuoted); ok && len(q.Parts) == 1 {
			part = q.Parts[0]
		}
		p, ok := part.(*syntax.ParamExp)
		if !ok || len(x.Args[0].Parts) > 1 {
			continue
		}
		for _, value := range s.guesses(p) {
			var first []word
			for _, f := range strings.Fields(value) {
				first = append(first, fixedWord(f))
			}
			if len(first) > 0 {
				s.u.command(append(first, words[1:]...), max(s.kind, possible), in)
			}
		}
	}
}

// aliased looks at the commands that aliases of the script would make.
func (s *script) aliased(words []word, in stdin) {
	for _, expanded := range s.expandAliases(words, map[string]bool{}) {
		s.u.command(expanded, max(s.kind, possible), in)
	}
}

// expandAliases is what the first word stands for as an alias, and what the
// words become that follow one whose value ends in a blank. done are the aliases
// that are being expanded.
func (s *script) expandAliases(words []word, done map[string]bool) (out [][]word) {
	if len(words) == 0 || !words[0].known || done[words[0].text] || !s.u.r.spend(len(words)) {
		return nil
	}
	name := words[0].text
	done[name] = true
	defer delete(done, name)
	for _, value := range s.alias[name] {
		parts, err := splitWords(value)
		if err != nil || len(parts) == 0 {
			continue
		}
		rests := [][]word{words[1:]}
		if strings.TrimRight(value, " \t") != value {
			rests = append(rests, s.expandAliases(words[1:], done)...)
		}
		for _, rest := range rests {
			one := append(fixedWords(parts), rest...)
			out = append(append(out, one), s.expandAliases(one, done)...)
		}
	}
	return out
}

// assignments looks at variables whose value is a command or decides what a
// command means.
func (s *script) assignments(list []*syntax.Assign, lasting bool) {
	s.u.r.plain = false
	for _, a := range list {
		if a.Name == nil || a.Naked {
			continue
		}
		name := a.Name.Value
		switch variableUse(name) {
		case runsText:
			if a.Value == nil {
				continue
			}
			if w := s.splitQuoted(a.Value); w.known {
				if strings.TrimSpace(w.text) != "" {
					s.u.script(w.text, posix, nil, max(s.kind, possible))
				}
				continue
			}
			s.u.r.lose("`" + shorten(s.source(a), 60) + "`: programs run the value of " + name)
		case changesMeaning:
			if a.Array == nil && (a.Value == nil || len(a.Value.Parts) == 0) {
				continue
			}
			s.u.r.lose("`" + shorten(s.source(a), 60) + "` changes what commands mean")
		}
	}
}
