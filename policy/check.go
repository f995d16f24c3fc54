package policy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// problem is a finding about one key of a layer.
type problem struct {
	at      *node
	key     string
	message string
	hint    string
}

func (p problem) err(k ErrorKind) *Error {
	e := &Error{Key: p.key, Message: p.message, HintText: p.hint, Kind: k}
	if l := p.at.layer; l != nil {
		e.File, e.Line, e.Column = l.path, p.at.line, p.at.column
		if l.path == "" {
			e.Message = p.at.origin() + ": " + p.message
		}
	}
	return e
}

// kindAt is the kind of a mistake at a value: what stands in requirements is
// theirs to fix.
func kindAt(v *node) ErrorKind {
	if v != nil && v.layer != nil && v.layer.name == "requirements" {
		return KindPolicy
	}
	return KindUsage
}

// findings is what checking one layer gives.
type findings struct {
	unknown []problem // keys nobody knows
	wrong   []problem // wrong types and values
	unused  []problem // known keys without effect here
	found   []setting // every known key that is set
}

// setting is one known key that a layer sets.
type setting struct {
	path []string
	key  *key
	at   *node
}

// check compares a layer with the schema.
func check(root *node, s *schema) *findings {
	f := &findings{}
	f.table(root, s, nil)
	return f
}

func (f *findings) table(t *node, s *schema, path []string) {
	for _, name := range t.keys {
		v := t.fields[name]
		here := append(slices.Clone(path), name)
		sub := s.find(name)
		if sub == nil {
			f.unknown = append(f.unknown, problem{at: v, key: dotted(here),
				message: fmt.Sprintf("unknown key %q", dotted(here)), hint: suggestKey(name, here, s)})
			continue
		}
		f.value(v, sub, here)
	}
}

func (f *findings) value(v *node, s *schema, path []string) {
	if s.key != nil {
		if message := wrongType(v, s.key.typ); message != "" {
			f.mustBe(v, path, message, shown(path, v))
			return
		}
		f.found = append(f.found, setting{path: path, key: s.key, at: v})
		if s.key.unused {
			f.unused = append(f.unused, problem{at: v, key: dotted(path), message: s.key.doc})
			return
		}
	}
	switch {
	case s.elem != nil:
		if v.kind != kArray {
			f.mustBe(v, path, "a list of tables", v.String())
			return
		}
		for i, item := range v.items {
			here := append(slices.Clone(path[:len(path)-1]), path[len(path)-1]+"["+strconv.Itoa(i)+"]")
			if item.kind != kTable {
				f.mustBe(item, here, "a table", item.String())
				continue
			}
			f.table(item, s.elem, here)
		}
	case len(s.children) > 0 || s.any != nil:
		if v.kind != kTable {
			if s.key == nil || s.key.typ == "table" {
				f.mustBe(v, path, "a table", v.String())
			}
			return
		}
		f.table(v, s, path)
	}
}

// mustBe notes a value that is not what its key wants.
func (f *findings) mustBe(v *node, path []string, want, got string) {
	p := problem{at: v, key: dotted(path), message: fmt.Sprintf("%q must be %s, not %s", dotted(path), want, got)}
	switch {
	case v.kind != kString || v.layer == nil || v.layer.flag == "":
	case v.text == "":
		p.hint = "is it a variable that is not set?"
	case strings.HasPrefix(v.text, "{") || strings.HasPrefix(v.text, "["):
		p.hint = `a value that is no TOML counts as text: write a table as { key = "value" } and a list as ["a", "b"]`
	}
	f.wrong = append(f.wrong, p)
}

// shown is a value in a message, unless it may be secret.
func shown(path []string, v *node) string {
	if text, hidden := masked(path, v.value()).(string); hidden && text == maskedText {
		return "a value that is not shown"
	}
	return v.String()
}

// dotted joins a path as TOML would write it.
func dotted(path []string) string {
	parts := make([]string, len(path))
	for i, p := range path {
		parts[i] = p
		bare := strings.TrimRight(strings.TrimSuffix(p, "]"), "0123456789")
		if strings.Trim(strings.TrimSuffix(bare, "["), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" || p == "" {
			parts[i] = strconv.Quote(p)
		}
	}
	return strings.Join(parts, ".")
}

