package rules

import (
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Bounds of reading. The shell parser is recursive: its input is bounded in length, and
// it is stopped when it recurses too deeply. What is above a bound is opaque.
const (
	// maxScript is the longest text that is parsed, in bytes.
	maxScript = 16 << 10
	// maxFrames is how deep the parser may recurse, in calls: some ten for each
	// bracket, substitution or compound command that stands in another.
	maxFrames = 1000
	// readPiece is how many bytes the parser gets at once.
	readPiece = 256
	// maxShells is how deep scripts may stand in scripts (bash -c, eval, …).
	maxShells = 8
	// maxCommands bounds the commands of one reading.
	maxCommands = 4096
	// maxParsed bounds the bytes parsed for one reading, nested scripts included,
	// and maxScripts their number.
	maxParsed  = 4 * maxScript
	maxScripts = 512
	// maxWork bounds the words looked at in one reading.
	maxWork = 32 << 10
	// maxDoubts is how many words of a wrapper's arguments are tried as the
	// beginning of its command.
	maxDoubts = 64
)

// reading is what a text was found to run.
type reading struct {
	commands []command
	opaque   []string
	plain    bool
	// doubtful: some reading was not certain in a way that adds no command, but
	// no allow rule may hold.
	doubtful bool
	parsed   int // bytes
	scripts  int
	work     int
	full     bool
	// funcs are the functions that any script of the text defines; a nested
	// shell may have them too.
	funcs map[string]bool
}

func newReading() *reading { return &reading{plain: true, funcs: map[string]bool{}} }

func (r *reading) lose(why string) {
	r.plain = false
	r.opaque = appendNew(r.opaque, why)
}

// spend counts work; false when a bound is reached, after which reading stops.
func (r *reading) spend(n int) bool {
	if r.work += n; !r.full && (r.work > maxWork || len(r.commands) >= maxCommands) {
		r.full = true
		r.lose("more commands and words than are looked at")
	}
	return !r.full
}

// add records a command; false when there are too many.
func (r *reading) add(c command) bool {
	if !r.spend(len(c.words)) {
		return false
	}
	r.commands = append(r.commands, c)
	return true
}

// Command decides on one program with its arguments. Wrappers and nested shells
// are looked into.
func (s *Set) Command(argv []string) Decision {
	r := newReading()
	if len(argv) == 0 {
		return s.evaluate(r)
	}
	size := 0
	for _, a := range argv {
		size += len(a) + 1
	}
	if size > maxScript*8 || len(argv) > maxCommands {
		r.add(command{words: fixedWords(argv[:min(len(argv), 16)])})
		r.lose("command line of more than " + fmt.Sprint(maxScript*8) + " bytes or " + fmt.Sprint(maxCommands) + " words")
		return s.evaluate(r)
	}
	u := &unwrapper{r: r}
	u.command(fixedWords(argv), certain, stdin{})
	return s.evaluate(r)
}

// Shell decides on a script that the shell at shellPath will run, login telling
// whether it is a login shell.
func (s *Set) Shell(script, shellPath string, login bool) Decision {
	r := newReading()
	u := &unwrapper{r: r}
	u.script(script, shellOf(path.Base(shellPath)), nil, certain)
	if len(r.opaque) > 0 {
		// A rule on the shell itself guards what cannot be read.
		flag := "-c"
		if login {
			flag = "-lc"
		}
		r.add(command{words: fixedWords([]string{shellPath, flag, script}), kind: derived, exact: true})
	}
	return s.evaluate(r)
}

// dialect is how a shell reads its text.
type dialect int

const (
	noShell dialect = iota
	bash
	posix
	korn
	zsh
	otherShell // a shell whose language cannot be read here
)

func shellOf(name string) dialect {
	switch strings.TrimPrefix(name, "-") {
	case "bash", "rbash":
		return bash
	case "sh", "dash", "ash", "hush":
		return posix
	case "ksh", "mksh", "ksh93", "pdksh", "oksh", "lksh", "rksh":
		return korn
	case "zsh", "rzsh":
		return zsh
	case "fish",
		"csh", "tcsh", "pwsh", "powershell", "nu", "nushell", "elvish", "xonsh", "yash", "rc", "es", "ion", "osh", "oil", "ysh",
		"scsh", "psh", "murex":
		return otherShell
	}
	return noShell
}

func (d dialect) variants() []syntax.LangVariant {
	switch d {
	case bash:
		return []syntax.LangVariant{syntax.LangBash}
	case posix:
		// /bin/sh is dash on some systems and bash on others.
		return []syntax.LangVariant{syntax.LangPOSIX, syntax.LangBash}
	case korn:
		return []syntax.LangVariant{syntax.LangMirBSDKorn, syntax.LangBash}
	case zsh:
		return []syntax.LangVariant{syntax.LangZsh, syntax.LangBash}
	}
	return nil
}

// script is one parsed text.
type script struct {
	text        string
	lang        syntax.LangVariant
	vars        variables
	u           *unwrapper
	kind        kind
	alias       map[string][]string // values of aliases
	outputDepth int
}

// source is the text of a node.
func (s *script) source(n syntax.Node) string {
	from, to := int(n.Pos().Offset()), int(n.End().Offset())
	if from < 0 || to > len(s.text) || from > to {
		return "?"
	}
	return s.text[from:to]
}

// script reads text as the shell d would. Each dialect the shell may have adds
// what it sees.
func (u *unwrapper) script(text string, d dialect, params []word, k kind) {
	variants := d.variants()
	switch {
	case variants == nil:
		u.r.lose("text for a shell whose language is not read here")
		return
	case u.r.full:
		return
	case u.r.scripts >= maxScripts:
		u.r.lose(fmt.Sprintf("more than %d scripts in the text", maxScripts))
		return
	case u.depth >= maxShells:
		u.r.lose(fmt.Sprintf("scripts nested more than %d deep", maxShells))
		return
	case len(text) > maxScript:
		u.r.lose(fmt.Sprintf("script of more than %d bytes", maxScript))
		return
	case strings.ContainsRune(text, 0):
		u.r.lose("text with a NUL byte")
		return
	}
	if d == zsh {
		u.r.plain, u.r.doubtful = false, true
	}
	failed := 0
	for i, lang := range variants {
		u.r.scripts++
		if u.r.parsed += len(text); u.r.parsed > maxParsed {
			u.r.lose(fmt.Sprintf("more than %d bytes of script in all", maxParsed))
			return
		}
		use := k
		if i > 0 {
			// The second dialect restricts; it does not ask for more allow rules.
			use = max(use, possible)
		}
		if !u.parse(text, lang, params, use) {
			failed++
		}
	}
	if failed == len(variants) {
		u.r.lose("text that is not valid " + d.String() + ": " + shorten(text, 60))
	}
}

func (d dialect) String() string {
	return [...]string{"program", "bash", "sh", "ksh", "zsh", "shell"}[d]
}

// parse reads text in one dialect; false if it is not valid. A shell runs the
// lines before a mistake, so the statements before it count.
func (u *unwrapper) parse(text string, lang syntax.LangVariant, params []word, k kind) (valid bool) {
	s := &script{text: text, lang: lang, u: u, kind: k, alias: map[string][]string{}}
	s.vars.params = params
	depth, user := u.depth, u.user
	u.depth, u.user = u.depth+1, s
	defer func() {
		u.depth, u.user = depth, user
		if failure := recover(); failure != nil {
			// The parser is a foreign library that sees hostile text. What it cannot
			// take is opaque, which refuses, instead of ending the run.
			u.r.lose(parserFails)
			valid = true
		}
	}()
	file := &syntax.File{}
	valid = true
	p := syntax.NewParser(syntax.Variant(lang))
	for stmt, err := range p.StmtsSeq(newDepthReader(text)) {
		// No break: after an error the parser may call once more.
		switch {
		case err != nil && valid:
			if valid = false; errors.Is(err, errTooDeep) {
				u.r.lose("text that is nested too deeply to read")
			}
		case err == nil && valid:
			file.Stmts = append(file.Stmts, stmt)
		}
	}
	s.collect(file)
	s.walk(file)
	return valid
}

// parserFails is why a text is opaque that makes the parser panic.
const parserFails = "text that the shell parser fails on"

// errTooDeep stops the parser.
var errTooDeep = errors.New("nested too deeply")

// depthReader hands text to the parser in small pieces and looks at each how
// deep the parser has recursed: deep nesting costs it stack without bound, and
// no count of brackets can tell nesting from quoted text as surely as its own
// stack does.
type depthReader struct {
	text   string
	frames []uintptr
}

func newDepthReader(text string) *depthReader {
	var base [512]uintptr
	return &depthReader{text: text, frames: make([]uintptr, runtime.Callers(0, base[:])+maxFrames)}
}

// Read fails once the stack is full.
func (d *depthReader) Read(b []byte) (int, error) {
	switch {
	case d.text == "":
		return 0, io.EOF
	case runtime.Callers(0, d.frames) == len(d.frames):
		return 0, errTooDeep
	}
	n := copy(b[:min(len(b), readPiece)], d.text)
	d.text = d.text[n:]
	return n, nil
}
