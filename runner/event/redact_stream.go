package event

import (
	"bytes"
	"io"
)

// RedactWriter masks a stream. A secret is found wherever it is cut by the
// borders of writes; what comes out is what [Redactor.Mask] makes of the whole.
//
// Only text that could be the beginning of a secret is held back, at most the
// length of its longest form, until more comes or Flush is called. A
// RedactWriter is for one goroutine.
type RedactWriter struct {
	r    *Redactor
	to   io.Writer
	buf  []byte // text since the last place where decoding can begin
	done int    // bytes of buf that were written
	out  []byte
	s    scratch
}

// Writer returns a writer that masks and passes on to w. Secrets that are added
// later count from the next write on.
func (r *Redactor) Writer(w io.Writer) *RedactWriter { return &RedactWriter{r: r, to: w} }

// Write masks p. All of p is taken unless the writer behind fails.
func (w *RedactWriter) Write(p []byte) (int, error) {
	m := w.r.matcher()
	if m == nil && len(w.buf) == 0 {
		return w.to.Write(p)
	}
	w.buf = append(w.buf, p...)
	if err := w.advance(m, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush passes on what was held back. It ends the text: a secret that goes on
// in the next write is not found.
func (w *RedactWriter) Flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	err := w.advance(w.r.matcher(), true)
	w.buf, w.done = w.buf[:0], 0
	return err
}

// Close flushes. It does not close the writer behind.
func (w *RedactWriter) Close() error { return w.Flush() }

// edgeBytes is how far an occurrence at the end of the text may still grow: a
// digit that is decided in part and two "=", each escaped up to twice.
const edgeBytes = 48

// advance writes what is certain.
func (w *RedactWriter) advance(m *matcher, last bool) error {
	end := len(w.buf)
	var spans []span
	if m != nil {
		if !last {
			end = m.open(w.buf, &w.s)
		}
		spans = m.find(w.buf, textEscapes, &w.s)
	}
	for i := len(spans) - 1; i >= 0 && !last; i-- {
		if s := spans[i]; s.end > end || s.end+edgeBytes > len(w.buf) {
			end = min(end, s.start)
		}
	}
	// A secret added since then may begin in what has been written, and with it
	// in the middle: what is left of it is masked.
	end = max(end, w.done)
	for i := range spans {
		spans[i].start = max(spans[i].start, w.done)
		spans[i].end = max(spans[i].end, w.done)
	}
	if m != nil {
		w.out = m.replace(w.out[:0], w.buf, w.done, end, spans)
	} else {
		w.out = append(w.out[:0], w.buf[w.done:end]...)
	}
	w.done = end
	w.forget()
	if len(w.out) == 0 {
		return nil
	}
	_, err := w.to.Write(w.out)
	return err
}

// keepBytes is how much of a long line may be decoded again with each write.
const keepBytes = 4 << 10

// forget drops written text up to a place that is not the middle of a unit of any
// decoding: after a line feed, or, in a long line, as computed.
func (w *RedactWriter) forget() {
	at := bytes.LastIndexByte(w.buf[:w.done], '\n') + 1
	if w.done-at > keepBytes {
		at = w.boundary(at)
	}
	if at > 0 {
		w.buf = append(w.buf[:0], w.buf[at:]...)
		w.done -= at
	}
}

// boundary returns the last index between from and w.done where a unit of
// every decoding begins.
func (w *RedactWriter) boundary(from int) int {
	text := w.buf[from:]
	v := &view{text: text}
	for range textEscapes {
		if bytes.IndexByte(v.text, '\\') < 0 {
			break
		}
		out, _ := unescape(nil, v.text, nil)
		v = &view{parent: v, decode: unescape, text: out}
	}
	for _, inside := range []func([]byte, int) bool{nearPercent, insidePercent} {
		for i := len(v.text); i > 0; i-- {
			at, _ := v.origin(i, i)
			if at <= w.done-from && !inside(text, at) {
				return from + at
			}
		}
	}
	return from
}

// nearPercent tells whether a unit that begins with an encoded backslash could
// go beyond at.
func nearPercent(text []byte, at int) bool {
	return bytes.IndexByte(text[max(0, at-32):at], '%') >= 0
}

// insidePercent tells whether at is the middle of "%XX" or "%25XX".
func insidePercent(text []byte, at int) bool {
	for i := max(0, at-4); i < at; i++ {
		if text[i] != '%' {
			continue
		}
		v, digits := number(text[i+1:], 2, 16)
		size := 1 + digits
		if digits == 2 && v == '%' {
			_, more := number(text[i+3:], 2, 16)
			size += more
		}
		if at < i+size {
			return true
		}
	}
	return false
}
