package patch

import (
	"fmt"
	"sort"
	"strings"
)

const byteOrderMark = "\uFEFF"

// text is a file cut into lines, each with its own line end, so that what a
// patch does not change comes back byte for byte.
type text struct {
	mark  bool // starts with a byte order mark
	lines []string
	ends  []string // "\n", "\r\n", "\r", or "" for a last line without one
}

// patched is the file after all hunks. A carriage return alone ends a line
// where the file has no other line end, as old files do, and where the hunks fit
// only that way; elsewhere it is a character like others.
func patched(data string, hunks []Hunk, path string) (string, error) {
	old := strings.Contains(data, "\r") && !strings.Contains(data, "\n")
	if old {
		t, err := cutAtReturns(data).apply(hunks, path)
		return t.String(), err
	}
	t, err := readText(data).apply(hunks, path)
	if err != nil && strings.Contains(strings.ReplaceAll(data, "\r\n", ""), "\r") {
		if u, e := cutAtReturns(data).apply(hunks, path); e == nil {
			return u.String(), nil
		}
	}
	return t.String(), err
}

// cutAtReturns is readText with a third line end, a carriage return alone.
func cutAtReturns(s string) text {
	whole := readText(s)
	t := text{mark: whole.mark}
	for i, line := range whole.lines {
		parts := strings.Split(line, "\r")
		for k, part := range parts {
			end := "\r"
			if k == len(parts)-1 {
				if end = whole.ends[i]; end == "" && part == "" {
					continue // the file ends with a return
				}
			}
			t.lines, t.ends = append(t.lines, part), append(t.ends, end)
		}
	}
	return t
}

func readText(s string) text {
	var t text
	s, t.mark = strings.CutPrefix(s, byteOrderMark)
	for s != "" {
		line, rest, found := strings.Cut(s, "\n")
		end := ""
		if found {
			end = "\n"
			if l, ok := strings.CutSuffix(line, "\r"); ok {
				line, end = l, "\r\n"
			}
		}
		t.lines = append(t.lines, line)
		t.ends = append(t.ends, end)
		s = rest
	}
	return t
}

// usualEnd is the line end for lines that have no neighbour to copy from.
func (t text) usualEnd() string {
	if len(t.ends) > 0 && t.ends[0] != "" {
		return t.ends[0]
	}
	return "\n"
}

func (t text) String() string {
	var b strings.Builder
	if t.mark {
		b.WriteString(byteOrderMark)
	}
	for i, l := range t.lines {
		b.WriteString(l)
		b.WriteString(t.ends[i])
	}
	return b.String()
}

// mismatch is a hunk whose place was not found.
type mismatch struct{ text string }

func (m *mismatch) Error() string { return m.text }

// edit replaces the lines [start, start+old) by the hunk's lines.
type edit struct {
	start, old int
	lines      []Line
}

// apply returns the file after all hunks. path is for messages. A changed file
// always ends with a newline.
func (t text) apply(hunks []Hunk, path string) (text, error) {
	edits, err := t.locate(hunks, path)
	if err != nil {
		return text{}, err
	}
	out := text{mark: t.mark}
	at := 0
	for _, e := range edits {
		out.lines = append(out.lines, t.lines[at:e.start]...)
		out.ends = append(out.ends, t.ends[at:e.start]...)
		out.write(t, e)
		at = e.start + e.old
	}
	out.lines = append(out.lines, t.lines[at:]...)
	out.ends = append(out.ends, t.ends[at:]...)
	for i, end := range out.ends {
		if end == "" {
			out.ends[i] = t.usualEnd()
		}
	}
	return out, nil
}

