package rules

import (
	"slices"
	"strings"
)

// shell handles a shell as a command: its -c text, its script from standard
// input, or a file, which is a program like any other.
func (u *unwrapper) shell(d dialect, words []word, k kind, in stdin) {
	u.r.plain = false
	text, fromInput := false, false
	args := words[1:]
	u.switches(words[0].text, shellOptions(args))
	for len(args) > 0 {
		a := args[0]
		if !a.known {
			if a.many || text {
				u.r.lose("`" + shorten(a.text, 60) + "` among the arguments of a shell")
			}
			break
		}
		option := a.text
		if option == "--" || option == "-" {
			args = args[1:]
			break
		}
		if option == "" || option[0] != '-' && option[0] != '+' {
			break
		}
		args = args[1:]
		if strings.HasPrefix(option, "--") {
			if option == "--rcfile" || option == "--init-file" {
				if len(args) > 0 {
					u.scriptFile(args[0], d, max(k, possible), stdin{})
				}
				args = args[min(1, len(args)):]
			}
			continue
		}
		text = text || option[0] == '-' && strings.Contains(option, "c")
		fromInput = fromInput || option[0] == '-' && strings.Contains(option, "s")
		if strings.ContainsAny(option[1:], "oO") {
			args = args[min(1, len(args)):]
		}
	}
	switch {
	case text:
		if len(args) == 0 {
			return
		}
		// What follows the text is $0, $1, ….
		params := append([]word{}, args[1:]...)
		if len(params) == 0 {
			params = []word{words[0]}
		}
		u.textWord(args[0], d, params, k, words[0].text+" -c")
	case fromInput, len(args) == 0:
		if in.known && strings.Contains(in.text, "!") && slices.ContainsFunc(words[1:], isInteractive) {
			u.r.lose("`" + words[0].text + "` expands ! in its input")
		}
		u.input(words[0].text, d, k, in)
	default:
		// The file is the program that runs.
		u.derive(args, k)
		u.scriptFile(args[0], d, k, in)
	}
}

// shellOptions are the words before the first operand of a shell.
func shellOptions(args []word) []word {
	for i, a := range args {
		if !a.known || a.text == "" || a.text[0] != '-' && a.text[0] != '+' {
			return args[:min(i+1, len(args))]
		}
	}
	return args
}

func isInteractive(w word) bool {
	return w.known && len(w.text) > 1 && w.text[0] == '-' && w.text[1] != '-' && strings.Contains(w.text, "i")
}

// scriptFile is a file of commands. A named file is a program like any other;
// standard input by another name is not.
func (u *unwrapper) scriptFile(file word, d dialect, k kind, in stdin) {
	switch {
	case !file.known:
		if text, ok := u.substituted(file); ok {
			u.script(text, d, nil, k)
			return
		}
		if hasAnyPrefix(file.text, []string{"<(", "=(", "/dev/fd/", "/proc/"}) {
			u.r.lose("script from `" + shorten(file.text, 60) + "`")
		}
		u.runsSome(file, d, k, in)
	case file.text == "/dev/stdin",
		strings.HasPrefix(file.text, "/dev/fd/"),
		strings.HasPrefix(file.text, "/proc/self/fd/"),
		strings.HasPrefix(file.text, "/dev/tty"):
		u.input(file.text, d, k, in)
	default:
		u.runsMade(file.text, d, nil, k, in)
	}
}

// substituted is the fixed text of a process substitution.
func (u *unwrapper) substituted(file word) (string, bool) {
	inner, ok := strings.CutPrefix(file.text, "<(")
	if !ok || u.user == nil || !strings.HasSuffix(inner, ")") {
		return "", false
	}
	argv, err := splitWords(strings.TrimSuffix(inner, ")"))
	if err != nil || len(argv) == 0 || strings.ContainsAny(inner, "$`|;&<>(") {
		return "", false
	}
	switch argv[0] {
	case "echo":
		return echo(argv[1:])
	case "printf":
		return printf(argv[1:])
	}
	return "", false
}

// input is the text that a shell reads from its standard input.
func (u *unwrapper) input(name string, d dialect, k kind, in stdin) {
	switch {
	case in.file:
		// A named file, as if it were given as an argument.
		u.runsMade(in.name, d, nil, k, stdin{})
	case in.known && in.piped:
		u.script(in.text, d, nil, k)
	default:
		u.r.lose(name + " reads its commands from an input that is not in the text")
	}
}

// textWord reads a word as a script.
func (u *unwrapper) textWord(text word, d dialect, params []word, k kind, by string) {
	u.r.plain = false
	if !text.known {
		u.r.lose("text for " + by + ": `" + shorten(text.text, 60) + "`")
		return
	}
	u.script(text.text, d, params, k)
}

