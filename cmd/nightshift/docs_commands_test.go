package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// commandStart finds our program in front of one of its commands.
var commandStart = regexp.MustCompile(`(?:^|[\s"'(` + "`" + `|;&/])(?:nightshift|codex) ((?:-[^ ]+ )*(?:exec|e|resume|fork|review|batch|replay|report|policy|sandbox|doctor|auth|debug|demo|completion|man|version)\b.*)`)

// commandsIn finds the command lines of our program in shell text.
func commandsIn(text string) [][]string {
	var out [][]string
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		for rest := line; ; {
			m := commandStart.FindStringSubmatch(rest)
			if m == nil {
				break
			}
			words, after := shellWords(m[1])
			out, rest = append(out, words), after
		}
	}
	return out
}

// shellWords splits the first simple command of a line, without its redirections
// and comment, and returns what follows it.
func shellWords(line string) (words []string, rest string) {
	var b strings.Builder
	open, quote, skip := false, rune(0), false
	flush := func() {
		if open && !skip {
			words = append(words, b.String())
		}
		if open {
			skip = false
		}
		b.Reset()
		open = false
	}
	runes := []rune(line)
	for i := 0; i < len(runes); i++ {
		r := runes[i]
		switch {
		case quote != 0:
			switch {
			case r == quote:
				quote = 0
			case r == '\\' && quote == '"' && i+1 < len(runes):
				i++
				b.WriteRune(runes[i])
			default:
				b.WriteRune(r)
			}
		case r == '\'' || r == '"':
			quote, open = r, true
		case r == '\\' && i+1 < len(runes):
			i++
			b.WriteRune(runes[i])
			open = true
		case r == '>' || r == '<':
			if s := b.String(); s != "1" && s != "2" {
				flush()
			}
			b.Reset()
			open, skip = false, true
		case strings.ContainsRune("|;&)`\n", r) || r == '#' && !open:
			flush()
			return words, string(runes[i:])
		case r == ' ' || r == '\t':
			flush()
		default:
			b.WriteRune(r)
			open = true
		}
	}
	flush()
	return words, ""
}

func TestShellWords(t *testing.T) {
	for line, want := range map[string][]string{
		`exec "a b" -s x > out.jsonl # why`: {"exec", "a b", "-s", "x"},
		`exec 'it is' 2>&1 | tee log`:       {"exec", "it is"},
		`auth import < "$FILE"; echo`:       {"auth", "import"},
		`exec -c 'a="b"' --flag=\ x && y`:   {"exec", "-c", `a="b"`, "--flag= x"},
	} {
		if got, _ := shellWords(line); !slices.Equal(got, want) {
			t.Errorf("%s: %q", line, got)
		}
	}
}

// blocks are the indented and fenced code blocks of a page; spans are its other
// code.
func blocks(page string) (code, spans string) {
	var c, rest strings.Builder
	fenced := false
	for line := range strings.Lines(page) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced = !fenced
		case fenced || strings.HasPrefix(line, "    "):
			c.WriteString(line)
		default:
			rest.WriteString(line)
		}
	}
	var s strings.Builder
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(rest.String(), -1) {
		s.WriteString(m[1] + "\n")
	}
	return c.String(), s.String()
}

// parses tells whether the grammar takes a command line.
func parses(words []string) error {
	rest, err := normalize(words)
	if err != nil {
		return err
	}
	if help, _ := wantsHelp(rest); help {
		return nil
	}
	k, err := newParser(&cli{})
	if err != nil {
		return err
	}
	_, err = k.Parse(rest)
	return err
}

// Every command line in code blocks of the manual, in examples for CI systems and
// in the help is one that the program takes.
func TestDocumentedCommandsParse(t *testing.T) {
	onlyText(t)
	n := 0
	check := func(name, text string) {
		for _, words := range commandsIn(text) {
			n++
			if err := parses(words); err != nil {
				t.Errorf("%s: nightshift %q: %v", name, words, err)
			}
		}
	}
	for _, name := range tree(t) {
		switch {
		case strings.Contains(name, "testdata/"):
		case strings.HasSuffix(name, ".md"):
			code, _ := blocks(readText(t, name))
			check(name, code)
		case strings.HasPrefix(name, "ci-examples/") && regexp.MustCompile(`\.(sh|ya?ml|groovy|txt)$|Jenkinsfile$`).MatchString(name):
			check(name, readText(t, name))
		}
	}
	for _, p := range points(grammarOf(t).Model.Node) {
		check("the help of "+p.path, examples(p.path))
	}
	if n < 60 {
		t.Errorf("only %d command lines were found: the search is broken", n)
	}
}

