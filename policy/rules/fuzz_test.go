package rules

import (
	"bytes"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// bombs are texts that cost a recursive reader most.
func bombs() map[string]string {
	out := map[string]string{}
	for _, unit := range []string{"(", "{ ", "$(", "`", "\\`", "((", "[[ ( ", "[[ ! ", "if ", "if a;then ", "while a;do ", "! ", "time ", "case x in x) ", "f() ", "function f ", "a=(", "$((", "((-", "((!", "((1+", "((1?",
		"((a=", "((a,", "((2**", "((a[", "${a:-", "${a/", "a[", "a[$((", "\"$(", "<(", "@(", "coproc ", "{a,", "a && ", "a | ", "a;", "a&", "<<a\n", "for((", "let a[", "declare a=(", "${a[", "\"${a:-", "$[", "[[ a && ", "a=b ",
		"env ", "env -Z ", "sudo -n ", "xargs ", "strace ", "strace -Z ", "bash -c '", "eval eval ", "eval \"", "find . -exec ", "npx ", "{a,b}", "{{a,b},", "git -c alias.x=y ", "git --x ", "timeout 1 ", "$a", "$a ", "'$(' ", "echo x|sh;",
		"parallel ", "watch ", "alias a='b c';", "a='x[$(b)]';", "A=$A;", "trap 'x' 1;", "> f;echo x", "echo 'echo a'>f;sh f;", "x[$(", "make ${a} ", "make a ", "git $a ", "cat<<<", "bash<<<'", "busybox ", "\\\n"} {
		out[unit] = strings.Repeat(unit, maxScript/len(unit))
	}
	return out
}

// strict is a set that makes every reading work: it restricts much.
func strict(t testing.TB) *Set {
	t.Helper()
	return parse(t, `
prefix_rule(pattern=["uname"], decision="forbidden")
prefix_rule(pattern=["git", "push"], decision="forbidden")
prefix_rule(pattern=["a", "b", "c", "d"], decision="forbidden")
prefix_rule(pattern=["env", "x"], decision="prompt")
prefix_rule(pattern=["make"], decision="allow")
`)
}

// TestBombs: 16 KiB of anything is read within bounds. Time is only reported,
// since it depends on the machine; the work that costs it is what is bounded.
func TestBombs(t *testing.T) {
	set := strict(t)
	for unit, text := range bombs() {
		for _, shell := range []string{"/bin/bash", "/bin/sh", "/bin/zsh", "/bin/mksh"} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			d := set.Shell(text, shell, true)
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			if spent := after.TotalAlloc - before.TotalAlloc; spent > 64<<20 {
				t.Errorf("%q in %s: %d MiB allocated", unit, shell, spent>>20)
			}
			if len(d.Commands) > maxCommands || len(d.Matches) > maxMatches || len(d.Opaque) > maxOpaque {
				t.Errorf("%q in %s: an answer without bounds: %d commands, %d matches", unit, shell, len(d.Commands), len(d.Matches))
			}
			if took > 100*time.Millisecond {
				t.Logf("%q in %s: %v, %d commands, opaque %q", unit, shell, took, len(d.Commands), d.Opaque)
			}
		}
	}
	if d := set.Shell(strings.Repeat("x", maxScript+1), "/bin/bash", true); len(d.Opaque) == 0 || d.Level != Forbidden {
		t.Errorf("a text above the bound must be opaque: %+v", d)
	}
}

// BenchmarkManyRules: a program with thousands of rules, a script with thousands
// of its commands.
func BenchmarkManyRules(b *testing.B) {
	var text strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&text, "prefix_rule(pattern=[\"git\", \"sub%d\", \"x\"], decision=\"forbidden\")\n", i)
	}
	set := parse(b, text.String())
	script := strings.Repeat("git a;", maxScript/6)
	b.ReportAllocs()
	for b.Loop() {
		set.Shell(script, "/bin/bash", true)
	}
}

func BenchmarkShellWorst(b *testing.B) {
	set := strict(b)
	for _, unit := range []string{"a;", "env -Z ", "((1?", "(", "strace ", "xargs "} {
		text := bombs()[unit]
		b.Run(fmt.Sprintf("%q", unit), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				set.Shell(text, "/bin/bash", true)
			}
		})
	}
}

// FuzzShell: reading never fails, and what is allowed to run by the strict set
// holds no forbidden word in plain sight.
func FuzzShell(f *testing.F) {
	for _, s := range scripts(f, "testdata/evasions.txt") {
		f.Add(s)
	}
	for _, s := range scripts(f, "testdata/ordinary.txt") {
		f.Add(s)
	}
	set := strict(f)
	f.Fuzz(func(t *testing.T, script string) {
		d := set.Shell(script, "/bin/bash", true)
		if len(d.Opaque) > 0 && d.Level < Prompt {
			t.Errorf("opaque text is %v", d.Level)
		}
		if slices.Contains(d.Opaque, parserFails) {
			t.Errorf("the parser, or what follows it, panics")
		}
		if d.Plain && len(d.Opaque) > 0 {
			t.Errorf("opaque text is called plain")
		}
		// A forbidden command on the first line runs, whatever follows it.
		if more := set.Shell("uname\n"+script, "/bin/bash", true); more.Level != Forbidden {
			t.Errorf("a forbidden command in front gives %v", more.Level)
		}
		again := set.Shell(script, "/bin/bash", true)
		if !reflect.DeepEqual(d, again) {
			t.Errorf("two readings differ: %+v and %+v", d, again)
		}
	})
}

// FuzzParse: a rules file is read or refused, and what is read prints and parses
// back to the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`prefix_rule(pattern=["git", ["push", "pull"]], decision="forbidden", justification="x", match=["git push"], not_match=[["git", "status"]])`,
		`prefix_rule(["a"])`, `network_rule(host="Example.com:443", protocol="https", decision="deny", justification="no")`, `host_executable(name="curl", paths=["/usr/bin/curl"])`,
		"[prefix_rule(pattern=[x]) for x in [\"a\", \"b\"]]\n", "def f(x):\n  prefix_rule(pattern=[x])\nf(\"a\")\n", "x = \"a\"\nprefix_rule(pattern=[f\"{x}-b\"])\n", "while True:\n  pass\n", "prefix_rule(", "load(\"x\", \"y\")", "print(1)", "f\"{", "\"\\xff\"",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		if bytes.Contains(src, []byte("*")) || bytes.Contains(src, []byte("while")) || bytes.Contains(src, []byte("range")) {
			t.Skip("may ask for more memory or steps than a fuzz run has")
		}
		file, errs := Parse("x.rules", src, User)
		for _, e := range errs {
			if e.Message == "" || e.Line < 1 {
				t.Errorf("mistake without text or place: %+v", e)
			}
		}
		if len(errs) > 0 {
			return
		}
		back, errs := Parse("x.rules", Format(file), User)
		if len(errs) > 0 {
			t.Fatalf("printed file does not parse: %v\n%s", errs, Format(file))
		}
		if got, want := stripOrigins(back), stripOrigins(file); !reflect.DeepEqual(got, want) {
			t.Errorf("printed file reads differently:\n%+v\n%+v", got, want)
		}
	})
}

// stripOrigins is a copy without places.
func stripOrigins(f *File) File {
	var out File
	for _, r := range f.Rules {
		r.Origin = ""
		out.Rules = append(out.Rules, r)
	}
	for _, n := range f.Network {
		n.Origin = ""
		out.Network = append(out.Network, n)
	}
	for _, p := range f.Programs {
		p.Origin = ""
		out.Programs = append(out.Programs, p)
	}
	return out
}
