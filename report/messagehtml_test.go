package report

import (
	"regexp"
	"strings"
	"testing"
)

func TestMessageHTML(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"paragraphs and a list that follows at once", "Done:\n- a\n- b\n\nEnd", "<p>Done:</p>\n<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n<p>End</p>\n"},
		{"a loose list", "- a\n\n- b", "<ul>\n<li><p>a</p>\n</li>\n<li><p>b</p>\n</li>\n</ul>\n"},
		{"numbers go on", "3. c\n4. d", "<ol start=\"3\">\n<li>c</li>\n<li>d</li>\n</ol>\n"},
		{"a list in a list", "1. a\n   - b", "<ol>\n<li>a<ul>\n<li>b</li>\n</ul>\n</li>\n</ol>\n"},
		{"emphasis", "*a* **b** ~~c~~ `d<e`", "<p><em>a</em> <strong>b</strong> <del>c</del> <code>d&lt;e</code></p>\n"},
		{"headings", "# a\n\n###### b", "<h1>a</h1>\n<h6>b</h6>\n"},
		{"code", "```go {onclick=x}\na < b\n```", "<pre><code>a &lt; b\n</code></pre>\n"},
		{"a quote", "> a\n> b", "<blockquote>\n<p>a\nb</p>\n</blockquote>\n"},
		{"a rule and a hard break", "a  \nb\n\n---\n", "<p>a<br>\nb</p>\n<hr>\n"},
		{"a table", "| a | b |\n|:--|---|\n| 1 | *2* |", "<table>\n<thead>\n<tr>\n<th>a</th>\n<th>b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>1</td>\n<td><em>2</em></td>\n</tr>\n</tbody>\n</table>\n"},
		{"a quote in a link", `[a](https://example.com/?b="c)`, `<p><a href="https://example.com/?b=%22c" rel="noopener noreferrer nofollow">a</a></p>` + "\n"},
		{"a link with a title", `[a](https://example.com/?a=1&b=2 "t")`, `<p><a href="https://example.com/?a=1&amp;b=2" rel="noopener noreferrer nofollow">a</a></p>` + "\n"},
		{"mail", `[a](mailto:a@example.com)`, `<p><a href="mailto:a@example.com" rel="noopener noreferrer nofollow">a</a></p>` + "\n"},
		{"a link by reference", "[a][b]\n\n[b]: https://example.com", `<p><a href="https://example.com" rel="noopener noreferrer nofollow">a</a></p>` + "\n"},
		{"an address is not followed", "<https://example.com> https://example.com", "<p>https://example.com https://example.com</p>\n"},
		{"a script as a link", "[a](javascript:alert(1)) [b](data:text/html,x) [c](JaVaScRiPt:x) [d](//example.com)", "<p>a b c d</p>\n"},
		{"a picture", "![alt *x*](https://example.com/p.png \"t\")", "<p>[image: alt <em>x</em>]</p>\n"},
		{"raw HTML", "<script>alert(1)</script>\n\na <img src=x onerror=y> b <!-- c -->", "<pre>&lt;script&gt;alert(1)&lt;/script&gt;\n</pre>\n<p>a &lt;img src=x onerror=y&gt; b &lt;!-- c --&gt;</p>\n"},
		{"character references", "&lt;b&gt; &#60;i&#62; &copy;", "<p>&lt;b&gt; &lt;i&gt; ©</p>\n"},
	} {
		got, ok := messageHTML(c.text)
		if !ok || string(got) != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
	for _, hidden := range []string{"a&#x202e;b", "a&#8238;b", "a&#27;[31mb", "[a](https://example.com/&#x202e;)", "a\u202eb"} {
		got, ok := messageHTML(hidden)
		if !ok || strings.ContainsAny(string(got), "\u202e\x1b") {
			t.Errorf("%q came out as %q", hidden, got)
		}
	}
	if _, ok := messageHTML(strings.Repeat("a", maxMarkdown+1)); ok {
		t.Error("a message without end is read as Markdown")
	}
}

// FuzzMessageHTML: no tag comes out that is not one of ours.
func FuzzMessageHTML(f *testing.F) {
	for _, s := range []string{"# a\n\n- [b](https://example.com)\n", "<img src=x onerror=y>", "[a](<javascript:x>)", "| a |\n|---|\n| ![x](y) |", "&#60;script&#62;",
		"```\"><script>\n```", "[a]: b \"><x>\n\n[a]", "1. > ~~x~~\n   <!--"} {
		f.Add(s)
	}
	ours := regexp.MustCompile(`</?(?:p|h[1-6]|em|strong|del|blockquote|ul|ol|li|table|thead|tbody|tr|th|td|pre|code)>|<(?:br|hr)>|</a>|<ol start="[0-9]+">|` +
		`<a href="(?i:https?://|mailto:)[^"<>]*" rel="noopener noreferrer nofollow">`)
	f.Fuzz(func(t *testing.T, text string) {
		out, ok := messageHTML(text)
		if !ok {
			return
		}
		if rest := ours.ReplaceAllString(string(out), ""); strings.ContainsAny(rest, "<>") {
			t.Errorf("%q came out as %q, of which %q is none of ours", text, out, rest)
		}
		harmlessRunes(t, "message", string(out))
	})
}
