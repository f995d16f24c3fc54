package rules

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// writers are commands that set the variables their arguments name, and those
// that run text or files in the shell itself, which may set any.
var writers = []string{
	"read", "mapfile", "readarray", "printf", "getopts", "unset", "wait", "export", "readonly", "declare", "typeset", "local", "let",
	"nameref", "integer", "print", "vared",
}

// evaluators run text or a file in the shell itself: it may set any variable and
// define any function.
var evaluators = []string{"eval", "source", ".", "trap", "alias", "fc"}

// precommands only say how the word after them is looked up.
var precommands = []string{"builtin", "command"}

// changesShell tells whether a command may change variables, parameters,
// functions or how the shell reads what follows.
func changesShell(name string) bool {
	return name == "set" || name == "shift" || slices.Contains(writers, name) || slices.Contains(evaluators, name) ||
		slices.Contains(precommands, name)
}

// staticText is the value of a word that holds no expansion, however it is
// quoted.
func staticText(w *syntax.Word) (text string, ok bool) {
	var b strings.Builder
	for _, part := range w.Parts {
		switch x := part.(type) {
		case *syntax.Lit:
			b.WriteString(unescapeAll(x.Value))
		case *syntax.SglQuoted:
			if x.Dollar {
				b.WriteString(ansiC(x.Value))
				continue
			}
			b.WriteString(x.Value)
		case *syntax.DblQuoted:
			for _, inner := range x.Parts {
				lit, isLit := inner.(*syntax.Lit)
				if !isLit {
					return "", false
				}
				b.WriteString(unescapeQuoted(lit.Value))
			}
		default:
			return "", false
		}
	}
	return b.String(), true
}

// builtinName is the command of a call behind precommands and the words after
// it; "" when the text does not say which it is. A name that only expansions
// make is found when the call is read, and is then opaque.
func builtinName(x *syntax.CallExpr) (name string, rest []*syntax.Word) {
	rest = x.Args
	for len(rest) > 0 {
		text, ok := staticText(rest[0])
		rest = rest[1:]
		switch {
		case !ok:
			return "", nil
		case text == "--", name != "" && strings.HasPrefix(text, "-"):
			continue
		case !slices.Contains(precommands, text):
			return text, rest
		}
		name = text
	}
	return "", nil
}

// countWriters notes commands that set variables named by their arguments.
func (s *script) countWriters(x *syntax.CallExpr) {
	name, rest := builtinName(x)
	v := &s.vars
	switch {
	case name == "eval", name == "source", name == ".":
		v.written[anyName]++
	case name == "trap", name == "alias", name == "fc":
		for _, a := range rest {
			if text, ok := staticText(a); !ok || setsVariables(text, name == "alias") {
				v.written[anyName]++
			}
		}
	case name == "set":
		v.params = nil
		for _, a := range rest {
			if text, _ := staticText(a); strings.HasPrefix(text, "-") && strings.Contains(text, "A") {
				v.written[anyName]++ // an array, in other shells
			}
		}
	case name == "shift":
		v.params = nil
	case slices.Contains(writers, name):
		// The first may be set without being named.
		for _, implied := range []string{"REPLY", "MAPFILE", "OPTARG"} {
			v.written[implied]++
		}
		for _, a := range rest {
			text, ok := staticText(a)
			s.countName(text, ok, slices.Contains([]string{"declare", "typeset", "local", "nameref"}, name))
		}
	}
}

// countName notes that a word names a variable that is set. declares: an option
// may make the name stand for another variable.
func (s *script) countName(text string, known, declares bool) {
	v := &s.vars
	switch {
	case !known, text == "":
		v.written[anyName]++
	case text[0] == '-':
		if declares && strings.Contains(text, "n") {
			v.written[anyName]++
		}
		// A name may be attached to any of the letters.
		for i := 2; i < len(text); i++ {
			v.written[text[i:]]++
		}
	default:
		text, _, _ = strings.Cut(text, "=")
		text, _, _ = strings.Cut(text, "[")
		v.written[strings.TrimSuffix(text, "+")]++
	}
}

// setsVariables tells whether text, run later, may set a variable.
func setsVariables(text string, definition bool) bool {
	if definition {
		_, text, _ = strings.Cut(text, "=")
	}
	return strings.Contains(text, "=") || slices.ContainsFunc(slices.Concat(writers, evaluators[:3], []string{"set", "shift"}), func(w string) bool {
		return w != "." && strings.Contains(text, w) || w == "." && strings.Contains(text, ". ")
	})
}

// volatile are variables that the shell itself sets.
func volatile(name string) bool {
	switch name {
	case "_", "RANDOM", "SRANDOM", "SECONDS", "LINENO", "PWD", "OLDPWD", "DIRSTACK", "FUNCNAME", "PIPESTATUS", "HISTCMD", "GROUPS", "SHLVL",
		"REPLY", "MAPFILE", "OPTARG", "OPTIND", "COPROC", "PPID", "UID", "EUID", "COLUMNS", "LINES":
		return true
	}
	return hasAnyPrefix(name, []string{"BASH", "EPOCH", "COMP_", "READLINE_"})
}

// switches looks at the options of set and of a shell that change how the words
// of the text are read: assignments anywhere, and history expansion.
func (u *unwrapper) switches(by string, args []word) {
	for i, a := range args {
		if !a.known || len(a.text) < 2 || a.text[0] != '-' && a.text[0] != '+' {
			continue
		}
		named := ""
		if i+1 < len(args) && strings.Contains(a.text, "o") {
			named = args[i+1].text
		}
		switch {
		case a.text == "--":
			return
		case strings.HasPrefix(a.text, "--"):
		case strings.ContainsAny(a.text[1:], "kH"), slices.Contains([]string{"keyword", "histexpand", "history"}, named):
			u.r.lose("`" + by + " " + shorten(a.text, 40) + "` changes how words are read")
			return
		}
	}
}
