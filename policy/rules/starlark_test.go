package rules

import (
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestMistakes: every mistake of a file is told at once, each with its place.
func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string // "line:column: part of the message"
	}{
		{"syntax", "prefix_rule(pattern=[\"a\"]\n\n", []string{"3:1: "}},
		{"unknown function", "prefx_rule(pattern=[\"a\"])", []string{"1:1: undefined: prefx_rule"}},
		{"several", "prefix_rule(pattern=[])\nprefix_rule(pattern=[\"a\"], decision=\"Forbidden\")\nprefix_rule(pattern=[\"a\"], decison=\"allow\")\nprefix_rule(pattern=[\"ok\"])\n",
			[]string{"1:1: prefix_rule: pattern is empty", "2:1: prefix_rule: decision \"Forbidden\" is not one of", "3:1: prefix_rule: unexpected keyword argument \"decison\" (did you mean decision?)"}},
		{"alternatives", `prefix_rule(pattern=["a", []])`, []string{"1:1: prefix_rule: pattern element 1 has no alternatives"}},
		{"alternative that is no text", `prefix_rule(pattern=["a", ["b", 3]])`, []string{"1:1: prefix_rule: pattern element 1: alternatives must be strings, not int"}},
		{"string pattern", `prefix_rule(pattern="git push")`, []string{"1:1: prefix_rule: pattern must be a list, not string"}},
		{"number", `prefix_rule(pattern=["a", 3])`, []string{"1:1: prefix_rule: pattern element 1 must be a string or a list of strings, not int"}},
		{"blank justification", `prefix_rule(pattern=["a"], justification="  ")`, []string{"1:1: prefix_rule: justification is blank"}},
		{"match", `prefix_rule(pattern=["git", "push"], match=["git push -f", "git status"])`, []string{`1:1: prefix_rule: match example "git status" does not match`}},
		{"match of a path elsewhere", "host_executable(name=\"git\", paths=[\"/usr/bin/git\"])\nprefix_rule(pattern=[\"git\"], match=[\"/opt/git\", \"./git\", \"/usr/bin/git\"])", []string{`2:1: prefix_rule: match example "/opt/git" does not match the pattern "git"; match example "./git"`}},
		{"not_match of a path", `prefix_rule(pattern=["git"], not_match=["/opt/git"])`, []string{`1:1: prefix_rule: not_match example "/opt/git" matches`}},
		{"no justification", `prefix_rule(pattern=["a"], justification=None)`, []string{"1:1: prefix_rule: justification must be a string, not NoneType"}},
		{"no examples", `prefix_rule(pattern=["a"], match=None)`, []string{"1:1: prefix_rule: match must be a list, not NoneType"}},
		{"tuple", `prefix_rule(pattern=("a",))`, []string{"1:1: prefix_rule: pattern must be a list, not tuple"}},
		{"NUL byte", "prefix_rule(pattern=[\"a\"])\n  \x00\nprefix_rule(pattern=[\"b\"], decision=\"forbidden\")", []string{"2:3: a NUL byte"}},
		{"not_match", `prefix_rule(pattern=["git", ["push", "pull"]], not_match=[["git", "pull"]])`, []string{`1:1: prefix_rule: not_match example "git pull" matches`}},
		{"example quotes", `prefix_rule(pattern=["a"], match=["a 'b"])`, []string{"1:1: prefix_rule: match example"}},
		{"load", `load("x.star", "y")`, []string{"1:1: "}},
		{"print", `print("x")`, []string{"1:6: print is not available"}},
		{"endless", "while True:\n    x = 1\n", []string{"the file does not end"}},
		{"host", `network_rule(host="https://x.com/", protocol="https", decision="allow")`, []string{"1:1: network_rule: host"}},
		{"wildcard host", `network_rule(host="*.x.com", protocol="https", decision="allow")`, []string{"1:1: network_rule: host"}},
		{"protocol", `network_rule(host="x.com", protocol="ftp", decision="allow")`, []string{`1:1: network_rule: protocol "ftp"`}},
		{"program name", `host_executable(name="a/b", paths=[])`, []string{"1:1: host_executable: name"}},
		{"program path", `host_executable(name="git", paths=["/usr/bin/hub"])`, []string{`must end in "git"`}},
		{"relative path", `host_executable(name="git", paths=["bin/git"])`, []string{"must be absolute"}},
		{"in a loop", "\n\nfor x in [\"a\", \"b\"]:\n    prefix_rule(pattern=[x], decision=\"no\")\n", []string{"4:5: prefix_rule: decision", "4:5: prefix_rule: decision"}},
		{"f-string", `prefix_rule(pattern=[f"{a b}"])`, []string{"1:22: f-string holds"}},
		{"f-string's open bracket", "prefix_rule(pattern=[f\"{((}\"])", []string{"{ without }"}},
		{"f-string's long expression", "prefix_rule(pattern=[f\"{" + strings.Repeat("-", 5000) + "1}\"])", []string{"of more than 1024 bytes"}},
		{"f-string's comment", "prefix_rule(pattern=[f\"{1 #}\"])", []string{"f-string holds"}},
		{"not utf-8", "\xff", []string{"1:1: file is not UTF-8"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, errs := Parse("ci.rules", []byte(c.text), User)
			if len(errs) != len(c.want) {
				t.Fatalf("%d mistakes, want %d: %v", len(errs), len(c.want), errs)
			}
			for i, e := range errs {
				if got := e.Error(); !strings.HasPrefix(got, "ci.rules:") || !strings.Contains(got, c.want[i]) {
					t.Errorf("got %q, want %q in it", got, c.want[i])
				}
			}
		})
	}
}

