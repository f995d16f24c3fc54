package sandbox

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxHeldSequence bounds a terminal sequence that is looked at as a whole.
// Colours are shorter; a longer one is printed as text.
const maxHeldSequence = 32

// LogWriter makes what a command prints safe for a CI log and a terminal.
//
// CI services obey lines of their log: GitHub reads "::" at the beginning of a
// line (after blanks) and "##[" anywhere in it, Azure "##vso[", TeamCity
// "##teamcity[", GitLab a section header that needs an escape character.
// Terminals obey control characters. So, on whatever chunks it is written:
//
//   - a blank comes between the two colons and before the bracket of such words;
//   - a carriage return ends the line, since services read it so;
//   - colours and "erase to end of line" are dropped, every other control,
//     format or bidirectional character is replaced by a visible one.
//
// Text without those passes unchanged. Flush must be called at the end. It is
// not safe for concurrent use.
type LogWriter struct {
	w      io.Writer
	rune   []byte // the beginning of a rune
	seq    []byte // a terminal sequence without its ESC
	inSeq  bool
	start  bool // only blanks since the line began
	colon  bool // the last character was a colon at the start
	hashes int  // '#' in a row, kept while letters follow
	word   bool // letters since the hashes
	cr     bool // the last character was a carriage return
	out    []byte
}

// NewLogWriter returns a LogWriter in front of w.
func NewLogWriter(w io.Writer) *LogWriter {
	return &LogWriter{w: w, start: true}
}

// Write filters b and passes it on in one Write.
func (l *LogWriter) Write(b []byte) (int, error) {
	l.out = l.out[:0]
	for i := 0; i < len(b); {
		c := b[i]
		if len(l.rune) == 0 && c < utf8.RuneSelf {
			l.char(rune(c))
			i++
			continue
		}
		l.rune = append(l.rune, c)
		i++
		l.runes(false)
	}
	if len(l.out) > 0 {
		if _, err := l.w.Write(l.out); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// Flush passes on what is held back: half a rune, half a terminal sequence.
func (l *LogWriter) Flush() error {
	l.out = l.out[:0]
	l.runes(true)
	if l.inSeq {
		l.abandon()
	}
	if len(l.out) == 0 {
		return nil
	}
	_, err := l.w.Write(l.out)
	return err
}

// runes takes the complete runes off l.rune; with all, also a broken rest.
func (l *LogWriter) runes(all bool) {
	for len(l.rune) > 0 && (all || utf8.FullRune(l.rune)) {
		r, n := utf8.DecodeRune(l.rune)
		l.char(r) // RuneError for a broken byte
		l.rune = l.rune[:copy(l.rune, l.rune[n:])]
	}
}

// char takes one character through the terminal sequences.
func (l *LogWriter) char(r rune) {
	if !l.inSeq {
		if r == 0x1b {
			l.inSeq, l.seq = true, l.seq[:0]
			return
		}
		l.plain(r)
		return
	}
	switch {
	case len(l.seq) == 0 && r == '[', // control sequence introducer
		len(l.seq) > 0 && len(l.seq) < maxHeldSequence && r >= 0x20 && r <= 0x3f: // parameters
		l.seq = append(l.seq, byte(r))
	case len(l.seq) > 0 && (r == 'm' || r == 'K'): // colour, erase to end of line
		l.inSeq = false
	default:
		l.abandon()
		l.char(r)
	}
}

// abandon prints a sequence that is none of the harmless ones as text.
func (l *LogWriter) abandon() {
	l.inSeq = false
	l.plain('␛')
	for _, c := range l.seq {
		l.plain(rune(c))
	}
}

// plain takes one character that a terminal would print, or not.
func (l *LogWriter) plain(r rune) {
	wasCR := l.cr
	l.cr = r == '\r'
	switch {
	case r == '\n' && wasCR:
		return // the line has ended with the carriage return
	case r == '\n' || r == '\r':
		l.out = append(l.out, '\n')
		l.start, l.colon, l.hashes, l.word = true, false, 0, false
		return
	case r == '\t':
	case r < 0x20:
		r += 0x2400 // its picture
	case r == 0x7f:
		r = '␡'
	case r == '\u2028' || r == '\u2029':
		r = ' '
	case r == '\u200c' || r == '\u200d': // joiners are part of ordinary text
	case r >= 0x80 && r < 0xa0 || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Co, r):
		r = utf8.RuneError
	}
	l.emit(r)
}

// emit writes one visible character and breaks the words that services obey.
func (l *LogWriter) emit(r rune) {
	if r == ':' && l.colon || r == '[' && l.hashes >= 2 {
		l.out = append(l.out, ' ')
	}
	l.colon = r == ':' && l.start
	switch {
	case r == '#' && !l.word:
		l.hashes++
	case r == '#':
		l.hashes, l.word = 1, false
	case l.hashes >= 2 && (unicode.IsLetter(r) || unicode.IsNumber(r) || strings.ContainsRune("-_.", r)):
		l.word = true
	default:
		l.hashes, l.word = 0, false
	}
	if !unicode.IsSpace(r) {
		l.start = false
	}
	l.out = utf8.AppendRune(l.out, r)
}
