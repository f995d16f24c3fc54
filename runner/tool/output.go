package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// itemBytes bounds the output held of one command: its first and its last
	// half.
	itemBytes = 1 << 20
	// tokenBytes is how many bytes count as one token.
	tokenBytes = 4
	// maxTokens is the most a model sees of one answer unless configured.
	maxTokens = 10_000
)

// output keeps the first and the last part of a stream of any length.
type output struct {
	half    int
	head    []byte
	tail    []byte // a ring once it is full
	at      int    // where the ring begins
	omitted int64
	total   int64
}

func newOutput(limit int) *output { return &output{half: limit / 2} }

func (o *output) write(b []byte) {
	o.total += int64(len(b))
	if n := min(o.half-len(o.head), len(b)); n > 0 {
		o.head = append(o.head, b[:n]...)
		b = b[n:]
	}
	if len(b) > o.half {
		o.omitted += int64(len(b) - o.half)
		b = b[len(b)-o.half:]
	}
	if n := min(o.half-len(o.tail), len(b)); n > 0 {
		o.tail = append(o.tail, b[:n]...)
		b = b[n:]
	}
	for len(b) > 0 {
		n := copy(o.tail[o.at:], b)
		o.omitted += int64(n)
		o.at = (o.at + n) % len(o.tail)
		b = b[n:]
	}
}

// parts returns what is kept before and after the gap, cut at whole characters,
// and the size of the gap. Without a gap everything is in head.
func (o *output) parts() (head, tail []byte, omitted int64) {
	tail = append(append(make([]byte, 0, len(o.tail)), o.tail[o.at:]...), o.tail[:o.at]...)
	if o.omitted == 0 {
		return append(append(make([]byte, 0, len(o.head)+len(tail)), o.head...), tail...), nil, 0
	}
	keep := len(o.head) - cutRune(o.head)
	skip := leadingRest(tail)
	return o.head[:keep], tail[skip:], o.omitted + int64(len(o.head)-keep+skip)
}

// cutRune is the number of bytes at the end of b that begin a character and do
// not finish it.
func cutRune(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		c := b[len(b)-n]
		if !utf8.RuneStart(c) {
			continue
		}
		if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-n:]) {
			return n
		}
		return 0
	}
	return 0
}

// leadingRest is the number of bytes at the start of b that finish a character
// begun before.
func leadingRest(b []byte) int {
	n := 0
	for n < len(b) && n < utf8.UTFMax-1 && !utf8.RuneStart(b[n]) {
		n++
	}
	return n
}

// text is the whole as valid UTF-8, with a line that counts what is missing.
func (o *output) text() string {
	head, tail, omitted := o.parts()
	if omitted == 0 {
		return lossy(head)
	}
	return fmt.Sprintf("%s\n... %d bytes omitted ...\n%s", lossy(head), omitted, lossy(tail))
}

// lossy replaces what is not UTF-8 by U+FFFD, one for each longest run that
// could have begun a character.
func lossy(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	out.Grow(len(b))
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = brokenRun(b)
			out.WriteRune(utf8.RuneError)
		} else {
			out.Write(b[:n])
		}
		b = b[n:]
	}
	return out.String()
}

// brokenRun is the length of the longest start of a character at the start of
// b, at least 1. The byte after a first byte has a narrower range for some.
func brokenRun(b []byte) int {
	lo, hi, want := byte(0x80), byte(0xBF), 0
	switch c := b[0]; {
	case c >= 0xC2 && c <= 0xDF:
		want = 1
	case c >= 0xE0 && c <= 0xEF:
		want = 2
		if c == 0xE0 {
			lo = 0xA0
		} else if c == 0xED {
			hi = 0x9F
		}
	case c >= 0xF0 && c <= 0xF4:
		want = 3
		if c == 0xF0 {
			lo = 0x90
		} else if c == 0xF4 {
			hi = 0x8F
		}
	}
	n := 1
	for ; n <= want && n < len(b); n++ {
		if b[n] < lo || b[n] > hi {
			break
		}
		lo, hi = 0x80, 0xBF
	}
	return n
}

// tokens estimates the tokens of n bytes.
func tokens(n int64) int64 { return (n + tokenBytes - 1) / tokenBytes }

// shorten fits a command's output into limit tokens: the first and the last
// half of the budget, with a line on what is missing.
func (o *output) shorten(limit int, clean func(string) string) string {
	head, tail, omitted := o.parts()
	budget := int64(limit) * tokenBytes
	all := clean(lossy(head))
	if omitted == 0 && int64(len(all)) <= budget {
		return all
	}
	second := fmt.Sprintf("Total output lines: %d", lineCount(all))
	end, total := all, int64(len(all))
	if omitted > 0 {
		second = fmt.Sprintf("... %d bytes omitted ...", omitted)
		end, total = clean(lossy(tail)), o.total
	}
	first := firstBytes(all, int(budget/2))
	last := lastBytes(end, int(budget-budget/2))
	return fmt.Sprintf("Warning: truncated output (original token count: %d)\n%s\n\n%s…%d tokens truncated…%s",
		tokens(total), second, first, tokens(total-budget), last)
}

func lineCount(s string) int {
	if s == "" {
		return 0
	}
	return strings.Count(strings.TrimSuffix(s, "\n"), "\n") + 1
}

// firstBytes is the longest start of s of at most n bytes that ends at a whole
// character.
func firstBytes(s string, n int) string {
	if n >= len(s) {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// lastBytes is the longest end of s of at most n bytes that starts at a whole
// character.
func lastBytes(s string, n int) string {
	if n >= len(s) {
		return s
	}
	at := len(s) - n
	for at < len(s) && !utf8.RuneStart(s[at]) {
		at++
	}
	return s[at:]
}

// quoted is a text as a JSON string.
func quoted(text string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(text); err != nil {
		panic(err) // a string always encodes
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
