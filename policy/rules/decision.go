// Package rules evaluates command rules: Starlark prefix_rule files, rules of
// requirements, and the shell reader that finds every command a script would
// run.
package rules

// Level is a decision; a stricter one is greater.
type Level int

// Levels.
const (
	None Level = iota
	Allow
	Prompt
	Forbidden
)

// String is the word used in files and output.
func (l Level) String() string { return [...]string{"none", "allow", "prompt", "forbidden"}[l] }

// Match is one rule that matched one command.
type Match struct {
	Prefix        []string `json:"prefix"`
	Level         Level    `json:"-"`
	Decision      string   `json:"decision"`
	Justification string   `json:"justification,omitempty"`
	Origin        string   `json:"origin"` // file:line
	Command       []string `json:"command"`
}

// Decision is what the rules say of a whole command line.
type Decision struct {
	Level   Level
	Matches []Match
	// Commands is how the text was read; Opaque are the parts that could not be
	// read with certainty.
	Commands [][]string
	Opaque   []string
}
