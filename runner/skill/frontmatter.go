package skill

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// frontMatter reads name and description from the block between two lines of
// three dashes at the top of a SKILL.md. It understands the part of YAML that
// such blocks are made of: plain, quoted and block scalars at the top level.
// Deeper structures belong to other readers and are passed over. A skill that
// gives no name has its folder's.
func frontMatter(text, folder string) (name, description string, err error) {
	text = strings.TrimPrefix(text, "\uFEFF")
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	if strings.TrimRight(lines[0], " \t") != "---" {
		return "", "", errors.New("it does not begin with front matter between two lines of three dashes")
	}
	end := 0
	for i, l := range lines[1:] {
		if strings.TrimRight(l, " \t") == "---" {
			end = i + 1
			break
		}
	}
	if end == 0 {
		return "", "", errors.New("its front matter does not end with a line of three dashes")
	}
	fields, err := scalars(lines[1:end])
	if err != nil {
		return "", "", err
	}
	name, description = cmp.Or(oneLine(fields["name"]), folder), oneLine(fields["description"])
	switch {
	case name == "":
		return "", "", errors.New("its front matter has no name")
	case len(name) > maxNameLen || !isName(name):
		return "", "", fmt.Errorf("its name %q is not made of at most %d letters and digits with - : or _ between them", name, maxNameLen)
	case description == "":
		return "", "", errors.New("its front matter has no description")
	}
	return name, cut(description, maxDescript), nil
}

// scalars reads top-level "key: value" lines. Line numbers count from the top
// of the file.
func scalars(lines []string) (map[string]string, error) {
	fields := map[string]string{}
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if t := strings.TrimSpace(line); t == "" || t[0] == '#' || line[0] == ' ' || line[0] == '\t' || strings.HasPrefix(line, "- ") {
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		if !ok || value != "" && value[0] != ' ' && value[0] != '\t' {
			return nil, fmt.Errorf("line %d of its front matter is not \"key: value\"", i+2)
		}
		value = strings.TrimSpace(value)
		indented := i + 1
		for indented < len(lines) && (strings.TrimSpace(lines[indented]) == "" || lines[indented][0] == ' ' || lines[indented][0] == '\t') {
			indented++
		}
		text, err := scalar(value, lines[i+1:indented])
		if err != nil {
			return nil, fmt.Errorf("line %d of its front matter: %w", i+2, err)
		}
		fields[strings.TrimSpace(key)] = text
		i = indented - 1
	}
	return fields, nil
}

// scalar reads a value and the indented lines that follow it.
func scalar(value string, more []string) (string, error) {
	switch {
	case value == "":
		return "", nil // a structure, or nothing
	case value[0] == '|' || value[0] == '>':
		return strings.Join(more, "\n"), nil // oneLine folds both kinds the same
	case value[0] == '"' || value[0] == '\'':
		return quoted(strings.Join(append([]string{value}, more...), " "))
	case strings.ContainsRune("[{&*!%@`", rune(value[0])):
		return "", nil
	}
	all := append([]string{value}, more...)
	for i, l := range all {
		if at := strings.Index(l, " #"); at >= 0 {
			all[i] = l[:at]
		}
	}
	return strings.Join(all, " "), nil
}

func quoted(s string) (string, error) {
	bad := errors.New("a quoted value does not end")
	var b strings.Builder
	mark := s[0]
	for i := 1; i < len(s); i++ {
		switch {
		case mark == '\'' && s[i] == '\'' && i+1 < len(s) && s[i+1] == '\'':
			b.WriteByte('\'')
			i++
		case s[i] == mark:
			if rest := strings.TrimSpace(s[i+1:]); rest != "" && rest[0] != '#' {
				return "", errors.New("text after a quoted value")
			}
			return b.String(), nil
		case mark == '"' && s[i] == '\\':
			r, _, tail, err := strconv.UnquoteChar(s[i:], '"')
			if err != nil {
				return "", errors.New("an unknown escape in a quoted value")
			}
			b.WriteRune(r)
			i = len(s) - len(tail) - 1
		default:
			b.WriteByte(s[i])
		}
	}
	return "", bad
}

// oneLine joins all white space to single blanks: the value goes into one line
// of a list.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func isName(s string) bool {
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		inner := strings.ContainsRune("-_:", r) && i > 0 && i < len(s)-1
		if !letter && !inner {
			return false
		}
	}
	return s != ""
}

// cut shortens s to at most max bytes at a character border.
func cut(s string, max int) string {
	if len(s) <= max {
		return s
	}
	return strings.ToValidUTF8(s[:max-len("…")], "") + "…"
}