func TestLanguage(t *testing.T) {
	f, errs := Parse("ci.rules", []byte(`
# loops, functions, comprehensions and f-strings work at the top level
tools = ["npm", "pnpm"]
[prefix_rule(pattern = [x, "publish"], decision = "forbidden") for x in tools]
def deny(name, why = "no"):
    prefix_rule(pattern = [name], decision = "forbidden", justification = f"{name}: {why}")
for n in ["a", "b"]:
    if n != "b":
        deny(n)
x = "c"
prefix_rule([f"{x}-{x}", r"\d", f'''{x}
y''', "{}", f"{{x}}"])
network_rule(host = "Example.COM:443", protocol = "http-connect", decision = "deny", justification = "no")
network_rule(host = "[::1]:80", protocol = "http", decision = "prompt")
host_executable(name = "curl", paths = ["/usr/bin/curl", "/usr/bin/curl", "/bin/curl"])
`), System)
	if errs != nil {
		t.Fatal(errs)
	}
	var got []string
	for _, r := range f.Rules {
		got = append(got, r.Origin+" "+r.String()+" "+r.Level.String()+" "+r.Justification)
	}
	want := []string{
		"ci.rules:4 npm publish forbidden ",
		"ci.rules:4 pnpm publish forbidden ",
		"ci.rules:6 a forbidden a: no",
		"ci.rules:11 c-c \\d c\ny {} {x} allow ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if n := f.Network; len(n) != 2 || n[0].Host != "example.com" || n[0].Protocol != "https" || n[0].Level != Forbidden || n[1].Host != "::1" ||
		n[1].Level != Prompt {
		t.Errorf("network rules: %+v", n)
	}
	if p := f.Programs; len(p) != 1 || !slices.Equal(p[0].Paths, []string{"/usr/bin/curl", "/bin/curl"}) {
		t.Errorf("programs: %+v", p)
	}
}

// randomFile makes a file of rules that may say anything.
func randomFile(r *rand.Rand, name string) *File {
	words := []string{"git", "push", "make", "deploy", "npm", "a", "b"}
	levels := []string{"allow", "prompt", "forbidden"}
	var b strings.Builder
	for range 1 + r.Intn(6) {
		var pattern []string
		for range 1 + r.Intn(3) {
			if r.Intn(3) == 0 {
				pattern = append(pattern, fmt.Sprintf("[%q, %q]", words[r.Intn(len(words))], words[r.Intn(len(words))]))
				continue
			}
			pattern = append(pattern, fmt.Sprintf("%q", words[r.Intn(len(words))]))
		}
		fmt.Fprintf(
			&b,
			"prefix_rule(pattern=[%s], decision=%q, justification=%q)\n",
			strings.Join(pattern, ", "),
			levels[r.Intn(3)],
			words[r.Intn(len(words))],
		)
	}
	if r.Intn(2) == 0 {
		b.WriteString("host_executable(name=\"git\", paths=[\"/usr/bin/git\"])\n")
	}
	f, errs := Parse(name, []byte(b.String()), User)
	if errs != nil {
		panic(errs)
	}
	return f
}

// TestOrderOfFiles: files are one policy, in whatever order they come; and a
// further file that only restricts never makes an answer milder.
func TestOrderOfFiles(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	commands := []string{
		"git push",
		"git -C x push",
		"make -j4 deploy",
		"npm a",
		"env git push",
		"a b",
		"/usr/bin/git push",
		"b; make deploy",
		"$X push",
		"git $X",
		"a > f",
	}
	for i := range 300 {
		var files []*File
		for n := range 1 + r.Intn(5) {
			files = append(files, randomFile(r, fmt.Sprintf("%d.rules", n)))
		}
		set := NewSet(files...)
		shuffled := slices.Clone(files)
		r.Shuffle(len(shuffled), func(a, b int) { shuffled[a], shuffled[b] = shuffled[b], shuffled[a] })
		other := NewSet(shuffled...)
		extra := randomFile(r, "extra.rules")
		extra.Rules = slices.DeleteFunc(extra.Rules, func(r Rule) bool { return r.Level == Allow })
		extra.Programs = nil
		tighter := NewSet(append(slices.Clone(files), extra)...)
		for _, c := range commands {
			before := set.Shell(c, "/bin/bash", true)
			if after := other.Shell(c, "/bin/bash", true); !reflect.DeepEqual(before, after) {
				t.Fatalf("%d: %q depends on the order of files:\n%+v\n%+v", i, c, before, after)
			}
			after := tighter.Shell(c, "/bin/bash", true)
			if order(after.Level) < order(before.Level) {
				t.Fatalf("%d: %q became milder, %v after %v, by\n%s", i, c, after.Level, before.Level, Format(extra))
			}
		}
		if !slices.Equal(set.Executables(), other.Executables()) {
			t.Fatalf("executables depend on the order of files")
		}
	}
}

// order ranks decisions from loose to strict: an allow rule is the loosest.
func order(l Level) int { return map[Level]int{Allow: 0, None: 1, Prompt: 2, Forbidden: 3}[l] }

// TestPrintParse: what is printed reads back the same.
func TestPrintParse(t *testing.T) {
	r := rand.New(rand.NewSource(2))
	for range 200 {
		f := randomFile(r, "x.rules")
		f.Network = []NetworkRule{
			{Host: "example.com", Protocol: "https", Level: Level(1 + r.Intn(3)), Layer: User, Justification: "a \"quoted\" \\ text\nwith lines"},
		}
		back, errs := Parse("x.rules", Format(f), User)
		if errs != nil {
			t.Fatalf("%v\n%s", errs, Format(f))
		}
		if got, want := stripOrigins(back), stripOrigins(f); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v\nwant %+v", got, want)
		}
	}
}

