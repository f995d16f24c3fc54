package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/mail"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
	"golang.org/x/net/html"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// These checks know nothing of how the writers work: each reads a finished
// report the way its consumer does and looks for anything that would act.

// everything renders a run whose every text is s.
func everything(t testing.TB, s string) memory {
	t.Helper()
	sc := scenario{name: "fuzz", tell: func(l *event.Log) { tellAll(l, s) }, last: poisoned(s)}
	files, sinks := allSinks(t)
	sc.record(t, sinks...)
	return files
}

func checkAll(t testing.TB, files memory, s string) {
	t.Helper()
	for _, name := range []string{"human.txt", "brief.txt", "final.txt"} {
		inLog(t, name, files[name].String())
	}
	inLog(t, "color.txt", ansi.ReplaceAllString(files["color.txt"].String(), ""))
	for _, name := range []string{"report.md", "github-summary"} {
		inMarkdown(t, name, files[name].String())
	}
	inHTML(t, files["report.html"].String())
	for _, name := range []string{"junit.xml", "checkstyle.xml"} {
		inXML(t, name, files[name].Bytes())
	}
	for _, name := range []string{"report.json", "sarif.json", "ctrf.json", "gl-code-quality-report.json", "provenance.intoto.json"} {
		inJSON(t, name, files[name].Bytes(), true)
	}
	for _, name := range []string{"events.jsonl", "wire.jsonl"} {
		for line := range bytes.Lines(files[name].Bytes()) {
			inJSON(t, name, bytes.TrimSuffix(line, []byte("\n")), false)
		}
	}
	inOutputs(t, files["github-output"].String())
	inDotenv(t, files["nightshift.env"].String())
	inAnnotations(t, files["annotations.txt"].String())
	inMail(t, files["changes.mbox"].String())
	if got, want := files["changes.patch"].String(), validJSONText(s); got != want {
		t.Errorf("changes.patch: %q, want %q", got, want)
	}
	if got, want := files["last.txt"].String(), validJSONText(s); got != want {
		t.Errorf("last.txt: %q, want %q", got, want)
	}
}

// validJSONText is what JSON makes of text that is not UTF-8.
func validJSONText(s string) string {
	var out string
	b, _ := json.Marshal(s)
	_ = json.Unmarshal(b, &out)
	return out
}

var ansi = regexp.MustCompile("\x1b\\[[0-9;]*m")

// workflow finds what CI services obey, written from their runners' parsers:
// they trim white space as Unicode has it before "::", and look for "##[" and
// "##word[" anywhere.
var workflow = regexp.MustCompile(`(?im)^[\s\p{Z}\p{Cf}]*::|##[a-z]*\[|section_(start|end):\d`)

func inLog(t testing.TB, name, s string) {
	t.Helper()
	if m := workflow.FindString(s); m != "" {
		t.Errorf("%s: a CI service would obey %q", name, m)
	}
	harmlessRunes(t, name, s)
}

func harmlessRunes(t testing.TB, name, s string) {
	t.Helper()
	if !utf8.ValidString(s) {
		t.Errorf("%s: not UTF-8", name)
	}
	for i, r := range s {
		hidden := unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) && !unicode.Is(unicode.Mn, r) || r > 0xffff && unicode.Is(unicode.Variation_Selector, r)
		if r != '\n' && r != '\t' && (hidden || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			t.Errorf("%s: %U at %d", name, r, i)
			return
		}
	}
}

// headings of our own, by level 2.
var ownHeadings = map[string]bool{"Attention": true, "Final message": true, "Changes": true, "Denials": true, "Failed tools": true, "Verification": true,
	"Findings": true, "Usage": true, "Tools": true, "Sandbox": true, "Policy": true, "Login": true, "Instructions and servers": true,
	"Retries and changes of course": true, "Hooks and sub-agents": true, "Notices": true, "Prompt": true, "Run": true}

func inMarkdown(t testing.TB, name, s string) {
	t.Helper()
	harmlessRunes(t, name, s)
	inLog(t, name, s) // a job may well print it
	src := []byte(s)
	md := goldmark.New(goldmark.WithExtensions(extension.GFM, extension.Footnote, extension.DefinitionList))
	_ = ast.Walk(md.Parser().Parse(text.NewReader(src)), func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n.Kind() {
		case ast.KindRawHTML, ast.KindHTMLBlock, ast.KindLink, ast.KindImage, ast.KindAutoLink, ast.KindBlockquote, ast.KindThematicBreak:
			if n.Kind() == ast.KindBlockquote && strings.Contains(s, "> **Cut:**") {
				break
			}
			lines := ""
			if n.Type() == ast.TypeBlock {
				lines = string(n.Lines().Value(src))
			}
			t.Errorf("%s: text from outside became a %s: %q", name, n.Kind(), lines)
			return ast.WalkStop, nil
		case ast.KindHeading:
			title := string(n.(*ast.Heading).Lines().Value(src))
			if n.(*ast.Heading).Level == 2 && !ownHeadings[title] || n.(*ast.Heading).Level > 2 {
				t.Errorf("%s: a heading of ours does not say %q", name, title)
			}
		}
		return ast.WalkContinue, nil
	})
	if strings.Count(s, "\n# ") > 0 && !strings.Contains(s, "```") {
		t.Errorf("%s: a second title", name)
	}
}

