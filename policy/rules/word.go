package rules

import (
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// word is one word of a command as far as it is known before running it.
type word struct {
	// text is the value, or the source when the value is not known.
	text  string
	known bool
	// many: an unknown word that may become none or several.
	many bool
	// tail is the part after the last slash of an unknown path, when that part
	// is known.
	tail string
	// head is the part before the first unknown one, of a word that stays one
	// word; number tells that only a number follows.
	head   string
	number bool
}

// mayBe tells whether an unknown word can turn out to be a text.
func (w word) mayBe(text string) bool {
	rest, ok := strings.CutPrefix(text, w.head)
	return ok && (!w.number || rest != "" && strings.Trim(rest, "0123456789") == "")
}

// mayBeOne is mayBe for any of some texts.
func (w word) mayBeOne(texts []string) bool {
	return w.many || slices.ContainsFunc(texts, w.mayBe)
}

func fixedWord(s string) word { return word{text: s, known: true} }

func fixedWords(argv []string) []word {
	out := make([]word, len(argv))
	for i, a := range argv {
		out[i] = fixedWord(a)
	}
	return out
}

// base is the base name of the program the word names, "" if not known.
func (w word) base() string {
	if !w.known {
		return w.tail
	}
	if !strings.Contains(w.text, "/") {
		return w.text
	}
	return path.Base(path.Clean(w.text))
}

// kind tells how sure it is that a command runs as read.
type kind int

const (
	// certain commands need an allow rule each; the others only restrict.
	certain kind = iota
	// derived is another form of a certain command, as `git push` of
	// `git -C x push`.
	derived
	// possible commands may or may not run.
	possible
)

// command is one simple command.
type command struct {
	words []word
	kind  kind
	// exact: the options of the program were understood, so that rules need not
	// look past them.
	exact bool
}

func (c command) argv() []string {
	out := make([]string, len(c.words))
	for i, w := range c.words {
		out[i] = w.text
	}
	return out
}

// String is the command on one line, cut to a readable length.
func (c command) String() string {
	var b strings.Builder
	for i, w := range c.words {
		if b.Len() > 80 {
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strings.Join(strings.Fields(shorten(w.text, 100)), " "))
	}
	return shorten(b.String(), 80)
}

func (c command) fixed() bool {
	for _, w := range c.words {
		if !w.known {
			return false
		}
	}
	return true
}

// shorten cuts s to at most limit bytes, at a character.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	cut := limit - len("…")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// maxBraces bounds the words that brace expansion may make of one.
const maxBraces = 256

// words is what one word of the source becomes.
func (s *script) words(w *syntax.Word) []word {
	source := s.source(w)
	braces := strings.Count(source, "{")
	switch {
	case s.lang == syntax.LangPOSIX || braces == 0:
		return s.split(w)
	case braces > maxBraces/4:
		s.u.r.plain = false
		return []word{{text: source, many: true}}
	}
	// A copy: the tree that is being walked must not change under the walk.
	braced := &syntax.Word{Parts: slices.Clone(w.Parts)}
	if !syntax.SplitBraces(braced) {
		return s.split(w)
	}
	s.u.r.plain = false
	expanded, ok := expandBraces(braced, maxBraces)
	if !ok {
		return []word{{text: source, many: true}}
	}
	var out []word
	for _, one := range expanded {
		out = append(out, s.split(one)...)
	}
	return out
}

// expandBraces multiplies out the brace expressions of w; false if there are
// too many words or a sequence.
func expandBraces(w *syntax.Word, limit int) ([]*syntax.Word, bool) {
	out := []*syntax.Word{{}}
	for _, part := range w.Parts {
		brace, isBrace := part.(*syntax.BraceExp)
		if !isBrace {
			for _, one := range out {
				one.Parts = append(one.Parts, part)
			}
			continue
		}
		if brace.Sequence {
			return nil, false
		}
		var next []*syntax.Word
		for _, elem := range brace.Elems {
			inner, ok := expandBraces(elem, limit)
			if !ok || len(next)+len(inner)*len(out) > limit {
				return nil, false
			}
			for _, before := range out {
				for _, after := range inner {
					next = append(next, &syntax.Word{Parts: append(append([]syntax.WordPart(nil), before.Parts...), after.Parts...)})
				}
			}
		}
		out = next
	}
	return out, true
}

// piece is the value of a word under construction.
type piece struct {
	text    strings.Builder
	unknown bool
	many    bool
	// tail is what follows the last unknown part.
	tail strings.Builder
	head string
	// numbers: the only unknown part is a number, and nothing follows it.
	numbers bool
	quote   bool // something was quoted, so the word exists even when empty
	// splits holds further words that an unquoted expansion with blanks makes.
	done []word
}

func (p *piece) add(s string) {
	p.numbers = p.numbers && s == ""
	p.text.WriteString(s)
	p.tail.WriteString(s)
}

func (p *piece) lose(many bool) {
	if !p.unknown {
		p.head = p.text.String()
	}
	p.unknown, p.numbers = true, false
	p.many = p.many || many
	p.tail.Reset()
}

// split resolves quoting and what is known of expansions; the result has more
// than one word when a known variable holds several.
func (s *script) split(w *syntax.Word) []word {
	var p piece
	source := s.source(w)
	for i, part := range w.Parts {
		s.part(&p, part, source, i == 0, i == len(w.Parts)-1)
	}
	return append(p.done, p.finish(source)...)
}

func (p *piece) finish(source string) []word {
	if !p.unknown {
		if p.text.Len() == 0 && !p.quote {
			return nil
		}
		return []word{fixedWord(p.text.String())}
	}
	out := word{text: source, many: p.many, number: p.numbers}
	if !p.many {
		out.head = p.head
	}
	if tail := p.tail.String(); strings.Contains(tail, "/") && !p.many {
		out.tail = tail[strings.LastIndexByte(tail, '/')+1:]
	}
	return []word{out}
}

func (s *script) part(p *piece, part syntax.WordPart, source string, first, last bool) {
	switch x := part.(type) {
	case *syntax.Lit:
		s.literal(p, x.Value, first, last)
	case *syntax.SglQuoted:
		p.quote = true
		if x.Dollar {
			p.add(ansiC(x.Value))
			return
		}
		p.add(x.Value)
	case *syntax.DblQuoted:
		p.quote = true
		for _, inner := range x.Parts {
			s.quotedPart(p, inner)
		}
	case *syntax.ParamExp:
		s.prompt(x)
		s.unquoted(p, x, source)
	case *syntax.CmdSubst:
		if text, ok := s.output(x); ok {
			s.spread(p, text, source)
			return
		}
		s.substituted(p, x, true)
	default: // arithmetic, process substitution, extended globs
		_, arithmetic := part.(*syntax.ArithmExp)
		p.lose(!arithmetic)
	}
}

func (s *script) quotedPart(p *piece, part syntax.WordPart) {
	switch x := part.(type) {
	case *syntax.Lit:
		p.add(unescapeQuoted(x.Value))
	case *syntax.ParamExp:
		s.prompt(x)
		if text, ok := s.value(x); ok {
			p.add(text)
			return
		}
		p.lose(isList(x))
	case *syntax.CmdSubst:
		if text, ok := s.output(x); ok {
			p.add(text)
			return
		}
		s.substituted(p, x, false)
	default:
		p.lose(false)
	}
}

// substituted is a command substitution whose output is not in the text: of some
// commands it is known to be one number.
func (s *script) substituted(p *piece, x *syntax.CmdSubst, many bool) {
	first := !p.unknown
	number := len(x.Stmts) == 1 && s.printsNumber(x.Stmts[0])
	p.lose(many && !number)
	p.numbers = first && number
}

// printsNumber tells of commands that print the number of processors.
func (s *script) printsNumber(stmt *syntax.Stmt) bool {
	call, ok := stmt.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 || len(call.Assigns)+len(stmt.Redirs) > 0 || stmt.Negated || stmt.Background {
		return false
	}
	name := call.Args[0].Lit()
	made := func(f madeFile) bool { return f.name == name }
	return (name == "nproc" || name == "getconf" && len(call.Args) == 2 && call.Args[1].Lit() == "_NPROCESSORS_ONLN") &&
		!s.u.r.funcs[name] && s.alias[name] == nil && !s.vars.touched("PATH") && !slices.ContainsFunc(s.u.files, made)
}

// prompt: ${x@P} runs the substitutions in the value of x.
func (s *script) prompt(x *syntax.ParamExp) {
	if x.Exp != nil && x.Exp.Op == syntax.OtherParamOps && x.Exp.Word != nil && strings.Contains(x.Exp.Word.Lit(), "P") {
		s.u.r.lose("`" + shorten(s.source(x), 60) + "` runs the text of a variable")
	}
}

// unquoted is a parameter expansion that the shell splits at blanks.
func (s *script) unquoted(p *piece, x *syntax.ParamExp, source string) {
	if text, ok := s.value(x); ok {
		s.spread(p, text, source)
		return
	}
	// The home folder is one path without blanks unless the script sets it.
	p.lose(!(x.Short && x.Param.Value == "HOME" && !s.vars.touched("HOME")))
}

// spread adds the value of an unquoted expansion: blanks separate words.
func (s *script) spread(p *piece, text, source string) {
	if strings.ContainsAny(text, "*?[\\") || s.vars.touched("IFS") {
		p.lose(true)
		return
	}
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return
	}
	blankStart := strings.ContainsRune(" \t\n", rune(text[0]))
	blankEnd := strings.ContainsRune(" \t\n", rune(text[len(text)-1]))
	for i, f := range fields {
		if i > 0 || blankStart && (p.text.Len() > 0 || p.quote || p.unknown) {
			p.breakWord(source)
		}
		p.add(f)
	}
	if blankEnd {
		p.breakWord(source)
	}
}

