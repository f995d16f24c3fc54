package rules

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

const (
	// maxFile bounds one rules file in bytes.
	maxFile = 4 << 20
	// maxSteps bounds the run of one rules file, so that an endless loop is an
	// error instead of a hang. A rule costs some 20 steps.
	maxSteps = 20_000_000
)

// Parse runs one rules file. It returns what the file declares and all mistakes:
// of the rules themselves every one, of the language up to the first.
func Parse(name string, src []byte, layer Layer) (*File, []*Error) {
	p := &parser{file: &File{}, name: name, layer: layer}
	switch {
	case len(src) > maxFile:
		p.fail(1, 1, fmt.Sprintf("file is larger than %d bytes", maxFile), "")
		return p.file, p.errs.all()
	case !utf8.Valid(src):
		p.fail(1, 1, "file is not UTF-8", "")
		return p.file, p.errs.all()
	}
	if at := bytes.IndexByte(src, 0); at >= 0 { // the scanner would take it for the end of the file
		line := 1 + bytes.Count(src[:at], []byte("\n"))
		p.fail(line, at-bytes.LastIndexByte(src[:at], '\n'), "a NUL byte", "write it as \\x00 if a word holds one")
		return p.file, p.errs.all()
	}
	text, err := rewriteFormats(string(src))
	if err != nil {
		p.fail(err.line, err.column, err.message, "")
		return p.file, p.errs.all()
	}
	if line := longExpression(text); line > 0 {
		p.fail(line, 1, fmt.Sprintf("an expression of more than %d bytes", maxExpression), "divide it into several rules")
		return p.file, p.errs.all()
	}
	thread := &starlark.Thread{Name: name}
	if broken := within(thread, func() { p.run(thread, text) }); broken != "" {
		return &File{}, []*Error{{File: name, Line: 1, Column: 1, Message: broken, HintText: "rules are data; look for a loop or a value that grows"}}
	}
	p.checkExamples()
	return p.file, p.errs.all()
}

type parser struct {
	file  *File
	name  string
	layer Layer
	errs  mistakes
	// at is where the call stands that is looked at; places are those of the rules.
	at     place
	places []place
}

// place is a position in a file, from 1.
type place struct{ line, column int }

func (p *parser) fail(line, column int, message, hint string) {
	p.errs.add(&Error{File: p.name, Line: line, Column: column, Message: message, HintText: hint})
}

func (p *parser) run(thread *starlark.Thread, text string) {
	options := &syntax.FileOptions{While: true, TopLevelControl: true, GlobalReassign: true}
	thread.SetMaxExecutionSteps(maxSteps)
	refuse := func(name string) *starlark.Builtin {
		return starlark.NewBuiltin(name, func(*starlark.Thread, *starlark.Builtin, starlark.Tuple, []starlark.Tuple) (starlark.Value, error) {
			return nil, errors.New(name + " is not available in rules files")
		})
	}
	_, err := starlark.ExecFileOptions(options, thread, p.name, text, starlark.StringDict{
		"prefix_rule":     p.builtin("prefix_rule", p.prefixRule),
		"network_rule":    p.builtin("network_rule", p.networkRule),
		"host_executable": p.builtin("host_executable", p.hostExecutable),
		"print":           refuse("print"),
	})
	if err == nil {
		return
	}
	var syntaxErr syntax.Error
	var resolveErr resolve.ErrorList
	var evalErr *starlark.EvalError
	switch {
	case errors.As(err, &syntaxErr):
		p.fail(int(syntaxErr.Pos.Line), int(syntaxErr.Pos.Col), syntaxErr.Msg, "")
	case errors.As(err, &resolveErr):
		for _, one := range resolveErr {
			p.fail(int(one.Pos.Line), int(one.Pos.Col), one.Msg, suggestBuiltin(one.Msg))
		}
	case errors.As(err, &evalErr):
		line, column := 1, 1
		for _, frame := range slices.Backward(evalErr.CallStack) {
			if frame.Pos.IsValid() && frame.Pos.Filename() == p.name {
				line, column = int(frame.Pos.Line), int(frame.Pos.Col)
				break
			}
		}
		message, hint := evalErr.Msg, ""
		if strings.Contains(message, "too many steps") {
			message = fmt.Sprintf("the file does not end: it takes more than %d steps", maxSteps)
			hint = "rules are data; look for a loop that never stops"
		}
		p.fail(line, column, message, hint)
	default:
		p.fail(1, 1, err.Error(), "")
	}
}

func suggestBuiltin(message string) string {
	if strings.HasPrefix(message, "undefined: ") && strings.HasSuffix(message, "rule") {
		return "the functions of rules files are prefix_rule, network_rule and host_executable"
	}
	return ""
}