// foreign are flags of other programs that the manual names.
var foreign = map[string]string{
	"--security-opt": "docker", "--user": "systemd-run", "--scope": "systemd-run", "--check": "git apply", "--stat": "git apply",
	"--cov": "pytest", "--no-sandbox": "a browser", "--build-arg": "docker build", "--rm": "docker run", "--cap-add": "docker run", "--privileged": "docker run",
}

// Every flag that the manual names is one of ours.
func TestDocumentedFlagsExist(t *testing.T) {
	known := map[string]bool{"--help": true, "--version": true}
	for _, p := range points(grammarOf(t).Model.Node) {
		for _, f := range p.flags {
			known["--"+f.Name] = true
		}
	}
	for _, f := range hiddenFlags(t) {
		known["--"+f] = true
	}
	flag := regexp.MustCompile(`(?:^|[\s(])(--[a-z][a-z-]*)`)
	for _, name := range append([]string{"README.md", ".github/SECURITY.md"}, guides(t)...) {
		_, spans := blocks(readText(t, name))
		for _, m := range flag.FindAllStringSubmatch(spans, -1) {
			if f := strings.TrimSuffix(m[1], "-"); f != "--max" && !known[f] && foreign[f] == "" {
				t.Errorf("%s names %s, which no command has", name, f)
			}
		}
	}
}

func guides(t *testing.T) []string {
	return slices.DeleteFunc(tree(t), func(name string) bool { return !strings.HasPrefix(name, ".github/guides/") })
}

// hiddenFlags are those that exist for scripts and are not shown.
func hiddenFlags(t *testing.T) []string {
	var out []string
	for _, c := range grammarOf(t).Model.Node.Children {
		for _, f := range c.Flags {
			if f.Hidden {
				out = append(out, f.Name)
			}
		}
	}
	return out
}

// Every command and every flag that help shows says what it is for, and every
// command that is not self-explaining has an example.
func TestHelpIsComplete(t *testing.T) {
	plainOnes := []string{"doctor", "demo", "version", "auth status", "policy", "report", "auth", "debug"}
	for _, p := range points(grammarOf(t).Model.Node) {
		if p.path != "" && p.help == "" {
			t.Errorf("%s has no help", p.path)
		}
		for _, f := range p.flags {
			if f.Help == "" {
				t.Errorf("%s --%s has no help", p.path, f.Name)
			}
		}
		short := strings.TrimPrefix(p.path, "exec ")
		if examples(short) == "" && !slices.Contains(plainOnes, p.path) {
			t.Errorf("the help of %s has no example", p.path)
		}
	}
}

