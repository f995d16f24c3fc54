package main

import (
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

// commandLine is a call of nightshift somewhere in an example.
type commandLine struct {
	file string
	line int
	args []string
}

var (
	// callWord finds where a call begins: the program's name, followed by a word.
	callWord = regexp.MustCompile(`(?:^|[\s;&|({'"])("\$NIGHTSHIFT"|\$NIGHTSHIFT|/usr/local/bin/nightshift|nightshift) ([a-z]+)\b`)
	// expression is what a CI system fills in before a shell sees the line.
	expression = regexp.MustCompile(`\$\{\{[^}]*\}\}|\$\([A-Z][A-Za-z.]+\)`)
	shStep     = regexp.MustCompile(`^\s*sh '(.*)'$`) // of a Jenkinsfile
	argsField  = regexp.MustCompile(`^\s*args: (\[.*\])$`)
)

// exampleCalls finds every call in a text: after "exec", in an "args:" list of a
// manifest, in a code block, over lines that end in a backslash.
func exampleCalls(t *testing.T, file, text string, commands map[string]bool) []commandLine {
	t.Helper()
	var out []commandLine
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		first, line := i+1, lines[i]
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			line = strings.TrimSuffix(line, `\`) + " " + strings.TrimSpace(lines[i])
		}
		if m := argsField.FindStringSubmatch(line); m != nil {
			var args []string
			if err := json.Unmarshal([]byte(m[1]), &args); err != nil {
				t.Errorf("%s:%d: args: %v", file, first, err)
			}
			out = append(out, commandLine{file, first, args})
			continue
		}
		if strings.HasPrefix(strings.TrimSpace(line), "#") || strings.Contains(line, "`nightshift") {
			continue // prose
		}
		if m := shStep.FindStringSubmatch(line); m != nil {
			line = m[1]
		}
		line = strings.ReplaceAll(expression.ReplaceAllString(line, "x"), "$$", "$")
		at := callWord.FindStringSubmatchIndex(line)
		if at == nil || !commands[line[at[4]:at[5]]] {
			continue
		}
		rest := line[at[2]:]
		if q := line[at[0]]; q == '\'' || q == '"' && line[at[2]] != '"' { // the command is itself quoted
			rest = rest[:strings.LastIndexByte(rest, q)]
		}
		if args := firstCall(t, file, first, rest); len(args) > 0 {
			out = append(out, commandLine{file, first, args[1:]})
		}
	}
	return out
}

// firstCall is the first command of a line of shell; what is only known at run
// time becomes "x".
func firstCall(t *testing.T, file string, line int, text string) []string {
	t.Helper()
	f, err := syntax.NewParser().Parse(strings.NewReader(text), file)
	if err != nil {
		t.Errorf("%s:%d: %v: %s", file, line, err, text)
		return nil
	}
	var args []string
	syntax.Walk(f, func(n syntax.Node) bool {
		c, ok := n.(*syntax.CallExpr)
		if !ok || args != nil {
			return args == nil
		}
		for _, w := range c.Args {
			if s := wordText(w.Parts); s != "${EXTRA:-}" {
				args = append(args, s)
			}
		}
		return false
	})
	return args
}

func wordText(parts []syntax.WordPart) string {
	var b strings.Builder
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			b.WriteString(p.Value)
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			b.WriteString(wordText(p.Parts))
		case *syntax.ParamExp:
			if p.Param.Value == "EXTRA" {
				return "${EXTRA:-}"
			}
			b.WriteString("x")
		default:
			b.WriteString("x")
		}
	}
	return b.String()
}

// Every call in the examples, the workflows and the README fits the grammar: an
// option that is renamed cannot be forgotten in one of them.
func TestExamplesFitTheGrammar(t *testing.T) {
	var grammar cli
	k, err := newParser(&grammar)
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string]bool{}
	for _, n := range k.Model.Children {
		commands[n.Name] = true
		for _, a := range n.Aliases {
			commands[a] = true
		}
	}
	var found []commandLine
	files := 0
	for _, root := range []string{"../../ci-examples", "../../.github", "../../README.md"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			switch filepath.Ext(path) {
			case ".go", ".mjs", ".json", ".txtar", ".sum", ".mod":
				return nil
			}
			if d.Name() == "goreleaser.yaml" {
				return nil // its args are those of other programs
			}
			text, err := os.ReadFile(path)
			files++
			found = append(found, exampleCalls(t, strings.TrimPrefix(path, "../../"), string(text), commands)...)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range found {
		rt := &runtime{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, cwd: t.TempDir()}
		if _, err := parse(rt, c.args); err != nil {
			t.Errorf("%s:%d: nightshift %s: %v", c.file, c.line, strings.Join(c.args, " "), err)
		}
	}
	t.Logf("%d calls in %d files", len(found), files)
	if len(found) < 25 {
		t.Errorf("only %d calls were found: the search is broken", len(found))
	}
}

// Shell scripts are read by the shells they name.
func TestExampleScriptsParse(t *testing.T) {
	n := 0
	for _, root := range []string{"../../ci-examples", "../../.github", "../../.ci"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil || !strings.HasPrefix(string(text), "#!") {
				return err
			}
			first, _, _ := strings.Cut(string(text), "\n")
			shell := "bash"
			if strings.HasSuffix(first, "/sh") {
				shell = "sh"
			} else if !strings.HasSuffix(first, "bash") {
				return nil
			}
			n++
			if out, err := exec.Command(shell, "-n", path).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", path, err, out)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n < 10 {
		t.Errorf("only %d scripts were found", n)
	}
}

// The job that can write takes over no patch that decides about CI, however git
// writes the path, and does not fail where nothing was changed.
func TestExampleForForksLooksAtThePatch(t *testing.T) {
	text, err := os.ReadFile("../../ci-examples/github/fork-safe.yml")
	if err != nil {
		t.Fatal(err)
	}
	_, step, found := strings.Cut(string(text), "- name: Propose the patch\n")
	_, step, begun := strings.Cut(step, "        run: |\n")
	step, _, ended := strings.Cut(step, "          git -c core.hooksPath")
	if !found || !begun || !ended {
		t.Fatal("the step has changed; this test must find it again")
	}
	added := func(path string) string {
		return "diff --git " + path + " " + path + "\nnew file mode 100644\n--- /dev/null\n+++ " + path + "\n@@ -0,0 +1 @@\n+x\n"
	}
	for name, c := range map[string]struct {
		patch string
		says  string
		fails bool
	}{
		"code":     {added("b/main.go") + added("b/x.github/y"), "", false},
		"nothing":  {"", "nothing was changed", false},
		"workflow": {added("b/.github/workflows/a.yml"), "::error::", true},
		"quoted":   {added("b/main.go") + added(`"b/.github/workflows/\303\274.yml"`), "::error::", true},
		"tab":      {added(`"b/sub\tx/AGENTS.md"`), "::error::", true},
		"deep":     {added("b/sub/.codex/config.toml"), "::error::", true},
		"moved":    {"diff --git a/a.yml b/.github/a.yml\nsimilarity index 100%\nrename from a.yml\nrename to .github/a.yml\n", "::error::", true},
		"deleted":  {"diff --git a/AGENTS.md b/AGENTS.md\ndeleted file mode 100644\n--- a/AGENTS.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "::error::", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "changes.patch")
			if err := os.WriteFile(file, []byte(c.patch), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("bash", "-e", "-c", step)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATCH="+file)
			out, err := cmd.CombinedOutput()
			if (err != nil) != c.fails || !strings.Contains(string(out), c.says) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
