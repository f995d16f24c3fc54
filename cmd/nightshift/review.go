package main

import (
	"fmt"
	"strings"
)

// reviewCmd reviews a change and reports findings.
type reviewCmd struct {
	runFlags    `embed:""`
	Uncommitted bool    `help:"Staged, unstaged and untracked changes."`
	Base        string  `placeholder:"BRANCH" help:"What HEAD changed since it left BRANCH."`
	Commit      string  `placeholder:"SHA" help:"One commit."`
	Title       string  `placeholder:"TEXT" help:"Title shown for --commit."`
	FailOn      string  `placeholder:"SEVERITY" help:"Exit 9 when a finding is of that severity or worse: critical, high, medium, low."`
	Prompt      *string `arg:"" optional:"" help:"What to review, in your own words; - reads it from stdin."`
}

// Validate checks what the grammar cannot.
func (c *reviewCmd) Validate() error {
	if err := c.runFlags.Validate(); err != nil {
		return err
	}
	n := 0
	for _, given := range []bool{c.Uncommitted, c.Base != "", c.Commit != "", c.Prompt != nil} {
		if given {
			n++
		}
	}
	if n > 1 {
		return fmt.Errorf("--uncommitted, --base, --commit and PROMPT exclude each other")
	}
	switch c.FailOn {
	case "", "critical", "high", "medium", "low":
	default:
		return fmt.Errorf("invalid value '%s' for '--fail-on' [possible values: critical, high, medium, low]", c.FailOn)
	}
	for _, given := range []struct{ flag, ref string }{{"--base", c.Base}, {"--commit", c.Commit}} {
		if strings.HasPrefix(given.ref, "-") || strings.ContainsAny(given.ref, " \t\n:?*[\\'") {
			return fmt.Errorf("%s %q is not the name of a branch or commit", given.flag, given.ref)
		}
	}
	return nil
}

// Run reviews.
func (c *reviewCmd) Run(rt *runtime) error {
	target := c.target()
	if target == "" && c.Prompt == nil && c.PromptFile == "" {
		return usageError("specify --uncommitted, --base, --commit, or provide custom review instructions")
	}
	j := job{mode: "review", review: reviewJob{base: c.Base, commit: c.Commit, failOn: c.FailOn}}
	if target != "" {
		j.prompt = &target
	}
	return rt.session(&c.runFlags, j).run(promptSources{arg: c.Prompt, file: c.PromptFile, isSub: true})
}

// target is the sentence that names the change. It holds commands, so a name of
// more than plain letters is quoted.
func (c *reviewCmd) target() string {
	base, commit := quoted(c.Base), quoted(c.Commit)
	switch {
	case c.Uncommitted:
		return "Review the changes of the working tree that are not committed: staged, unstaged and untracked files. `git status` and `git diff HEAD` show them."
	case c.Base != "":
		return fmt.Sprintf("Review what HEAD changes relative to %[1]s: the diff from their merge base, as shown by `git diff $(git merge-base HEAD %[1]s)`.", base)
	case c.Commit != "":
		title := ""
		if c.Title != "" {
			title = fmt.Sprintf(" (%q)", c.Title)
		}
		return fmt.Sprintf("Review the commit %s%s, as shown by `git show %[1]s`.", commit, title)
	}
	return ""
}

// quoted is a word for a shell; Validate refuses the quote itself.
func quoted(ref string) string {
	plain := func(r rune) bool {
		return r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("./@+=,~^{}-", r)
	}
	if strings.ContainsFunc(ref, func(r rune) bool { return !plain(r) }) {
		return "'" + ref + "'"
	}
	return ref
}
