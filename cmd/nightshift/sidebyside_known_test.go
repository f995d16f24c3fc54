package main

import (
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
)

// rule names differences that are known.
type rule struct {
	// Row is the first cell of the row of COMPATIBILITY.md that says why.
	Row string
	// Cases and Is are regular expressions for the names of cases ("" is all) and
	// for the differences as they are printed.
	Cases, Is string
	// Live: the difference shows only beside the reference's program.
	Live bool

	cases, is *regexp.Regexp
	used      atomic.Bool
}

type ruleBook []*rule

// readRules reads the rules; each row exists.
func readRules(t *testing.T) ruleBook {
	t.Helper()
	var book ruleBook
	readJSON(t, "testdata/compat/known.json", &book)
	page := readText(t, ".github/COMPATIBILITY.md")
	for _, r := range book {
		if !strings.Contains(page, "\n| "+r.Row+" |") {
			t.Errorf("COMPATIBILITY.md has no row %q", r.Row)
		}
		r.cases, r.is = regexp.MustCompile(r.Cases), regexp.MustCompile(`(?s)`+r.Is)
	}
	return book
}

// unknown returns the differences that no rule names.
func (b ruleBook) unknown(name string, differences []string) (out []string) {
next:
	for _, d := range differences {
		for _, r := range b {
			if r.cases.MatchString(name) && r.is.MatchString(d) {
				r.used.Store(true)
				continue next
			}
		}
		out = append(out, d)
	}
	return out
}

// checkUsed finds rules that name nothing any more.
func (b ruleBook) checkUsed(t *testing.T, counts func(*rule) bool) {
	t.Helper()
	for _, r := range b {
		if counts(r) && !r.used.Load() {
			t.Errorf("no difference is like %q any more (cases %q): delete the rule, and the row %q of COMPATIBILITY.md if it was the last", r.Is, r.Cases, r.Row)
		}
	}
}