// valueType is a type of values that needs no argument.
type valueType struct {
	want string // what a value must be, as a message says it
	fits func(*node) bool
}

func ofKind(k kind) func(*node) bool { return func(v *node) bool { return v.kind == k } }

// valueTypes are the types of keys by their names.
func valueTypes() map[string]valueType {
	table := valueType{"a table", ofKind(kTable)}
	text := valueType{"a string", ofKind(kString)}
	list := valueType{"a list of strings", func(v *node) bool { return listOf(v, kString) }}
	return map[string]valueType{
		"any":    {"", func(*node) bool { return true }},
		"table":  table,
		"tables": {"a list of tables", ofKind(kArray)},
		"string": text, "path": text,
		"name": {"a string that is not empty", func(v *node) bool { return v.kind == kString && strings.TrimSpace(v.text) != "" }},
		"bool": {"true or false", ofKind(kBool)},
		"int":  {"a whole number, 0 or more", func(v *node) bool { return v.kind == kInteger && v.number >= 0 }},
		"number": {"a number, 0 or more", func(v *node) bool {
			return v.kind == kInteger && v.number >= 0 || v.kind == kFloat && v.float >= 0 && !math.IsInf(v.float, 1)
		}},
		"strings": list, "paths": list,
		"string|strings": {"a string or a list of strings", func(v *node) bool { return v.kind == kString || listOf(v, kString) }},
		"strmap": {"a table of strings", func(v *node) bool {
			for _, f := range v.fields {
				if f.kind != kString {
					return false
				}
			}
			return v.kind == kTable
		}},
		"duration":   {`a duration such as "90s", "10m" or "1h30m", or seconds`, func(v *node) bool { _, err := durationOf(v); return err == nil }},
		"size":       {`a size such as 1073741824, "512MiB" or "2GiB"`, func(v *node) bool { _, err := sizeOf(v); return err == nil }},
		"guarantees": {listOfOne(guarantees[:]), func(v *node) bool { return listOf(v, kString) && eachIn(v.items, guarantees[:]) }},
		"approval":   {oneOf(ApprovalPolicies[:]) + " or { granular = { … } }", func(v *node) bool { return approvalOf(v) != "" }},
		"approvals": {listOfOne(ApprovalPolicies[:]) + " or { granular = { … } }", func(v *node) bool {
			return v.kind == kArray && !slices.ContainsFunc(v.items, func(i *node) bool { return approvalOf(i) == "" })
		}},
		"feature": {"true or false", func(v *node) bool {
			return v.kind == kBool || v.kind == kTable && (v.fields["enabled"] == nil || v.fields["enabled"].kind == kBool)
		}},
		"exporter": {`"none", or a table otlp-http or otlp-grpc`, func(v *node) bool {
			return v.kind == kTable || v.kind == kString && slices.Contains([]string{"none", "statsig", "otlp-http", "otlp-grpc"}, v.text)
		}},
	}
}

// wrongType is what a value must be, "" if it is. The types "enum" and "enums"
// name their words after a colon.
func wrongType(v *node, typ string) string {
	name, arg, _ := strings.Cut(typ, ":")
	words := strings.Split(arg, "|")
	switch name {
	case "enum":
		if v.kind == kString && slices.Contains(words, v.text) {
			return ""
		}
		return oneOf(words)
	case "enums":
		if listOf(v, kString) && eachIn(v.items, words) {
			return ""
		}
		return listOfOne(words)
	}
	t, known := knownTypes()[name]
	switch {
	case !known:
		return "a value of the unknown type " + typ
	case t.fits(v):
		return ""
	}
	return t.want
}

// knownTypes is made once: every value of every file is looked at.
var knownTypes = sync.OnceValue(valueTypes)

// eachIn tells whether every item is one of words.
func eachIn(items []*node, words []string) bool {
	return !slices.ContainsFunc(items, func(i *node) bool { return !slices.Contains(words, i.text) })
}

// listOfOne is oneOf for a list.
func listOfOne(words []string) string {
	return "a list of " + strings.TrimPrefix(oneOf(words), "one of ")
}

