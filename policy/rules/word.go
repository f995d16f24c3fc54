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
	tail  strings.Builder
	quote bool // something was quoted, so the word exists even when empty
	// splits holds further words that an unquoted expansion with blanks makes.
	done []word
}

func (p *piece) add(s string) {
	p.text.WriteString(s)
	p.tail.WriteString(s)
}

func (p *piece) lose(many bool) {
	p.unknown = true
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
	out := word{text: source, many: p.many}
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
		p.lose(true)
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
		p.lose(false)
	default:
		p.lose(false)
	}
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
	p.unknown, p.many, p.quote = false, false, false
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

// unescapeQuoted resolves the backslashes of double quotes.
func unescapeQuoted(text string) string { return unescape(text, "$`\"\\") }

// unescape removes backslashes in front of the special bytes, and with the
// newline after them.
func unescape(text, special string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			switch next := text[i+1]; {
			case next == '\n':
				i++
				continue
			case strings.IndexByte(special, next) >= 0:
				i++
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// ansiC decodes the escapes of $'…'. A NUL ends the value, as in bash.
func ansiC(text string) string {
	var b strings.Builder
	simple := map[byte]byte{'a': 7, 'b': 8, 'e': 27, 'E': 27, 'f': 12, 'n': 10, 'r': 13, 't': 9, 'v': 11, '\\': '\\', '\'': '\'', '"': '"', '?': '?'}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 >= len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		c := text[i]
		var value rune
		var used int
		switch {
		case simple[c] != 0:
			b.WriteByte(simple[c])
			continue
		case c == 'x':
			value, used = number(text[i+1:], 16, 2)
			i += used
			value &= 0xff
		case c == 'u' || c == 'U':
			width := 4
			if c == 'U' {
				width = 8
			}
			value, used = number(text[i+1:], 16, width)
			i += used
			if used > 0 && value != 0 {
				b.WriteRune(value)
				continue
			}
		case c >= '0' && c <= '7':
			value, used = number(text[i:], 8, 3)
			i += used - 1
			value &= 0xff
		case c == 'c' && i+1 < len(text):
			i++
			value, used = rune(text[i]&0x1f), 1
		}
		switch {
		case used == 0:
			b.WriteByte('\\')
			b.WriteByte(c)
		case value == 0:
			return b.String()
		default:
			b.WriteByte(byte(value))
		}
	}
	return b.String()
}

func number(text string, base rune, width int) (value rune, used int) {
	for used < width && used < len(text) {
		var digit rune
		switch c := text[used]; {
		case c >= '0' && c <= '9':
			digit = rune(c - '0')
		case c >= 'a' && c <= 'f':
			digit = rune(c-'a') + 10
		case c >= 'A' && c <= 'F':
			digit = rune(c-'A') + 10
		default:
			digit = base
		}
		if digit >= base {
			break
		}
		value = value*base + digit
		used++
	}
	return value, used
}
