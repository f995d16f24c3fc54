package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// renderMarkdown writes report.md. Text from outside stands in code spans and
// fences that it cannot leave, so it is shown as it is and never rendered: no
// markup, no links, no images, no mentions.
func renderMarkdown(w io.Writer, runs []*Summary, _ *Options) error {
	_, err := io.WriteString(w, markdownOf(runs, 0))
	return err
}

// markdownOf renders runs in at most limit bytes (0: no limit). What does not
// fit is left out from the end, whole blocks at a time, and said.
func markdownOf(runs []*Summary, limit int) string {
	m := &markdown{limit: limit}
	level := "#"
	if len(runs) > 1 {
		m.add(mergedHead(runs))
		level = "##"
	}
	for _, s := range runs {
		m.document(documentOf(s, len(runs)), level)
	}
	return m.finish()
}

func mergedHead(runs []*Summary) string {
	t, failed := mergedTable(runs)
	return fmt.Sprintf("# nightshift: %s, %d failed\n\n", plural(len(runs), "run", "runs"), failed) + mdTable(t) + "\n"
}

func mergedTable(runs []*Summary) (t table, failed int) {
	t.head = []string{"Run", "Outcome", "Exit code", "Tokens", "Cost USD", "Denials", "Failed tools", "Files", "Thread"}
	for _, s := range runs {
		if !s.Success() {
			failed++
		}
		t.rows = append(t.rows, mergedRow(s))
	}
	return t, failed
}

func mergedRow(s *Summary) []words {
	cost := plain("–") // not known without prices
	if s.Prices != nil {
		cost = plain("%.4f", s.CostUSD)
	}
	return []words{outside(runName(s)), judged(headline(s), s.Success()), plain("%d", s.ExitCode), plain("%s", thousands(s.Usage.Total())),
		cost, plain("%d", s.Totals.Denials), plain("%d", s.Totals.FailedTools), plain("%d", len(s.Changes.Files)), outside(s.Run.ThreadID)}
}

// markdown gathers blocks that each stand by themselves.
type markdown struct {
	b       strings.Builder
	limit   int
	dropped int
}

// mdReserve is kept free for the sentence that says what was left out.
const mdReserve = 256

func (m *markdown) room() int {
	if m.limit == 0 {
		return 1 << 30
	}
	return m.limit - mdReserve - m.b.Len()
}

func (m *markdown) add(block string) {
	if m.dropped > 0 || len(block) > m.room() {
		m.dropped++
		return
	}
	m.b.WriteString(block)
}

// addLines adds as many lines as fit of a list or table.
func (m *markdown) addLines(lines []string) {
	var b strings.Builder
	for i, line := range lines {
		if b.Len()+len(line)+64 > m.room() {
			fmt.Fprintf(&b, "\n_%d more lines left out_\n", len(lines)-i)
			m.add(b.String())
			m.dropped++
			return
		}
		b.WriteString(line)
	}
	b.WriteByte('\n')
	m.add(b.String())
}

func (m *markdown) finish() string {
	if m.dropped == 0 {
		return m.b.String()
	}
	said := fmt.Sprintf("\n> **Cut:** %s left out to stay within %d bytes. The report files have everything.\n", plural(m.dropped, "block was", "blocks were"), m.limit)
	if m.b.Len()+len(said) > m.limit { // a service refuses the whole, with what others wrote
		return ""
	}
	return m.b.String() + said
}

func (m *markdown) document(d doc, level string) {
	mark := "✅ "
	if !d.ok {
		mark = "❌ "
	}
	m.add(level + " " + mark + mdText(d.title) + "\n\n")
	for _, s := range d.sections {
		if s.title != "" {
			if only, ok := s.blocks[0].(timeline); ok && len(s.blocks) == 1 && only.s != nil {
				continue
			}
			m.add(level + "# " + s.title + "\n\n")
		}
		for _, b := range s.blocks {
			m.block(b)
		}
	}
}