func TestExecutables(t *testing.T) {
	set := parse(t, `
prefix_rule(pattern=["curl"], decision="forbidden")
prefix_rule(pattern=[["nc", "ncat"]], decision="forbidden")
prefix_rule(pattern=["/opt/x/../y"], decision="forbidden")
prefix_rule(pattern=["git", "push"], decision="forbidden")
prefix_rule(pattern=["rm"], decision="prompt")
host_executable(name="curl", paths=["/usr/bin/curl", "/bin/curl"])
`)
	if got, want := set.Executables(), []string{"/bin/curl", "/opt/y", "/usr/bin/curl", "nc", "ncat"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestHostExecutable: declared paths are the only ones a rule on the bare name
// holds for; a path that may be one of them restricts, but does not allow.
func TestHostExecutable(t *testing.T) {
	set := parse(t, `
prefix_rule(pattern=["curl"], decision="forbidden")
prefix_rule(pattern=["make"], decision="allow")
host_executable(name="curl", paths=["/usr/bin/curl"])
host_executable(name="make", paths=["/usr/bin/make"])
`)
	for command, want := range map[string]Level{
		"curl x": Forbidden, "/usr/bin/curl x": Forbidden, "/usr/bin/../bin/curl": Forbidden, "/opt/bin/curl": None, "./curl": Forbidden, "../../usr/bin/curl": Forbidden,
		"make": Allow, "/usr/bin/make": Allow, "/opt/make": None, "./make": None,
	} {
		if d := set.Command(strings.Fields(command)); d.Level != want {
			t.Errorf("%s: %v, want %v", command, d.Level, want)
		}
	}
}

// TestUnsandboxedNeedsPlain: an allow rule takes only plain texts out of the
// sandbox.
func TestUnsandboxedNeedsPlain(t *testing.T) {
	set := parse(t, `prefix_rule(pattern=["make"]) 
prefix_rule(pattern=["env"])
prefix_rule(pattern=["bash"])`)
	for script, want := range map[string]bool{
		"make": true, "make x y": true, "make && make": true, "make; make | make": true, "make\nmake": true, "'make' x": true,
		"make > f": false, "make 2>&1": false, "X=1 make": false, "make &": false, "(make)": false, "make $X": false, "make *": false, "make {a,b}": false, "make `make`": false,
		"env make": false, "bash -c make": false, "make && ls": false, "if make; then make; fi": false, "! make": false, "make <<< x": false, "f(){ make; }; make": false, "make ~/x": false, "": false, "# x": false, "make |& make": false,
	} {
		if d := set.Shell(script, "/bin/bash", true); (d.Level == Allow && d.Plain) != want {
			t.Errorf("%q: level %v, plain %v, want %v", script, d.Level, d.Plain, want)
		}
	}
}

func TestShellGuard(t *testing.T) {
	// A rule on the shell itself guards what cannot be read, and nothing else.
	set := parse(t, `prefix_rule(pattern=[["bash", "sh"], ["-lc", "-c"]], decision="prompt")`)
	if d := set.Shell("ls -l | wc", "/bin/bash", true); d.Level != None {
		t.Errorf("a readable script is %v", d.Level)
	}
	if d := set.Shell("$X", "/bin/bash", true); d.Level != Prompt || len(d.Matches) != 1 {
		t.Errorf("an opaque script is %+v", d)
	}
	if d := set.Shell("bash -c ls", "/bin/bash", true); d.Level != Prompt {
		t.Errorf("a nested shell is %v", d.Level)
	}
}

func BenchmarkSet(b *testing.B) {
	var text strings.Builder
	for i := range 5000 {
		fmt.Fprintf(
			&text,
			"prefix_rule(pattern=[\"tool%d\", [\"push\", \"pull%d\"]], decision=\"forbidden\", justification=\"Not from CI.\", match=[\"tool%d push\"])\n",
			i,
			i,
			i,
		)
	}
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f, errs := Parse("x.rules", []byte(text.String()), User)
			if errs != nil {
				b.Fatal(errs)
			}
			NewSet(f)
		}
	})
	f, _ := Parse("x.rules", []byte(text.String()), User)
	set := NewSet(f)
	b.Run("shell", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			set.Shell("cd x && go test ./... 2>&1 | tail -20; git status", "/bin/bash", true)
		}
	})
}

