package main

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/nightshift-ci/nightshift/policy"

	"github.com/nightshift-ci/nightshift/runner"
)

// FuzzDecodeText reads prompts: what comes out is valid UTF-8 and lost nothing,
// or there is an error.
func FuzzDecodeText(f *testing.F) {
	for _, s := range []string{"", "plain", "\xEF\xBB\xBFmarked", "\xFF\xFEh\x00i\x00", "\xFE\xFF\x00h\x00i", "\xFF\xFEh", "\xFF\xFE\x00\xD8", "bad \xFF byte", "\xED\xA0\x80", "é\r\n\x00", "\xFE\xFF\xD8\x3D\xDE\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		text, err := decodeText(in)
		if err != nil {
			if text != "" {
				t.Errorf("an error and a text %q", text)
			}
			return
		}
		if !utf8.ValidString(text) {
			t.Fatalf("%q is not UTF-8", text)
		}
		switch {
		case bytes.HasPrefix(in, []byte{0xFF, 0xFE}) || bytes.HasPrefix(in, []byte{0xFE, 0xFF}):
			if n := len(utf16.Encode([]rune(text))); n != (len(in)-2)/2 {
				t.Errorf("%d units became %d", (len(in)-2)/2, n)
			}
		default:
			if want := strings.TrimPrefix(string(in), "\uFEFF"); text != want {
				t.Errorf("%q became %q", in, text)
			}
		}
	})
}

// commandLines are odd command lines, words separated by NUL.
var commandLines = []string{
	"exec\x00do it", "-m\x00x\x00exec\x00-", "e\x00--json\x00resume\x00--last\x00go", "exec\x00resume\x00id\x00-i\x00a.png\x00b.png", "exec\x00--\x00--json",
	"exec\x00-c", "--config=a=b\x00exec\x00-ca=b\x00x", "review\x00--base=main", "exec\x00help", "help\x00exec", "--yolo\x00exec\x00x", "exec\x00--sandbox=\x00x", "exec\x00\x00",
	"-", "--", "exec\x00-iimg\x00p", "exec\x00-m=a\x00--model\x00b", "batch\x00--json", "-V", "exec\x00-h", "exec\x00--max-cost\x00NaN\x00x", "exec\x00--max-wall-time\x0015\x00x",
}

// FuzzWords reads command lines: no word is lost or made up, and what is
// normalised stays as it is when normalised again.
func FuzzWords(f *testing.F) {
	for _, s := range commandLines {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, "\x00")
		words, err := normalize(args)
		if err != nil {
			if !isUsage(err) {
				t.Errorf("%q: not a usage error: %v", args, err)
			}
			return
		}
		if again, err := normalize(words); err != nil || !slices.Equal(again, words) {
			t.Errorf("%q became %q and then %q (%v)", args, words, again, err)
		}
		for _, w := range positionals(words) {
			if !slices.Contains(args, w) {
				t.Errorf("%q became %q: nobody said %q", args, words, w)
			}
		}
	})
}

// TestWords: the grammar reads a command line, or says what is wrong with it.
func TestWords(t *testing.T) {
	for _, line := range commandLines {
		args := strings.Split(line, "\x00")
		rt := &runtime{ctx: t.Context(), stdout: io.Discard, stderr: io.Discard, cwd: "/", self: "nightshift"}
		if _, err := parse(rt, args); err != nil && !isUsage(err) {
			t.Errorf("%q: not a usage error: %v", args, err)
		}
	}
}

func positionals(words []string) []string {
	if i := slices.Index(words, "--"); i >= 0 {
		return words[i+1:]
	}
	return nil
}

// FuzzOverride reads values of -c: each is one key and one value, or an error.
func FuzzOverride(f *testing.F) {
	for _, s := range []string{"a=b", "a.b.c=1", "=", "a", "a==b", `a."b.c"=[1,2]`, "a=\"", "a={x=1}", "a=\n", ".=1", "a..b=1", "a=1979-05-27", "features.x=true", `projects."/a b".trust_level="trusted"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := policy.ParseOverride(text)
		if err == nil && (o.Key == "" || !strings.Contains(text, "=")) {
			t.Errorf("%q became %+v", text, o)
		}
	})
}

// isUsage tells whether err is the user's typing.
func isUsage(err error) bool {
	var e exitError
	return errors.As(err, &e) && e.code == runner.ExitUsage
}
