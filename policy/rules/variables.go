package rules

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// variables is what is known of a script's variables.
type variables struct {
	// fixed are values that hold wherever the variable is used after its single
	// assignment.
	fixed map[string]assignment
	// seen are values a variable may have at some time.
	seen map[string][]string
	// written counts the places that may set a variable.
	written map[string]int
	// params are $0, $1, … of a nested script, nil if unknown.
	params []word
}

// assignment is a value and where it begins to hold.
type assignment struct {
	value string
	after uint // offset
}

func (v *variables) touched(name string) bool { return v.written[name] > 0 || v.written[anyName] > 0 }

// collect looks for every place that may set a variable. Only a plain
// assignment with a fixed value at the top level of the script, the only one of
// its name, is certain.
func (s *script) collect(file *syntax.File) {
	v := &s.vars
	v.fixed, v.seen, v.written = map[string]assignment{}, map[string][]string{}, map[string]int{}
	var assigns []*syntax.Assign
	syntax.Walk(file, func(n syntax.Node) bool {
		switch x := n.(type) {
		case *syntax.Assign:
			assigns = append(assigns, x)
			s.countAssign(x)
		case *syntax.CallExpr:
			s.countWriters(x)
		case *syntax.FuncDecl:
			v.params = nil
			if x.Name != nil {
				s.u.r.funcs[x.Name.Value] = true
			}
		case *syntax.WordIter:
			v.written[x.Name.Value]++
		case *syntax.ParamExp:
			if x.Param != nil && x.Exp != nil && (x.Exp.Op == syntax.AssignUnset || x.Exp.Op == syntax.AssignUnsetOrNull) {
				v.written[x.Param.Value]++
			}
		case *syntax.ArithmCmd, *syntax.ArithmExp, *syntax.LetClause, *syntax.CStyleLoop:
			// Assignments in arithmetic give numbers, but to any name.
			syntax.Walk(n, func(inner syntax.Node) bool {
				if lit, ok := inner.(*syntax.Lit); ok {
					v.written[lit.Value]++
				}
				return true
			})
		case *syntax.CoprocClause:
			v.written["COPROC"]++
		case *syntax.Redirect:
			if x.N != nil {
				v.written[strings.Trim(x.N.Value, "{}")]++
			}
		}
		return true
	})
	top := map[*syntax.Assign]bool{}
	for _, stmt := range file.Stmts {
		if call, ok := stmt.Cmd.(*syntax.CallExpr); ok && len(call.Args) == 0 && !stmt.Background && !stmt.Negated && len(stmt.Redirs) == 0 {
			for _, a := range call.Assigns {
				top[a] = true
			}
		}
	}
	for _, a := range assigns {
		s.assign(a, top[a])
	}
}

// anyName stands in written for writers whose target is not known.
const anyName = "*"

func (s *script) countAssign(a *syntax.Assign) {
	switch {
	case a.Name != nil:
		s.vars.written[a.Name.Value]++
	case a.Value != nil:
		text, known := staticText(a.Value)
		s.countName(text, known, true)
	}
}

// assign records the value of one assignment.
func (s *script) assign(a *syntax.Assign, top bool) {
	if a.Name == nil || a.Naked || a.Array != nil || a.Index != nil || a.Append {
		return
	}
	value, known := "", true
	if a.Value != nil {
		var p piece
		source := s.source(a.Value)
		for i, part := range a.Value.Parts {
			s.assigned(&p, part, source, i == 0)
		}
		value, known = p.text.String(), !p.unknown
	}
	if !known {
		return
	}
	s.injected(fixedWord(value))
	v := &s.vars
	name := a.Name.Value
	v.seen[name] = append(v.seen[name], value)
	if top && v.written[name] == 1 && !volatile(name) && v.written[anyName] == 0 {
		v.fixed[name] = assignment{value: value, after: a.End().Offset()}
	}
}

// assigned is a part of an assigned value, where neither splitting nor globs
// happen.
func (s *script) assigned(p *piece, part syntax.WordPart, source string, first bool) {
	if lit, ok := part.(*syntax.Lit); ok && !(first && strings.HasPrefix(lit.Value, "~")) {
		p.add(unescapeAll(lit.Value))
		return
	}
	s.quotedOrWhole(p, part, source, first)
}

func (s *script) quotedOrWhole(p *piece, part syntax.WordPart, source string, first bool) {
	switch x := part.(type) {
	case *syntax.ParamExp:
		if text, ok := s.value(x); ok {
			p.add(text)
			return
		}
		p.lose(false)
	case *syntax.CmdSubst:
		if text, ok := s.output(x); ok {
			p.add(text)
			return
		}
		p.lose(false)
	default:
		s.part(p, part, source, first, false)
	}
}

func unescapeAll(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			i++
			if text[i] == '\n' {
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// value is what a parameter expansion surely gives.
func (s *script) value(x *syntax.ParamExp) (string, bool) {
	if x.Param == nil || x.Excl || x.Length || x.Width || x.IsSet || x.Index != nil || x.Slice != nil || x.Repl != nil ||
		x.Names != 0 || x.Exp != nil || x.NestedParam != nil || len(x.Modifiers) > 0 || x.Flags != nil {
		return "", false
	}
	name := x.Param.Value
	if text, ok := s.vars.param(name); ok {
		return text, true
	}
	a, ok := s.vars.fixed[name]
	if !ok || x.Pos().Offset() < a.after {
		return "", false
	}
	return a.value, true
}

// param is $0 … $9 of a nested script; they come from words after it.
func (v *variables) param(name string) (string, bool) {
	if len(name) != 1 || name[0] < '0' || name[0] > '9' || v.params == nil || v.written[anyName] > 0 {
		return "", false
	}
	i := int(name[0] - '0')
	if i >= len(v.params) {
		return "", i > 0
	}
	return v.params[i].text, v.params[i].known
}

// guesses are values an expansion may have, for commands that must be looked at
// although they are not certain.
func (s *script) guesses(x *syntax.ParamExp) []string {
	if x.Param == nil {
		return nil
	}
	out := append([]string(nil), s.vars.seen[x.Param.Value]...)
	if x.Exp != nil && x.Exp.Word != nil {
		for _, w := range s.split(x.Exp.Word) {
			if w.known {
				out = append(out, w.text)
			}
		}
	}
	return out
}

// isList tells whether an expansion gives several words even in quotes.
func isList(x *syntax.ParamExp) bool {
	if x.Param != nil && x.Param.Value == "@" {
		return true
	}
	if x.Names == syntax.NamesPrefixWords {
		return true
	}
	if x.Index != nil {
		if w, ok := x.Index.(*syntax.Word); ok && w.Lit() == "@" {
			return true
		}
	}
	return false
}
