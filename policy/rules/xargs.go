package rules

import (
	"slices"
	"strings"
)

// The options of xargs, of GNU and of BSD: those with a value, which may be
// attached or the next word, and those whose value may only be attached.
const (
	xargsValues   = "aEILPnsdJRS"
	xargsAttached = "eil"
	xargsFlags    = "0oprtx"
)

var (
	xargsLongValues = []string{"--arg-file", "--delimiter", "--max-args", "--max-procs", "--max-chars", "--process-slot-var"}
	xargsLongFlags  = []string{
		"--null", "--open-tty", "--interactive", "--no-run-if-empty", "--verbose", "--exit", "--show-limits", "--eof", "--max-lines", "--replace",
	}
)

// xargsCall is what the options of one call say.
type xargsCall struct {
	replace  string // what stands for the input, "" where it is appended
	unsplit  bool   // the input is not the pipe, or not split at blanks and newlines
	doubtful bool   // an option is not known, so the command may begin later
	args     []word
}

// option reads one word of short options; used tells whether the next is its
// value.
func (c *xargsCall) option(text string, next []word) (used bool) {
	for i := 1; i < len(text); i++ {
		letter, rest := text[i], text[i+1:]
		switch {
		case letter == '0':
			c.unsplit = true
		case strings.IndexByte(xargsFlags, letter) >= 0:
		case strings.IndexByte(xargsAttached, letter) >= 0:
			if letter == 'i' {
				if c.replace = rest; rest == "" {
					c.replace = "{}"
				}
			}
			return false
		case strings.IndexByte(xargsValues, letter) >= 0:
			used = rest == ""
			if used && len(next) > 0 {
				rest = next[0].text
			}
			c.unsplit = c.unsplit || letter == 'a' || letter == 'd'
			if letter == 'I' || letter == 'J' {
				c.replace = rest
			}
			return used
		default:
			c.doubtful = true
		}
	}
	return false
}

func (c *xargsCall) long(text string) (used bool) {
	name, value, attached := strings.Cut(text, "=")
	begins := func(o string) bool { return strings.HasPrefix(o, name) }
	switch {
	case slices.ContainsFunc(xargsLongValues, begins):
		c.unsplit = c.unsplit || begins("--arg-file") || begins("--delimiter")
		// One beginning may stand for several options, of which not all have a value.
		c.doubtful = c.doubtful || !slices.Contains(xargsLongValues, name)
		return !attached
	case slices.ContainsFunc(xargsLongFlags, begins):
		c.unsplit = c.unsplit || begins("--null")
		if begins("--replace") {
			if c.replace = value; value == "" {
				c.replace = "{}"
			}
		}
	default:
		c.doubtful = true
	}
	return false
}

// xargs runs its command with words from its input appended or put in.
func (u *unwrapper) xargs(words []word, k kind, in stdin) {
	u.r.plain = false
	c := xargsCall{args: words[1:]}
	for len(c.args) > 0 && c.args[0].known && len(c.args[0].text) > 1 && c.args[0].text[0] == '-' {
		option, used := c.args[0].text, false
		c.args = c.args[1:]
		if option == "--" {
			break
		}
		if strings.HasPrefix(option, "--") {
			used = c.long(option)
		} else {
			used = c.option(option, c.args)
		}
		if used {
			c.args = c.args[min(1, len(c.args)):]
		}
	}
	if !c.doubtful {
		u.xargsRuns(c, k, in)
		return
	}
	u.r.doubtful = true
	for from := range words[1:min(len(words), maxDoubts)] {
		c.args = words[1+from:]
		u.xargsRuns(c, max(k, possible), in)
	}
}

// xargsRuns is the command with what the input gives it.
func (u *unwrapper) xargsRuns(c xargsCall, k kind, in stdin) {
	if len(c.args) == 0 {
		return // echo
	}
	given := c.given(in)
	if c.replace == "" {
		u.command(append(append([]word{}, c.args...), given...), k, stdin{piped: true, known: true})
		return
	}
	for _, g := range given {
		inner := make([]word, len(c.args))
		for i, a := range c.args {
			inner[i] = a
			if strings.Contains(a.text, c.replace) {
				inner[i] = word{text: strings.ReplaceAll(a.text, c.replace, g.text), known: a.known && g.known}
			}
		}
		u.command(inner, k, stdin{piped: true, known: true})
	}
}

// given are the words that the input becomes: split at blanks, or with a
// replacement one a line.
func (c xargsCall) given(in stdin) []word {
	fixed := in.known && in.piped && !c.unsplit
	if fixed && c.replace != "" && !strings.ContainsAny(in.text, `'"\`) {
		var out []word
		for line := range strings.Lines(in.text) {
			if line = strings.TrimLeft(strings.TrimSuffix(line, "\n"), " \t"); line != "" {
				out = append(out, fixedWord(line))
			}
		}
		return out
	}
	if parts, err := splitWords(in.text); fixed && c.replace == "" && err == nil {
		return fixedWords(parts)
	}
	return []word{{text: "(input of xargs)", many: c.replace == ""}}
}