var ownTags = map[string]string{"html": "lang", "head": "", "meta": "charset http-equiv content name", "title": "", "link": "rel href", "style": "", "body": "",
	"article": "", "h1": "class", "h2": "", "section": "", "table": "", "thead": "", "tbody": "", "tr": "", "th": "align", "td": "align", "ul": "", "ol": "start", "li": "", "span": "class",
	"strong": "", "em": "", "del": "", "pre": "class", "code": "class", "div": "class", "p": "", "blockquote": "", "br": "", "hr": "", "a": "href rel", "h3": "", "h4": "", "h5": "", "h6": "",
	"svg": "viewbox role aria-label", "rect": "class x y width height rx", "text": "class x y text-anchor", "line": "class x1 y1 x2 y2"}

func inHTML(t testing.TB, s string) {
	t.Helper()
	harmlessRunes(t, "report.html", s)
	z := html.NewTokenizer(strings.NewReader(s))
	for {
		switch z.Next() {
		case html.ErrorToken:
			if z.Err() != io.EOF {
				t.Errorf("report.html: %v", z.Err())
			}
			return
		case html.StartTagToken, html.SelfClosingTagToken:
			tok := z.Token()
			allowed, ok := ownTags[tok.Data]
			if !ok {
				t.Errorf("report.html: a tag <%s>", tok.Data)
				return
			}
			for _, a := range tok.Attr {
				if !strings.Contains(" "+allowed+" ", " "+strings.ToLower(a.Key)+" ") {
					t.Errorf("report.html: <%s %s>", tok.Data, a.Key)
				}
				if a.Key == "href" && a.Val != "data:," && !regexp.MustCompile(`^(https?://|mailto:)`).MatchString(strings.ToLower(a.Val)) {
					t.Errorf("report.html: a link to %q", a.Val)
				}
			}
		case html.CommentToken:
			t.Error("report.html: a comment")
		}
	}
}

func inXML(t testing.TB, name string, raw []byte) {
	t.Helper()
	inLog(t, name, string(raw))
	d := xml.NewDecoder(bytes.NewReader(raw))
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			switch tok.Name.Local {
			case "testsuites", "testsuite", "properties", "property", "testcase", "failure", "error", "system-out", "system-err", "checkstyle", "file":
			default:
				t.Errorf("%s: an element <%s>", name, tok.Name.Local)
			}
			for _, a := range tok.Attr {
				inLog(t, name+" @"+a.Name.Local, a.Value)
			}
		case xml.CharData:
			inLog(t, name+" text", string(tok))
		case xml.Directive, xml.Comment:
			t.Errorf("%s: %T", name, tok)
		}
	}
}

func inJSON(t testing.TB, name string, raw []byte, page bool) {
	t.Helper()
	if !json.Valid(raw) || !utf8.Valid(raw) {
		t.Errorf("%s: not JSON", name)
	}
	for _, c := range raw {
		if c < 0x20 && c != '\n' || page && c == '<' {
			t.Errorf("%s: byte %#x", name, c)
			return
		}
	}
}

// inOutputs parses the file as GitHub's runner does.
func inOutputs(t testing.TB, s string) {
	t.Helper()
	want := map[string]bool{"final-message": true, "outcome": true, "class": true, "exit-code": true, "message": true, "thread-id": true, "model": true, "patch": true,
		"patch-file": true, "patch-digest": true, "report-dir": true, "files-changed": true, "usage": true, "cost-usd": true, "denials": true, "failed-tools": true, "success": true}
	for len(s) > 0 {
		head, rest, ok := strings.Cut(s, "\n")
		key, mark, multi := strings.Cut(head, "<<")
		if !ok || !multi || !want[key] {
			t.Fatalf("github-output: line %q", head)
		}
		delete(want, key)
		_, after, ok := strings.Cut("\n"+rest, "\n"+mark+"\n")
		if !ok {
			t.Fatalf("github-output: %s does not end", key)
		}
		s = after
	}
	if len(want) > 0 {
		t.Errorf("github-output: missing %v", want)
	}
}

var dotenvLine = regexp.MustCompile(`^NIGHTSHIFT_[A-Z_]+=[A-Za-z0-9._:/+@-]*$`)

func inDotenv(t testing.TB, s string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	if len(s) > 5<<10 || len(lines) > 20 {
		t.Errorf("nightshift.env: %d bytes, %d lines", len(s), len(lines))
	}
	for _, l := range lines {
		if !dotenvLine.MatchString(l) {
			t.Errorf("nightshift.env: %q", l)
		}
	}
}

