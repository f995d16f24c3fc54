package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/nightshift-ci/nightshift/cmd/nightshift/early"
	"github.com/nightshift-ci/nightshift/report"
)

// completionCmd prints a completion script made from the grammar.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Run prints the script.
func (c *completionCmd) Run(rt *runtime) error {
	k, err := newParser(&cli{})
	if err != nil {
		return err
	}
	at := points(k.Model.Node)
	var out string
	switch c.Shell {
	case "bash":
		out = bashCompletion(at)
	case "zsh":
		out = zshCompletion(at)
	case "fish":
		out = fishCompletion(at)
	}
	_, err = fmt.Fprint(rt.stdout, out)
	return err
}

// point is one place of a command line: the command words so far and what may
// follow them.
type point struct {
	path    string // "", "exec", "policy check"
	aliases []string
	help    string
	next    []string // commands, or the values of an argument
	flags   []*kong.Flag
}

// points lists every command of the grammar, the program itself first. A command
// that may be left out lends its flags to its parent ("batch" is "batch run"),
// and exec has the subcommands that normalize gives it.
func points(root *kong.Node) []point {
	var out []point
	var walk func(n *kong.Node, path string)
	walk = func(n *kong.Node, path string) {
		p := point{path: path, aliases: n.Aliases, help: n.Help, flags: shown(n)}
		if n.DefaultCmd != nil {
			p.flags = append(p.flags, shown(n.DefaultCmd)...)
		}
		for _, arg := range n.Positional {
			if arg.Enum != "" {
				p.next = append(p.next, arg.EnumSlice()...)
			}
		}
		children := commands(n)
		if path == "exec" {
			for _, c := range commands(root) {
				if c.Name != "exec" && early.IsRun(c.Name) {
					children = append(children, c)
				}
			}
		}
		for _, c := range children {
			p.next = append(p.next, c.Name)
		}
		out = append(out, p)
		for _, c := range children {
			walk(c, strings.TrimSpace(path+" "+c.Name))
		}
	}
	walk(root, "")
	return out
}

// commands are the subcommands that help shows.
func commands(n *kong.Node) []*kong.Node {
	return slices.DeleteFunc(slices.Clone(n.Children), func(c *kong.Node) bool { return c.Hidden || c.Type != kong.CommandNode })
}

// shown are the flags that help shows.
func shown(n *kong.Node) []*kong.Flag {
	return slices.DeleteFunc(slices.Clone(n.Flags), func(f *kong.Flag) bool { return f.Hidden })
}

// words are the ways to write a flag, the long one first.
func words(f *kong.Flag) []string {
	out := []string{"--" + f.Name}
	if f.Short != 0 {
		out = append(out, "-"+string(f.Short))
	}
	return out
}

// values are the words that a flag takes, nil where it is free. Those that the
// grammar does not know are checked by Validate.
func values(f *kong.Flag) []string {
	if f.Enum != "" {
		return slices.DeleteFunc(f.EnumSlice(), func(v string) bool { return v == "" })
	}
	switch f.Name {
	case "sandbox":
		return []string{"read-only", "workspace-write", "danger-full-access"}
	case "color":
		return []string{"auto", "always", "never"}
	case "log-level":
		return []string{"off", "error", "warn", "info", "debug", "trace"}
	case "report":
		var list []string
		for _, name := range report.FormatNames() {
			list = append(list, name+"=")
		}
		return list
	case "fail-on":
		return []string{"critical", "high", "medium", "low"}
	}
	return nil
}

// valued collects the flags that take a value, and those with fixed values by
// these values. A flag means the same in every command.
func valued(at []point) (all []string, fixed map[string][]string) {
	fixed = map[string][]string{}
	for _, p := range at {
		for _, f := range p.flags {
			if f.IsBool() {
				continue
			}
			all = append(all, words(f)...)
			if v := values(f); v != nil {
				list := strings.Join(v, " ")
				fixed[list] = append(fixed[list], words(f)...)
			}
		}
	}
	for list, names := range fixed {
		slices.Sort(names)
		fixed[list] = slices.Compact(names)
	}
	slices.Sort(all)
	return slices.Compact(all), fixed
}