// The completion offers commands, flags and values where they belong.
func TestCompletion(t *testing.T) {
	onlyText(t)
	at := points(grammarOf(t).Model.Node)
	script := bashCompletion(at) + `
for line in "$@"; do
  eval "COMP_WORDS=($line)"; COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )); COMPREPLY=()
  _nightshift; echo "${COMPREPLY[*]}"
done
`
	cases := [][2]string{
		{`nightshift pol`, "policy"}, {`nightshift exec re`, "resume review"}, {`nightshift policy ch`, "check"},
		{`nightshift policy check --shell`, "--shell --shell-path"}, {`nightshift batch --ta`, "--tasks"},
		{`nightshift exec -s work`, "workspace-write"}, {`nightshift exec --sandbox = read`, "read-only"}, {`nightshift -c a=b exec --js`, "--json"},
		{`nightshift exec -o policy --verify-`, "--verify-rounds"}, {`nightshift exec --report-dir ""`, ""}, {`nightshift completion z`, "zsh"},
		{`nightshift review --fail-on hi`, "high"}, {`codex e resume --la`, "--last"}, {`codex e --color =`, "auto always never"},
		{`nightshift exec --report ht`, "html="}, {`nightshift exec --report = html = re`, ""}, {`nightshift exec -c model = re`, ""},
		{`nightshift exec --report = html = a re`, "resume review"}, {`nightshift exec --json = true re`, "resume review"},
		{`nightshift exec -- re`, ""}, {`nightshift exec --sandbox=read`, "--sandbox=read-only"}, {`nightshift exec --report-dir=re`, ""},
	}
	args := []string{"-c", script, "bash"}
	for _, c := range cases {
		args = append(args, c[0])
	}
	out, err := exec.Command("bash", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := strings.Split(string(out), "\n")
	for i, c := range cases {
		if got[i] != c[1] {
			t.Errorf("%s: %q, want %q", c[0], got[i], c[1])
		}
	}
	for _, p := range at {
		for _, f := range p.flags {
			for _, v := range values(f) {
				if f.Name == "sandbox" || f.Name == "color" || f.Name == "log-level" {
					if err := parses([]string{"exec", "--" + f.Name + "=" + v, "x"}); err != nil {
						t.Errorf("--%s offers %s: %v", f.Name, v, err)
					}
				}
			}
		}
	}
}

// The other shells say the same, on machines that have them.
func TestCompletionOfOtherShells(t *testing.T) {
	onlyText(t)
	at := points(grammarOf(t).Model.Node)
	cases := [][2]string{{`codex exec resume --la`, "--last"}, {`nightshift e --js`, "--json"}, {`nightshift policy ch`, "check"},
		{`nightshift exec --sandbox=w`, "--sandbox=workspace-write"}, {`nightshift exec -s w`, "workspace-write"}, {`nightshift exec --report ht`, "html="}}
	shells := map[string]string{
		"fish": fishCompletion(at) + "for line in $argv; complete -C $line | string replace -r '\\t.*' '' | string join ' '; end; true\n",
		"zsh": zshCompletion(at) + `for line in "$@"; do
  COMP_WORDS=(${=line}) COMP_CWORD=$(( ${#COMP_WORDS} - 1 ))
  compgen -F _nightshift -- "" > "$HOME/got"
  echo ${(M)${(f)"$(<$HOME/got)"}:#${COMP_WORDS[-1]}*}
done
`,
	}
	for shell, script := range shells {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skip(err)
			}
			home := t.TempDir()
			file := filepath.Join(home, "script")
			if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			args := map[string][]string{"fish": {"--no-config", file}, "zsh": {"-f", file}}[shell]
			for _, c := range cases {
				args = append(args, c[0])
			}
			cmd := exec.Command(path, args...)
			cmd.Dir = home
			cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8"}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			got := strings.Split(string(out), "\n")
			for i, c := range cases {
				if i >= len(got) || strings.TrimSpace(got[i]) != c[1] {
					t.Errorf("%s: %q, want %q", c[0], got, c[1])
				}
			}
		})
	}
}

// The manual page names every command, flag, exit code and example.
func TestManualPage(t *testing.T) {
	var b strings.Builder
	if code := run(&runtime{ctx: t.Context(), stdout: &b, stderr: &b}, []string{"man"}); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	page := strings.NewReplacer(`\-`, "-", `\fB`, "", `\fR`, "", `\fI`, "").Replace(b.String())
	for _, p := range points(grammarOf(t).Model.Node)[1:] {
		if !strings.Contains(page, "nightshift "+strings.TrimPrefix(p.path, "exec ")) {
			t.Errorf("%s is not there", p.path)
		}
		for _, f := range p.flags {
			if !strings.Contains(page, "--"+f.Name) {
				t.Errorf("%s --%s is not there", p.path, f.Name)
			}
		}
	}
	for line := range strings.Lines(b.String()) {
		if strings.IndexFunc(line, func(r rune) bool { return r > 126 }) >= 0 {
			t.Errorf("a character that roff may not know: %q", line)
		}
		if strings.HasPrefix(line, ".") && !regexp.MustCompile(`^\.(TH|SH|SS|TP|B|I|PP|nf|fi)( |$|\n)`).MatchString(line) {
			t.Errorf("not a request of this page: %q", line)
		}
	}
}
