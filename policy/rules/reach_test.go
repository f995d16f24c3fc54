package rules

import (
	"os"
	"strings"
	"testing"
)

// scripts reads a file of one script a line.
func scripts(t testing.TB, name string) []string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "# ") {
			continue
		}
		out = append(out, strings.NewReplacer("␤", "\n", "␉", "\t", "␍", "\r").Replace(line))
	}
	return out
}

// TestEvasions: however a forbidden program is written or wrapped, it is found,
// or the text counts as unreadable.
func TestEvasions(t *testing.T) {
	set := parse(t, `prefix_rule(pattern=["uname"], decision="forbidden")`)
	for _, script := range scripts(t, "testdata/evasions.txt") {
		if d := set.Shell(script, "/bin/bash", true); d.Level != Forbidden {
			t.Errorf("%q is %v: read as %q, opaque %q", script, d.Level, d.Commands, d.Opaque)
		}
	}
}

// TestOrdinary: rules that forbid one thing do not stop the rest of the work.
func TestOrdinary(t *testing.T) {
	set := parse(t, `
prefix_rule(pattern=["uname"], decision="forbidden")
prefix_rule(pattern=["git", "push"], decision="forbidden")
prefix_rule(pattern=["git", ["fetch", "pull"]], decision="prompt")
prefix_rule(pattern=["make", "deploy"], decision="forbidden")
`)
	for _, script := range scripts(t, "testdata/ordinary.txt") {
		if d := set.Shell(script, "/bin/bash", true); d.Level > Allow {
			t.Errorf("%q is %v: matches %+v, opaque %q, danger %q", script, d.Level, d.Matches, d.Opaque, d.Danger)
		}
	}
}

// TestSubcommands: options, aliases and paths do not hide a sub-command.
func TestSubcommands(t *testing.T) {
	set := parse(t, `
prefix_rule(pattern=["git", "push"], decision="forbidden")
prefix_rule(pattern=[["make", "gmake"], "deploy"], decision="forbidden")
prefix_rule(pattern=["kubectl", "delete"], decision="forbidden")
prefix_rule(pattern=[["npm", "cargo"], "publish"], decision="forbidden")
`)
	for _, script := range scripts(t, "testdata/subcommands.txt") {
		if d := set.Shell(script, "/bin/bash", true); d.Level != Forbidden {
			t.Errorf("%q is %v: read as %q, opaque %q", script, d.Level, d.Commands, d.Opaque)
		}
	}
}

// TestDanger: rm with force is found however it is wrapped, and only that.
func TestDanger(t *testing.T) {
	set := NewSet()
	for _, script := range []string{
		"rm -f x", "rm -rf x", "rm -fr x", "rm -Rf x", "rm x -f", "rm --force x", "rm --forc x", "rm --f x", "\\rm -rf x", "'rm' -rf x", "/bin/rm -rf x", "command rm -rf x", "nice rm -rf x",
		"time rm -rf x", "timeout 5 rm -rf x", "echo x | xargs rm -f", "xargs -I{} rm -f {}", "eval rm -rf x", "eval 'rm -rf x'", "D=rm; $D -rf x", "D='rm -rf'; $D x", "echo 'rm -rf x' | sh", "bash -c 'rm -rf x'",
		"find . -exec rm -f {} +", "find . -exec rm -rf {} \\;", "sudo -n rm -rf x", "env -i rm -f x", "(rm -rf x)", "rm -rf x &", "f(){ rm -rf x; }; f", "echo $(rm -rf x)", "if true; then rm -rf x; fi", "busybox rm -f x",
		"trap 'rm -rf x' EXIT", "rm -r -f x", "rm -vf x", "rm -rf -- x", "X=1 rm -rf x", "rm -rf x > /dev/null", "${RM:-rm} -rf x", "sh <<< 'rm -rf x'", "! rm -rf x", "git submodule foreach 'rm -rf x'",
	} {
		if d := set.Shell(script, "/bin/bash", true); d.Danger == "" || d.Level != Forbidden {
			t.Errorf("%q is not found to be dangerous: %+v", script, d)
		}
	}
	for _, script := range []string{"rm x", "rm -r x", "rm -- -f", "rm -ri x", "echo 'rm -rf x'", "grep -rf x y", "git rm -f x", "docker rm -f x", "find . -delete", "git clean -fdx", "rm --recursive x", "rm --files x", "cat <<< 'rm -rf x'"} {
		if d := set.Shell(script, "/bin/bash", true); d.Danger != "" {
			t.Errorf("%q is called dangerous: %s", script, d.Danger)
		}
	}
	// A rule that names rm lifts it, unless a project wrote the rule.
	for layer, lifted := range map[Layer]bool{System: true, User: true, Requirement: true, Project: false} {
		f, errs := Parse("x.rules", []byte(`prefix_rule(pattern=["rm"], decision="allow")`), layer)
		if errs != nil {
			t.Fatal(errs)
		}
		if d := NewSet(f).Command([]string{"rm", "-rf", "x"}); (d.Danger == "") != lifted {
			t.Errorf("allow rule of layer %s: danger %q", layer, d.Danger)
		}
	}
}
