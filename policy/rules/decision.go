// Package rules evaluates command rules: Starlark prefix_rule files, rules of
// requirements, and the shell reader that finds every command a script would
// run.
//
// The usual call: [Parse] each file, join the files with [NewSet], then ask
// [Set.Command] about an argv or [Set.Shell] about a script. A Set is immutable
// and safe for concurrent use.
//
// What a text says is found by reading it, never by running it, so the answer
// has two parts. Commands are what is certain: each simple command wherever it
// would run, with wrappers (env, timeout, sudo …), nested shells and quoting
// resolved. Opaque names what is not: a command word that only exists at run
// time, text for a shell that is not in the script, input above the bounds. No
// allow rule matches opaque text, and a set that forbids or prompts for anything
// refuses it. Reading can never see what a program does once it runs; forbidding
// an executable for that too is the sandbox's work (see [Set.Executables]).
package rules

import "fmt"

// Level is a decision; a stricter one is greater.
type Level int

// Levels.
const (
	None Level = iota
	Allow
	Prompt
	Forbidden
)

var levelWords = [...]string{"none", "allow", "prompt", "forbidden"}

// String is the word used in files and output.
func (l Level) String() string {
	if l < 0 || int(l) >= len(levelWords) {
		return fmt.Sprintf("level(%d)", int(l))
	}
	return levelWords[l]
}

// MarshalText writes the word.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Match is one rule that matched one command.
type Match struct {
	Prefix        []string `json:"prefix"`
	Level         Level    `json:"-"`
	Decision      string   `json:"decision"`
	Justification string   `json:"justification,omitempty"`
	Origin        string   `json:"origin"` // file:line
	Layer         Layer    `json:"layer"`
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
	// Danger is why the built-in danger rule refuses, if it does; Level is then
	// Forbidden.
	Danger string
	// Plain: nothing but simple commands with fixed words, joined by ;, newline,
	// && , || and |. Only a plain text whose every command has an allow rule may
	// leave the sandbox.
	Plain bool
}

// Strictest is the match that decided: the first of the highest level, nil if
// nothing matched at that level.
func (d Decision) Strictest() *Match {
	for i := range d.Matches {
		if d.Matches[i].Level == d.Level {
			return &d.Matches[i]
		}
	}
	return nil
}