// write appends the lines of one edit. Kept lines are the file's own, whatever
// the patch wrote for them; a new line ends like the line it replaces, else
// like the line above it.
func (out *text) write(t text, e edit) {
	at := e.start
	var replaced []string // ends of removed lines not yet replaced
	lastRemoved := ""
	for _, l := range e.lines {
		switch l.Op {
		case ' ':
			out.lines, out.ends = append(out.lines, t.lines[at]), append(out.ends, t.ends[at])
			at++
			replaced, lastRemoved = nil, ""
		case '-':
			lastRemoved = t.ends[at]
			replaced = append(replaced, lastRemoved)
			at++
		case '+':
			end := lastRemoved
			if len(replaced) > 0 {
				end, replaced = replaced[0], replaced[1:]
			}
			if end == "" {
				end = out.endAbove(t)
			}
			out.lines, out.ends = append(out.lines, l.Text), append(out.ends, end)
		}
	}
}

func (out *text) endAbove(t text) string {
	if n := len(out.ends); n > 0 && out.ends[n-1] != "" {
		return out.ends[n-1]
	}
	return t.usualEnd()
}

// locate finds the place of every hunk, each below the one before. A hunk that
// only adds goes below the last line that its @@ names, and without one to the
// end of the file, above a blank last line.
func (t text) locate(hunks []Hunk, path string) ([]edit, error) {
	f := newFinder(t.lines)
	var edits []edit
	at := 0
	for _, h := range hunks {
		for _, c := range h.Context {
			i := f.find([]string{c}, at, false)
			if i < 0 {
				return nil, &mismatch{fmt.Sprintf("Failed to find context '%s' in %s", c, path)}
			}
			at = i + 1
		}
		lines := withoutGap(h.Lines)
		old := oldLines(lines)
		if len(old) == 0 && len(h.Context) > 0 && !h.EndOfFile {
			edits = append(edits, edit{at, 0, lines})
			continue
		}
		if len(old) == 0 {
			end := len(t.lines)
			if end > 0 && t.lines[end-1] == "" {
				end--
			}
			edits = append(edits, edit{end, 0, lines})
			continue
		}
		i := f.find(old, at, h.EndOfFile)
		for i < 0 && len(old) > 0 && old[len(old)-1] == "" && (len(old) > 1 || len(t.lines) == 0) {
			// The patch may show the end of the file, or the gap between two
			// hunks, as a line of its own.
			lines = dropLastOld(lines)
			old = old[:len(old)-1]
			i = f.find(old, at, h.EndOfFile)
		}
		if i < 0 {
			return nil, &mismatch{fmt.Sprintf("Failed to find expected lines in %s:\n%s", path, strings.Join(oldLines(h.Lines), "\n"))}
		}
		edits = append(edits, edit{i, len(old), lines})
		at = i + len(old)
	}
	sort.SliceStable(edits, func(i, j int) bool { return edits[i].start < edits[j].start })
	for i := 1; i < len(edits); i++ {
		if before := edits[i-1]; before.start+before.old > edits[i].start {
			return nil, &mismatch{fmt.Sprintf("two hunks of %s change the same lines", path)}
		}
	}
	return edits, nil
}

// withoutGap drops blank lines after added lines where the hunk has nothing
// else to hold on to: they only separate it from the next one.
func withoutGap(lines []Line) []Line {
	n := len(lines)
	for n > 0 && lines[n-1].blank {
		n--
	}
	if n > 0 && len(oldLines(lines[:n])) == 0 {
		return lines[:n]
	}
	return lines
}

func oldLines(lines []Line) []string {
	var old []string
	for _, l := range lines {
		if l.Op != '+' {
			old = append(old, l.Text)
		}
	}
	return old
}

// dropLastOld returns lines without the last kept or removed one, which is
// empty. An added line that stood for the same end of file goes with it.
func dropLastOld(lines []Line) []Line {
	last := len(lines) - 1
	for lines[last].Op == '+' {
		last--
	}
	rest := make([]Line, 0, len(lines))
	rest = append(rest, lines[:last]...)
	added := lines[last+1:]
	switch {
	case lines[last].Op == ' ' && len(added) > 0:
		rest = append(rest, Line{Op: '+', Text: ""})
	case lines[last].Op == '-' && len(added) > 0 && added[len(added)-1].Text == "":
		added = added[:len(added)-1]
	}
	return append(rest, added...)
}
