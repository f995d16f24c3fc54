package event

import (
	"encoding/base64"
	"encoding/hex"
)

// coded is a secret in the digits of an alphabet: those that the secret decides
// alone.
type coded struct {
	digits []byte
	secret int
	// The digit after them may be decided in part. (So may the one before; its
	// two or four bits are left in the text, since a stream would have to hold
	// back every digit for them.)
	after partial
}

// partial is a digit of which the bits in mask are known.
type partial struct{ mask, value byte }

func (p partial) fits(class byte) bool {
	return p.mask != 0 && class < notDigit && class&p.mask == p.value
}

// encodeBase64 returns the digits of text where offset bytes (0, 1 or 2) stand
// before it in its group of three.
func encodeBase64(text string, offset, secret int) coded {
	padded := append(make([]byte, offset, offset+len(text)+2), text...)
	bits := len(padded) * 8
	padded = append(padded, 0, 0)
	encoded := base64.RawStdEncoding.EncodeToString(padded[:len(padded)-len(padded)%3])
	digit := func(i int) byte { return base64Class[encoded[i]] }
	c := coded{secret: secret}
	from, to := (offset*8+5)/6, bits/6
	for i := from; i < to; i++ {
		c.digits = append(c.digits, digit(i))
	}
	if known := bits - to*6; known > 0 {
		mask := byte(0x3f) << (6 - known) & 0x3f
		c.after = partial{mask, digit(to) & mask}
	}
	return c
}

// encodeHex returns the digits of text.
func encodeHex(text string, secret int) coded {
	c := coded{secret: secret}
	for _, d := range []byte(hex.EncodeToString([]byte(text))) {
		c.digits = append(c.digits, hexClass[d])
	}
	return c
}

// Classes of bytes that are not digits: those that may stand between digits, and
// all others.
const (
	notDigit  = 64 // and greater
	lineBreak = 64
	blank     = 65
	separator = 66
	other     = 255
)

// The classes of all bytes in both alphabets; base64 in its standard and its
// URL form at once.
var (
	base64Class = classes("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", "", "-\x3e_\x3f")
	hexClass    = classes("0123456789abcdef", ":-,", "A\x0aB\x0bC\x0cD\x0dE\x0eF\x0f")
)

func classes(digits, separators, also string) (table [256]byte) {
	for i := range table {
		table[i] = other
	}
	for i := range len(separators) {
		table[separators[i]] = separator
	}
	table['\n'], table['\r'], table[' '], table['\t'] = lineBreak, lineBreak, blank, blank
	for i := range len(digits) {
		table[digits[i]] = byte(i)
	}
	for i := 0; i < len(also); i += 2 {
		table[also[i]] = also[i+1]
	}
	return table
}

// codedIndex finds secrets in an alphabet whose digits may stand in groups.
type codedIndex struct {
	class *[256]byte
	// gap returns the index of the digit that follows the gap at text[i:],
	// len(text) if the text may go on with it, or -1 if it is not a legal gap.
	gap      func(text []byte, i int) int
	bits     uint // of a digit
	anchor   int  // first digits that are looked up together
	codes    []coded
	have     map[string]bool // digits of codes
	longest  int             // digits of the longest code
	shortest int
	seen     []uint64           // set of anchors
	starts   map[uint32][]int32 // anchor to codes
	first    [64][]int32        // first digit to codes
}

func newBase64Index() codedIndex {
	return codedIndex{class: &base64Class, gap: base64Gap, bits: 6, anchor: 3, seen: make([]uint64, 1<<18/64), starts: map[uint32][]int32{}, have: map[string]bool{}}
}

func newHexIndex() codedIndex {
	return codedIndex{class: &hexClass, gap: hexGap, bits: 4, anchor: 4, seen: make([]uint64, 1<<16/64), starts: map[uint32][]int32{}, have: map[string]bool{}}
}

// maxIndent bounds the blanks at the start of a line of base64.
const maxIndent = 64

// base64Gap: line breaks, then an indentation.
func base64Gap(text []byte, i int) int {
	for j := i; j < len(text) && j <= i+maxIndent; j++ {
		switch c := base64Class[text[j]]; {
		case c < notDigit:
			return j
		case c == other, c == blank && j == i:
			return -1
		}
	}
	if len(text) <= i+maxIndent {
		return len(text)
	}
	return -1
}

// hexGap: up to two separators, blanks or line breaks.
func hexGap(text []byte, i int) int {
	for j := i; j < len(text) && j <= i+2; j++ {
		switch c := hexClass[text[j]]; {
		case c < notDigit:
			return j
		case c == other:
			return -1
		}
	}
	if len(text) <= i+2 {
		return len(text)
	}
	return -1
}

