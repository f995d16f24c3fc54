package sandbox

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func filtered(t testing.TB, chunks ...string) string {
	t.Helper()
	var out bytes.Buffer
	l := NewLogWriter(&out)
	for _, c := range chunks {
		if n, err := l.Write([]byte(c)); err != nil || n != len(c) {
			t.Fatalf("write: %d %v", n, err)
		}
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestLogWriter(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain text\nsecond\n", "plain text\nsecond\n"},
		{"tab\there", "tab\there"},
		{"ümläut 日本語 🙂 👨\u200d👩", "ümläut 日本語 🙂 👨\u200d👩"},
		{"::set-output name=a::b\n", ": :set-output name=a::b\n"},
		{"  \t::warning::x", "  \t: :warning::x"},
		{"std::vector a::b", "std::vector a::b"},
		{"a ::b", "a ::b"},
		{":::x", ": ::x"},
		{"\r::stop-commands::t\n", "\n: :stop-commands::t\n"},
		{"50%\r100%\r\ndone\r\n", "50%\n100%\ndone\n"},
		{"##[add-path]/x", "## [add-path]/x"},
		{"text ##[group]x", "text ## [group]x"},
		{"##vso[task.setvariable]", "##vso [task.setvariable]"},
		{"x##teamcity[y]", "x##teamcity [y]"},
		{"###[x", "### [x"},
		{"## Heading [link](x)", "## Heading [link](x)"},
		{"a[1] #[x", "a[1] #[x"},
		{"##", "##"},
		{"\x1b[31mred\x1b[0m\x1b[K", "red"},
		{"\x1b[38;5;196mred\x1b[m", "red"},
		{":\x1b[0m:set-output", ": :set-output"},
		{"##\x1b[1m[x", "## [x"},
		{"\x1b[2J\x1b[H", "␛[2J␛[H"},
		{"\x1b]52;c;eA==\x07", "␛]52;c;eA==␇"},
		{"\x1b]0;title\x1b\\", "␛]0;title␛\\"},
		{"\x1b", "␛"},
		{"\x1b[31", "␛[31"},
		{"\x1b\x1b[31mx", "␛x"},
		{"bell\x07 back\x08 del\x7f null\x00", "bell␇ back␈ del␡ null␀"},
		{"csi \u009b31m \u0085 x", "csi \ufffd31m \ufffd x"},
		{"bidi \u202eevil\u2066 \u200fx", "bidi \ufffdevil\ufffd \ufffdx"},
		{"soft\u00adhyphen \ufeffbom \u200bzero", "soft\ufffdhyphen \ufffdbom \ufffdzero"},
		{"bad \xff\xfe utf8 \xe6\x97", "bad \ufffd\ufffd utf8 \ufffd\ufffd"},
		{"sep\u2028\u2029x", "sep  x"},
		{"\u2028::set-env", " : :set-env"},
		{"\u00a0::set-env", "\u00a0: :set-env"},
		{"\u3000\u2003::x", "\u3000\u2003: :x"},
		{"\v::x\f", "␋::x␌"},
		{"section_start:1:x\r\x1b[0Kheader", "section_start:1:x\nheader"},
		{"\U000e0041tag", "\ufffdtag"},
	} {
		if got := filtered(t, c.in); got != c.want {
			t.Errorf("%q\n got %q\nwant %q", c.in, got, c.want)
		}
		// At every chunk border, and byte by byte.
		for i := range c.in {
			if got := filtered(t, c.in[:i], c.in[i:]); got != c.want {
				t.Errorf("%q cut at %d: %q", c.in, i, got)
			}
		}
		if got := filtered(t, strings.Split(c.in, "")...); got != c.want {
			t.Errorf("%q byte by byte: %q", c.in, got)
		}
	}
}

// obeyed is what services and terminals act on.
var obeyed = regexp.MustCompile(`(?m)^[\s\p{Z}]*::|##[\pL\pN_.\-]*\[`)

func FuzzLogWriter(f *testing.F) {
	for _, s := range []string{"::a", "##[x", "\x1b[31m::x", "a\r::b", "\xe6::", "##vso[", "\u2028::", ":\x1b[K:x", "##\u200b[", "\x1b[" + strings.Repeat("1;", 40) + "m::x"} {
		f.Add([]byte(s), 1)
	}
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		whole := filtered(t, string(in))
		if m := obeyed.FindString(whole); m != "" {
			t.Fatalf("%q became %q, which holds %q", in, whole, m)
		}
		if !utf8.ValidString(whole) {
			t.Fatalf("%q became the broken %q", in, whole)
		}
		for _, r := range whole {
			if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) && r != '\u200c' && r != '\u200d' || r == '\u2028') {
				t.Fatalf("%q became %q, which holds %U", in, whole, r)
			}
		}
		if cut < 0 {
			cut = -(cut + 1)
		}
		if len(in) > 0 {
			cut %= len(in)
			if parts := filtered(t, string(in[:cut]), string(in[cut:])); parts != whole {
				t.Fatalf("%q cut at %d: %q, whole %q", in, cut, parts, whole)
			}
		}
		// What is safe already passes unchanged.
		if again := filtered(t, whole); again != whole {
			t.Fatalf("%q again: %q", whole, again)
		}
	})
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestLogWriterReportsErrors(t *testing.T) {
	l := NewLogWriter(brokenWriter{})
	if _, err := l.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	if _, err := l.Write([]byte("\x1b")); err != nil {
		t.Error(err) // nothing to pass on yet
	}
	if err := l.Flush(); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}
