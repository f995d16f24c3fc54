package rules

import (
	"fmt"
	"slices"
	"strings"
)

// unwrapper turns a command into the commands it would run.
type unwrapper struct {
	r     *reading
	depth int        // of scripts
	inner int        // of wrappers
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
	first := words[0]
	if !first.known {
		u.r.plain = false
		switch {
		case first.tail != "":
			// A path whose folder is not known: the program's name is.
		default:
			u.r.lose("command word `" + shorten(first.text, 60) + "`")
		}
	}
	for _, w := range words[1:] {
		if !w.known {
			u.r.plain = false
		}
	}
	name := first.base()
	exact := name == "git" || name == "make" || name == "gmake" || name == "bmake"
	if !u.r.add(command{words: words, kind: k, exact: exact}) || name == "" {
		return
	}
	if u.inner >= maxWrappers {
		u.r.lose("wrappers nested too deeply")
		return
	}
	u.inner++
	defer func() { u.inner-- }()
	u.looksInto(name, words, k, in)
}

// looksInto handles the programs that run others.
func (u *unwrapper) looksInto(name string, words []word, k kind, in stdin) {
	switch name {
	case "git":
		u.git(words, k)
		return
	case "make", "gmake", "bmake":
		u.make(words, k)
		return
	case "find", "gfind":
		u.find(words, k, in)
		return
	case "xargs", "gxargs":
		u.xargs(words, k, in)
		return
	case "busybox", "toybox":
		u.applet(words, k, in)
		return
	case "eval":
		u.evalText(words[1:], k, "eval")
		return
	case "trap":
		u.trap(words[1:], k)
		return
	case ".", "source":
		u.source(words[1:], k, in)
		return
	case "coproc":
		u.command(words[1:], k, in)
		return
	case "hash", "enable":
		u.redefines(name, words[1:])
		return
	case "set":
		u.switches(name, words[1:])
		return
	case "fc":
		u.again(words[1:])
		return
	case "at", "batch":
		u.input(name, posix, k, in)
		return
	}
	if strings.HasPrefix(name, "ld-linux") || strings.HasPrefix(name, "ld-musl") || name == "ld.so" {
		// The loader runs the program it is given.
		u.wrapped(name, wrapper{any: true}, words[1:], k, in)
		return
	}
	if isInterpreter(name) {
		u.interpreted(words, k)
		return
	}
	if rest, dashed := strings.CutPrefix(name, "git-"); dashed && rest != "" {
		u.derive(append(fixedWords([]string{"git", rest}), words[1:]...), k)
		return
	}
	if d := shellOf(name); d != noShell {
		u.shell(d, words, k, in)
		return
	}
	if w, ok := wrapperOf(name); ok {
		u.wrapped(name, w, words[1:], k, in)
		return
	}
	if options, ok := textOptions[name]; ok {
		u.optionText(options, words[1:], k)
	}
	if options, ok := textBuiltins[name]; ok {
		u.optionText(options, words[1:], k)
	}
}

// derive records another form of a command.
func (u *unwrapper) derive(words []word, k kind) {
	u.r.add(command{words: words, kind: max(k, derived)})
}

// wrapped finds the command in the arguments of a wrapper.
func (u *unwrapper) wrapped(name string, w wrapper, args []word, k kind, in stdin) {
	u.r.plain = false
	if len(w.sub) > 0 {
		at := slices.IndexFunc(args, func(a word) bool { return a.known && slices.Contains(w.sub, a.text) })
		if at < 0 {
			return
		}
		args = args[at+1:]
	}
	before := w.before
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case !a.known:
			if a.many {
				u.r.lose("`" + shorten(a.text, 60) + "` among the arguments of " + name)
			}
			if before > 0 {
				before--
				continue
			}
			u.inside(w, args[i:], k, in)
			return
		case a.text == "--":
			u.afterDashes(w, args[i+1:], before, k, in)
			return
		case slices.Contains(w.query, a.text):
			return
		case optionIn(a.text, w.text):
			value, used := optionValue(a.text, w.text, args[i+1:])
			u.textWord(value, posix, nil, k, name)
			if len(w.text) > 0 && w.shell && !used {
				continue
			}
			if used {
				i++
			}
		case optionIn(a.text, w.split):
			value, used := optionValue(a.text, w.split, args[i+1:])
			rest := args[i+1:]
			if used {
				rest = args[i+2:]
			}
			u.splitString(name, w, value, rest, k, in)
			return
		case slices.Contains(w.values, a.text):
			i++
			if i < len(args) && args[i].many {
				u.r.lose("`" + shorten(args[i].text, 60) + "` among the arguments of " + name)
			}
		case slices.Contains(w.flags, a.text), hasAnyPrefix(a.text, w.attached):
		case strings.HasPrefix(a.text, "-") && len(a.text) > 1, w.any && strings.HasPrefix(a.text, "+"):
			u.doubt(w, args[i+1:], k, in)
			return
		case w.assigns && isAssignment(a.text):
			u.environment(a.text, k)
		case before > 0:
			before--
		default:
			if w.any {
				u.doubt(w, args[i:], k, in)
				return
			}
			u.inside(w, args[i:], k, in)
			return
		}
	}
	if w.shell {
		u.input(name, posix, k, in)
	}
}

func (u *unwrapper) afterDashes(w wrapper, args []word, before int, k kind, in stdin) {
	for w.assigns && len(args) > 0 && args[0].known && isAssignment(args[0].text) {
		u.environment(args[0].text, k)
		args = args[1:]
	}
	if w.any {
		u.doubt(w, args, k, in)
		return
	}
	if before < len(args) {
		u.inside(w, args[before:], k, in)
	}
}

