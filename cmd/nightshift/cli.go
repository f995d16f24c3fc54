package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/nightshift-ci/nightshift/cmd/nightshift/early"
	"github.com/nightshift-ci/nightshift/runner"
)

// cli is the grammar. Every command is one field and one file.
type cli struct {
	Exec    execCmd    `cmd:"" aliases:"e" help:"Run one task unattended. Subcommands: resume, fork, review."`
	Resume  resumeCmd  `cmd:"" help:"Go on with an earlier thread (also: exec resume)."`
	Fork    forkCmd    `cmd:"" help:"Start a new thread from the history of another (also: exec fork)."`
	Review  reviewCmd  `cmd:"" help:"Review a change and report findings (also: exec review)."`
	Batch   batchCmd   `cmd:"" help:"Run many tasks, bounded, each in its own checkout."`
	Replay  replayCmd  `cmd:"" help:"Render reports from a recorded event log."`
	Report  reportCmd  `cmd:"" help:"Work with reports of earlier runs."`
	Policy  policyCmd  `cmd:"" help:"Check, explain and compare policy."`
	Sandbox sandboxCmd `cmd:"" help:"Run one command in the sandbox with exec's rules."`
	Doctor  doctorCmd  `cmd:"" help:"Say what this machine can guarantee, and what to do where it cannot."`
	Auth    authCmd    `cmd:"" help:"Show, refresh and import the login."`
	Debug   debugCmd   `cmd:"" help:"Look inside: the exact first request, the model server of the tests."`
	Demo    demoCmd    `cmd:"" help:"See the whole product work on a scratch repository, with no key and no network."`

	ApplyPatch applyPatchCmd `cmd:"" hidden:"" name:"apply-patch" help:"Apply a patch from stdin with exec's rules."`
	Completion completionCmd `cmd:"" help:"Print a shell completion script."`
	Man        manCmd        `cmd:"" help:"Print the manual page."`
	Version    versionCmd    `cmd:"" help:"Print the version."`
}

// runnable is a parsed command.
type runnable interface{ Run(*runtime) error }

// parse reads the command line. A nil command means that help or the version
// was printed and nothing is left to do.
func parse(rt *runtime, args []string) (runnable, error) {
	words, err := normalize(args)
	if err != nil {
		return nil, err
	}
	if wantsVersion(words) {
		return nil, versionCmd{}.Run(rt)
	}
	help, rest := wantsHelp(words)
	grammar := commandGrammar(words)
	if help {
		grammar = &cli{}
	}
	k, err := newParser(grammar)
	if err != nil {
		return nil, fmt.Errorf("the command grammar is broken: %w", err)
	}
	if help {
		return nil, printHelp(rt, k, rest)
	}
	kctx, err := k.Parse(words)
	if err != nil {
		return nil, parseError(err, words)
	}
	if err := boundsHold(kctx); err != nil {
		return nil, err
	}
	cmd, ok := kctx.Selected().Target.Addr().Interface().(runnable)
	if !ok {
		return nil, usageError("`%s` needs a subcommand; see `nightshift %s --help`", kctx.Command(), kctx.Command())
	}
	return cmd, nil
}

// boundsHold refuses a bound of zero. Inside, zero means no bound, which is the
// opposite of what a pipeline means that computed its budget and has none left.
func boundsHold(kctx *kong.Context) error {
	for _, p := range kctx.Path {
		if p.Flag == nil || !p.Flag.Set || !p.Flag.Target.IsZero() {
			continue
		}
		switch kind, _, _ := strings.Cut(p.Flag.Name, "-"); kind {
		case "max", "budget", "requests":
			return exitError{code: runner.ExitUsage, err: &hintError{fmt.Errorf("--%s: nothing can be done within a bound of 0", p.Flag.Name), "leave the option out where there is no bound"}}
		}
	}
	return nil
}

// commandGrammar returns the part of the grammar that words need: one command when
// the first word names it. The library builds a model of every flag it is given,
// and for all commands that takes longer than everything else before the first
// request.
func commandGrammar(words []string) any {
	whole := reflect.TypeFor[cli]()
	for i := range whole.NumField() {
		f := whole.Field(i)
		if len(words) > 0 && words[0] == commandName(f) {
			return reflect.New(reflect.StructOf([]reflect.StructField{f})).Interface()
		}
	}
	return &cli{}
}

