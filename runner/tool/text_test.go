package tool

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestDisplayWord(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"pwd": "pwd", "a=b": "'a=b'", "it's": `"it's"`, `a\b`: `"a\\b"`, "a'$b": `"a'"'$b'`, "a^b": "a'^b'",
		"": "''", "^a": "'^a'", "a b": "'a b'", "A-Z/+.:@]_09": "A-Z/+.:@]_09", "[": "'['", `"`: `'"'`, `'"`: `"'\""`, `'`: `"'"`, `\`: `"\\"`,
		"$'": `'$'"'"`, "'$": `"'"'$'`, "a!b'c": `'a!b'"'c"`, "größe": "'größe'", "a\nb": "'a\nb'", "`x`": "'`x`'",
		"echo counting; echo 'no scale' >&2; exit 3": `"echo counting; echo 'no scale' >&2; exit 3"`,
		"cat prices.txt":              "'cat prices.txt'",
		"sleep 1; echo hi > note.txt": "'sleep 1; echo hi > note.txt'",
	} {
		if got := displayWord(in); got != want {
			t.Errorf("%q is shown as %s, want %s", in, got, want)
		}
	}
	if got := displayCommand([]string{"/bin/bash", "-lc", "pwd"}); got != "/bin/bash -lc pwd" {
		t.Error(got)
	}
}

// FuzzDisplayWord undoes the quoting as a shell would.
func FuzzDisplayWord(f *testing.F) {
	for _, s := range []string{"pwd", "it's", `a\b"$x`, "^^", "a'^`b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if got := unquote(displayWord(in)); got != in {
			t.Errorf("%q is shown as %s, which reads %q", in, displayWord(in), got)
		}
	})
}

