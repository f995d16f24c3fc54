package event

import (
	"bytes"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// How often escapes, and percent signs, are taken to be applied on top of each
// other. Percent-decoding may be followed by one more unescaping.
const (
	textEscapes  = 3
	textPercents = 2
)

// view is a text, or what comes out when its parent is decoded once.
type view struct {
	parent *view
	decode decoder
	text   []byte
	// at[i] is where in the parent the unit begins that text[i] comes from; one
	// more entry ends it. It is made when first needed.
	at []int32
}

// decoder appends src, decoded, to dst. With at, it appends the origin of each
// byte to it. The result tail is where an incomplete unit at the end of src
// begins, or len(src).
type decoder func(dst, src []byte, at *[]int32) (out []byte, tail int)

// scratch is memory that is used again.
type scratch struct {
	text  []byte
	spans []span
	views [textEscapes + textPercents + 3]struct {
		view
		buf []byte
	}
}

// each visits root and the views derived from it, until visit returns false.
// With whole false, an incomplete unit at the end of a view is left out of what
// is decoded from it, and reported to incomplete.
func (s *scratch) each(text []byte, escapes int, incomplete func(v *view, tail int), visit func(*view) bool) {
	v := &s.views[0].view
	*v = view{text: text}
	s.derive(0, escapes, textPercents, incomplete, visit)
}

func (s *scratch) derive(depth, escapes, percents int, incomplete func(v *view, tail int), visit func(*view) bool) bool {
	v := &s.views[depth].view
	if !visit(v) {
		return false
	}
	if escapes > 0 && bytes.IndexByte(v.text, '\\') >= 0 {
		s.child(depth, unescape, incomplete)
		if !s.derive(depth+1, escapes-1, percents, incomplete, visit) {
			return false
		}
	}
	if percents > 0 && hasPercent(v.text, incomplete != nil) {
		s.child(depth, unpercent, incomplete)
		if !s.derive(depth+1, min(escapes, 1), percents-1, incomplete, visit) {
			return false
		}
	}
	return true
}

func (s *scratch) child(depth int, decode decoder, incomplete func(*view, int)) {
	parent, child := &s.views[depth].view, &s.views[depth+1]
	out, tail := decode(child.buf[:0], parent.text, nil)
	if incomplete != nil && tail < len(parent.text) {
		incomplete(parent, tail)
		out, _ = decode(out[:0], parent.text[:tail], nil)
	}
	child.buf = out
	child.view = view{parent: parent, decode: decode, text: out}
}

// origin maps a piece of v.text to the text that v is derived from.
func (v *view) origin(start, end int) (int, int) {
	for ; v.parent != nil; v = v.parent {
		if v.at == nil {
			v.at = make([]int32, 0, len(v.text)+1)
			v.decode(make([]byte, 0, len(v.text)), v.parent.text, &v.at)
			v.at = append(v.at, int32(len(v.parent.text)))
		}
		// A unit belongs to the piece as a whole.
		for end > start && end < len(v.text) && v.at[end] == v.at[end-1] {
			end++
		}
		start, end = int(v.at[start]), int(v.at[end])
	}
	return start, end
}

// contains tells whether any form of a secret is in text.
func (m *matcher) contains(text []byte, escapes int, s *scratch) bool {
	hit := false
	s.each(text, escapes, nil, func(v *view) bool {
		m.search(v.text, func(int, int, int) bool { hit = true; return false })
		return !hit
	})
	return hit
}

// find returns the pieces of text that are forms of secrets: sorted, and joined
// where they overlap. They live until s is used again.
func (m *matcher) find(text []byte, escapes int, s *scratch) []span {
	s.spans = s.spans[:0]
	s.each(text, escapes, nil, func(v *view) bool {
		m.search(v.text, func(start, end, secret int) bool {
			start, end = v.origin(start, end)
			s.spans = append(s.spans, span{start, end, secret})
			return true
		})
		return true
	})
	s.spans = joined(s.spans)
	return s.spans
}

// search runs all indexes over one view.
func (m *matcher) search(text []byte, found func(start, end, secret int) bool) {
	goOn := true
	track := func(start, end, secret int) bool {
		goOn = found(start, end, secret)
		return goOn
	}
	if m.plain.find(text, track); !goOn {
		return
	}
	if m.base64.find(text, track); !goOn {
		return
	}
	m.hex.find(text, track)
}

// open returns the first position of text from which a form of a secret could
// go on beyond its end, or len(text).
func (m *matcher) open(text []byte, s *scratch) int {
	first := len(text)
	s.each(text, textEscapes, func(v *view, tail int) {
		start, _ := v.origin(tail, tail)
		first = min(first, start)
	}, func(v *view) bool {
		at := min(m.plain.open(v.text), m.base64.open(v.text), m.hex.open(v.text))
		if at < len(v.text) {
			start, _ := v.origin(at, at)
			first = min(first, start)
		}
		return true
	})
	return first
}

// joined sorts spans and joins those that overlap.
func joined(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int {
		if a.start != b.start {
			return a.start - b.start
		}
		return b.end - a.end
	})
	out := spans[:0]
	for _, s := range spans {
		if n := len(out); n > 0 && s.start < out[n-1].end {
			out[n-1].end = max(out[n-1].end, s.end)
			continue
		}
		out = append(out, s)
	}
	return out
}

