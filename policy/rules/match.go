package rules

import (
	"slices"
	"strings"
)

// fit is how well a rule matches a command whose words may not all be known.
type fit int

const (
	misfit fit = iota
	maybe      // it matches for some values of the unknown words
	fits
)

// evaluate decides on a reading.
func (s *Set) evaluate(r *reading) Decision {
	d := Decision{Plain: r.plain, Opaque: r.opaque}
	allAllowed := true
	seen := map[string]bool{}
	for _, c := range r.commands {
		if c.kind == certain {
			d.Commands = append(d.Commands, c.argv())
		}
		allowed, trusted := s.match(c, &d, seen)
		if c.kind == certain && !allowed {
			allAllowed = false
		}
		if !trusted && d.Danger == "" {
			d.Danger = danger(c)
		}
	}
	if len(d.Opaque) > 0 && s.Restricts() {
		d.Level = max(d.Level, s.strictest)
	}
	if d.Level == None && len(d.Commands) > 0 && allAllowed && len(d.Opaque) == 0 && !r.doubtful {
		d.Level = Allow
	}
	if d.Danger != "" {
		d.Level = Forbidden
	}
	return d
}

// match applies every rule to one command. It tells whether an allow rule holds
// for it, and whether one that may lift the danger rule does.
func (s *Set) match(c command, d *Decision, seen map[string]bool) (allowed, trusted bool) {
	if len(c.words) == 0 {
		return false, false
	}
	for _, name := range c.names() {
		begins := s.byFirst[name.text]
		if begins == nil {
			continue
		}
		for _, i := range begins.candidates(c.words[1:]) {
			rule := s.rules[i]
			if name.byBase && !s.programs.hold(name.text, c.words[0].text, c.words[0].known, rule.Level, rule.Layer) {
				continue
			}
			if rule.Level == Allow {
				if c.fixed() && prefixFits(rule.Pattern[1:], c.words[1:]) == fits {
					s.note(d, rule, c, seen)
					allowed = true
					trusted = trusted || rule.Layer != Project
				}
				continue
			}
			switch restrictiveFit(rule.Pattern[1:], c) {
			case fits:
				s.note(d, rule, c, seen)
				d.Level = max(d.Level, rule.Level)
			case maybe:
				d.Opaque = appendNew(d.Opaque, "`"+c.String()+"` may turn out to be `"+rule.String()+"`")
			}
		}
	}
	return allowed, trusted
}

// maxMatches bounds the matches that a decision lists; its level counts all.
const maxMatches = 256

// maxOpaque bounds the opaque parts that a decision names.
const maxOpaque = 32

func appendNew(list []string, s string) []string {
	if len(list) >= maxOpaque || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

func (s *Set) note(d *Decision, r Rule, c command, seen map[string]bool) {
	if len(d.Matches) >= maxMatches {
		return
	}
	key := r.Origin + "\x00" + r.String() + "\x00" + strings.Join(c.argv(), "\x00")
	if seen[key] {
		return
	}
	seen[key] = true
	prefix := make([]string, len(r.Pattern))
	for i, alternatives := range r.Pattern {
		prefix[i] = alternatives[0]
		if len(alternatives) > 1 {
			prefix[i] = chosen(alternatives, i, c)
		}
	}
	d.Matches = append(d.Matches, Match{Prefix: prefix, Level: r.Level, Decision: r.Level.String(), Justification: r.Justification,
		Origin: r.Origin, Layer: r.Layer, Command: c.argv()})
}

// chosen is the alternative that the command used.
func chosen(alternatives []string, position int, c command) string {
	if position == 0 {
		for _, n := range c.names() {
			if slices.Contains(alternatives, n.text) {
				return n.text
			}
		}
	}
	for _, w := range c.words[min(position, len(c.words)):] {
		if slices.Contains(alternatives, w.text) {
			return w.text
		}
	}
	return alternatives[0]
}

// programName is one way to name the program of a command.
type programName struct {
	text   string
	byBase bool // the base name of a path
}

// names are the ways rules may name the program: as written, and by base name
// when it is a path.
func (c command) names() []programName {
	first := c.words[0]
	var out []programName
	if first.known {
		out = append(out, programName{text: first.text})
	}
	if base := first.base(); base != "" && (!first.known || base != first.text) {
		out = append(out, programName{text: base, byBase: true})
	}
	return out
}

// prefixFits compares position by position; more words may follow.
func prefixFits(pattern [][]string, words []word) fit {
	for i, alternatives := range pattern {
		if i >= len(words) {
			return misfit
		}
		switch {
		case !words[i].known && words[i].mayBeOne(alternatives):
			return maybe
		case !words[i].known:
			return misfit
		case !slices.Contains(alternatives, words[i].text):
			return misfit
		}
	}
	return fits
}

// restrictiveFit is the comparison for rules that forbid or prompt: options
// between the program and the words of the pattern do not hide them.
func restrictiveFit(pattern [][]string, c command) fit {
	exact := prefixFits(pattern, c.words[1:])
	if exact == fits || c.exact {
		return exact
	}
	return max(exact, looseFit(pattern, c.words[1:]))
}

// looseFit lets options stand before each word of a pattern. Whether an option
// takes the next word as its value is not known, so both readings are followed
// at once: a state is the number of pattern words found so far, with or without
// an option just before that may still take a value.
func looseFit(pattern [][]string, words []word) fit {
	type state struct{ plain, afterOption bool }
	now, next := make([]state, len(pattern)+1), make([]state, len(pattern)+1)
	now[0].plain = true
	best := misfit
	for _, w := range words {
		clear(next)
		alive := false
		for found, st := range now {
			switch {
			case !st.plain && !st.afterOption:
				continue
			case found == len(pattern):
				return fits
			}
			if !w.known && (w.head != "" || w.number) && !w.mayBeOne(pattern[found]) {
				w = fixedWord(w.head) // none of them: what matters is whether it is an option
			}
			option := w.known && len(w.text) > 1 && (w.text[0] == '-' || w.text[0] == '+')
			switch {
			case !w.known:
				best = maybe
				if st.afterOption && !w.many {
					next[found].plain = true
				}
			case slices.Contains(pattern[found], w.text):
				next[found+1].plain = true
			}
			switch {
			case option && !strings.Contains(w.text, "=") && w.text != "--":
				next[found].afterOption = true
			case option:
				next[found].plain = true
			case w.known && st.afterOption:
				next[found].plain = true
			}
			alive = true
		}
		if !alive {
			break
		}
		now, next = next, now
	}
	if last := now[len(pattern)]; last.plain || last.afterOption {
		return fits
	}
	return best
}