// builtin wraps a declaration: a mistake is recorded at its call and the file
// goes on, so that one run shows all of them.
func (p *parser) builtin(name string, declare func(args starlark.Tuple, kwargs []starlark.Tuple, origin string) error) *starlark.Builtin {
	return starlark.NewBuiltin(
		name,
		func(t *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
			at := t.CallFrame(1).Pos
			// The position of a call is its opening parenthesis.
			column := max(1, int(at.Col)-len(name))
			p.at = place{int(at.Line), column}
			if err := declare(args, kwargs, fmt.Sprintf("%s:%d", p.name, at.Line)); err != nil {
				p.fail(int(at.Line), column, name+": "+strings.TrimPrefix(err.Error(), name+": "), "")
			}
			return starlark.None, nil
		},
	)
}

func (p *parser) prefixRule(args starlark.Tuple, kwargs []starlark.Tuple, origin string) error {
	var pattern, match, notMatch, justification starlark.Value
	decision := "allow"
	canonical := false // accepted as the reference does; it changes no result there either
	if err := starlark.UnpackArgs("prefix_rule", args, kwargs, "pattern", &pattern, "decision?", &decision,
		"match?", &match, "not_match?", &notMatch, "justification?", &justification, "canonical_matching?", &canonical); err != nil {
		return err
	}
	r := Rule{Origin: origin, Layer: p.layer}
	var problems []error
	note := func(err error) {
		if err != nil {
			problems = append(problems, err)
		}
	}
	var err error
	r.Pattern, err = patternOf(pattern)
	note(err)
	r.Level, err = levelOf(decision, false)
	note(err)
	r.Justification, err = justificationOf(justification)
	note(err)
	r.Match, err = examplesOf("match", match)
	note(err)
	r.NotMatch, err = examplesOf("not_match", notMatch)
	note(err)
	if len(problems) > 0 {
		return joinSentences(problems)
	}
	p.file.Rules = append(p.file.Rules, r)
	p.places = append(p.places, p.at)
	return nil
}

// checkExamples tries the examples of every rule, once all programs of the file
// are declared: an example may name its program by a path.
func (p *parser) checkExamples() {
	declared := NewSet(&File{Programs: p.file.Programs}).programs
	for i, r := range p.file.Rules {
		var problems []error
		for _, e := range r.Match {
			if !declared.fitsExample(r, e.Argv) {
				problems = append(problems, fmt.Errorf("match example %q does not match the pattern %q", strings.Join(e.Argv, " "), r.String()))
			}
		}
		for _, e := range r.NotMatch {
			if declared.fitsExample(r, e.Argv) {
				problems = append(problems, fmt.Errorf("not_match example %q matches the pattern %q", strings.Join(e.Argv, " "), r.String()))
			}
		}
		if err := joinSentences(problems); err != nil {
			p.fail(p.places[i].line, p.places[i].column, "prefix_rule: "+err.Error(), "")
		}
	}
}

func (p *parser) networkRule(args starlark.Tuple, kwargs []starlark.Tuple, origin string) error {
	var host, protocol, decision string
	var justification starlark.Value
	if err := starlark.UnpackArgs("network_rule", args, kwargs, "host", &host, "protocol", &protocol, "decision", &decision, "justification?", &justification); err != nil {
		return err
	}
	r := NetworkRule{Origin: origin, Layer: p.layer}
	var errs [4]error
	r.Host, errs[0] = NormalHost(host)
	r.Protocol, errs[1] = protocolOf(protocol)
	r.Level, errs[2] = levelOf(decision, true)
	r.Justification, errs[3] = justificationOf(justification)
	if err := joinSentences(errs[:]); err != nil {
		return err
	}
	p.file.Network = append(p.file.Network, r)
	return nil
}

func (p *parser) hostExecutable(args starlark.Tuple, kwargs []starlark.Tuple, origin string) error {
	var name string
	var paths *starlark.List
	if err := starlark.UnpackArgs("host_executable", args, kwargs, "name", &name, "paths", &paths); err != nil {
		return err
	}
	if name == "" || strings.ContainsAny(name, "/\x00") || name == "." || name == ".." {
		return fmt.Errorf("name %q must be a bare program name", name)
	}
	exe := Program{Name: name, Origin: origin, Layer: p.layer}
	for v := range paths.Elements() {
		text, ok := starlark.AsString(v)
		clean := path.Clean(text) // as the paths of commands are compared
		switch {
		case !ok:
			return fmt.Errorf("paths must be strings, not %s", v.Type())
		case !path.IsAbs(text):
			return fmt.Errorf("path %q must be absolute", text)
		case path.Base(clean) != name:
			return fmt.Errorf("path %q must end in %q", text, name)
		case !slices.Contains(exe.Paths, clean):
			exe.Paths = append(exe.Paths, clean)
		}
	}
	p.file.Programs = append(p.file.Programs, exe)
	return nil
}

func joinSentences(errs []error) error {
	var parts []string
	for _, err := range errs {
		if err != nil {
			parts = append(parts, err.Error())
		}
	}
	if parts == nil {
		return nil
	}
	return errors.New(strings.Join(parts, "; "))
}

