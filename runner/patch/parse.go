package patch

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// ParseError is a text that is not a patch. Line counts from 1 for the
// "*** Begin Patch" line; 0 stands for the patch as a whole.
type ParseError struct {
	Line    int
	Message string
}

// Error is the sentence the model is told.
func (e *ParseError) Error() string {
	if e.Line == 0 {
		return "invalid patch: " + e.Message
	}
	return fmt.Sprintf("invalid hunk at line %d, %s", e.Line, e.Message)
}

// Parse reads a patch. It forgives what models get wrong without changing the
// meaning: white space around the patch and its markers, a here-document
// around it, a first hunk without "@@", blank lines between sections, CRLF line
// ends of the patch itself. The error is a [*ParseError].
func Parse(text string) (*Patch, error) {
	if !utf8.ValidString(text) {
		return nil, &ParseError{Message: "the text is not valid UTF-8"}
	}
	lines := splitLines(strings.TrimSpace(text))
	body, err := envelope(lines)
	if err != nil {
		inner := unwrapHeredoc(lines)
		if inner == nil {
			return nil, err
		}
		if body, err = envelope(inner); err != nil {
			return nil, err
		}
	}
	p := parser{lines: body}
	for !p.done() {
		if err := p.section(); err != nil {
			return nil, err
		}
	}
	if len(p.patch.Changes) == 0 {
		return nil, &ParseError{Message: "it changes no file"}
	}
	return &p.patch, nil
}

// splitLines cuts at newlines and drops the carriage returns before them.
func splitLines(text string) []string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, "\r")
	}
	return lines
}

// envelope returns the lines between the first and the last marker.
func envelope(lines []string) ([]string, error) {
	if strings.TrimSpace(lines[0]) != beginMarker {
		text := "The first line of the patch must be '" + beginMarker + "'"
		if slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, beginMarker) }) {
			text += ", with nothing before it: a patch is plain text, without JSON, quotes or fences around it"
		}
		return nil, &ParseError{Message: text}
	}
	last := len(lines) - 1
	if last == 0 || strings.TrimSpace(lines[last]) != endMarker {
		return nil, &ParseError{Message: "The last line of the patch must be '" + endMarker + "'"}
	}
	return lines[1:last], nil
}

// unwrapHeredoc drops a here-document that was passed as text: some models put
// the shell syntax into the argument.
func unwrapHeredoc(lines []string) []string {
	if len(lines) < 4 {
		return nil
	}
	switch lines[0] {
	case "<<EOF", "<<'EOF'", `<<"EOF"`:
		if strings.HasSuffix(lines[len(lines)-1], "EOF") {
			return lines[1 : len(lines)-1]
		}
	}
	return nil
}

// parser walks the lines between the envelope's markers.
type parser struct {
	lines []string
	at    int
	patch Patch
}

func (p *parser) done() bool { return p.at >= len(p.lines) }

// fail reports the line at index i of the body.
func (p *parser) fail(i int, format string, args ...any) error {
	return &ParseError{Line: i + 2, Message: fmt.Sprintf(format, args...)}
}

// header recognises the first line of a section.
func header(line string) (k Kind, path string, ok bool) {
	for _, h := range []struct {
		kind   Kind
		marker string
	}{{Add, addMarker}, {Delete, deleteMarker}, {Update, updateMarker}} {
		if path, ok := strings.CutPrefix(line, h.marker); ok {
			return h.kind, strings.TrimSpace(path), true
		}
	}
	return "", "", false
}

// section reads one file's section, or a blank line before one.
func (p *parser) section() error {
	line := strings.TrimSpace(p.lines[p.at])
	if line == "" {
		p.at++
		return nil
	}
	kind, path, ok := header(line)
	if !ok {
		if line == endMarker {
			return p.fail(p.at, "there is text after '%s'; send one patch at a time", endMarker)
		}
		return p.fail(p.at, "'%s' does not begin a file section; it must be '%sPATH', '%sPATH' or '%sPATH'",
			line, addMarker, deleteMarker, updateMarker)
	}
	start := p.at
	p.at++
	c := Change{Kind: kind, Path: path}
	var err error
	switch kind {
	case Add:
		err = p.added(&c)
	case Update:
		err = p.updated(&c, start)
	}
	if err != nil {
		return err
	}
	p.patch.Changes = append(p.patch.Changes, c)
	return nil
}

