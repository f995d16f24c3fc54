package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/policy/rules"
	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/event"
)

// policyCmd looks at policy without running anything.
type policyCmd struct {
	Check   policyCheckCmd   `cmd:"" help:"Decide on one command as a run in this folder would. Exit 0: it would run; exit 3: it would be refused."`
	Explain policyExplainCmd `cmd:"" help:"Show where values come from, what every layer says, and what requirements bound."`
	Lint    policyLintCmd    `cmd:"" help:"Find every mistake of policy files, each with its position. Exit 2 or 3 if there is one."`
	Diff    policyDiffCmd    `cmd:"" help:"Show what a new requirements file would change. Exit 0 if nothing, else 1."`
	Replay  policyReplayCmd  `cmd:"" help:"Decide the recorded calls of a run again under other requirements. Exit 3 if a call that ran would be refused."`
	Schema  policySchemaCmd  `cmd:"" help:"Print the JSON Schema of config.toml or requirements.toml."`
}

// policyFlags choose the layers that a policy is made of.
type policyFlags struct {
	Dir              string   `name:"cd" short:"C" placeholder:"DIR" help:"Folder of the run."`
	Config           []string `name:"config" short:"c" sep:"none" placeholder:"KEY=VALUE" help:"Override a configuration value. Repeatable."`
	Profile          string   `short:"p" placeholder:"NAME" help:"Profile to use."`
	Sandbox          string   `short:"s" placeholder:"MODE" help:"Sandbox mode: read-only, workspace-write or danger-full-access."`
	Requirements     []string `sep:"none" placeholder:"FILE" help:"One more requirements.toml. Repeatable."`
	Rules            []string `sep:"none" placeholder:"FILE" help:"Check with this rules file instead of those of user and project. Repeatable."`
	IgnoreUserConfig bool     `help:"Do not read config.toml of CODEX_HOME."`
	IgnoreRules      bool     `help:"Do not read user and project .rules files."`
}

// sources are the layers of a run in the chosen folder.
func (f *policyFlags) sources(rt *runtime) (policy.Sources, error) {
	home, err := rt.codexHome()
	if err != nil {
		return policy.Sources{}, err
	}
	host, err := os.Hostname()
	if err != nil {
		return policy.Sources{}, fmt.Errorf("the host name cannot be read: %w", err)
	}
	dir := rt.cwd
	if f.Dir != "" {
		dir = rt.abs(f.Dir)
	}
	files := rt.files()
	src := policy.Sources{Files: files, SystemDir: rt.systemDir, Home: home, UserHome: rt.userHome(), Cwd: files.RealPath(dir), Profile: f.Profile,
		IgnoreUser: f.IgnoreUserConfig, IgnoreRules: f.IgnoreRules || len(f.Rules) > 0, Hostname: host, LookupEnv: rt.lookupEnv}
	if fi, err := os.Stat(src.Cwd); err != nil || !fi.IsDir() {
		return src, usageError("-C %s is not a folder", dir)
	}
	src.Flags.Sandbox = f.Sandbox
	for _, c := range f.Config {
		o, err := policy.ParseOverride(c)
		if err != nil {
			return src, exitError{code: runner.ExitUsage, err: err}
		}
		src.Overrides = append(src.Overrides, o)
	}
	for _, r := range f.Requirements {
		src.Requirements = append(src.Requirements, rt.abs(r))
	}
	for _, r := range f.Rules {
		src.Rules = append(src.Rules, rt.abs(r))
	}
	return src, nil
}

func (f *policyFlags) load(rt *runtime) (*policy.Policy, error) {
	src, err := f.sources(rt)
	if err != nil {
		return nil, err
	}
	return policy.Load(src)
}

// policyCheckCmd decides on one command.
type policyCheckCmd struct {
	policyFlags
	JSON      bool     `name:"json" help:"Print the decision as JSON."`
	Shell     string   `placeholder:"STRING" help:"Check this shell text instead of an argument list."`
	ShellPath string   `default:"/bin/bash" placeholder:"PATH" help:"Shell that would run the text."`
	Argv      []string `arg:"" optional:"" passthrough:"" help:"The program and its arguments, after --."`
}

