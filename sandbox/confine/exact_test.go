package confine

import (
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestMarshalIsExact(t *testing.T) {
	type inner struct {
		Name string
		Env  []string
	}
	type message struct {
		Text  string
		List  []string
		Inner []inner
		Next  *inner
		Table map[string]inner
		Pair  [2]string
		Nil   []string
		N     int
	}
	for _, s := range []string{"", "plain", "caf\xe9", "日本", "\xff\xfe", mark, mark + "41", "a" + mark, "\xf4\x8f\xbf", "<&>\u2028\x00\x1b", "\ufffd", mark[:3] + mark} {
		in := message{Text: s, List: []string{"x", s}, Inner: []inner{{s, []string{s}}}, Next: &inner{Name: s}, Table: map[string]inner{"k": {Name: s}}, Pair: [2]string{s, "y"}, N: 3}
		b, err := Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out message
		if err := Unmarshal(b, &out); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(in, out) {
			t.Errorf("%q became %q", in.Text, out.Text)
		}
		if in.List[1] != s || in.Next.Name != s {
			t.Errorf("%q: the value itself was changed", s)
		}
	}
}

func FuzzMarks(f *testing.F) {
	f.Add("caf\xe9" + mark + "zz")
	f.Fuzz(func(t *testing.T, s string) {
		text := toMarks(s)
		if !utf8.ValidString(text) {
			t.Errorf("%q is no text", text)
		}
		if got := fromMarks(text); got != s {
			t.Errorf("%q became %q", s, got)
		}
		if utf8.ValidString(s) && !strings.Contains(s, mark) && text != s {
			t.Errorf("%q was changed", s)
		}
	})
}