// commandName is the word of a command's field, as the library forms it.
func commandName(f reflect.StructField) string {
	if name := f.Tag.Get("name"); name != "" {
		return name
	}
	return strings.ToLower(f.Name)
}

func newParser(grammar any) (*kong.Kong, error) {
	return kong.New(grammar,
		kong.Name("nightshift"),
		kong.Description("A headless runner for coding agents: strict, honest and fast."),
		kong.NoDefaultHelp(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, Tree: false, NoExpandSubcommands: false}),
		kong.Help(kong.DefaultHelpPrinter),
		kong.Exit(func(int) {}),
		kong.KindMapper(reflect.String, kong.MapperFunc(exactString)),
	)
}

// exactString takes a word as it is. The library's own way leads through JSON,
// which has no place for bytes that are no text, and names of files may hold such.
func exactString(ctx *kong.DecodeContext, target reflect.Value) error {
	t, err := ctx.Scan.PopValue("string")
	if err != nil {
		return err
	}
	target.SetString(fmt.Sprint(t.Value))
	return nil
}

// parseError makes one sentence of kong's errors and names the help.
func parseError(err error, words []string) error {
	where := "nightshift --help"
	if len(words) > 0 && knownCommand(words[0]) {
		where = "nightshift " + strings.Join(commandPath(words), " ") + " --help"
	}
	text := err.Error()
	if i := strings.Index(text, ": "); i > 0 && len(words) > 0 && strings.HasPrefix(text, words[0]) {
		text = text[i+2:] // the library repeats the command's name
	}
	hint := "see `" + where + "`"
	command := cmp.Or(strings.Join(commandPath(words), " "), "nightshift")
	if name, ok := strings.CutPrefix(text, `expected "<`); ok {
		name, _, _ = strings.Cut(name, ">")
		text = command + ": " + strings.ToUpper(name) + " is missing"
	}
	switch {
	case len(words) > 0 && !strings.HasPrefix(words[0], "-") && !knownCommand(words[0]):
		text = fmt.Sprintf("there is no command %q", words[0])
		if instead := insteadOf(words[0]); instead != "" {
			hint = instead
		}
	case strings.HasPrefix(text, "expected one of"):
		text = fmt.Sprintf("%s needs a command: %s", command, strings.Join(subcommands(words), ", "))
	case strings.HasPrefix(text, "<") || strings.HasPrefix(text, "[<"): // an argument with fixed values
		name, rest, _ := strings.Cut(strings.TrimLeft(text, "[<"), ">")
		text = command + ": " + strings.ToUpper(name) + strings.TrimPrefix(rest, "]")
	case strings.Contains(text, "missing unit in duration"):
		text, _, _ = strings.Cut(text, ": expected")
		text, hint = text+": a time needs a unit", "write 90s, 15m or 1h30m"
	case strings.HasPrefix(text, "unexpected argument") && len(words) > 0 && early.IsRun(words[0]):
		hint = "a prompt is one argument: quote it; " + hint
	case strings.HasPrefix(text, "unknown flag") && len(words) > 0 && early.IsRun(words[0]) && slices.ContainsFunc(words, dashedText):
		hint = "a prompt that begins with a dash stands behind --, as in nightshift exec -- \"- tidy up\", or comes from stdin"
	}
	return exitError{code: runner.ExitUsage, err: &hintError{errors.New(text), hint}}
}

// dashedText tells a sentence that begins with a dash from an option.
func dashedText(word string) bool {
	head, _, _ := strings.Cut(word, "=")
	return strings.HasPrefix(word, "-") && strings.ContainsAny(head, " \t\n")
}