func (m *markdown) block(b block) {
	switch b := b.(type) {
	case facts:
		t := table{head: []string{"", ""}}
		for _, f := range b {
			t.rows = append(t.rows, []words{strong(f.name), f.value})
		}
		m.addLines(strings.SplitAfter(mdTable(t), "\n"))
	case table:
		m.addLines(strings.SplitAfter(mdTable(b), "\n"))
	case items:
		lines := make([]string, 0, len(b))
		for _, item := range b {
			lines = append(lines, "- "+mdWords(item, false)+"\n")
		}
		m.addLines(lines)
	case code:
		m.fence("text", b.text)
	case message:
		m.fence("text", b.text)
	case diff:
		m.fence("diff", cutLines(b.patch, maxShownDiff))
	}
}

// maxShownDiff is how much of a patch is shown in reports for people.
const maxShownDiff = 512 << 10

// fence puts text into a code block that it cannot close, cut to what fits.
func (m *markdown) fence(lang, text string) {
	text = strings.TrimRight(Plain(text), "\n")
	mark := strings.Repeat("`", max(3, longestRun(text, '`')+1))
	if spare := m.room() - 2*len(mark) - 256; len(text) > spare {
		if spare < 256 {
			m.dropped++
			return
		}
		text = cutLines(text, spare)
	}
	m.add(mark + lang + "\n" + text + "\n" + mark + "\n\n")
}

// cutLines keeps whole lines up to max bytes and says how many follow.
func cutLines(s string, max int) string {
	if len(s) <= max {
		return s
	}
	end := strings.LastIndexByte(s[:max], '\n')
	if end < 0 { // one long line
		end = max
		for end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		return fmt.Sprintf("%s\n… [%d bytes left out]", s[:end], len(s)-end)
	}
	return fmt.Sprintf("%s\n… [%d lines left out]", s[:end], strings.Count(s[end+1:], "\n")+1)
}

func mdTable(t table) string {
	var b strings.Builder
	b.WriteString("|")
	for _, h := range t.head {
		b.WriteString(" " + h + " |")
	}
	b.WriteString("\n|" + strings.Repeat(" --- |", len(t.head)) + "\n")
	for _, row := range t.rows {
		b.WriteString("|")
		for _, cell := range row {
			b.WriteString(" " + mdWords([]words{cell}, true) + " |")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func mdWords(line []words, cell bool) string {
	var b strings.Builder
	for _, w := range line {
		switch w.look {
		case lookCode:
			b.WriteString(mdCode(w.text, cell))
		case lookStrong:
			b.WriteString("**" + mdText(strings.TrimSpace(w.text)) + "**" + trailing(w.text))
		default:
			b.WriteString(mdText(w.text))
		}
	}
	return b.String()
}

func trailing(s string) string {
	if strings.HasSuffix(s, " ") {
		return " "
	}
	return ""
}

// mdCode shows text from outside in a code span longer than any run of
// backticks in it. In a table a "|" would end the cell even there.
func mdCode(s string, cell bool) string {
	s = PlainLine(s, 400)
	if s == "" {
		return "–"
	}
	if cell {
		s = strings.ReplaceAll(s, "|", `\u007c`)
	}
	mark := strings.Repeat("`", longestRun(s, '`')+1)
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		s = " " + s + " "
	}
	return mark + s + mark
}

func longestRun(s string, c byte) int {
	longest, run := 0, 0
	for i := 0; i < len(s); i++ {
		if s[i] == c {
			run++
			longest = max(longest, run)
		} else {
			run = 0
		}
	}
	return longest
}

// mdText escapes what Markdown would act on; a mention is broken by a
// zero-width space.
func mdText(s string) string {
	lead, trail := "", trailing(s)
	if strings.HasPrefix(s, " ") {
		lead = " "
	}
	s = PlainLine(s, 1000)
	if s == "" {
		return lead
	}
	return lead + mdEscaper().Replace(s) + trail
}

func mdEscaper() *strings.Replacer {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "|", "&#124;", "@", "&#64;&#8203;", `\`, `\\`, "`", "\\`",
		"*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "!", `\!`, "~", `\~`, "#", `\#`, "$", `\$`, "{", `\{`, "}", `\}`, "://", `\://`, "www.", `www\.`)
}
