package rules

import "strings"

// unwrapper finds every command that a command line would run, and records each
// in a reading. A program that runs others is looked into in three steps:
//
//  1. command records the command as written and finds the program's name;
//  2. looksInto chooses the reader for that name: one of its own (git, find, a
//     shell), or the table of wrappers with the arguments walk in wrapped.go;
//  3. the reader calls command, script or derive for what it finds inside, and
//     lose for what the text does not show, so that no allow rule can hold.
type unwrapper struct {
	r     *reading
	depth int        // of scripts in scripts
	inner int        // of wrappers in wrappers
	user  *script    // the script the words come from, nil for an argv
	files []madeFile // that the text makes itself
}

// maxWrappers is how deep wrappers may stand in each other.
const maxWrappers = 32

// command records a command and whatever its words make it run.
func (u *unwrapper) command(words []word, k kind, in stdin) {
	if len(words) == 0 || u.r.full {
		return
	}
	u.notePlain(words)
	name := words[0].base()
	if !u.r.add(command{words: words, kind: k, exact: optionsUnderstood(name)}) || name == "" {
		return
	}
	u.nested(func() { u.looksInto(name, words, k, in) })
}

// notePlain notes that a command is not plain when one of its words is not known.
// Without the name of the program nothing is known of the command at all.
func (u *unwrapper) notePlain(words []word) {
	for _, w := range words {
		if !w.known {
			u.r.plain = false
		}
	}
	// The name is also known of a path whose folder is not.
	if first := words[0]; !first.known && first.tail == "" {
		u.r.lose("command word `" + shorten(first.text, 60) + "`")
	}
}

// optionsUnderstood tells whether the program's own reader derives the form that
// rules name (`git push` of `git -C x push`), so that the words as written need
// no loose match besides.
func optionsUnderstood(name string) bool {
	switch name {
	case "git", "make", "gmake", "bmake":
		return true
	}
	return false
}

// nested looks at what is inside a wrapper, unless too many stand around it.
func (u *unwrapper) nested(look func()) {
	if u.inner >= maxWrappers {
		u.r.lose("wrappers nested too deeply")
		return
	}
	u.inner++
	defer func() { u.inner-- }()
	look()
}

// looksInto hands a command to the first reader that knows the program. The
// order matters: a name may also look like an interpreter's or stand in a table.
func (u *unwrapper) looksInto(name string, words []word, k kind, in stdin) {
	args := words[1:]
	if u.byOwnReader(name, words, k, in) {
		return
	}
	if isLoader(name) {
		u.wrapped(name, wrapper{any: true}, args, k, in)
		return
	}
	if isInterpreter(name) {
		u.interpreted(words, k)
		return
	}
	if sub, dashed := strings.CutPrefix(name, "git-"); dashed && sub != "" {
		u.derive(append(fixedWords([]string{"git", sub}), args...), k)
		return
	}
	if d := shellOf(name); d != noShell {
		u.shell(d, words, k, in)
		return
	}
	if w, ok := wrapperOf(name); ok {
		u.wrapped(name, w, args, k, in)
		return
	}
	u.optionText(textOptions[name], args, k)
	u.optionText(textBuiltins[name], args, k)
}

// byOwnReader looks into the programs whose arguments no table describes; false
// if this is none of them.
func (u *unwrapper) byOwnReader(name string, words []word, k kind, in stdin) bool {
	args := words[1:]
	switch name {
	case "git":
		u.git(words, k)
	case "make", "gmake", "bmake":
		u.make(words, k)
	case "find", "gfind":
		u.find(words, k, in)
	case "parallel", "sem":
		return u.parallel(words, k, in)
	case "xargs", "gxargs":
		u.xargs(words, k, in)
	case "busybox", "toybox":
		u.applet(words, k, in)
	case "eval":
		u.evalText(args, k, "eval")
	case "trap":
		u.trap(args, k)
	case ".", "source":
		u.source(args, k, in)
	case "coproc":
		u.command(args, k, in)
	case "hash", "enable":
		u.redefines(name, args)
	case "set":
		u.switches(name, args)
	case "fc":
		u.again(args)
	case "at", "batch":
		u.input(name, posix, k, in)
	default:
		return false
	}
	return true
}

// isLoader tells whether the program is the dynamic loader, which runs the
// program it is given.
func isLoader(name string) bool {
	return strings.HasPrefix(name, "ld-linux") || strings.HasPrefix(name, "ld-musl") || name == "ld.so"
}

// derive records another form of a command, by which rules may name it.
func (u *unwrapper) derive(words []word, k kind) {
	u.r.add(command{words: words, kind: max(k, derived)})
}
