package rules

import (
	"fmt"
	"strconv"
	"strings"
)

// Format prints a file as Starlark. Parsing the result gives the same
// declarations, at other lines.
func Format(f *File) []byte {
	var b strings.Builder
	for _, r := range f.Rules {
		b.WriteString("prefix_rule(\n    pattern = [")
		for i, alternatives := range r.Pattern {
			if i > 0 {
				b.WriteString(", ")
			}
			if len(alternatives) == 1 {
				b.WriteString(quote(alternatives[0]))
				continue
			}
			b.WriteString(quoteList(alternatives))
		}
		fmt.Fprintf(&b, "],\n    decision = %q,\n", r.Level.String())
		writeJustification(&b, r.Justification)
		writeExamples(&b, "match", r.Match)
		writeExamples(&b, "not_match", r.NotMatch)
		b.WriteString(")\n")
	}
	for _, r := range f.Network {
		fmt.Fprintf(&b, "network_rule(\n    host = %s,\n    protocol = %q,\n    decision = %q,\n", quote(r.Host), r.Protocol, r.Level.String())
		writeJustification(&b, r.Justification)
		b.WriteString(")\n")
	}
	for _, p := range f.Programs {
		fmt.Fprintf(&b, "host_executable(name = %s, paths = %s)\n", quote(p.Name), quoteList(p.Paths))
	}
	return []byte(b.String())
}

func writeJustification(b *strings.Builder, text string) {
	if text != "" {
		fmt.Fprintf(b, "    justification = %s,\n", quote(text))
	}
}

func writeExamples(b *strings.Builder, parameter string, examples []Example) {
	if len(examples) == 0 {
		return
	}
	fmt.Fprintf(b, "    %s = [", parameter)
	for i, e := range examples {
		if i > 0 {
			b.WriteString(", ")
		}
		if e.Text != "" {
			b.WriteString(quote(e.Text))
			continue
		}
		b.WriteString(quoteList(e.Argv))
	}
	b.WriteString("],\n")
}

func quoteList(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// quote writes s as a Starlark string; its escapes are those of Go but for
// bytes that are not UTF-8, which rules files cannot hold.
func quote(s string) string { return strconv.Quote(s) }