// guarantees are the names that sandbox.require takes.
var guarantees = [...]string{
	"writes-confined", "reads-confined", "network-confined", "tree-dies", "syscalls-confined", "secrets-hidden",
	"resources-limited",
}

// ApprovalPolicies are the words of approval_policy.
var ApprovalPolicies = [...]string{"untrusted", "on-failure", "on-request", "never"}

// approvalOf is the word of an approval policy, "granular" for the table form,
// "" if it is not one.
func approvalOf(v *node) string {
	switch {
	case v.kind == kString && slices.Contains(ApprovalPolicies[:], v.text):
		return v.text
	case v.kind == kTable && len(v.fields) == 1 && v.fields["granular"] != nil && v.fields["granular"].kind == kTable:
		for name, f := range v.fields["granular"].fields {
			if f.kind != kBool ||
				!slices.Contains([]string{"sandbox_approval", "rules", "mcp_elicitations", "request_permissions", "skill_approval"}, name) {
				return ""
			}
		}
		return "granular"
	}
	return ""
}

func listOf(v *node, k kind) bool {
	return v.kind == kArray && !slices.ContainsFunc(v.items, func(i *node) bool { return i.kind != k })
}

func oneOf(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	if len(quoted) == 1 {
		return quoted[0]
	}
	return "one of " + strings.Join(quoted, ", ")
}

// durationOf reads "90s" or whole seconds.
func durationOf(v *node) (time.Duration, error) {
	switch v.kind {
	case kInteger:
		if v.number < 0 || v.number > int64(time.Duration(1<<63-1)/time.Second) {
			return 0, fmt.Errorf("%s seconds", v.text)
		}
		return time.Duration(v.number) * time.Second, nil
	case kString:
		d, err := time.ParseDuration(v.text)
		if err != nil {
			return 0, err
		}
		if d < 0 {
			return 0, fmt.Errorf("negative duration %s", v.text)
		}
		return d, nil
	}
	return 0, fmt.Errorf("%s is not a duration", v)
}

// sizeOf reads bytes, or a number with a unit.
func sizeOf(v *node) (int64, error) {
	if v.kind == kInteger && v.number >= 0 {
		return v.number, nil
	}
	if v.kind != kString {
		return 0, fmt.Errorf("%s is not a size", v)
	}
	text := strings.TrimSpace(v.text)
	for _, u := range []struct {
		suffix string
		factor int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"B", 1}, {"", 1}} {
		number, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 0 || n > (1<<63-1)/u.factor {
			return 0, fmt.Errorf("%q is not a size", v.text)
		}
		return n * u.factor, nil
	}
	return 0, fmt.Errorf("%q is not a size", v.text)
}

// suggestKey names the nearest known key in the same table, or the only other
// table that has a key of that name.
func suggestKey(name string, path []string, s *schema) string {
	if near := nearest(name, slices.Sorted(maps.Keys(s.children))); near != "" {
		return fmt.Sprintf("did you mean %q?", dotted(append(slices.Clone(path[:len(path)-1]), near)))
	}
	if len(path) == 1 {
		var elsewhere []string
		for _, table := range slices.Sorted(maps.Keys(s.children)) {
			if s.children[table].children[name] != nil {
				elsewhere = append(elsewhere, table+"."+name)
			}
		}
		if len(elsewhere) == 1 {
			return fmt.Sprintf("did you mean %q?", elsewhere[0])
		}
	}
	return ""
}

// nearest is the candidate closest to name, "" when none is close.
func nearest(name string, candidates []string) string {
	best, distance := "", max(1, min(3, len(name)/3))+1
	for _, c := range candidates {
		if strings.EqualFold(c, name) {
			return c
		}
		if d := editDistance(strings.ToLower(name), strings.ToLower(c), distance); d < distance {
			best, distance = c, d
		}
	}
	return best
}

// editDistance counts insertions, deletions, replacements and swaps of
// neighbours, up to limit.
func editDistance(a, b string, limit int) int {
	if d := len(a) - len(b); d >= limit || -d >= limit || len(a) > 128 {
		return limit
	}
	before, last, now := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}
