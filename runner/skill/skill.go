// Package skill finds skills (folders with a SKILL.md), lists them for the
// prompt and gives their bodies when a prompt names them.
package skill

import "github.com/nightshift-ci/nightshift/runner/event"

// Options says where to look.
type Options struct {
	SystemDir   string // /etc/codex
	Home        string // CODEX_HOME
	UserHome    string // ~
	ProjectRoot string
	Cwd         string
	// Trusted allows skills of the project; otherwise they are only reported.
	Trusted  bool
	Disabled []string
}

// Skill is one skill. Path is its SKILL.md.
type Skill struct {
	Name, Description, Path string
	Scope                   string // system, user, project
}

// Find lists the skills, nearest last, with a notice for each SKILL.md that
// was left out.
func Find(o Options) ([]Skill, []event.Notice) { return nil, nil }

// Listing is the <skills_instructions> text, "" without skills.
func Listing(skills []Skill) string { return "" }

// Mentioned gives the texts to add to the prompt for each $name in it.
func Mentioned(prompt string, skills []Skill) ([]string, []event.Notice) { return nil, nil }