func TestNormalHost(t *testing.T) {
	for host, want := range map[string]string{
		"Example.COM": "example.com", "example.com.": "example.com", "example.com:443": "example.com", "10.0.0.1": "10.0.0.1", "10.0.0.1:80": "10.0.0.1", "[::1]:80": "::1", "::1": "::1", "::ffff:10.0.0.1": "10.0.0.1", "xn--bcher-kva.example": "xn--bcher-kva.example", "a_b.example": "a_b.example",
		"": "", "http://x": "", "x/y": "", "*.x": "", "x y": "", "x:port": "", "x:123456": "", "bücher.example": "", "a..b": "", ".a": "", "a\x00b": "", "[::1": "", "user@x": "", "%61": "",
	} {
		got, err := NormalHost(host)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v, want %q", host, got, err, want)
		}
	}
}

// TestBounds: a file that would take all memory, or an expression that the
// compiler would recurse over without end, is a mistake in it.
func TestBounds(t *testing.T) {
	for name, src := range map[string]string{
		"memory in one step": "x = list(range(1000000000))",
		"a long sum":         "x = 1" + strings.Repeat(" + 1", 1<<16),
		"a long chain":       "x = a" + strings.Repeat("\\\n.b", 1<<16),
		"calls of calls":     "x = (\n'a'" + strings.Repeat("()", 1<<16) + ")",
	} {
		_, errs := Parse("x.rules", []byte(src), User)
		if len(errs) != 1 || errs[0].HintText == "" {
			t.Errorf("%s: %v", name, errs)
		}
	}
	f, errs := Parse("x.rules", []byte("for c in [\n"+strings.Repeat("'command',\n", 20000)+"]:\n  prefix_rule(pattern=[c], justification='"+
		strings.Repeat("(+", 1<<16)+"')\n"), User)
	if len(errs) != 0 || len(f.Rules) != 20000 {
		t.Errorf("a long list is refused: %d rules, %v", len(f.Rules), errs)
	}
	if _, errs := Parse("x.rules", []byte("for i in range(1000):\n  prefix_rule(pattern=[])\n"), User); len(errs) != maxMistakes+1 ||
		!strings.Contains(errs[maxMistakes].Message, "900 more") {
		t.Errorf("%d mistakes are listed", len(errs))
	}
}