// unescape undoes one level of backslashes: exactly what a JSON decoder does to
// the inside of a string, and a guess for everything that JSON does not know.
// It keeps a backslash before a line feed, so that no unit spans two lines.
func unescape(dst, src []byte, at *[]int32) ([]byte, int) {
	for i := 0; i < len(src); {
		n := bytes.IndexByte(src[i:], '\\')
		if n < 0 {
			n = len(src) - i
		}
		if n > 0 {
			dst = append(dst, src[i:i+n]...)
			trace(at, i, n, 1)
			i += n
			continue
		}
		before := len(dst)
		var size int
		if dst, size = unit(dst, src[i:]); size == 0 {
			dst = append(dst, src[i:]...)
			trace(at, i, len(src)-i, 1)
			return dst, i
		}
		trace(at, i, len(dst)-before, 0)
		i += size
	}
	return dst, len(src)
}

// trace appends n origins from i on, with the given step.
func trace(at *[]int32, i, n, step int) {
	if at == nil {
		return
	}
	for k := range n {
		*at = append(*at, int32(i+k*step))
	}
}

// unit decodes the escape at the beginning of src; size 0 means that more is to
// come.
func unit(dst, src []byte) (out []byte, size int) {
	if len(src) < 2 {
		return dst, 0
	}
	switch c := src[1]; c {
	case 'n':
		return append(dst, '\n'), 2
	case 't':
		return append(dst, '\t'), 2
	case 'r':
		return append(dst, '\r'), 2
	case 'b':
		return append(dst, '\b'), 2
	case 'f':
		return append(dst, '\f'), 2
	case '\n':
		return append(dst, '\\', '\n'), 2
	case 'u':
		return unicodeUnit(dst, src)
	case 'x':
		v, digits := number(src[2:], 2, 16)
		if digits == 2 {
			return append(dst, byte(v)), 4
		}
		if len(src) == 2+digits {
			return dst, 0
		}
		return append(dst, c), 2
	case '0', '1', '2', '3':
		v, digits := number(src[1:], 3, 8)
		if digits == 3 {
			return append(dst, byte(v)), 4
		}
		if len(src) == 1+digits {
			return dst, 0
		}
		return append(dst, c), 2
	default:
		return append(dst, c), 2
	}
}

// unicodeUnit decodes "\uXXXX", or two of them that make up one character.
func unicodeUnit(dst, src []byte) (out []byte, size int) {
	v, digits := number(src[2:], 4, 16)
	if digits < 4 {
		if len(src) == 2+digits {
			return dst, 0
		}
		return append(dst, 'u'), 2
	}
	if !utf16.IsSurrogate(rune(v)) {
		return utf8.AppendRune(dst, rune(v)), 6
	}
	rest := src[6:]
	if len(rest) == 0 || len(rest) == 1 && rest[0] == '\\' {
		return dst, 0
	}
	if rest[0] == '\\' && rest[1] == 'u' {
		low, digits := number(rest[2:], 4, 16)
		if digits < 4 && len(rest) == 2+digits {
			return dst, 0
		}
		if r := utf16.DecodeRune(rune(v), rune(low)); digits == 4 && r != utf8.RuneError {
			return utf8.AppendRune(dst, r), 12
		}
	}
	return utf8.AppendRune(dst, utf8.RuneError), 6
}

// number reads up to max digits.
func number(src []byte, max, base int) (v, digits int) {
	for digits < max && digits < len(src) {
		d := int(hexClass[src[digits]])
		if d >= base {
			break
		}
		v = v*base + d
		digits++
	}
	return v, digits
}

// unpercent undoes one level of percent signs.
func unpercent(dst, src []byte, at *[]int32) ([]byte, int) {
	for i := 0; i < len(src); {
		n := bytes.IndexByte(src[i:], '%')
		if n < 0 {
			n = len(src) - i
		}
		if n > 0 {
			dst = append(dst, src[i:i+n]...)
			trace(at, i, n, 1)
			i += n
			continue
		}
		v, digits := number(src[i+1:], 2, 16)
		switch {
		case digits == 2:
			dst = append(dst, byte(v))
			trace(at, i, 1, 0)
			i += 3
		case i+1+digits == len(src):
			dst = append(dst, src[i:]...)
			trace(at, i, len(src)-i, 1)
			return dst, i
		default:
			dst = append(dst, '%')
			trace(at, i, 1, 0)
			i++
		}
	}
	return dst, len(src)
}

// hasPercent tells whether there is anything to decode, or, with partial,
// anything that could become so.
func hasPercent(src []byte, partial bool) bool {
	for i := 0; i < len(src); i++ {
		n := bytes.IndexByte(src[i:], '%')
		if n < 0 {
			return false
		}
		i += n
		if _, digits := number(src[i+1:], 2, 16); digits == 2 || partial && i+1+digits == len(src) {
			return true
		}
	}
	return false
}