// checked is the JSON of a decision.
type checked struct {
	Decision string        `json:"decision"`
	Outcome  string        `json:"outcome"`
	Reason   string        `json:"reason,omitempty"`
	Source   string        `json:"source,omitempty"`
	Rule     string        `json:"rule,omitempty"`
	Origin   string        `json:"origin,omitempty"`
	Matches  []rules.Match `json:"matches"`
	Commands [][]string    `json:"commands"`
	Opaque   []string      `json:"opaque"`
	// Plain: only simple commands with fixed words.
	Plain  bool   `json:"plain"`
	Digest string `json:"policy_digest"`
}

// Run prints the decision and ends with its code.
func (c *policyCheckCmd) Run(rt *runtime) error {
	argv := c.Argv
	if len(argv) > 0 && argv[0] == "--" {
		argv = argv[1:]
	}
	switch {
	case c.Shell != "" && len(argv) > 0:
		return usageError("policy check: give either --shell or an argument list")
	case c.Shell == "" && len(argv) == 0:
		return usageError("policy check: no command given; use `nightshift policy check -- CMD…` or --shell STRING")
	}
	p, err := c.load(rt)
	if err != nil {
		return err
	}
	var v policy.Verdict
	if c.Shell != "" {
		v = p.Shell(c.Shell, c.ShellPath, p.Config().AllowLoginShell)
	} else {
		v = p.Command(argv)
	}
	if c.JSON {
		out := checked{Decision: v.Level.String(), Outcome: v.Outcome, Reason: v.Reason, Source: v.Source, Rule: v.Rule, Origin: v.Origin,
			Matches: v.Matches, Commands: v.Commands, Opaque: v.Opaque, Plain: v.Plain, Digest: p.Digest()}
		if out.Matches == nil {
			out.Matches = []rules.Match{}
		}
		if out.Commands == nil {
			out.Commands = [][]string{}
		}
		if out.Opaque == nil {
			out.Opaque = []string{}
		}
		if err := writeJSON(rt.stdout, out); err != nil {
			return err
		}
	} else if err := printVerdict(rt.stdout, v); err != nil {
		return err
	}
	if v.Outcome == policy.Denied {
		return exitSilently(runner.ExitPolicy)
	}
	return nil
}