// TestEmptyTokens: an argument may be empty, and so may a token of a rule.
func TestEmptyTokens(t *testing.T) {
	s := parse(t, `prefix_rule(pattern=["tool", ["", "x"], ""], decision="forbidden")`)
	for _, c := range []struct {
		argv []string
		want Level
	}{
		{[]string{"tool", "", ""}, Forbidden},
		{[]string{"tool", "x", ""}, Forbidden},
		{[]string{"tool", "x"}, None},
		{[]string{"tool", "x", "y"}, None},
	} {
		if got := s.Command(c.argv).Level; got != c.want {
			t.Errorf("%q: %s, want %s", c.argv, got, c.want)
		}
	}
}

// TestProgramPathsAreCleaned: a path may be written in more than one way.
func TestProgramPathsAreCleaned(t *testing.T) {
	s := parse(t, "prefix_rule(pattern=[\"git\"], decision=\"forbidden\")\nhost_executable(name=\"git\", paths=[\"/usr//bin/./git/\", \"/usr/../bin/git\"])\n")
	for argv0, want := range map[string]Level{"/usr/bin/git": Forbidden, "/bin/git": Forbidden, "/opt/git": None} {
		if got := s.Command([]string{argv0}).Level; got != want {
			t.Errorf("%s: %s, want %s", argv0, got, want)
		}
	}
}

// TestExamplesNamePaths: an example may name the program by a path, wherever in
// the file its paths are declared.
func TestExamplesNamePaths(t *testing.T) {
	parse(t, `
prefix_rule(pattern=["git", "push"], match=["/usr/bin/git push"], not_match=["/opt/git push", "/usr/bin/git pull"])
host_executable(name="git", paths=["/usr/bin/git"])
prefix_rule(pattern=["make"], match=["./make", "/anywhere/make all"], not_match=["./makes"])
`)
}

// TestProgramsOfLowerLayers: what a project says about programs takes nothing
// away from what the machine or the user forbids, and adds nothing to what they
// allow.
func TestProgramsOfLowerLayers(t *testing.T) {
	files := func(texts map[Layer]string) *Set {
		var list []*File
		for layer, text := range texts {
			f, errs := Parse(string(layer), []byte(text), layer)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			list = append(list, f)
		}
		return NewSet(list...)
	}
	elsewhere := `host_executable(name="curl", paths=["/opt/curl"])`
	for _, c := range []struct {
		texts map[Layer]string
		path  string
		want  Level
	}{
		{map[Layer]string{User: `prefix_rule(pattern=["curl"], decision="forbidden")`, Project: elsewhere}, "/usr/bin/curl", Forbidden},
		{map[Layer]string{System: `prefix_rule(pattern=["curl"], decision="prompt")`, User: elsewhere}, "/usr/bin/curl", Prompt},
		{map[Layer]string{Project: `prefix_rule(pattern=["curl"], decision="forbidden")`, User: elsewhere}, "/usr/bin/curl", None},
		{map[Layer]string{User: `prefix_rule(pattern=["curl"], decision="forbidden")` + "\n" + elsewhere}, "/usr/bin/curl", None},
		{map[Layer]string{User: `prefix_rule(pattern=["curl"])` + "\n" + `host_executable(name="curl", paths=["/usr/bin/curl"])`, Project: elsewhere}, "/opt/curl", None},
		{map[Layer]string{User: `prefix_rule(pattern=["curl"])` + "\n" + `host_executable(name="curl", paths=["/usr/bin/curl"])`, Project: elsewhere}, "/usr/bin/curl", Allow},
		{map[Layer]string{User: `prefix_rule(pattern=["curl"])`, Project: elsewhere}, "/usr/bin/curl", None},
	} {
		s := files(c.texts)
		if got := s.Command([]string{c.path}).Level; got != c.want {
			t.Errorf("%v: %s: %s, want %s", c.texts, c.path, got, c.want)
		}
		if c.want == Forbidden && !slices.Contains(s.Executables(), "curl") {
			t.Errorf("%v: executables %q", c.texts, s.Executables())
		}
	}
}

// TestFormatExpressions: any expression may stand in the braces of an f-string.
func TestFormatExpressions(t *testing.T) {
	s := parse(t, "x = \"a\"\nprefix_rule([f\"{x.upper()}-{ [1, 2][1] }-{1 + 1}\", f\"{{{x}}}\", f'{ {\"k\": \"}\"}[\"k\"] }', f'''{(\n\"n\")}'''])\nprefix_rule([\"next\"])\n")
	if got, want := s.Rules()[0].Pattern, [][]string{{"A-2-2"}, {"{a}"}, {"}"}, {"n"}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := s.Rules()[1].Origin; got != "test.rules:4" {
		t.Errorf("the rule behind stands at %s", got)
	}
}
