package policy

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// kind is the TOML type of a value.
type kind int

const (
	kTable kind = iota
	kArray
	kString
	kInteger
	kFloat
	kBool
	kDate
)

func (k kind) String() string {
	return [...]string{"table", "array", "string", "integer", "float", "boolean", "date"}[k]
}

// node is one value of a layer with its place. Nodes are shared between trees
// and never changed after parsing.
type node struct {
	kind   kind
	text   string // strings, dates and the source of numbers
	number int64
	float  float64
	yes    bool
	items  []*node
	keys   []string // of a table, in order of appearance
	fields map[string]*node

	line, column int
	layer        *layer
}

// origin is where the value was written: file:line, or the flag.
func (n *node) origin() string {
	switch {
	case n.layer == nil:
		return "default"
	case n.layer.path == "":
		if n.text != "" && n.layer.flag == "" {
			return n.layer.name
		}
		return n.layer.flag
	case n.line == 0:
		return n.layer.path
	}
	return fmt.Sprintf("%s:%d", n.layer.path, n.line)
}

// get is the value at a path, nil if there is none.
func (n *node) get(path ...string) *node {
	for _, key := range path {
		if n == nil || n.kind != kTable {
			return nil
		}
		n = n.fields[key]
	}
	return n
}

// set stores a value at a key of a table under construction.
func (n *node) set(key string, v *node) {
	if _, exists := n.fields[key]; !exists {
		n.keys = append(n.keys, key)
	}
	n.fields[key] = v
}

func newTable(l *layer) *node {
	return &node{kind: kTable, fields: map[string]*node{}, layer: l}
}

// value is the plain Go value, for JSON and for people.
func (n *node) value() any {
	if n == nil {
		return nil
	}
	switch n.kind {
	case kTable:
		out := make(map[string]any, len(n.fields))
		for k, v := range n.fields {
			out[k] = v.value()
		}
		return out
	case kArray:
		out := make([]any, len(n.items))
		for i, v := range n.items {
			out[i] = v.value()
		}
		return out
	case kInteger:
		return n.number
	case kFloat:
		return n.float
	case kBool:
		return n.yes
	}
	return n.text
}

// equal compares values, not places. Lists are compared in order.
func (n *node) equal(other *node) bool { return reflect.DeepEqual(n.value(), other.value()) }

