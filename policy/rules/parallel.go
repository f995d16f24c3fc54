package rules

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// parallelMarks separate the command of GNU parallel from its arguments, which
// stand there (:::) or in files (::::).
var parallelMarks = []string{":::", ":::+", "::::", "::::+"}

// parallel runs its command once for each argument behind a mark, or for each
// line of its input; false if it has no command, as then the lines are commands.
func (u *unwrapper) parallel(words []word, k kind, in stdin) bool {
	mark := slices.IndexFunc(words, func(w word) bool { return w.known && slices.Contains(parallelMarks, w.text) })
	if mark < 0 {
		mark = len(words)
	}
	args := words[mark:]
	if mark == len(words) {
		args = xargsCall{replace: "{}"}.given(in)
	}
	u.r.plain = false
	files := false
	for i, arg := range args {
		switch {
		case arg.known && slices.Contains(parallelMarks, arg.text):
			files = strings.HasPrefix(arg.text, "::::")
			continue
		case i >= maxDoubts:
			u.r.lose("parallel with more than " + strconv.Itoa(maxDoubts) + " arguments")
			return true
		case files:
			arg = word{text: "(line of " + arg.text + ")"}
		}
		u.parallelRuns(words[1:mark], arg, k)
	}
	return mark < len(words)
}

// parallelRuns reads the command with one argument. Which options have a value is
// not known, so each word before the argument may be the program.
func (u *unwrapper) parallelRuns(head []word, arg word, k kind) {
	if len(head) == 0 {
		u.evalText([]word{arg}, k, "parallel")
		return
	}
	text := withArgument(head, arg)
	for from := range head[:min(len(head), maxDoubts)] {
		option := func(i int) bool { return i < 0 || strings.HasPrefix(head[i].text, "-") }
		value := from > 0 && option(from-2) && strings.Trim(head[from-1].text, "0123456789%+") == ""
		switch {
		case head[from].known && strings.HasPrefix(head[from].text, "-"):
			continue
		case head[from].known && placeholder().MatchString(head[from].text) && !option(from-1) && !value:
			continue // an operand
		}
		u.evalText(text[from:], k, "parallel")
		k = max(k, possible)
	}
}

// placeholder is where parallel puts an argument, or a part of one: {}, {.}, {2/}.
var placeholder = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{[-+0-9]*(?:[.]|/|//|/[.]|#|%)?\}`) })

// withArgument is the command, which is text for a shell, with the argument where
// it has a placeholder, else at its end. Parallel quotes the argument; without a
// command it is one.
func withArgument(head []word, arg word) []word {
	if len(head) == 0 {
		return []word{arg}
	}
	const unknown = `"$PARALLEL_ARGUMENT"` // read as a word that nobody knows
	quoted := unknown
	if arg.known {
		quoted = "'" + strings.ReplaceAll(arg.text, "'", `'\''`) + "'"
	}
	out, put := slices.Clone(head), false
	for i, w := range head {
		if w.known && placeholder().MatchString(w.text) {
			text := strings.ReplaceAll(w.text, "{}", quoted)
			out[i], put = fixedWord(placeholder().ReplaceAllLiteralString(text, unknown)), true
		}
	}
	if !put {
		out = append(out, fixedWord(quoted))
	}
	return out
}