// bashCompletion walks the words before the cursor: opt is the option whose value
// comes next, last the option that came last. Bash makes words of its own of "="
// and of what is around it; zsh hands on --flag=value as one word.
func bashCompletion(at []point) string {
	all, fixed := valued(at)
	var known, alias []string
	for _, p := range at[1:] {
		known = append(known, fmt.Sprintf("%q", " "+p.path))
		for _, a := range p.aliases {
			alias = append(alias, a+") w="+p.path+" ;;")
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `_nightshift() {
  local cur=${COMP_WORDS[COMP_CWORD]} cmd="" opt="" last="" next="" flags="" glued="" w
  case "$cur" in "=") cur="" glued="=" ;; esac
  for w in "${COMP_WORDS[@]:1:$((COMP_CWORD-1))}" $glued; do
    case "$w" in
      "=") opt=${opt:-${last:+=}}; continue ;;
    esac
    if [ -n "$opt" ]; then opt=""; continue; fi
    case "$w" in
      --) return ;;
      %s) opt=$w last=$w ;;
      -*) last=$w ;;
      *)
        case "$w" in %s esac
        last=""; case "$cmd $w" in %s) cmd="$cmd $w" ;; esac ;;
    esac
  done
  glued=""
  case "$opt$cur" in
    --*=*) if [ -z "$opt" ]; then opt=${cur%%%%=*}; glued=$opt=; cur=${cur#*=}; fi ;;
  esac
  case "$cmd" in
`, strings.Join(all, "|"), strings.Join(alias, " "), strings.Join(known, "|"))
	for _, p := range at {
		var flags []string
		for _, f := range p.flags {
			flags = append(flags, "--"+f.Name)
		}
		path := p.path
		if path != "" {
			path = " " + path
		}
		fmt.Fprintf(&b, "    %q) next=%q flags=%q ;;\n", path, strings.Join(p.next, " "), strings.Join(append(flags, "--help"), " "))
	}
	b.WriteString("  esac\n  COMPREPLY=()\n  case \"$opt\" in\n")
	for _, list := range sortedKeys(fixed) {
		more := ""
		if strings.HasSuffix(list, "=") { // the value goes on; zsh has no compopt
			more = `compopt -o nospace 2>/dev/null; `
		}
		fmt.Fprintf(&b, "    %s) COMPREPLY=($(compgen -P \"$glued\" -W %q -- \"$cur\")); %sreturn ;;\n", strings.Join(fixed[list], "|"), list, more)
	}
	b.WriteString(`    ?*) return ;;
  esac
  case "$cur" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$cur")) ;;
    *) COMPREPLY=($(compgen -W "$next" -- "$cur")) ;;
  esac
}
complete -o default -F _nightshift nightshift codex
`)
	return b.String()
}

// zshCompletion is that of bash below zsh's own bridge. It works sourced and as a
// file _nightshift of the fpath, whose first use must complete, too.
func zshCompletion(at []point) string {
	return `#compdef nightshift codex
(( $+functions[compdef] )) || { autoload -U compinit && compinit; }
autoload -U +X bashcompinit && bashcompinit
` + bashCompletion(at) + `if [[ $zsh_eval_context == *loadautofunc* ]]; then _bash_complete -o default -F _nightshift; fi
`
}

func sortedKeys(m map[string][]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func fishCompletion(at []point) string {
	help := map[string]string{}
	for _, p := range at {
		help[p.path] = p.help
	}
	var b strings.Builder
	b.WriteString("function __nightshift_at\n  set -l cmd\n  for w in (commandline -opc)[2..-1]\n    switch $w\n      case --\n        echo after\n        return\n")
	for _, p := range at {
		for _, a := range p.aliases {
			b.WriteString("      case " + a + "\n        set w " + p.path + "\n")
		}
	}
	b.WriteString("    end\n    switch (string join -- ' ' $cmd $w)\n      case")
	for _, p := range at[1:] {
		b.WriteString(" " + fishQuote(p.path))
	}
	b.WriteString("\n        set -a cmd $w\n    end\n  end\n  echo $cmd\nend\n")
	for _, name := range []string{"nightshift", "codex"} {
		for _, p := range at {
			when := fmt.Sprintf("complete -c %s -n %s", name, fishQuote(`test "$(__nightshift_at)" = "`+p.path+`"`))
			for _, n := range p.next {
				text := help[strings.TrimSpace(p.path+" "+n)]
				if text == "" && p.path == "exec" {
					text = help[n]
				}
				fmt.Fprintf(&b, "%s -f -a %s -d %s\n", when, n, fishQuote(text))
			}
			for _, f := range p.flags {
				b.WriteString(when + " -l " + f.Name)
				if f.Short != 0 {
					b.WriteString(" -s " + string(f.Short))
				}
				if !f.IsBool() {
					b.WriteString(" -r")
				}
				v := values(f)
				if v != nil && !strings.HasSuffix(v[0], "=") { // else a file may follow
					b.WriteString(" -f")
				}
				if v != nil {
					b.WriteString(" -a " + fishQuote(strings.Join(v, " ")))
				}
				b.WriteString(" -d " + fishQuote(f.Help) + "\n")
			}
		}
	}
	return b.String()
}

// fishQuote quotes for fish, where only \ and ' are special inside quotes.
func fishQuote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}