func (p *piece) breakWord(source string) {
	p.done = append(p.done, p.finish(source)...)
	p.text.Reset()
	p.tail.Reset()
	p.unknown, p.many, p.quote, p.head, p.numbers = false, false, false, "", false
}

// literal is unquoted text: backslashes quote, and an unquoted glob makes the
// word depend on which files exist.
func (s *script) literal(p *piece, text string, first, last bool) {
	if name, isPath := strings.CutPrefix(text, "="); isPath && first && s.lang == syntax.LangZsh {
		// =name is the path of a program.
		p.lose(false)
		text = "/" + name
	}
	if first && strings.HasPrefix(text, "~") {
		// A home folder; what follows the first slash is known.
		_, rest, slash := strings.Cut(text, "/")
		if !slash {
			p.lose(false)
			return
		}
		p.lose(false)
		text = "/" + rest
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\\':
			if i+1 < len(text) {
				i++
				p.quote = true
				if text[i] != '\n' {
					b.WriteByte(text[i])
				}
			}
		case '*', '?', '[':
			if c == '[' && last && !strings.Contains(text[i+1:], "]") {
				b.WriteByte(c) // the command [, or just a bracket
				continue
			}
			p.add(b.String())
			b.Reset()
			p.lose(true)
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	p.add(b.String())
}