// inside is the command of a wrapper.
func (u *unwrapper) inside(w wrapper, words []word, k kind, in stdin) {
	if w.joins {
		u.evalText(words, max(k, possible), "a wrapper that joins its arguments")
	}
	u.command(words, k, in)
}

// doubt: where the command of a wrapper begins is not certain, so each word may
// begin it. Each counts for rules that restrict, none for rules that allow.
func (u *unwrapper) doubt(w wrapper, words []word, k kind, in stdin) {
	u.r.doubtful = true
	for i, one := range words {
		if i >= maxDoubts {
			u.r.lose("a wrapper with more than " + fmt.Sprint(maxDoubts) + " words that may begin its command")
			return
		}
		if u.r.full {
			return
		}
		if one.known && strings.HasPrefix(one.text, "-") {
			if optionIn(one.text, w.text) {
				value, _ := optionValue(one.text, w.text, words[i+1:])
				u.textWord(value, posix, nil, max(k, possible), "an option")
			}
			continue
		}
		if !one.known && one.many {
			u.r.lose("`" + shorten(one.text, 60) + "` among the arguments of a wrapper")
			continue
		}
		if w.joins {
			u.evalText(words[i:], max(k, possible), "a wrapper that joins its arguments")
		}
		u.command(words[i:], max(k, possible), in)
	}
}

// environment looks at a NAME=VALUE word of env or sudo.
func (u *unwrapper) environment(assignment string, k kind) {
	name, value, _ := strings.Cut(assignment, "=")
	switch variableUse(name) {
	case runsText:
		if strings.TrimSpace(value) != "" {
			u.script(value, posix, nil, max(k, possible))
		}
	case changesMeaning:
		if value != "" {
			u.r.lose("`" + shorten(assignment, 60) + "` changes what commands mean")
		}
	}
}

// splitString is env -S: its value is split into words, which may be options
// again.
func (u *unwrapper) splitString(name string, w wrapper, value word, rest []word, k kind, in stdin) {
	if !value.known || strings.ContainsAny(value.text, "$\\") {
		u.r.lose("text that " + name + " splits: `" + shorten(value.text, 60) + "`")
		return
	}
	parts, err := splitWords(value.text)
	if err != nil {
		u.r.lose("text that " + name + " splits: `" + shorten(value.text, 60) + "`")
		return
	}
	if u.inner >= maxWrappers {
		u.r.lose("wrappers nested too deeply")
		return
	}
	u.inner++
	u.wrapped(name, w, append(fixedWords(parts), rest...), k, in)
	u.inner--
}

func isAssignment(text string) bool {
	name, _, ok := strings.Cut(text, "=")
	if !ok || name == "" || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	for i := range len(name) {
		if !isWordByte(name[i]) {
			return false
		}
	}
	return true
}

func hasAnyPrefix(text string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(text, p) })
}

// optionIn tells whether text is one of the options, with or without a value
// attached. A short one may stand in a cluster: -qc is -q -c.
func optionIn(text string, options []string) bool {
	return slices.ContainsFunc(options, func(o string) bool {
		if text == o {
			return true
		}
		if !isShort(o) {
			return strings.HasPrefix(text, o+"=")
		}
		return inCluster(text, o) > 0
	})
}

func isShort(option string) bool { return len(option) == 2 && option[0] == '-' && option[1] != '-' }

// inCluster is the offset of a short option in a cluster of them, 0 if it is
// not there.
func inCluster(text, option string) int {
	if len(text) < 2 || text[0] != '-' || text[1] == '-' {
		return 0
	}
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == option[1]:
			return i
		case !isWordByte(text[i]):
			return 0 // the value of another option has begun
		}
	}
	return 0
}

// optionValue is the value of an option that optionIn found; used tells whether
// it is the next word.
func optionValue(text string, options []string, next []word) (value word, used bool) {
	for _, o := range options {
		switch {
		case text == o:
			if len(next) == 0 {
				return fixedWord(""), false
			}
			return next[0], true
		case strings.HasPrefix(text, o+"="):
			return fixedWord(text[len(o)+1:]), false
		case isShort(o) && inCluster(text, o) > 0:
			if at := inCluster(text, o); at < len(text)-1 {
				return fixedWord(text[at+1:]), false
			}
			if len(next) == 0 {
				return fixedWord(""), false
			}
			return next[0], true
		}
	}
	return fixedWord(""), false
}

// optionText looks at options whose value is a command line.
func (u *unwrapper) optionText(options []string, args []word, k kind) {
	for i, a := range args {
		if !a.known || !optionIn(a.text, options) {
			continue
		}
		u.r.plain = false
		value, _ := optionValue(a.text, options, args[i+1:])
		if !value.known {
			u.r.lose("`" + shorten(value.text, 60) + "` as the value of " + a.text)
			continue
		}
		text := strings.TrimPrefix(value.text, "exec=")
		for _, key := range []string{"ProxyCommand=", "LocalCommand=", "KnownHostsCommand="} {
			text = strings.TrimPrefix(text, key)
		}
		u.script(text, posix, nil, max(k, possible))
		if option := a.text; option == "-x" || option == "-X" || option == "--exec" || option == "--exec-batch" {
			u.command(args[i+1:], max(k, possible), stdin{})
		}
	}
}