func (x *codedIndex) add(c coded) {
	if len(c.digits) < x.anchor || x.have[string(c.digits)] {
		return
	}
	x.have[string(c.digits)] = true
	n := int32(len(x.codes))
	x.codes = append(x.codes, c)
	x.longest = max(x.longest, len(c.digits))
	if x.shortest = min(x.shortest, len(c.digits)); n == 0 {
		x.shortest = len(c.digits)
	}
	var key uint32
	for _, d := range c.digits[:x.anchor] {
		key = key<<x.bits | uint32(d)
	}
	x.seen[key/64] |= 1 << (key % 64)
	x.starts[key] = append(x.starts[key], n)
	x.first[c.digits[0]] = append(x.first[c.digits[0]], n)
}

// find calls found for every occurrence, in order of start, until it returns
// false.
func (x *codedIndex) find(text []byte, found func(start, end, secret int) bool) {
	for i := 0; i+x.shortest <= len(text); {
		// Ordinary text has few runs as long as the shortest code: look for what
		// breaks one from its far end.
		k := i + x.shortest - 1
		for k >= i && !x.breaks(text, k) {
			k--
		}
		if k >= i {
			i = k + 1
			continue
		}
		if i = x.run(text, i, found); i < 0 {
			return
		}
	}
}

// breaks tells whether no code can go across the byte at i.
func (x *codedIndex) breaks(text []byte, i int) bool {
	c := x.class[text[i]]
	if c < notDigit {
		return false
	}
	// A blank within a line ends base64.
	return c == other || c == blank && x.bits == 6 && (i == 0 || x.class[text[i-1]] < notDigit || x.class[text[i-1]] == other)
}

// run searches the run of digits and gaps at i and returns its end, or -1 to
// stop.
func (x *codedIndex) run(text []byte, i int, found func(start, end, secret int) bool) int {
	class, seen, bits := x.class, x.seen, x.bits
	mask := uint32(1)<<(x.bits*uint(x.anchor)) - 1
	var key uint32
	digits := 0
	for ; i < len(text) && !x.breaks(text, i); i++ {
		c := class[text[i]]
		if c >= notDigit {
			continue // gaps are judged where digits fit
		}
		key = (key<<bits | uint32(c)) & mask
		if digits++; digits < x.anchor || seen[key/64]>>(key%64)&1 == 0 {
			continue
		}
		start := x.back(text, i)
		for _, n := range x.starts[key] {
			code := &x.codes[n]
			count, end := x.walk(text, start, code.digits)
			if count == len(code.digits) && !found(start, x.edge(text, end, code), code.secret) {
				return -1
			}
		}
	}
	return i
}

// back returns the index of the first digit of the anchor that ends at i.
func (x *codedIndex) back(text []byte, i int) int {
	for left := x.anchor - 1; left > 0; {
		i--
		if x.class[text[i]] < notDigit {
			left--
		}
	}
	return i
}

// walk compares digits with the text from i, where a digit stands: how many
// fit, and where the last of them ends. The end is len(text) if the text ends
// before the digits do, in a gap or not.
func (x *codedIndex) walk(text []byte, i int, digits []byte) (count, end int) {
	for count < len(digits) {
		if i == len(text) {
			return count, i
		}
		c := x.class[text[i]]
		if c >= notDigit {
			if i = x.gap(text, i); i < 0 {
				return count, 0
			}
			continue
		}
		if c != digits[count] {
			return count, 0
		}
		count++
		i++
	}
	return count, i
}

// edge widens an occurrence to a digit that is decided in part, and to padding.
func (x *codedIndex) edge(text []byte, end int, c *coded) int {
	if end < len(text) && c.after.fits(x.class[text[end]]) {
		end++
	}
	for n := 0; x.bits == 6 && n < 2 && end < len(text) && text[end] == '='; n++ {
		end++
	}
	return end
}

// open returns the first position from which the rest of text could be the
// beginning of an occurrence, or len(text).
func (x *codedIndex) open(text []byte) int {
	first := len(text)
	for i, digits := len(text)-1, 0; i >= 0 && digits < x.longest; i-- {
		c := x.class[text[i]]
		if c == other {
			break
		}
		if c >= notDigit {
			continue
		}
		digits++
		for _, n := range x.first[c] {
			code := &x.codes[n]
			if count, end := x.walk(text, i, code.digits); count < len(code.digits) && end == len(text) {
				first = i
				break
			}
		}
	}
	return first
}