// String shows the value in an error message.
func (n *node) String() string {
	switch n.kind {
	case kString:
		return strconv.Quote(n.text)
	case kInteger, kFloat, kDate:
		return n.text
	case kBool:
		return strconv.FormatBool(n.yes)
	case kArray:
		parts := make([]string, len(n.items))
		for i, item := range n.items {
			parts[i] = item.String()
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return "a table"
}

// maxTOML bounds one TOML file in bytes, and maxDepth how deep its values may
// stand in each other.
const (
	maxTOML  = 8 << 20
	maxDepth = 64
)

// parseTOML reads one file. A syntax error is the only error: the parser stops
// at the first.
func parseTOML(l *layer, data []byte, k ErrorKind) (*node, *Error) {
	fail := func(line, column int, message string) (*node, *Error) {
		return nil, &Error{File: l.path, Line: line, Column: column, Message: message, Kind: k}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if len(data) > maxTOML {
		return fail(0, 0, fmt.Sprintf("file is larger than %d bytes", maxTOML))
	}
	if depth := bracketDepth(data); depth > maxDepth {
		return fail(0, 0, fmt.Sprintf("values are nested %d deep; %d is the limit", depth, maxDepth))
	}
	// The decoder knows the rules on duplicate keys; the parser alone does not.
	if err := toml.Unmarshal(data, &map[string]any{}); err != nil {
		var decode *toml.DecodeError
		if errors.As(err, &decode) {
			line, column := decode.Position()
			return fail(line, column, "not valid TOML: "+strings.TrimPrefix(decode.Error(), "toml: "))
		}
		return fail(0, 0, "not valid TOML: "+strings.TrimPrefix(err.Error(), "toml: "))
	}
	b := &treeBuilder{data: data, layer: l, root: newTable(l)}
	for i, c := range data {
		if c == '\n' {
			b.lines = append(b.lines, i+1)
		}
	}
	b.parser.Reset(data)
	b.current = b.root
	for b.parser.NextExpression() {
		b.expression(b.parser.Expression())
	}
	if err := b.parser.Error(); err != nil {
		return fail(0, 0, "not valid TOML: "+err.Error())
	}
	return b.root, nil
}

// bracketDepth is the deepest nesting of arrays and inline tables; brackets in
// strings count too, which is harmless at this bound.
func bracketDepth(data []byte) int {
	depth, deepest := 0, 0
	for _, c := range data {
		switch c {
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth = max(0, depth-1)
		case '\n':
			if deepest < maxDepth {
				// A string with unbalanced brackets must not add up over lines.
				depth = min(depth, maxDepth/2)
			}
		}
	}
	return deepest
}

type treeBuilder struct {
	parser  unstable.Parser
	data    []byte
	lines   []int // offsets of the second and later lines
	layer   *layer
	root    *node
	current *node
}

func (b *treeBuilder) place(r unstable.Range) (line, column int) {
	offset := int(r.Offset)
	i := sort.SearchInts(b.lines, offset+1)
	start := 0
	if i > 0 {
		start = b.lines[i-1]
	}
	return i + 1, utf8.RuneCount(b.data[start:offset]) + 1
}

func (b *treeBuilder) expression(e *unstable.Node) {
	switch e.Kind {
	case unstable.KeyValue:
		b.keyValue(b.current, e)
	case unstable.Table:
		b.current = b.descend(b.root, e.Key(), false)
	case unstable.ArrayTable:
		b.current = b.descend(b.root, e.Key(), true)
	}
}

// descend walks a header's key, making tables on the way; with arrays the last
// part is an array that gets a new table.
func (b *treeBuilder) descend(at *node, key unstable.Iterator, array bool) *node {
	for key.Next() {
		part := key.Node()
		name := string(part.Data)
		line, column := b.place(part.Raw)
		last := key.IsLast()
		next := at.fields[name]
		if last && array {
			if next == nil {
				next = &node{kind: kArray, layer: b.layer, line: line, column: column}
				at.set(name, next)
			}
			table := newTable(b.layer)
			table.line, table.column = line, column
			next.items = append(next.items, table)
			return table
		}
		if next == nil {
			next = newTable(b.layer)
			next.line, next.column = line, column
			at.set(name, next)
		}
		if next.kind == kArray && len(next.items) > 0 {
			next = next.items[len(next.items)-1]
		}
		at = next
	}
	return at
}

func (b *treeBuilder) keyValue(table *node, e *unstable.Node) {
	key := e.Key()
	at := table
	for key.Next() {
		part := key.Node()
		name := string(part.Data)
		line, column := b.place(part.Raw)
		if key.IsLast() {
			v := b.value(e.Value())
			v.line, v.column = line, column
			at.set(name, v)
			return
		}
		next := at.fields[name]
		if next == nil {
			next = newTable(b.layer)
			next.line, next.column = line, column
			at.set(name, next)
		}
		at = next
	}
}

func (b *treeBuilder) value(v *unstable.Node) *node {
	n := &node{layer: b.layer, text: string(v.Data)}
	switch v.Kind {
	case unstable.String:
		n.kind = kString
	case unstable.Bool:
		n.kind, n.yes = kBool, v.Data[0] == 't'
	case unstable.Integer:
		n.kind = kInteger
		n.number, _ = strconv.ParseInt(strings.ReplaceAll(n.text, "_", ""), 0, 64) // the decoder has checked it
		if text := strings.TrimLeft(strings.ReplaceAll(n.text, "_", ""), "+"); !strings.ContainsAny(text, "xob") {
			n.number, _ = strconv.ParseInt(text, 10, 64)
		}
	case unstable.Float:
		n.kind = kFloat
		n.float, _ = strconv.ParseFloat(strings.ReplaceAll(n.text, "_", ""), 64) // the decoder has checked it
	case unstable.Array:
		n.kind, n.text = kArray, ""
		it := v.Children()
		for it.Next() {
			child := it.Node()
			if child.Kind == unstable.Comment {
				continue
			}
			item := b.value(child)
			if child.Raw.Length > 0 {
				item.line, item.column = b.place(child.Raw)
			}
			n.items = append(n.items, item)
		}
	case unstable.InlineTable:
		n.kind, n.text, n.fields = kTable, "", map[string]*node{}
		it := v.Children()
		for it.Next() {
			if child := it.Node(); child.Kind == unstable.KeyValue {
				b.keyValue(n, child)
			}
		}
	default:
		n.kind = kDate
	}
	return n
}

// merge lays over upon base: tables key by key, everything else replaced whole.
// Neither argument is changed.
func merge(base, over *node) *node {
	switch {
	case base == nil:
		return over
	case over == nil:
		return base
	case base.kind != kTable || over.kind != kTable:
		return over
	}
	out := &node{kind: kTable, fields: make(map[string]*node, len(base.fields)+len(over.fields)), keys: slices.Clone(base.keys),
		line: over.line, column: over.column, layer: over.layer}
	for k, v := range base.fields {
		out.fields[k] = v
	}
	for _, k := range over.keys {
		out.set(k, merge(out.fields[k], over.fields[k]))
	}
	return out
}

// with returns a tree in which path has the value v; the tree itself stays.
func (n *node) with(v *node, path ...string) *node {
	if len(path) == 0 {
		return v
	}
	out := &node{kind: kTable, fields: map[string]*node{}, layer: v.layer}
	if n != nil && n.kind == kTable {
		out.keys, out.line, out.column, out.layer = slices.Clone(n.keys), n.line, n.column, n.layer
		for k, f := range n.fields {
			out.fields[k] = f
		}
	}
	out.set(path[0], out.fields[path[0]].with(v, path[1:]...))
	return out
}

// without returns a tree that lacks the value at path.
func (n *node) without(path ...string) *node {
	if n == nil || n.kind != kTable || n.get(path...) == nil {
		return n
	}
	out := &node{kind: kTable, fields: map[string]*node{}, keys: slices.Clone(n.keys), line: n.line, column: n.column, layer: n.layer}
	for k, f := range n.fields {
		out.fields[k] = f
	}
	if len(path) > 1 {
		out.fields[path[0]] = out.fields[path[0]].without(path[1:]...)
		return out
	}
	delete(out.fields, path[0])
	out.keys = slices.DeleteFunc(out.keys, func(k string) bool { return k == path[0] })
	return out
}