// evalText reads words joined by blanks as a script.
func (u *unwrapper) evalText(words []word, k kind, by string) {
	u.r.plain = false
	if len(words) > 0 && words[0].known && words[0].text == "--" {
		words = words[1:]
	}
	if !u.r.spend(len(words)) {
		return
	}
	parts := make([]string, len(words))
	for i, w := range words {
		if !w.known {
			u.r.lose("text for " + by + ": `" + shorten(w.text, 60) + "`")
			return
		}
		parts[i] = w.text
	}
	d := bash
	if u.user != nil {
		d = u.user.dialect()
	}
	u.script(strings.Join(parts, " "), d, nil, k)
}

// trap runs its first operand later.
func (u *unwrapper) trap(args []word, k kind) {
	u.r.plain = false
	for len(args) > 0 && args[0].known && strings.HasPrefix(args[0].text, "-") && args[0].text != "-" {
		if args[0].text != "--" {
			return // -l, -p
		}
		args = args[1:]
	}
	if len(args) < 2 || args[0].known && (args[0].text == "-" || args[0].text == "") {
		return
	}
	u.textWord(args[0], bash, nil, k, "trap")
}

// source reads a file into the shell.
func (u *unwrapper) source(args []word, k kind, in stdin) {
	u.r.plain = false
	if len(args) > 0 && args[0].known && args[0].text == "--" {
		args = args[1:]
	}
	if len(args) > 0 {
		u.derive(args, k)
		u.scriptFile(args[0], bash, k, in)
	}
}

// again: fc runs commands of the history, after changing them.
func (u *unwrapper) again(args []word) {
	lists := func(w word) bool { return w.known && strings.HasPrefix(w.text, "-") && strings.Contains(w.text, "l") }
	if !slices.ContainsFunc(args, lists) {
		u.r.lose("`fc` runs commands again that are not in the text")
	}
}

// redefines: builtins that make a name mean another program.
func (u *unwrapper) redefines(name string, args []word) {
	u.r.plain = false
	for _, a := range args {
		if !a.known || strings.HasPrefix(a.text, "-") && strings.ContainsAny(a.text, "pfn") {
			u.r.lose("`" + name + "` changes what a command name means")
			return
		}
	}
}

// interpreters run the file that is their first operand.
var interpreters = []string{
	"python", "python2", "python3", "pypy", "pypy3", "node", "nodejs", "perl", "ruby", "php", "lua", "tclsh", "wish", "Rscript",
	"osascript",
}

func isInterpreter(name string) bool {
	return slices.Contains(interpreters, strings.TrimRight(name, "0123456789.")) || slices.Contains(interpreters, name)
}

// interpreted is the file or module that an interpreter runs: a program of its
// own, by which rules may name it.
func (u *unwrapper) interpreted(words []word, k kind) {
	python := strings.HasPrefix(words[0].base(), "py")
	for i := 1; i < len(words); i++ {
		w := words[i]
		switch {
		case w.known && !strings.HasPrefix(w.text, "-"):
			u.derive(words[i:], k)
			return
		case !w.known || w.text == "-c" || w.text == "-e" || w.text == "-":
			return
		case !python:
		case w.text == "-m" && i+1 < len(words):
			u.derive(words[i+1:], k)
			return
		case strings.HasPrefix(w.text, "-m"):
			u.derive(append([]word{fixedWord(w.text[2:])}, words[i+1:]...), k)
			return
		case w.text == "-W" || w.text == "-X":
			i++
		}
	}
}

// applet is busybox: the first operand names the program.
func (u *unwrapper) applet(words []word, k kind, in stdin) {
	u.r.plain = false
	if len(words) < 2 || words[1].known && strings.HasPrefix(words[1].text, "-") {
		return
	}
	u.command(words[1:], k, in)
}

// find runs the words between -exec and its end.
func (u *unwrapper) find(words []word, k kind, in stdin) {
	for i := 1; i < len(words); i++ {
		switch words[i].text {
		case "-exec", "-execdir", "-ok", "-okdir":
		default:
			if !words[i].known && words[i].many {
				u.r.lose("`" + shorten(words[i].text, 60) + "` among the arguments of find")
			}
			continue
		}
		u.r.plain = false
		var inner []word
		for i++; i < len(words) && words[i].text != ";" && !(words[i].text == "+" && len(inner) > 0 && inner[len(inner)-1].text == "{}"); i++ {
			inner = append(inner, words[i])
		}
		for n, w := range inner {
			if strings.Contains(w.text, "{}") {
				inner[n] = word{text: w.text, tail: ""}
			}
		}
		u.command(inner, k, in)
	}
}
