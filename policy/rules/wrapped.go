package rules

import (
	"fmt"
	"slices"
	"strings"
)

// wrapperArgs walks the arguments of a wrapper (env, sudo, timeout, …) to the
// command inside. Each word is given its role by the wrapper's row in the table;
// the walk ends where the command begins, or where it may begin.
type wrapperArgs struct {
	u    *unwrapper
	name string // of the wrapper
	w    wrapper
	kind kind
	in   stdin

	rest     []word // not yet walked
	operands int    // of the wrapper itself that are still to come
}

// role is what a word means to the wrapper.
type role int

const (
	operand     role = iota // the wrapper's own, or the first word of its command
	unknownWord             // has its value only when the command runs
	endOfOptions
	queryOption   // the wrapper only looks and runs nothing
	scriptOption  // its value is a script
	splitOption   // its value is split into more arguments
	valueOption   // its value is the next word
	plainOption   // no value, or one that is attached
	strangeOption // not in the table: whether a value follows is not known
	assignmentWord
)

// role tells what a word of the arguments is.
func (w wrapper) role(a word) role {
	switch text := a.text; {
	case !a.known:
		return unknownWord
	case text == "--":
		return endOfOptions
	case slices.Contains(w.query, text):
		return queryOption
	case optionIn(text, w.text):
		return scriptOption
	case optionIn(text, w.split):
		return splitOption
	case slices.Contains(w.values, text):
		return valueOption
	case slices.Contains(w.flags, text), hasAnyPrefix(text, w.attached):
		return plainOption
	case strings.HasPrefix(text, "-") && len(text) > 1, w.any && strings.HasPrefix(text, "+"):
		return strangeOption
	case w.assigns && isAssignment(text):
		return assignmentWord
	}
	return operand
}

// wrapped finds the command in the arguments of a wrapper.
func (u *unwrapper) wrapped(name string, w wrapper, args []word, k kind, in stdin) {
	u.r.plain = false
	args, runs := w.afterSub(args)
	if !runs {
		return
	}
	a := &wrapperArgs{u: u, name: name, w: w, kind: k, in: in, rest: args, operands: w.before}
	for len(a.rest) > 0 {
		if done := a.step(); done {
			return
		}
	}
	if w.shell {
		u.input(name, posix, k, in)
	}
}

// afterSub are the arguments after the sub-command that runs others (`run` of
// `uv run`); false if it is another sub-command.
func (w wrapper) afterSub(args []word) ([]word, bool) {
	if len(w.sub) == 0 {
		return args, true
	}
	at := slices.IndexFunc(args, func(a word) bool { return a.known && slices.Contains(w.sub, a.text) })
	if at < 0 {
		return nil, false
	}
	return args[at+1:], true
}

// step walks over one word and what belongs to it; true at the end of the walk.
func (a *wrapperArgs) step() (done bool) {
	from := a.rest // the command, if it begins with this word
	this := a.next()
	switch a.w.role(this) {
	case unknownWord:
		a.mayBeSeveral(this)
		if a.ownOperand() {
			return false
		}
		a.inside(from)
		return true
	case endOfOptions:
		a.afterDashes()
		return true
	case queryOption:
		return true
	case scriptOption:
		a.u.textWord(a.optionValue(this, a.w.text), posix, nil, a.kind, a.name)
	case splitOption:
		a.split(a.optionValue(this, a.w.split))
		return true
	case valueOption:
		if len(a.rest) > 0 {
			a.mayBeSeveral(a.next())
		}
	case plainOption:
	case strangeOption:
		a.anywhereIn(a.rest)
		return true
	case assignmentWord:
		a.u.environment(this.text, a.kind)
	case operand:
		if a.ownOperand() {
			return false
		}
		a.begins(from)
		return true
	}
	return false
}

// next takes a word.
func (a *wrapperArgs) next() word {
	w := a.rest[0]
	a.rest = a.rest[1:]
	return w
}

// ownOperand counts an operand of the wrapper itself; false when all have been
// seen, so that the word belongs to the command.
func (a *wrapperArgs) ownOperand() bool {
	if a.operands == 0 {
		return false
	}
	a.operands--
	return true
}

// optionValue takes the value of an option, which may be the next word.
func (a *wrapperArgs) optionValue(option word, options []string) word {
	value, isNext := optionValue(option.text, options, a.rest)
	if isNext {
		a.next()
	}
	return value
}

// mayBeSeveral: a word that may become several, or none, moves all that follow.
func (a *wrapperArgs) mayBeSeveral(w word) {
	if w.many {
		a.u.r.lose("`" + shorten(w.text, 60) + "` among the arguments of " + a.name)
	}
}

// afterDashes walks what follows `--`, where no option stands.
func (a *wrapperArgs) afterDashes() {
	for a.w.assigns && len(a.rest) > 0 && a.rest[0].known && isAssignment(a.rest[0].text) {
		a.u.environment(a.next().text, a.kind)
	}
	switch {
	case a.w.any:
		a.anywhereIn(a.rest)
	case a.operands < len(a.rest):
		a.inside(a.rest[a.operands:])
	}
}

// begins: a word that is neither an option nor an operand of the wrapper is where
// the command begins, if all options of the wrapper are known.
func (a *wrapperArgs) begins(words []word) {
	if a.w.any {
		a.anywhereIn(words)
		return
	}
	a.inside(words)
}

// inside reads the command.
func (a *wrapperArgs) inside(words []word) {
	a.joined(words)
	a.u.command(words, a.kind, a.in)
}

// joined reads the words as the one text that some wrappers make of them and give
// to sh -c.
func (a *wrapperArgs) joined(words []word) {
	if a.w.joins {
		a.u.evalText(words, max(a.kind, possible), "a wrapper that joins its arguments")
	}
}

// anywhereIn: where the command begins is not certain, so each word may begin it.
// Each counts for rules that restrict, none for rules that allow.
func (a *wrapperArgs) anywhereIn(words []word) {
	r, k := a.u.r, max(a.kind, possible)
	r.doubtful = true
	for i, one := range words {
		switch {
		case i >= maxDoubts:
			r.lose("a wrapper with more than " + fmt.Sprint(maxDoubts) + " words that may begin its command")
			return
		case r.full:
			return
		case one.known && strings.HasPrefix(one.text, "-"):
			if optionIn(one.text, a.w.text) {
				value, _ := optionValue(one.text, a.w.text, words[i+1:])
				a.u.textWord(value, posix, nil, k, "an option")
			}
		case !one.known && one.many:
			r.lose("`" + shorten(one.text, 60) + "` among the arguments of a wrapper")
		default:
			a.joined(words[i:])
			a.u.command(words[i:], k, a.in)
		}
	}
}

// split is env -S: its value is split into words, which may be options again.
func (a *wrapperArgs) split(value word) {
	parts, ok := splitAsEnv(value)
	if !ok {
		a.u.r.lose("text that " + a.name + " splits: `" + shorten(value.text, 60) + "`")
		return
	}
	a.u.nested(func() {
		a.u.wrapped(a.name, a.w, append(fixedWords(parts), a.rest...), a.kind, a.in)
	})
}

// splitAsEnv splits as env does where env and a shell agree: env has variables
// and escapes of its own.
func splitAsEnv(value word) ([]string, bool) {
	if !value.known || strings.ContainsAny(value.text, "$\\") {
		return nil, false
	}
	parts, err := splitWords(value.text)
	return parts, err == nil
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
