package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/nightshift-ci/nightshift/runner"
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
	cmds, flags := words(k.Model.Node)
	var out string
	switch c.Shell {
	case "bash":
		out = bashCompletion(cmds, flags)
	case "zsh":
		out = "#compdef nightshift codex\nautoload -U bashcompinit && bashcompinit\n" + bashCompletion(cmds, flags)
	case "fish":
		out = fishCompletion(k.Model.Node)
	}
	_, err = fmt.Fprint(rt.stdout, out)
	return err
}

// words lists the commands ("policy check") and, for each, its flags.
func words(root *kong.Node) ([]string, map[string][]string) {
	flags := map[string][]string{}
	var cmds []string
	var walk func(n *kong.Node, path string)
	walk = func(n *kong.Node, path string) {
		for _, f := range n.Flags {
			if !f.Hidden {
				flags[path] = append(flags[path], "--"+f.Name)
			}
		}
		for _, child := range n.Children {
			if child.Hidden || child.Type != kong.CommandNode {
				continue
			}
			p := strings.TrimSpace(path + " " + child.Name)
			cmds = append(cmds, p)
			walk(child, p)
		}
	}
	walk(root, "")
	sort.Strings(cmds)
	return cmds, flags
}

func bashCompletion(cmds []string, flags map[string][]string) string {
	var b strings.Builder
	b.WriteString("_nightshift() {\n  local cur=${COMP_WORDS[COMP_CWORD]} cmd=\"\" w\n")
	b.WriteString("  for w in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n    case \"$w\" in -*) ;; *) case \"$cmd\" in \"\") cmd=$w ;; *) cmd=\"$cmd $w\" ;; esac ;; esac\n  done\n")
	b.WriteString("  case \"$cmd\" in\n")
	for _, c := range append([]string{""}, cmds...) {
		var next []string
		for _, d := range cmds {
			rest, ok := strings.CutPrefix(d, strings.TrimLeft(c+" ", " "))
			if ok && !strings.Contains(rest, " ") {
				next = append(next, rest)
			}
		}
		pattern := fmt.Sprintf("%q", c)
		if c != "" {
			pattern += fmt.Sprintf("|%q\\ *", c)
		}
		fmt.Fprintf(&b, "    %s) COMPREPLY=($(compgen -W %q -- \"$cur\")) ;;\n", pattern, strings.Join(append(next, flags[c]...), " "))
	}
	b.WriteString("  esac\n  [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- \"$cur\"))\n}\ncomplete -o filenames -F _nightshift nightshift codex\n")
	return b.String()
}

func fishCompletion(root *kong.Node) string {
	var b strings.Builder
	for _, child := range root.Children {
		if child.Hidden || child.Type != kong.CommandNode {
			continue
		}
		fmt.Fprintf(&b, "complete -c nightshift -n __fish_use_subcommand -a %s -d %q\n", child.Name, child.Help)
		for _, f := range child.Flags {
			if !f.Hidden {
				fmt.Fprintf(&b, "complete -c nightshift -n '__fish_seen_subcommand_from %s' -l %s -d %q\n", child.Name, f.Name, f.Help)
			}
		}
	}
	return b.String()
}

// manCmd prints the manual page, made from the grammar and the exit table.
type manCmd struct{}

// Run prints roff.
func (manCmd) Run(rt *runtime) error {
	k, err := newParser(&cli{})
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(".TH NIGHTSHIFT 1 \"\" \"nightshift " + roff(version) + "\"\n.SH NAME\nnightshift \\- a headless runner for coding agents\n")
	b.WriteString(".SH SYNOPSIS\n.B nightshift\nCOMMAND [OPTIONS] [ARGUMENTS]\n.SH COMMANDS\n")
	var walk func(n *kong.Node, path string)
	walk = func(n *kong.Node, path string) {
		for _, c := range n.Children {
			if c.Hidden || c.Type != kong.CommandNode {
				continue
			}
			p := strings.TrimSpace(path + " " + c.Name)
			fmt.Fprintf(&b, ".SS nightshift %s\n%s\n", roff(p), roff(c.Help))
			for _, f := range c.Flags {
				if f.Hidden {
					continue
				}
				short := ""
				if f.Short != 0 {
					short = "\\-" + string(f.Short) + ", "
				}
				fmt.Fprintf(&b, ".TP\n.B %s\\-\\-%s\n%s\n", short, roff(f.Name), roff(f.Help))
			}
			walk(c, p)
		}
	}
	walk(k.Model.Node, "")
	b.WriteString(".SH EXIT STATUS\n")
	for _, c := range runner.ExitCodes {
		fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", c.Code, roff(c.Meaning))
	}
	b.WriteString(".TP\n.B 128+n\nended by signal n\n.SH FILES\n.TP\n.I $CODEX_HOME/config.toml\nuser configuration\n.TP\n.I /etc/codex/requirements.toml\nthe machine's policy\n")
	_, err = fmt.Fprint(rt.stdout, b.String())
	return err
}

func roff(s string) string {
	s = strings.NewReplacer("\\", "\\e", "-", "\\-").Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = "\\&" + s
	}
	return s
}