func inAnnotations(t testing.TB, s string) {
	t.Helper()
	harmlessRunes(t, "annotations", s)
	count := map[string]int{}
	for line := range strings.Lines(s) {
		m := regexp.MustCompile(`^::(error|warning|notice) [^:\n]*::[^\n]*\n$`).FindStringSubmatch(line)
		if m == nil {
			t.Errorf("annotations: line %q", line)
			continue
		}
		if count[m[1]]++; count[m[1]] > maxAnnotations {
			t.Errorf("annotations: too many of %s", m[1])
		}
	}
}

func inMail(t testing.TB, s string) {
	t.Helper()
	if s == "" {
		return
	}
	_, rest, _ := strings.Cut(s, "\n")
	m, err := mail.ReadMessage(strings.NewReader(rest))
	if err != nil {
		t.Errorf("changes.mbox: %v", err)
		return
	}
	for k := range m.Header {
		switch k {
		case "From", "Date", "Subject", "Mime-Version", "Content-Type", "Content-Transfer-Encoding":
		default:
			t.Errorf("changes.mbox: a header %s", k)
		}
	}
}

func TestHostileTextIsInertEverywhere(t *testing.T) {
	many := 3000
	if testing.Short() {
		many = 300
	}
	for _, s := range []string{
		hostile, "", "\n", "`", "```", "````\n```", "~~~\n", "|", `\|`, `\\|`, "]]>", "<!--", "-->", "::error::x", "\u00a0::error::x", "\u200b::x", "\ufeff::x", "\r::x", "##[x]", "##vso[x]",
		"<details>", "<https://example.com>", "www.example.com", "https://example.com", "a@example.com", "[a]: https://example.com\n\n[a]", "[^1]\n\n[^1]: x", "***\n", "---\n", "> q", "    code", "1. x",
		"term\n: definition", "- [ ] task", "&lt;script&gt;", "&#60;script&#62;", "\x00", "\xff", "\U000e0041", "a\U000e0101b", "\u3164::x", "\u115f", "\u2064x", "\U000e0fff", "{{.}}", "${x}", "%0A::error::x", "%25", "<a href=\"javascript:x\">", "\u2028::error::x", "\u0085::x",
		strings.Repeat("`", many), strings.Repeat("[", many), strings.Repeat("> ", many), strings.Repeat("*a ", many), strings.Repeat("<a ", many), strings.Repeat("![", many),
	} {
		t.Run(fmt.Sprintf("%.20q", s), func(t *testing.T) { checkAll(t, everything(t, s), s) })
	}
}

// Texts of many megabytes are cut, in every format, and stay inert.
func TestHugeTexts(t *testing.T) {
	longest := 10 << 20
	if testing.Short() { // with the race detector
		longest = 1 << 20
	}
	for _, s := range []string{strings.Repeat("x", longest), strings.Repeat("::error::x\n", 20<<10), strings.Repeat("\u202e", 60<<10), strings.Repeat("`", 200<<10), strings.Repeat("<", 200<<10)} {
		sc := scenario{tell: func(l *event.Log) {
			l.Emit(event.RunStarted{Prompt: s[:len(s)/10], Model: "m"})
			l.Emit(event.TurnStarted{})
			l.Complete("", event.CommandExecution{Command: s[:len(s)/10], AggregatedOutput: s, Status: event.Failed})
			l.Emit(event.PolicyDecision{Action: "command", Subject: s[:len(s)/10], Outcome: "denied"})
			l.Complete("", event.AgentMessage{Text: s})
			l.Emit(event.TurnCompleted{})
			l.Emit(event.DiffCaptured{Patch: s})
		}, last: event.RunCompleted{Outcome: "success"}}
		files, sinks := allSinks(t)
		sc.record(t, sinks...)
		checkAll(t, files, s)
		for name, f := range files {
			switch name {
			case "changes.patch", "changes.mbox", "last.txt", "final.txt", "events.jsonl", "wire.jsonl": // kept whole on purpose
			case "github-summary":
				if f.Len() > StepSummaryLimit {
					t.Errorf("the step summary has %d bytes", f.Len())
				}
			default:
				if f.Len() > longest+2<<20 {
					t.Errorf("%s has %d MiB for texts of %d", name, f.Len()>>20, len(s)>>20)
				}
			}
		}
	}
}

func FuzzEveryFormat(f *testing.F) {
	f.Add(hostile)
	f.Add("\r\n::error::x")
	f.Add("`a` | b\n```\nc")
	f.Fuzz(func(t *testing.T, s string) { checkAll(t, everything(t, s), s) })
}

func FuzzPlain(f *testing.F) {
	for _, s := range []string{hostile, `{"a":"##[x]","b":"\u202e"}`, "{\"a\":\"\u202e##vso[x]\"}", "::x", " \t::x", "#####[", "##\n[", "section_section_start:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p := Plain(s)
		inLog(t, "Plain", p)
		if again := Plain(p); again != p {
			t.Errorf("not idempotent: %q, %q", p, again)
		}
		var a, b any
		if json.Unmarshal([]byte(s), &a) == nil && utf8.ValidString(s) {
			if err := json.Unmarshal([]byte(p), &b); err != nil || fmt.Sprint(a) != fmt.Sprint(b) {
				t.Errorf("JSON changed its value: %q, %q", s, p)
			}
		}
	})
}
