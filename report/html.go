package report

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed page/page.html.tmpl
var pageTemplate string

//go:embed page/page.css
var pageStyle string

type page struct {
	Title  string
	Policy string
	Style  template.CSS
	Docs   []pageDoc
}

type pageDoc struct {
	Title    string
	OK       bool
	Sections []pageSection
}

type pageSection struct {
	Title  string
	Blocks []pageBlock
}

// pageBlock has one of its parts set.
type pageBlock struct {
	Facts    []pageFact
	Head     []string
	Rows     [][]pageWord
	Items    [][]pageWord
	Code     string
	Message  template.HTML
	Diff     []diffLine
	Timeline *chart
}

type pageFact struct {
	Name  string
	Value pageWord
}

type pageWord struct {
	Text   string
	Class  string
	Strong bool
}

// renderHTML writes one page that needs nothing else: no script, no picture, no
// request. Its content security policy forbids all of that too, should a byte
// ever slip through the escaping; the one style sheet is allowed by its digest.
func renderHTML(w io.Writer, runs []*Summary, _ *Options) error {
	t, err := template.New("page").Parse(pageTemplate)
	if err != nil {
		return fmt.Errorf("the page template is broken: %w", err)
	}
	style := sha256.Sum256([]byte(pageStyle))
	p := page{
		Title: "nightshift report", Style: template.CSS(pageStyle),
		Policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(style[:]) + "'; img-src data:; base-uri 'none'; form-action 'none'",
	}
	if len(runs) == 1 {
		p.Title = "nightshift: " + PlainLine(headline(runs[0]), 100)
	} else {
		p.Docs = append(p.Docs, mergedPage(runs))
	}
	for _, s := range runs {
		p.Docs = append(p.Docs, pageOf(documentOf(s, len(runs))))
	}
	return t.Execute(w, p)
}

func mergedPage(runs []*Summary) pageDoc {
	t, failed := mergedTable(runs)
	return pageDoc{Title: fmt.Sprintf("nightshift: %s, %d failed", plural(len(runs), "run", "runs"), failed), OK: failed == 0,
		Sections: []pageSection{{Blocks: []pageBlock{pageBlockOf(t)}}}}
}

func pageOf(d doc) pageDoc {
	out := pageDoc{Title: Plain(d.title), OK: d.ok}
	for _, s := range d.sections {
		ps := pageSection{Title: s.title}
		for _, b := range s.blocks {
			ps.Blocks = append(ps.Blocks, pageBlockOf(b))
		}
		out.Sections = append(out.Sections, ps)
	}
	return out
}

func pageBlockOf(b block) pageBlock {
	switch b := b.(type) {
	case facts:
		out := pageBlock{}
		for _, f := range b {
			out.Facts = append(out.Facts, pageFact{f.name, pageWordOf(f.value)})
		}
		return out
	case table:
		out := pageBlock{Head: b.head}
		for _, row := range b.rows {
			out.Rows = append(out.Rows, pageWords(row))
		}
		return out
	case items:
		out := pageBlock{}
		for _, item := range b {
			out.Items = append(out.Items, pageWords(item))
		}
		return out
	case code:
		return pageBlock{Code: Plain(b.text)}
	case message:
		if html, ok := messageHTML(b.text); ok {
			return pageBlock{Message: html}
		}
		return pageBlock{Code: Plain(b.text)}
	case diff:
		return pageBlock{Diff: diffLines(cutLines(b.patch, maxShownDiff))}
	case timeline:
		return pageBlock{Timeline: chartOf(b.s)}
	}
	return pageBlock{}
}

func pageWords(line []words) []pageWord {
	out := make([]pageWord, 0, len(line))
	for _, w := range line {
		out = append(out, pageWordOf(w))
	}
	return out
}

func pageWordOf(w words) pageWord {
	switch w.look {
	case lookCode:
		if w.text == "" {
			return pageWord{Text: "–", Class: "dim"}
		}
		return pageWord{Text: PlainLine(w.text, 2000), Class: "code"}
	case lookStrong:
		return pageWord{Text: Plain(w.text), Strong: true}
	case lookGood:
		return pageWord{Text: Plain(w.text), Class: "good"}
	case lookBad:
		return pageWord{Text: Plain(w.text), Class: "bad"}
	}
	return pageWord{Text: Plain(w.text)}
}

// diffLine is one line of a shown patch.
type diffLine struct{ Text, Class string }

// diffLines tells the parts of a git diff apart: file heads, hunk heads, added
// and deleted lines. Inside a hunk "---" and "+++" are ordinary changes.
func diffLines(patch string) []diffLine {
	var out []diffLine
	inHunk := false
	for line := range strings.Lines(Plain(patch)) {
		line = strings.TrimSuffix(line, "\n")
		class := ""
		switch {
		case strings.HasPrefix(line, "diff --git "):
			class, inHunk = "file", false
		case strings.HasPrefix(line, "@@ "):
			class, inHunk = "hunk", true
		case !inHunk:
			class = "dim"
		case strings.HasPrefix(line, "+"):
			class = "add"
		case strings.HasPrefix(line, "-"):
			class = "del"
		}
		out = append(out, diffLine{line, class})
	}
	return out
}