func unquote(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\'':
			end := strings.IndexByte(s[i+1:], '\'')
			b.WriteString(s[i+1 : i+1+end])
			i += end + 1
		case '"':
			for i++; s[i] != '"'; i++ {
				if s[i] == '\\' {
					i++
				}
				b.WriteByte(s[i])
			}
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

func TestStartFailure(t *testing.T) {
	t.Parallel()
	want := `exec_command failed: CreateProcess { message: "Rejected(\"Failed to create unified exec process: No such file or directory (os error 2)\")" }`
	if got := startFailure("Failed to create unified exec process: No such file or directory (os error 2)"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got, want := debugString("a\"b\\c\n\t\r\x00\x1bü'"), `"a\"b\\c\n\t\r\0\u{1b}ü'"`; got != want {
		t.Errorf("%s want %s", got, want)
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	prefix := "failed to parse function arguments: "
	for _, c := range []struct {
		shape     shape
		in, error string
	}{
		{execShape(), `{"cmd":"ls"}`, ""},
		{execShape(), ` { "cmd" : "ls" , "tty" : true , "other" : {"x":[1,{}]}, "login":null, "yield_time_ms":1e3, "prefix_rule":["a"] } `, ""},
		{execShape(), `{"command": "ls"}`, "missing field `cmd` at line 1 column 17"},
		{execShape(), `{}`, "missing field `cmd` at line 1 column 2"},
		{execShape(), "{\n \"x\": 1\n}", "missing field `cmd` at line 3 column 1"},
		{execShape(), ``, "EOF while parsing a value at line 1 column 0"},
		{execShape(), `{"cmd":`, "EOF while parsing a value at line 1 column 7"},
		{execShape(), `[]`, "invalid type: sequence, expected a map at line 1 column 1"},
		{execShape(), `"ls"`, "invalid type: string \"ls\", expected a map at line 1 column 4"},
		{execShape(), `{"cmd":5}`, "invalid type: integer `5`, expected a string at line 1 column 8"},
		{execShape(), `{"cmd":null}`, "invalid type: null, expected a string at line 1 column 11"},
		{execShape(), `{"cmd":["ls"]}`, "invalid type: sequence, expected a string at line 1 column 8"},
		{execShape(), `{"cmd":"ls","tty":"yes"}`, "invalid type: string \"yes\", expected a boolean at line 1 column 23"},
		{execShape(), `{"cmd":"ls","yield_time_ms":"1"}`, "invalid type: string \"1\", expected u64 at line 1 column 31"},
		{execShape(), `{"cmd":"ls","yield_time_ms":-1}`, "invalid value: integer `-1`, expected u64 at line 1 column 30"},
		{execShape(), `{"cmd":"ls","cmd":"rm"}`, "duplicate field `cmd` at line 1 column 17"},
		{execShape(), `{"cmd":"ls"} x`, "trailing characters at line 1 column 14"},
		{execShape(), `{"cmd":"ls","sandbox_permissions":"root"}`, "unknown variant `root`, expected `use_default` or `require_escalated` at line 1 column 40"},
		{planShape(), `{"plan":[{"step":"x"}]}`, "missing field `status` at line 1 column 21"},
		{planShape(), `{"plan":[{"step":"x","status":"done"}]}`, "unknown variant `done`, expected one of `pending`, `in_progress`, `completed` at line 1 column 36"},
		{planShape(), `{"plan":[]}`, ""},
		{stdinShape(), `{"chars":"x"}`, "missing field `session_id` at line 1 column 13"},
	} {
		var v map[string]any
		err := decodeArgs(json.RawMessage(c.in), c.shape, &v)
		switch {
		case err == nil && c.error != "":
			t.Errorf("%s: no error, want %s", c.in, c.error)
		case err != nil && err.Error() != prefix+c.error:
			t.Errorf("%s: %s\nwant %s", c.in, err, prefix+c.error)
		}
	}
}

// FuzzArguments: what passes the check decodes, and nothing makes it hang.
func FuzzArguments(f *testing.F) {
	f.Add(`{"cmd":"ls","prefix_rule":["a"],"x":[{}]}`)
	f.Add(`{"cmd":`)
	f.Fuzz(func(t *testing.T, in string) {
		var a execArgs
		if err := decodeArgs(json.RawMessage(in), execShape(), &a); err == nil && !json.Valid([]byte(in)) {
			t.Errorf("accepted %q", in)
		}
	})
}

// TestOutputKeepsBothEnds feeds random streams in random chunks and compares
// with what a plain buffer would give.
func TestOutputKeepsBothEnds(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		limit := 2 * (1 + rng.IntN(20))
		all := make([]byte, rng.IntN(4*limit))
		for i := range all {
			all[i] = byte('a' + rng.IntN(26))
		}
		o := newOutput(limit)
		for rest := all; len(rest) > 0; {
			n := 1 + rng.IntN(len(rest))
			o.write(rest[:n])
			rest = rest[n:]
		}
		head, tail, omitted := o.parts()
		want := int64(max(0, len(all)-limit))
		if omitted != want || o.total != int64(len(all)) {
			t.Fatalf("%d bytes, limit %d: omitted %d, total %d", len(all), limit, omitted, o.total)
		}
		if want == 0 {
			if string(head) != string(all) || tail != nil {
				t.Fatalf("got %q and %q of %q", head, tail, all)
			}
		} else if string(head) != string(all[:limit/2]) || string(tail) != string(all[len(all)-limit/2:]) {
			t.Fatalf("got %q and %q of %q", head, tail, all)
		}
	}
}

func TestOutputText(t *testing.T) {
	t.Parallel()
	o := newOutput(itemBytes)
	for range 60 {
		o.write([]byte("building " + strings.Repeat("x", 100_000)))
	}
	text := o.text()
	if want := 1_048_607; len(text) != want {
		t.Errorf("%d bytes, want %d", len(text), want)
	}
	if !strings.Contains(text, "\n... 4951964 bytes omitted ...\n") {
		t.Errorf("no count of the omitted bytes in %.60q", text[len(text)/2-30:])
	}
	// A character cut by the gap goes as a whole.
	o = newOutput(8)
	o.write([]byte("abc€def€ghi"))
	if got, want := o.text(), "abc\n... 6 bytes omitted ...\n"+"ghi"; !utf8.ValidString(got) || !strings.HasPrefix(got, "abc\n...") || !strings.HasSuffix(got, "ghi") {
		t.Errorf("%q want like %q", got, want)
	}
}

func TestLossy(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"ok\x00€": "ok\x00€", "\xff\xfe": "��", "a\xe2\x82b": "a�b", "\xe2\x82": "�",
		"\xf0\x9f\x92": "�", "\xf0\x90": "�", "\xed\xa0\x80": "���", "\xc0\x80": "��",
		"\xe0\x80x": "��x", "\xf4\x90\x80\x80": "����", "\x80": "�",
	} {
		if got := lossy([]byte(in)); got != want {
			t.Errorf("%q gave %q, want %q", in, got, want)
		}
	}
}

func TestShorten(t *testing.T) {
	t.Parallel()
	same := func(s string) string { return s }
	lines := func(n int) string {
		var b strings.Builder
		for i := 1; i <= n; i++ {
			b.WriteString(strings.TrimSpace(string(quotedNumber(i))) + "\n")
		}
		return b.String()
	}
	o := newOutput(itemBytes)
	o.write([]byte(lines(5000)))
	got := o.shorten(100, same)
	head, rest, _ := strings.Cut(got, "…")
	mid, tail, _ := strings.Cut(rest, "…")
	want := []string{"Warning: truncated output (original token count: 5974)\nTotal output lines: 5000\n\n" + lines(5000)[:200], "5874 tokens truncated", lines(5000)[len(lines(5000))-200:]}
	if d := cmp.Diff(want, []string{head, mid, tail}); d != "" {
		t.Error(d)
	}
	o = newOutput(itemBytes)
	o.write([]byte("short\n"))
	if got := o.shorten(100, same); got != "short\n" {
		t.Error(got)
	}
	o = newOutput(itemBytes)
	for range 1000 {
		o.write([]byte(strings.Repeat("€", 1000)))
	}
	got = o.shorten(10_000, same)
	if !strings.HasPrefix(got, "Warning: truncated output (original token count: 750000)\n... 19514") || !utf8.ValidString(got) || len(got) > 41_000 {
		t.Errorf("%d bytes, %.120q", len(got), got)
	}
}

func quotedNumber(i int) []byte { b, _ := json.Marshal(i); return b }

// TestSpecs: what is offered is described, valid and complete.
func TestSpecs(t *testing.T) {
	t.Parallel()
	all := Builtin(Deps{UpdatePlan: true, ViewImage: true, WebSearch: "live"})
	var names []string
	for _, raw := range all.Specs() {
		var s struct {
			Type, Name, Description string
			Strict                  *bool
			External                bool `json:"external_web_access"`
			Format                  map[string]string
			Parameters              struct {
				Type       string
				Properties map[string]struct{ Type, Description string }
				Required   []string
				Additional *bool `json:"additionalProperties"`
			}
		}
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatal(err)
		}
		names = append(names, s.Type+" "+s.Name)
		if s.Type == "function" {
			if s.Strict == nil || *s.Strict || s.Parameters.Additional == nil || *s.Parameters.Additional || s.Parameters.Type != "object" {
				t.Errorf("%s: %s", s.Name, raw)
			}
			for p, v := range s.Parameters.Properties {
				if v.Description == "" || v.Type == "" {
					t.Errorf("%s: parameter %s: %+v", s.Name, p, v)
				}
			}
		}
	}
	want := []string{"function exec_command", "function write_stdin", "custom apply_patch", "function update_plan", "function view_image", "web_search "}
	if d := cmp.Diff(want, names); d != "" {
		t.Error(d)
	}
	if spec := string(Builtin(Deps{NoLogin: true}).Specs()[0]); !strings.Contains(spec, loginRefused) || strings.Contains(spec, loginDefault) {
		t.Errorf("without login shells the model is told: %s", spec)
	}
	if got := len(Builtin(Deps{}).Specs()); got != 3 {
		t.Errorf("without options %d tools are offered, want 3", got)
	}
	for mode, external := range map[string]string{"cached": "false", "indexed": "false", "live": "true"} {
		spec := string((&searchTool{mode: mode}).Spec())
		if want := `{"type":"web_search","external_web_access":` + external + `,"search_content_types":["text","image"]}`; spec != want {
			t.Errorf("%s: %s", mode, spec)
		}
	}
}