// added reads the "+" lines of a new file.
func (p *parser) added(c *Change) error {
	for !p.done() {
		line := p.lines[p.at]
		text, ok := strings.CutPrefix(line, "+")
		switch {
		case ok:
			c.Lines = append(c.Lines, text)
			p.at++
		case p.sectionFollows():
			return nil
		default:
			return p.fail(p.at, "unexpected line in the new file '%s': '%s'; every line must start with '+'", c.Path, line)
		}
	}
	return nil
}

// sectionFollows tells whether only blank lines stand before the next section
// or the end.
func (p *parser) sectionFollows() bool {
	for _, l := range p.lines[p.at:] {
		if l = strings.TrimSpace(l); l != "" {
			_, _, ok := header(l)
			return ok || l == endMarker
		}
	}
	return true
}

// updated reads the move and the hunks of a changed file. Markers may be padded
// on the right only: a space on the left makes the line context.
func (p *parser) updated(c *Change, start int) error {
	if !p.done() {
		if to, ok := strings.CutPrefix(strings.TrimRight(p.lines[p.at], " \t"), moveMarker); ok {
			c.MoveTo = strings.TrimSpace(to)
			p.at++
		}
	}
	for !p.done() {
		line := strings.TrimRight(p.lines[p.at], " \t")
		if line == "" && (len(c.Hunks) == 0 || c.Hunks[len(c.Hunks)-1].EndOfFile) {
			p.at++
			continue
		}
		if _, _, ok := header(line); ok || line == endMarker {
			break
		}
		h, err := p.hunk(len(c.Hunks) == 0)
		if err != nil {
			return err
		}
		c.Hunks = append(c.Hunks, h)
	}
	if len(c.Hunks) == 0 && c.MoveTo == "" {
		return p.fail(start, "the update of '%s' changes nothing: it has no hunk", c.Path)
	}
	return nil
}

// hunk reads one hunk. The first of a file may lack its "@@".
func (p *parser) hunk(first bool) (Hunk, error) {
	var h Hunk
	start, marked := p.at, false
	for !p.done() {
		line := strings.TrimRight(p.lines[p.at], " \t")
		if line != hunkMarker && !strings.HasPrefix(line, hunkMarker+" ") {
			break
		}
		marked = true
		if text := strings.TrimPrefix(line[len(hunkMarker):], " "); text != "" {
			h.Context = append(h.Context, text)
		}
		p.at++
	}
	if !marked && !first {
		return h, p.fail(p.at, "a hunk must begin with '%s', but the line is '%s'", hunkMarker, p.lines[p.at])
	}
	for !p.done() {
		line := p.lines[p.at]
		trimmed := strings.TrimRight(line, " \t")
		_, _, section := header(trimmed)
		if section || trimmed == endMarker || trimmed == hunkMarker || strings.HasPrefix(trimmed, hunkMarker+" ") {
			break
		}
		if trimmed == eofMarker {
			h.EndOfFile = true
			p.at++
			break
		}
		switch {
		case line == "":
			h.Lines = append(h.Lines, Line{Op: ' ', blank: true})
		case line[0] == ' ', line[0] == '+', line[0] == '-':
			h.Lines = append(h.Lines, Line{Op: line[0], Text: line[1:]})
		default:
			return h, p.fail(p.at, "unexpected line in a hunk: '%s'; every line must start with ' ' (kept), '+' (added) or '-' (removed)", line)
		}
		p.at++
	}
	if len(h.Lines) == 0 {
		return h, p.fail(min(start, len(p.lines)-1), "the hunk has no lines")
	}
	return h, nil
}