func patternOf(v starlark.Value) ([][]string, error) {
	list, ok := v.(*starlark.List)
	if !ok {
		return nil, fmt.Errorf("pattern must be a list, not %s", v.Type())
	}
	var out [][]string
	for i, element := range elements(list) {
		if text, ok := starlark.AsString(element); ok {
			out = append(out, []string{text})
			continue
		}
		alternatives, ok := element.(*starlark.List)
		if !ok {
			return nil, fmt.Errorf("pattern element %d must be a string or a list of strings, not %s", i, element.Type())
		}
		var words []string
		for _, a := range elements(alternatives) {
			text, ok := starlark.AsString(a)
			if !ok {
				return nil, fmt.Errorf("pattern element %d: alternatives must be strings, not %s", i, a.Type())
			}
			if !slices.Contains(words, text) {
				words = append(words, text)
			}
		}
		if len(words) == 0 {
			return nil, fmt.Errorf("pattern element %d has no alternatives", i)
		}
		out = append(out, words)
	}
	if len(out) == 0 {
		return nil, errors.New("pattern is empty")
	}
	return out, nil
}

func elements(v starlark.Iterable) []starlark.Value {
	var out []starlark.Value
	it := v.Iterate()
	defer it.Done()
	var one starlark.Value
	for it.Next(&one) {
		out = append(out, one)
	}
	return out
}

func levelOf(word string, network bool) (Level, error) {
	switch {
	case word == "allow":
		return Allow, nil
	case word == "prompt":
		return Prompt, nil
	case word == "forbidden", network && word == "deny":
		return Forbidden, nil
	case network:
		return None, fmt.Errorf(`decision %q is not one of "allow", "prompt", "forbidden", "deny"`, word)
	}
	return None, fmt.Errorf(`decision %q is not one of "allow", "prompt", "forbidden"`, word)
}

func justificationOf(v starlark.Value) (string, error) {
	if v == nil {
		return "", nil
	}
	text, ok := starlark.AsString(v)
	switch {
	case !ok:
		return "", fmt.Errorf("justification must be a string, not %s", v.Type())
	case strings.TrimSpace(text) == "":
		return "", errors.New("justification is blank")
	}
	return text, nil
}

func examplesOf(parameter string, v starlark.Value) ([]Example, error) {
	if v == nil {
		return nil, nil
	}
	list, ok := v.(*starlark.List)
	if !ok {
		return nil, fmt.Errorf("%s must be a list, not %s", parameter, v.Type())
	}
	var out []Example
	for _, one := range elements(list) {
		var e Example
		switch x := one.(type) {
		case starlark.String:
			e.Text = string(x)
			argv, err := splitWords(e.Text)
			if err != nil {
				return nil, fmt.Errorf("%s example %q: %v", parameter, e.Text, err)
			}
			e.Argv = argv
		case *starlark.List:
			for _, w := range elements(x) {
				text, ok := starlark.AsString(w)
				if !ok {
					return nil, fmt.Errorf("%s example: words must be strings, not %s", parameter, w.Type())
				}
				e.Argv = append(e.Argv, text)
			}
		default:
			return nil, fmt.Errorf("%s examples must be strings or lists of strings, not %s", parameter, one.Type())
		}
		if len(e.Argv) == 0 {
			return nil, fmt.Errorf("%s holds an empty example", parameter)
		}
		out = append(out, e)
	}
	return out, nil
}

func protocolOf(word string) (string, error) {
	switch word {
	case "http", "https", "socks5_tcp", "socks5_udp":
		return word, nil
	case "https_connect", "http-connect":
		return "https", nil
	}
	return "", fmt.Errorf(`protocol %q is not one of "http", "https", "socks5_tcp", "socks5_udp"`, word)
}

// NormalHost is the form in which hosts are compared: lower case, without port,
// brackets and trailing dot. Schemes, paths and wildcards are refused.
func NormalHost(host string) (string, error) {
	h := strings.TrimSpace(host)
	if strings.ContainsAny(h, "/*?@ \t\n\\%") || h == "" {
		return "", fmt.Errorf("host %q must be one name or address, without scheme, path and wildcard", host)
	}
	if rest, ok := strings.CutPrefix(h, "["); ok {
		inside, port, closed := strings.Cut(rest, "]")
		if !closed || port != "" && !isPort(strings.TrimPrefix(port, ":")) {
			return "", fmt.Errorf("host %q is not a bracketed address", host)
		}
		h = inside
	} else if name, port, found := strings.Cut(h, ":"); found && !strings.Contains(port, ":") {
		if !isPort(port) {
			return "", fmt.Errorf("host %q has a bad port", host)
		}
		h = name
	}
	if addr, err := netip.ParseAddr(h); err == nil {
		return addr.Unmap().String(), nil
	}
	h = strings.ToLower(strings.TrimSuffix(h, "."))
	if strings.Trim(h, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
		return "", fmt.Errorf("host %q is not a host name; international names are written as xn--…", host)
	}
	if h == "" || strings.Contains(h, "..") || strings.HasPrefix(h, ".") {
		return "", fmt.Errorf("host %q is not a host name", host)
	}
	return h, nil
}

func isPort(s string) bool {
	if s == "" || len(s) > 5 {
		return false
	}
	return strings.Trim(s, "0123456789") == ""
}
