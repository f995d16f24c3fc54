package rules

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// stdin is what a command reads.
type stdin struct {
	text  string
	known bool // text is all of it
	piped bool // not the run's own standard input
	file  bool // a named file
	name  string
}

// output is the fixed output of a command substitution, without the final
// newlines.
func (s *script) output(x *syntax.CmdSubst) (string, bool) {
	text, ok := s.outputOf(x.Stmts)
	return strings.TrimRight(text, "\n"), ok
}

// outputOf is the fixed output of statements.
func (s *script) outputOf(stmts []*syntax.Stmt) (string, bool) {
	var b strings.Builder
	for _, stmt := range stmts {
		text, ok := s.stmtOutput(stmt)
		if !ok {
			return "", false
		}
		b.WriteString(text)
	}
	return b.String(), true
}

// stmtOutput is the output of echo, printf and cat with fixed words.
func (s *script) stmtOutput(stmt *syntax.Stmt) (string, bool) {
	call, ok := stmt.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 || stmt.Background || stmt.Negated {
		return "", false
	}
	if s.outputDepth >= maxShells {
		return "", false
	}
	s.outputDepth++
	defer func() { s.outputDepth-- }()
	var argv []string
	for _, a := range call.Args {
		for _, w := range s.words(a) {
			if !w.known {
				return "", false
			}
			argv = append(argv, w.text)
		}
	}
	if len(argv) == 0 || s.u.r.funcs[argv[0]] || s.vars.touched(anyName) || s.alias[argv[0]] != nil {
		return "", false
	}
	switch argv[0] {
	case "cat":
		in, redirected := s.redirected(stmt)
		if len(argv) == 1 && redirected && len(stmt.Redirs) == 1 {
			return in.text, in.known
		}
	case "echo":
		if len(stmt.Redirs) == 0 {
			text, ok := echo(argv[1:])
			if !ok && s.lang == syntax.LangBash && !strings.HasPrefix(argv[1], "-") {
				// bash's own echo takes backslashes as they are.
				return strings.Join(argv[1:], " ") + "\n", true
			}
			return text, ok
		}
	case "printf":
		if len(stmt.Redirs) == 0 {
			return printf(argv[1:])
		}
	case ":", "true":
		return "", len(stmt.Redirs) == 0
	}
	return "", false
}

// echo is what echo prints; shells differ on backslashes, so there it is not
// known.
func echo(args []string) (string, bool) {
	end := "\n"
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' && strings.Trim(args[0][1:], "neE") == "" {
		if strings.Contains(args[0], "e") {
			return "", false
		}
		if strings.Contains(args[0], "n") {
			end = ""
		}
		args = args[1:]
	}
	text := strings.Join(args, " ")
	return text + end, !strings.Contains(text, `\`)
}

// printf is what printf prints for formats of %s, %% and the usual escapes.
func printf(args []string) (string, bool) {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return "", false
	}
	format, rest := args[0], args[1:]
	var b strings.Builder
	for {
		used := false
		for i := 0; i < len(format); i++ {
			c := format[i]
			switch {
			case c == '%' && i+1 < len(format) && format[i+1] == '%':
				b.WriteByte('%')
				i++
			case c == '%' && i+1 < len(format) && format[i+1] == 's':
				if len(rest) > 0 {
					b.WriteString(rest[0])
					rest, used = rest[1:], true
				}
				i++
			case c == '%':
				return "", false
			case c == '\\':
				if i+1 >= len(format) {
					return "", false
				}
				i++
				switch format[i] {
				case 'n':
					b.WriteByte('\n')
				case 't':
					b.WriteByte('\t')
				case '\\':
					b.WriteByte('\\')
				default:
					return "", false
				}
			default:
				b.WriteByte(c)
			}
		}
		if len(rest) == 0 || !used || b.Len() > maxScript {
			return b.String(), len(rest) == 0 || used
		}
	}
}
