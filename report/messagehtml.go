package report

import (
	"fmt"
	"html/template"
	"strings"

	"github.com/gomarkdown/markdown/ast"
	"github.com/gomarkdown/markdown/parser"
)

// maxMarkdown is the longest message that is rendered; longer ones are shown as
// they are.
const maxMarkdown = 16 << 10

// messageHTML renders a message of the model: no raw HTML, no pictures, links
// only to web and mail addresses and without a referrer. It is false where the
// message is to be shown as it is.
//
// The library only reads the Markdown. Every tag that can come out is written
// below: what is not listed there is shown as text.
func messageHTML(text string) (template.HTML, bool) {
	if len(text) > maxMarkdown {
		return "", false
	}
	w := &messageWriter{}
	p := parser.NewCommonMarkWithExtensions(parser.Tables | parser.Strikethrough)
	ast.WalkFunc(p.Parse([]byte(Plain(text))), w.visit)
	return template.HTML(w.out.String()), true
}

// messageWriter writes the nodes of a message as it is walked through.
type messageWriter struct{ out strings.Builder }

// text writes what is no markup. A character reference may have become one of
// the characters that Plain takes out.
func (w *messageWriter) text(b []byte) {
	w.out.WriteString(template.HTMLEscapeString(Plain(string(b))))
}

// visit implements ast.NodeVisitorFunc.
func (w *messageWriter) visit(node ast.Node, entering bool) ast.WalkStatus {
	switch n := node.(type) {
	case *ast.Text:
		w.text(n.Literal)
	case *ast.Code:
		w.out.WriteString("<code>")
		w.text(n.Literal)
		w.out.WriteString("</code>")
	case *ast.CodeBlock:
		w.block(n.Literal, "<pre><code>", "</code></pre>\n")
	case *ast.HTMLBlock:
		w.block(n.Literal, "<pre>", "</pre>\n")
	case *ast.Hardbreak:
		w.out.WriteString("<br>\n")
	case *ast.Softbreak:
		w.out.WriteString("\n")
	case *ast.HorizontalRule:
		w.out.WriteString("<hr>\n")
	case *ast.Image:
		if entering { // its text follows
			w.out.WriteString("[image: ")
		} else {
			w.out.WriteString("]")
		}
	case *ast.Link:
		w.link(n, entering)
	case *ast.ReferenceDefinition: // what it says stands in the links
	default:
		if open, shut, ok := messageTags(node); ok && entering {
			w.out.WriteString(open)
		} else if ok {
			w.out.WriteString(shut)
		} else if leaf := node.AsLeaf(); leaf != nil {
			w.text(leaf.Literal)
		}
	}
	return ast.GoToNext
}

func (w *messageWriter) block(b []byte, open, shut string) {
	w.out.WriteString(open)
	w.text(b)
	w.out.WriteString(shut)
}

// link writes a link that can be followed. Of others, and of addresses that were
// written as such, only the text stays.
func (w *messageWriter) link(n *ast.Link, entering bool) {
	dest := string(n.Destination)
	lower := strings.ToLower(dest)
	if !strings.HasPrefix(lower, "https://") && !strings.HasPrefix(lower, "http://") && !strings.HasPrefix(lower, "mailto:") || isAddress(n) {
		return
	}
	if !entering {
		w.out.WriteString("</a>")
		return
	}
	fmt.Fprintf(&w.out, `<a href="%s" rel="noopener noreferrer nofollow">`, template.HTMLEscapeString(Plain(dest)))
}

// isAddress tells whether the text of a link is where it leads.
func isAddress(n *ast.Link) bool {
	if len(n.Children) != 1 {
		return false
	}
	text, ok := n.Children[0].(*ast.Text)
	return ok && strings.TrimPrefix(string(n.Destination), "mailto:") == string(text.Literal)
}

// messageTags are the tags of a node that has nothing of its own to say.
func messageTags(node ast.Node) (open, shut string, ok bool) {
	switch n := node.(type) {
	case *ast.Document:
		return "", "", true
	case *ast.Paragraph:
		if item, ok := n.Parent.(*ast.ListItem); ok && isTight(item) {
			return "", "", true
		}
		return "<p>", "</p>\n", true
	case *ast.Heading:
		level := min(max(n.Level, 1), 6)
		return fmt.Sprintf("<h%d>", level), fmt.Sprintf("</h%d>\n", level), true
	case *ast.Emph:
		return "<em>", "</em>", true
	case *ast.Strong:
		return "<strong>", "</strong>", true
	case *ast.Del:
		return "<del>", "</del>", true
	case *ast.BlockQuote:
		return "<blockquote>\n", "</blockquote>\n", true
	case *ast.List:
		if n.ListFlags&ast.ListTypeOrdered == 0 {
			return "<ul>\n", "</ul>\n", true
		}
		if n.Start > 1 {
			return fmt.Sprintf("<ol start=\"%d\">\n", n.Start), "</ol>\n", true
		}
		return "<ol>\n", "</ol>\n", true
	case *ast.ListItem:
		return "<li>", "</li>\n", true
	}
	return tableTags(node)
}

// isTight tells whether no blank line is between the items of the list.
func isTight(item *ast.ListItem) bool {
	list, ok := item.Parent.(*ast.List)
	return ok && list.Tight
}

func tableTags(node ast.Node) (open, shut string, ok bool) {
	switch n := node.(type) {
	case *ast.Table:
		return "<table>\n", "</table>\n", true
	case *ast.TableHeader:
		return "<thead>\n", "</thead>\n", true
	case *ast.TableBody:
		return "<tbody>\n", "</tbody>\n", true
	case *ast.TableRow:
		return "<tr>\n", "</tr>\n", true
	case *ast.TableCell:
		if n.IsHeader {
			return "<th>", "</th>\n", true
		}
		return "<td>", "</td>\n", true
	}
	return "", "", false
}
