package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/nightshift-ci/nightshift/runner"
)

// manCmd prints the manual page, made from the grammar, the examples of the
// help and the table of exit codes.
type manCmd struct{}

// Run prints roff.
func (manCmd) Run(rt *runtime) error {
	k, err := newParser(&cli{})
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, ".TH NIGHTSHIFT 1 \"\" \"nightshift %s\" \"User Commands\"\n.SH NAME\nnightshift \\- %s\n", roff(version), roff(manTitle))
	b.WriteString(".SH SYNOPSIS\n.B nightshift\n.I COMMAND\n[\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]\n.SH EXAMPLES\n")
	manVerbatim(&b, examples(""))
	b.WriteString(".SH COMMANDS\n")
	for _, c := range commands(k.Model.Node) {
		manCommand(&b, c, c.Name)
	}
	b.WriteString(".SH EXIT STATUS\n")
	for _, c := range runner.ExitCodes {
		fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", c.Code, roff(c.Meaning))
	}
	b.WriteString(".TP\n.B 128+n\nended by signal n\n")
	manTable(&b, "ENVIRONMENT", [][2]string{
		{"CODEX_HOME", "folder of config.toml, auth.json, rules and threads; default ~/.codex"},
		{"CODEX_API_KEY", "key for the model service; taken before a login in auth.json"},
		{"CODEX_ACCESS_TOKEN", "access token, used where CODEX_API_KEY is not set"},
		{"OPENAI_API_KEY", "key that is used when nothing else is there"},
		{"HTTPS_PROXY, HTTP_PROXY, NO_PROXY", "proxy for requests of nightshift itself"},
		{"NIGHTSHIFT_LOG", "as --log-level"},
		{"NO_COLOR, FORCE_COLOR", "colours on stderr"},
		{"TRACEPARENT, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES", "for telemetry"},
	})
	manTable(&b, "FILES", [][2]string{
		{"/etc/codex/requirements.toml", "the machine's policy; it can only tighten"},
		{"/etc/codex/config.toml", "the machine's configuration"},
		{"$CODEX_HOME/config.toml", "the user's configuration"},
		{"$CODEX_HOME/rules/*.rules", "the user's rules on commands"},
		{"$CODEX_HOME/auth.json", "a login"},
		{"$CODEX_HOME/sessions/", "threads, for resume and fork"},
		{".codex/config.toml, .codex/rules/*.rules", "of the project; read only if it is trusted"},
		{"AGENTS.md", "the project's instructions for the model"},
	})
	_, err = fmt.Fprint(rt.stdout, b.String())
	return err
}

const manTitle = "a headless runner for coding agents"

// manCommand describes one command and those below it.
func manCommand(b *strings.Builder, n *kong.Node, path string) {
	fmt.Fprintf(b, ".SS nightshift %s\n%s\n", roff(path), roff(n.Help))
	manExamples(b, path)
	for _, arg := range n.Positional {
		fmt.Fprintf(b, ".TP\n.I %s\n%s\n", roff(arg.Summary()), roff(arg.Help))
	}
	for _, f := range shown(n) {
		name := "\\fB" + roff("--"+f.Name) + "\\fR"
		if f.Short != 0 {
			name = "\\fB" + roff("-"+string(f.Short)) + "\\fR, " + name
		}
		if !f.IsBool() {
			name += "=\\fI" + roff(f.FormatPlaceHolder()) + "\\fR"
		}
		fmt.Fprintf(b, ".TP\n%s\n%s\n", name, roff(f.Help))
	}
	for _, c := range commands(n) {
		manCommand(b, c, path+" "+c.Name)
	}
}

func manExamples(b *strings.Builder, path string) {
	if text := examples(path); text != "" {
		b.WriteString(".PP\n")
		manVerbatim(b, text)
	}
}

// manVerbatim shows lines as they are.
func manVerbatim(b *strings.Builder, text string) {
	fmt.Fprintf(b, ".nf\n%s\n.fi\n", roff(strings.TrimRight(text, "\n")))
}

func manTable(b *strings.Builder, title string, rows [][2]string) {
	fmt.Fprintf(b, ".SH %s\n", title)
	for _, r := range rows {
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(r[0]), roff(r[1]))
	}
}

// roff makes text inert: backslashes and dashes are escaped, no line begins with
// a control character, and other characters are named by their number.
func roff(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		var b strings.Builder
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			b.WriteString("\\&")
		}
		for _, r := range line {
			switch {
			case r == '\\':
				b.WriteString("\\e")
			case r == '-':
				b.WriteString("\\-")
			case r > 126:
				fmt.Fprintf(&b, "\\[u%04X]", r)
			default:
				b.WriteRune(r)
			}
		}
		lines[i] = b.String()
	}
	return strings.Join(lines, "\n")
}
