package patch

import (
	"strings"
	"unicode"
)

// stages are the ways to compare a line of the patch with one of the file, the
// strict ones first. A whole run of lines must match in one stage.
var stages = [...]func(string) string{
	func(s string) string { return s },
	func(s string) string { return strings.TrimRightFunc(s, unicode.IsSpace) },
	strings.TrimSpace,
	plainPunctuation,
}

// plainPunctuation trims a line and writes typographic dashes, quotes and
// spaces as their ASCII forms: models type the ASCII ones.
func plainPunctuation(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 0x2010 && r <= 0x2015, r == 0x2212:
			return '-'
		case r >= 0x2018 && r <= 0x201B:
			return '\''
		case r >= 0x201C && r <= 0x201F:
			return '"'
		case r == 0x00A0, r >= 0x2002 && r <= 0x200A, r == 0x202F, r == 0x205F, r == 0x3000:
			return ' '
		}
		return r
	}, strings.TrimSpace(s))
}

// finder searches runs of lines in a file. It keeps the file's lines in the
// form of every stage it needed so far.
type finder struct {
	forms [len(stages)][]string
}

func newFinder(lines []string) *finder {
	f := &finder{}
	f.forms[0] = lines
	return f
}

// find returns the first place at or after from where run stands, stage by
// stage; at the end of the file only if atEnd. It returns -1 if there is none.
// An empty run stands anywhere.
func (f *finder) find(run []string, from int, atEnd bool) int {
	last := len(f.forms[0]) - len(run)
	if len(run) == 0 {
		return from
	}
	if atEnd {
		if last < from {
			return -1
		}
		from = last
	}
	want := make([]string, len(run))
	for stage, form := range stages {
		for i, l := range run {
			want[i] = form(l)
		}
		lines := f.stage(stage)
	place:
		for i := from; i <= last; i++ {
			for k, w := range want {
				if lines[i+k] != w {
					continue place
				}
			}
			return i
		}
	}
	return -1
}

func (f *finder) stage(n int) []string {
	if f.forms[n] == nil {
		f.forms[n] = make([]string, len(f.forms[0]))
		for i, l := range f.forms[0] {
			f.forms[n][i] = stages[n](l)
		}
	}
	return f.forms[n]
}