// insteadOf names what there is here in place of a command of the reference.
func insteadOf(command string) string {
	switch command {
	case "login", "logout":
		return "a run takes its credential from CODEX_API_KEY or from auth.json: `nightshift auth import < auth.json` stores a login, `nightshift auth status` tells what a run would use"
	case "execpolicy":
		return "`nightshift policy check --rules FILE -- COMMAND` decides on a command"
	case "features":
		return "`nightshift policy explain` tells every value of the configuration, and where it comes from"
	case "mcp":
		return "servers stand in [mcp_servers.NAME] of config.toml"
	case "apply":
		return "`--report-dir DIR` writes changes.patch, for `git apply`"
	case "app-server", "mcp-server", "cloud", "app", "remote-control":
		return "this program runs one task and ends: `nightshift exec`"
	}
	return ""
}

// commandPath are the words that name the command, "policy lint" for one.
func commandPath(words []string) []string {
	_, n := commandNode(words)
	return words[:min(max(n, 1), len(words))]
}

// subcommands are the words that may follow those of words that name a command.
func subcommands(words []string) []string {
	node, _ := commandNode(words)
	var out []string
	if node != nil {
		for _, c := range commands(node) {
			out = append(out, c.Name)
		}
	}
	return out
}

// commandNode finds the command that the first n words name.
func commandNode(words []string) (node *kong.Node, n int) {
	k, err := newParser(&cli{})
	if err != nil {
		return nil, 0
	}
	node = k.Model.Node
	for ; n < len(words); n++ {
		at := slices.IndexFunc(node.Children, func(c *kong.Node) bool { return c.Name == words[n] })
		if at < 0 {
			break
		}
		node = node.Children[at]
	}
	return node, n
}

func knownCommand(name string) bool {
	whole := reflect.TypeFor[cli]()
	for i := range whole.NumField() {
		if commandName(whole.Field(i)) == name {
			return true
		}
	}
	return false
}

// hintError adds a hint to an error.
type hintError struct {
	error
	hint string
}

func (e *hintError) Hint() string  { return e.hint }
func (e *hintError) Unwrap() error { return e.error }

func wantsVersion(words []string) bool {
	for _, w := range words {
		if w == "--" {
			return false
		}
		if w == "-V" || w == "--version" {
			return true
		}
	}
	return false
}

// wantsHelp finds -h or --help before "--" and drops it. "help exec" and "exec
// help" are "exec --help".
func wantsHelp(words []string) (bool, []string) {
	if len(words) == 0 {
		return false, words
	}
	if words[0] == "help" {
		return true, words[1:]
	}
	for i, w := range words {
		if w == "--" {
			break
		}
		if w == "-h" || w == "--help" {
			return true, append(append([]string(nil), words[:i]...), words[i+1:]...)
		}
	}
	return false, words
}

func printHelp(rt *runtime, k *kong.Kong, words []string) error {
	var buf bytes.Buffer
	k.Stdout = &buf
	var path []string
	for _, w := range words {
		if strings.HasPrefix(w, "-") {
			break
		}
		path = append(path, w)
	}
	ctx, err := kong.Trace(k, path)
	if err != nil {
		return usageError("help: %v", err)
	}
	if len(path) > 0 && path[0] == "batch" {
		showForBatch(ctx.Flags())
	}
	if err := ctx.PrintUsage(false); err != nil {
		return fmt.Errorf("help: %w", err)
	}
	if _, err := rt.stdout.Write(buf.Bytes()); err != nil {
		return fmt.Errorf("help: %w", err)
	}
	_, err = fmt.Fprint(rt.stdout, helpTail(strings.Join(path, " ")))
	return err
}

// helpTail teaches by example, and lists the exit codes where a turn is run.
func helpTail(path string) string {
	var b strings.Builder
	if text := examples(path); text != "" {
		b.WriteString("\nExamples:\n" + text)
	}
	if path != "" && !early.IsRun(path) {
		return b.String()
	}
	b.WriteString("\nExit codes:\n")
	for _, c := range runner.ExitCodes {
		fmt.Fprintf(&b, "  %3d  %s\n", c.Code, c.Meaning)
	}
	b.WriteString("  128+n  ended by signal n (130 SIGINT, 143 SIGTERM)\n")
	return b.String()
}

// versionCmd prints the version.
type versionCmd struct{}

// Run prints it.
func (versionCmd) Run(rt *runtime) error {
	_, err := fmt.Fprintln(rt.stdout, "nightshift "+version)
	return err
}
