package patch

import "strings"

// String prints the patch in its plain form. Parsing that form gives the same
// patch again.
func (p *Patch) String() string {
	var b strings.Builder
	line := func(parts ...string) {
		for _, s := range parts {
			b.WriteString(s)
		}
		b.WriteByte('\n')
	}
	line(beginMarker)
	for _, c := range p.Changes {
		switch c.Kind {
		case Add:
			line(addMarker, c.Path)
			for _, l := range c.Lines {
				line("+", l)
			}
		case Delete:
			line(deleteMarker, c.Path)
		case Update:
			line(updateMarker, c.Path)
			if c.MoveTo != "" {
				line(moveMarker, c.MoveTo)
			}
			for _, h := range c.Hunks {
				h.print(line)
			}
		}
	}
	line(endMarker)
	return b.String()
}

func (h Hunk) print(line func(...string)) {
	if len(h.Context) == 0 {
		line(hunkMarker)
	}
	for _, c := range h.Context {
		line(hunkMarker, " ", c)
	}
	for _, l := range h.Lines {
		if l.blank {
			line()
			continue
		}
		line(string(l.Op), l.Text)
	}
	if h.EndOfFile {
		line(eofMarker)
	}
}
