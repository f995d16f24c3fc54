package event

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
)

// span is a piece of text to be masked; secret is the index of its name.
type span struct{ start, end, secret int }

// matcher finds all forms of a fixed set of secrets. It is immutable.
//
// There are three indexes, for text, base64 and hexadecimal, since in the
// latter two alphabet, line breaks and separators vary; they run over the text
// and over its decodings (see views). Each looks at a few bytes at a time and
// compares a whole form only where these fit, so the time is linear in the
// text unless the text repeats a long prefix of a secret.
type matcher struct {
	markers []string
	plain   plainIndex
	base64  codedIndex
	hex     codedIndex
	empty   bool
}

func (m *matcher) orNil() *matcher {
	if m.empty {
		return nil
	}
	return m
}

func newMatcher(secrets []secret) *matcher {
	m := &matcher{empty: len(secrets) == 0, base64: newBase64Index(), hex: newHexIndex()}
	for i, s := range secrets {
		for _, v := range spellings(s.value) {
			m.plain.add(v, i)
			m.hex.add(encodeHex(v, i))
			// An encoder saw the secret itself or a JSON document with it.
			for _, text := range append(escapings(v), v) {
				for offset := range 3 {
					m.base64.add(encodeBase64(text, offset, i))
				}
			}
		}
		if strings.Contains(s.value, " ") {
			m.plain.add(strings.ReplaceAll(s.value, " ", "+"), i)
		}
	}
	m.plain.build()
	m.markers = markers(secrets, m)
	return m
}

// spellings are the texts a secret may have been turned into on its way here.
func spellings(v string) []string {
	list := []string{v}
	if strings.Contains(v, "\n") {
		unix := strings.ReplaceAll(v, "\r\n", "\n")
		// A terminal writes every line feed as a carriage return and a line feed.
		list = append(list, unix, strings.ReplaceAll(unix, "\n", "\r\n"))
	}
	// Encoders put U+FFFD for each byte that is not UTF-8.
	return append(list, string([]rune(v)))
}

// escapings are the forms of v in JSON documents, without and with the
// escaping of HTML characters.
func escapings(v string) []string {
	var list []string
	for _, html := range []bool{false, true} {
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(html)
		if enc.Encode(v) != nil {
			continue // a string can always be encoded
		}
		if e := strings.TrimSuffix(buf.String(), "\n"); len(e) > 2 && e[1:len(e)-1] != v {
			list = append(list, e[1:len(e)-1])
		}
	}
	return list
}

// markers chooses what stands in place of each secret. A marker begins and ends
// with a character that no secret contains, and contains no secret: so masking
// never makes a new occurrence, and masking twice is masking once.
func markers(secrets []secret, m *matcher) []string {
	left, right := "\uE000", "\uE000"
	for _, pair := range [][2]string{{"[", "]"}, {"*", "*"}, {"<", ">"}, {"{", "}"}, {"(", ")"}, {"|", "|"}, {"█", "█"}, {"‹", "›"}} {
		if !occurs(secrets, pair[0]) && !occurs(secrets, pair[1]) {
			left, right = pair[0], pair[1]
			break
		}
	}
	var s scratch
	list := make([]string, len(secrets))
	for i, sec := range secrets {
		list[i] = left + "masked:" + cleanName(sec.name) + right
		if m.contains([]byte(list[i]), textEscapes, &s) {
			list[i] = left + "***" + right
		}
	}
	return list
}

func occurs(secrets []secret, text string) bool {
	for _, s := range secrets {
		if strings.Contains(s.value, text) {
			return true
		}
	}
	return false
}

// cleanName keeps a marker free of characters that mean something in JSON,
// Markdown, HTML or a terminal.
func cleanName(name string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-', r == '.':
			return r
		}
		return '_'
	}, name)
	return clean[:min(len(clean), 64)]
}

// replace appends text[from:to] to dst with the spans in it masked. No span may
// cross from or to.
func (m *matcher) replace(dst, text []byte, from, to int, spans []span) []byte {
	for _, s := range spans {
		if s.end <= from || s.start >= to {
			continue
		}
		dst = append(dst, text[from:s.start]...)
		dst = append(dst, m.markers[s.secret]...)
		from = s.end
	}
	return append(dst, text[from:to]...)
}

// plainIndex finds texts by the method of Wu and Manber: of a window as long as
// the shortest text the last two bytes say how far the window may move.
type plainIndex struct {
	have    map[string]bool // texts
	texts   [][]byte
	secrets []int
	window  int
	longest int
	shift   [1 << 14]uint8
	head    [1 << 14]int32 // first text whose window ends in the block, +1
	next    []int32        // the next such text, +1
	first   [256][]int32   // texts by first byte
}

func block(a, b byte) int { return (int(a)<<7 ^ int(b)) & (1<<14 - 1) }

func (x *plainIndex) add(text string, secret int) {
	if x.have[text] {
		return
	}
	if x.have == nil {
		x.have = map[string]bool{}
	}
	x.have[text] = true
	x.texts = append(x.texts, []byte(text))
	x.secrets = append(x.secrets, secret)
}

func (x *plainIndex) build() {
	x.window = math.MaxUint8
	for _, t := range x.texts {
		x.window = min(x.window, len(t))
		x.longest = max(x.longest, len(t))
	}
	for i := range x.shift {
		x.shift[i] = uint8(x.window - 1)
	}
	x.next = make([]int32, len(x.texts))
	for n, t := range x.texts {
		for i := 1; i < x.window; i++ {
			b := block(t[i-1], t[i])
			x.shift[b] = min(x.shift[b], uint8(x.window-1-i))
		}
		b := block(t[x.window-2], t[x.window-1])
		x.next[n], x.head[b] = x.head[b], int32(n)+1
		x.first[t[0]] = append(x.first[t[0]], int32(n))
	}
}

// find calls found for every occurrence, in order of start, until it returns
// false.
func (x *plainIndex) find(text []byte, found func(start, end, secret int) bool) {
	for i := x.window - 1; i < len(text); {
		b := block(text[i-1], text[i])
		if s := x.shift[b]; s > 0 {
			i += int(s)
			continue
		}
		rest := text[i-x.window+1:]
		for n := x.head[b]; n > 0; n = x.next[n-1] {
			if t := x.texts[n-1]; bytes.HasPrefix(rest, t) {
				start := i - x.window + 1
				if !found(start, start+len(t), x.secrets[n-1]) {
					return
				}
			}
		}
		i++
	}
}

// open returns the first position from which the rest of text could be the
// beginning of an occurrence, or len(text).
func (x *plainIndex) open(text []byte) int {
	for i := max(0, len(text)-x.longest+1); i < len(text); i++ {
		for _, n := range x.first[text[i]] {
			if t := x.texts[n]; len(t) > len(text)-i && bytes.HasPrefix(t, text[i:]) {
				return i
			}
		}
	}
	return len(text)
}
