package rules

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Layer tells whose rule it is.
type Layer string

// Layers of rules. Rules of a project may restrict, but their allow rules
// neither lift the danger rule nor take a command out of the sandbox.
const (
	System      Layer = "system"
	User        Layer = "user"
	Project     Layer = "project"
	Requirement Layer = "requirements"
)

// Rule matches commands that begin with a pattern.
type Rule struct {
	// Pattern holds the accepted words of each position; both levels are never
	// empty.
	Pattern       [][]string
	Level         Level
	Justification string
	Origin        string // file:line
	Layer         Layer
	// Match and NotMatch are the self-tests, kept for printing.
	Match, NotMatch []Example
}

// Example is one self-test of a rule, as argv.
type Example struct {
	Text string // as written, "" when written as a list
	Argv []string
}

// String is the pattern as a command line, alternatives in braces.
func (r Rule) String() string {
	parts := make([]string, len(r.Pattern))
	for i, alternatives := range r.Pattern {
		parts[i] = alternatives[0]
		if len(alternatives) > 1 {
			parts[i] = "{" + strings.Join(alternatives, ",") + "}"
		}
	}
	return strings.Join(parts, " ")
}

// matchesPrefix compares token by token from argv[0]: the plain rule of the
// language, used for self-tests.
func (r Rule) matchesPrefix(argv []string) bool {
	if len(argv) < len(r.Pattern) {
		return false
	}
	for i, alternatives := range r.Pattern {
		if !slices.Contains(alternatives, argv[i]) {
			return false
		}
	}
	return true
}

// NetworkRule decides on one host.
type NetworkRule struct {
	Host          string // lower case, no port, no trailing dot
	Protocol      string // http, https, socks5_tcp, socks5_udp
	Level         Level
	Justification string
	Origin        string
	Layer         Layer
}

// Program is a host_executable: the only absolute paths for which rules on the
// bare name hold.
type Program struct {
	Name   string
	Paths  []string
	Origin string
	Layer  Layer
}

// File is the content of one rules file.
type File struct {
	Rules    []Rule
	Network  []NetworkRule
	Programs []Program
}

// Error is one mistake in a rules file.
type Error struct {
	File         string
	Line, Column int
	Message      string
	HintText     string
}

// Error is a sentence that starts with the place.
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// Hint tells what to do, or is empty.
func (e *Error) Hint() string { return e.HintText }

// Set is all rules of a run. The order of files does not matter.
type Set struct {
	rules    []Rule
	network  []NetworkRule
	byFirst  map[string]*starts // first token to the rules that begin with it
	programs programs
	// strictest is the highest level of any rule.
	strictest Level
}

// NewSet joins files. It establishes that equal files in any order give an
// equal Set.
func NewSet(files ...*File) *Set {
	s := &Set{byFirst: map[string]*starts{}, programs: programs{}}
	for _, f := range files {
		s.rules = append(s.rules, f.Rules...)
		s.network = append(s.network, f.Network...)
		for _, p := range f.Programs {
			s.programs[p.Name] = append(s.programs[p.Name], p)
		}
	}
	slices.SortStableFunc(s.rules, func(a, b Rule) int {
		return cmp.Or(-cmp.Compare(a.Level, b.Level), slices.CompareFunc(a.Pattern, b.Pattern, slices.Compare),
			cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Justification, b.Justification), cmp.Compare(a.Layer, b.Layer))
	})
	slices.SortStableFunc(s.network, func(a, b NetworkRule) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Protocol, b.Protocol), -cmp.Compare(a.Level, b.Level), cmp.Compare(a.Origin, b.Origin))
	})
	for i, r := range s.rules {
		for _, first := range r.Pattern[0] {
			if s.byFirst[first] == nil {
				s.byFirst[first] = &starts{bySecond: map[string][]int{}}
			}
			s.byFirst[first].add(r, i)
		}
		s.strictest = max(s.strictest, r.Level)
	}
	return s
}

// starts are the indexes of the rules that begin with one token. A program may
// have thousands of rules and a script thousands of commands, so they are found
// by their second token too.
type starts struct {
	all      []int
	oneWord  []int
	bySecond map[string][]int
}

func (st *starts) add(r Rule, i int) {
	st.all = append(st.all, i)
	if len(r.Pattern) == 1 {
		st.oneWord = append(st.oneWord, i)
		return
	}
	for _, second := range r.Pattern[1] {
		st.bySecond[second] = append(st.bySecond[second], i)
	}
}

// candidates are the rules that may match a command with these arguments, in
// order: the second token may stand after options, so at any place.
func (st *starts) candidates(args []word) []int {
	out := slices.Clone(st.oneWord)
	for _, w := range args {
		if !w.known {
			return st.all
		}
		out = append(out, st.bySecond[w.text]...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Rules are the command rules, strictest first. The slice must not be changed.
func (s *Set) Rules() []Rule { return s.rules }

// Network are the network rules. The slice must not be changed.
func (s *Set) Network() []NetworkRule { return s.network }

// Restricts tells whether any rule forbids or prompts, so that opaque text is
// refused.
func (s *Set) Restricts() bool { return s.strictest > Allow }

// Executables are the programs that a one-word forbidden rule names: bare names,
// or the absolute paths that host_executable declares for a name. Refusing to
// execute these is what holds also inside programs, whose own commands no
// reading of a command line can see.
func (s *Set) Executables() []string {
	var out []string
	for _, r := range s.rules {
		if r.Level != Forbidden || len(r.Pattern) != 1 {
			continue
		}
		for _, name := range r.Pattern[0] {
			if paths, declared := s.programs.paths(name, r.Level, r.Layer); declared && !strings.Contains(name, "/") {
				out = append(out, paths...)
				continue
			}
			if strings.Contains(name, "/") {
				name = path.Clean(name)
			}
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