func printVerdict(w io.Writer, v policy.Verdict) error {
	var b strings.Builder
	if v.Level == rules.None {
		fmt.Fprintf(&b, "%s: no rule matches\n", v.Outcome)
	} else {
		fmt.Fprintf(&b, "%s: the rules say %s\n", v.Outcome, v.Level)
	}
	if v.Reason != "" {
		fmt.Fprintf(&b, "  %s\n", visible(v.Reason))
	}
	for _, m := range v.Matches {
		fmt.Fprintf(&b, "  %s matches %s rule `%s` (%s)", quoteArgv(m.Command), m.Decision, strings.Join(m.Prefix, " "), m.Origin)
		if m.Justification != "" {
			fmt.Fprintf(&b, ": %s", visible(m.Justification))
		}
		b.WriteByte('\n')
	}
	for _, argv := range v.Commands {
		fmt.Fprintf(&b, "  read as %s\n", quoteArgv(argv))
	}
	for _, o := range v.Opaque {
		fmt.Fprintf(&b, "  not readable: %s\n", visible(o))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// quoteArgv shows an argument list on one line.
func quoteArgv(argv []string) string {
	out := make([]string, len(argv))
	for i, a := range argv {
		out[i] = a
		if a == "" || strings.ContainsAny(a, " \t\n'\"\\$`|&;<>(){}*?[]#~") || visible(a) != a {
			out[i] = strconv.Quote(a)
		}
	}
	return strings.Join(out, " ")
}

// visible escapes what a terminal would act on.
func visible(s string) string {
	quoted := strconv.Quote(s)
	inner := quoted[1 : len(quoted)-1]
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(inner)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// policyExplainCmd shows where values come from.
type policyExplainCmd struct {
	policyFlags
	JSON bool   `name:"json" help:"Print as JSON."`
	Key  string `arg:"" optional:"" help:"A dotted key, as sandbox_mode; without one, every value that is not a default."`
}

// Run prints one explanation, or all.
func (c *policyExplainCmd) Run(rt *runtime) error {
	p, err := c.load(rt)
	if err != nil {
		return err
	}
	if c.Key != "" {
		e := p.Explain(c.Key)
		if c.JSON {
			if err := writeJSON(rt.stdout, e); err != nil {
				return err
			}
		} else if _, err := io.WriteString(rt.stdout, e.String()); err != nil {
			return err
		}
		if !e.Known {
			return exitSilently(runner.ExitUsage)
		}
		return nil
	}
	if c.JSON {
		return writeJSON(rt.stdout, overview(p))
	}
	return printOverview(rt.stdout, p)
}

// policyOverview is the JSON of a whole policy.
type policyOverview struct {
	Digest  string               `json:"policy_digest"`
	Layers  []policy.Layer       `json:"layers"`
	Values  []policy.Explanation `json:"values"`
	Notices []noticeJSON         `json:"notices"`
	Rules   int                  `json:"command_rules"`
	Hosts   int                  `json:"network_rules"`
}

type noticeJSON struct {
	Class   string `json:"class"`
	Message string `json:"message"`
	Origin  string `json:"origin,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

func overview(p *policy.Policy) policyOverview {
	o := policyOverview{Digest: p.Digest(), Layers: p.Layers(), Values: []policy.Explanation{}, Notices: []noticeJSON{}, Rules: len(p.Rules().Rules()), Hosts: len(p.Rules().Network())}
	for _, k := range overviewKeys(p) {
		o.Values = append(o.Values, p.Explain(k))
	}
	for _, n := range p.Notices() {
		o.Notices = append(o.Notices, noticeJSON{n.Class, n.Message, n.Origin, n.Hint})
	}
	return o
}

// overviewKeys are the values that are set, and those everybody asks about. What
// stands inside a list is shown with the list.
func overviewKeys(p *policy.Policy) []string {
	keys := slices.DeleteFunc(slices.Clone(p.Keys()), func(k string) bool { return strings.Contains(k, "].") })
	for _, k := range []string{"allow_login_shell", "approval_policy", "model", "sandbox_mode", "sandbox_workspace_write.network_access", "web_search"} {
		if _, set := p.Origins()[k]; !set {
			keys = append(keys, k)
		}
	}
	return keys
}

func printOverview(w io.Writer, p *policy.Policy) error {
	var b strings.Builder
	for _, k := range overviewKeys(p) {
		e := p.Explain(k)
		value, err := compactJSON(e.Value)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s = %s  (%s)\n", k, value, e.Origin)
		for _, c := range e.Constraint {
			bound, err := compactJSON(c.Value)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "    bound by %s %s  (%s)\n", c.Requirement, bound, c.Origin)
		}
	}
	fmt.Fprintf(&b, "\n%d rules on commands, %d on hosts\npolicy digest %s\n", len(p.Rules().Rules()), len(p.Rules().Network()), p.Digest())
	for _, n := range p.Notices() {
		fmt.Fprintf(&b, "notice: %s\n", n.Message)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// compactJSON is a value on one line, with < and & as they are.
func compactJSON(v any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// policyLintCmd checks files of a policy repository.
type policyLintCmd struct {
	JSON  bool     `name:"json" help:"Print the mistakes as JSON."`
	As    string   `placeholder:"KIND" enum:",config,requirements,rules" default:"" help:"What the files are: config, requirements or rules; guessed from their names otherwise."`
	Files []string `arg:"" help:"Files to check: *.rules, *requirements*.toml, and config.toml."`
}

// finding is one mistake as JSON.
type finding struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Key     string `json:"key,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Run checks every file before it fails.
func (c *policyLintCmd) Run(rt *runtime) error {
	var all []*policy.Error
	for _, name := range c.Files {
		data, err := os.ReadFile(rt.abs(name))
		if err != nil {
			all = append(all, &policy.Error{File: name, Message: "cannot be read: " + pathReason(err), Kind: policy.KindPolicy})
			continue
		}
		kind := c.As
		if kind == "" {
			kind = policy.LintKind(name)
		}
		all = append(all, policy.Lint(kind, name, data)...)
	}
	if c.JSON {
		out := []finding{}
		for _, e := range all {
			out = append(out, finding{e.File, e.Line, e.Column, e.Key, e.Message, e.Hint()})
		}
		if err := writeJSON(rt.stdout, out); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		if !c.JSON {
			_, err := fmt.Fprintf(rt.stdout, "%d files, no mistakes\n", len(c.Files))
			return err
		}
		return nil
	}
	errs := &policy.Errors{List: all}
	code := runner.ExitUsage
	if errs.Kind() == policy.KindPolicy {
		code = runner.ExitPolicy
	}
	if c.JSON {
		return exitSilently(code)
	}
	return exitError{code: code, err: errs}
}

func pathReason(err error) string {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// policyDiffCmd compares two requirement files.
type policyDiffCmd struct {
	policyFlags
	JSON bool   `name:"json" help:"Print as JSON."`
	A    string `arg:"" help:"The requirements file in force."`
	B    string `arg:"" help:"The new one."`
}

// policyDiff is the JSON of a comparison.
type policyDiff struct {
	Requirements []policy.Change     `json:"requirements"`
	Here         []policy.Difference `json:"effective_here"`
	// Errors are why no run would start here under B, if so.
	Errors []string `json:"errors,omitempty"`
}

// Run prints what changes: in the files, and for a run in this folder.
func (c *policyDiffCmd) Run(rt *runtime) error {
	read := func(name string) ([]byte, error) {
		data, err := os.ReadFile(rt.abs(name))
		if err != nil {
			return nil, usageError("%s cannot be read: %s", name, pathReason(err))
		}
		return data, nil
	}
	a, err := read(c.A)
	if err != nil {
		return err
	}
	b, err := read(c.B)
	if err != nil {
		return err
	}
	d := policyDiff{Here: []policy.Difference{}}
	if d.Requirements, err = policy.Compare(c.A, a, c.B, b); err != nil {
		return err
	}
	if d.Requirements == nil {
		d.Requirements = []policy.Change{}
	}
	if err := c.here(rt, &d); err != nil {
		return err
	}
	if c.JSON {
		err = writeJSON(rt.stdout, d)
	} else {
		err = printDiff(rt.stdout, d)
	}
	if err == nil && len(d.Requirements)+len(d.Here)+len(d.Errors) > 0 {
		return exitSilently(1)
	}
	return err
}

// here compares the effective values of a run in this folder.
func (c *policyDiffCmd) here(rt *runtime, d *policyDiff) error {
	src, err := c.sources(rt)
	if err != nil {
		return err
	}
	with := func(file string) (*policy.Policy, error) {
		s := src
		s.Requirements = append(append([]string{}, src.Requirements...), rt.abs(file))
		return policy.Load(s)
	}
	before, errA := with(c.A)
	after, errB := with(c.B)
	var many *policy.Errors
	switch {
	case errA != nil:
		// Nothing runs today, so there is nothing to compare with.
		return nil
	case errors.As(errB, &many):
		for _, e := range many.List {
			d.Errors = append(d.Errors, e.Error())
		}
		return nil
	case errB != nil:
		return errB
	}
	if list := policy.Differences(before, after); list != nil {
		d.Here = list
	}
	return nil
}

func printDiff(w io.Writer, d policyDiff) error {
	var b strings.Builder
	show := func(v any) string {
		if v == nil {
			return "(not set)"
		}
		text, err := compactJSON(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		return text
	}
	if len(d.Requirements) == 0 {
		b.WriteString("the files demand the same\n")
	}
	for _, r := range d.Requirements {
		fmt.Fprintf(&b, "%-9s %s: %s -> %s\n", r.Effect, r.Key, show(r.Before), show(r.After))
	}
	for _, h := range d.Here {
		fmt.Fprintf(&b, "here      %s: %s -> %s\n", h.Key, show(h.Before), show(h.After))
	}
	for _, e := range d.Errors {
		fmt.Fprintf(&b, "here      no run would start: %s\n", e)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// policyReplayCmd decides recorded calls again.
type policyReplayCmd struct {
	policyFlags
	JSON   bool   `name:"json" help:"Print as JSON."`
	Events string `arg:"" help:"Event log of a run (--events or events.jsonl of a report folder); - is stdin."`
}

// redecided is one recorded decision and what it would be now.
type redecided struct {
	Seq     uint64 `json:"seq"`
	Action  string `json:"action"`
	Subject string `json:"subject"`
	Before  string `json:"before"`
	After   string `json:"after"`
	Reason  string `json:"reason,omitempty"`
	Rule    string `json:"rule,omitempty"`
	Origin  string `json:"origin,omitempty"`
}

// replayed is the JSON of a replay.
type replayed struct {
	Decided int         `json:"decided"`
	Skipped int         `json:"skipped"` // kinds of calls that cannot be decided again
	Changed []redecided `json:"changed"`
}

// Run prints the calls that would be decided differently.
func (c *policyReplayCmd) Run(rt *runtime) error {
	p, err := c.load(rt)
	if err != nil {
		return err
	}
	in, err := rt.openInput(c.Events)
	if err != nil {
		return usageError("cannot read the event log: %v", err)
	}
	defer in.Close()
	out := replayed{Changed: []redecided{}}
	refused := false
	for rec, err := range event.Decode(in) {
		if err != nil {
			return fmt.Errorf("%s: %w", c.Events, err)
		}
		e, ok := rec.Event.(event.PolicyDecision)
		if !ok {
			continue
		}
		now, decided := decideAgain(p, e)
		if !decided {
			out.Skipped++
			continue
		}
		out.Decided++
		if now.After == e.Outcome {
			continue
		}
		now.Seq, now.Action, now.Subject, now.Before = rec.Seq, e.Action, e.Subject, e.Outcome
		out.Changed = append(out.Changed, now)
		refused = refused || now.After == policy.Denied
	}
	if c.JSON {
		err = writeJSON(rt.stdout, out)
	} else {
		err = printReplayed(rt.stdout, out)
	}
	if err == nil && refused {
		return exitSilently(runner.ExitPolicy)
	}
	return err
}

// decideAgain decides one recorded call; false for calls whose decision depends
// on more than the record holds.
func decideAgain(p *policy.Policy, e event.PolicyDecision) (redecided, bool) {
	verdict := func(v policy.Verdict) (redecided, bool) {
		return redecided{After: v.Outcome, Reason: v.Reason, Rule: v.Rule, Origin: v.Origin}, true
	}
	switch {
	case e.Action == "command" && len(e.Argv) == 3 && e.Shell != "":
		return verdict(p.Shell(e.Shell, e.Argv[0], strings.Contains(e.Argv[1], "l")))
	case e.Action == "command" && e.Shell != "":
		return verdict(p.Shell(e.Shell, "/bin/bash", p.Config().AllowLoginShell))
	case e.Action == "command" && len(e.Argv) > 0:
		return verdict(p.Command(e.Argv))
	case e.Action == "escalation" && e.Shell != "":
		return verdict(p.Escalation(e.Shell, "/bin/bash", p.Config().AllowLoginShell))
	case e.Action == "network":
		host, port, ok := strings.Cut(e.Subject, ":")
		n, err := strconv.Atoi(port)
		if !ok || err != nil {
			return redecided{}, false
		}
		method := "CONNECT"
		if n == 80 {
			method = "GET"
		}
		d := p.Host(host, n, method)
		r := redecided{After: policy.Denied, Reason: d.Reason, Rule: d.Rule, Origin: d.Origin}
		if d.Allowed {
			r.After = policy.Allowed
		}
		return r, true
	}
	return redecided{}, false
}

func printReplayed(w io.Writer, out replayed) error {
	var b strings.Builder
	for _, r := range out.Changed {
		fmt.Fprintf(&b, "%d %s %s: %s -> %s", r.Seq, r.Action, visible(r.Subject), r.Before, r.After)
		if r.Reason != "" {
			fmt.Fprintf(&b, " (%s)", visible(r.Reason))
		}
		if r.Origin != "" {
			fmt.Fprintf(&b, " [%s]", r.Origin)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%d decisions made again, %d different", out.Decided, len(out.Changed))
	if out.Skipped > 0 {
		fmt.Fprintf(&b, ", %d of kinds that cannot be decided again", out.Skipped)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// policySchemaCmd prints a JSON Schema.
type policySchemaCmd struct {
	Name string `arg:"" enum:"config,requirements" help:"config or requirements."`
}

// Run prints it.
func (c *policySchemaCmd) Run(rt *runtime) error {
	data, err := policy.Schema(c.Name)
	if err != nil {
		return usageError("%v", err)
	}
	_, err = rt.stdout.Write(data)
	return err
}
