package rules

import (
	"fmt"
	"slices"
	"strings"
)

// gitValues are global options of git with a value in the next word.
var gitValues = []string{"-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--list-cmds", "--attr-source"}

// gitFlags are global options of git without a value.
var gitFlags = []string{
	"-p", "--paginate", "-P", "--no-pager", "--no-replace-objects", "--bare", "--literal-pathspecs", "--glob-pathspecs",
	"--noglob-pathspecs", "--icase-pathspecs", "--no-optional-locks", "--no-advice", "--no-lazy-fetch", "--html-path",
	"--man-path", "--info-path", "--version", "--help", "-h", "-v",
}

// gitTextKeys are parts of configuration keys whose value git runs.
var gitTextKeys = []string{
	"command", "pager", "editor", "sshcommand", "fsmonitor", "external", "textconv", "helper", "program", "askpass",
	"proxycommand", "driver", "process", "clean", "smudge", "cmd", "uploadpack", "receivepack", "gitproxy", "difftool",
	"mergetool", "hook",
}

// git finds the sub-command after global options, and commands that git runs
// for it.
func (u *unwrapper) git(words []word, k kind) {
	alias := map[string]string{}
	i := 1
	for ; i < len(words); i++ {
		w := words[i]
		if !w.known {
			if w.many {
				u.gitDoubt(words[i:], k, "`"+shorten(w.text, 60)+"` among the options of git")
				return
			}
			break
		}
		option := w.text
		switch {
		case !strings.HasPrefix(option, "-"):
		case option == "-c", option == "--config-env":
			u.r.plain = false
			if i++; i < len(words) {
				u.gitConfig(words[i], option == "--config-env", alias, k)
			}
			continue
		case strings.HasPrefix(option, "-c") && !strings.HasPrefix(option, "--"):
			u.r.plain = false
			u.gitConfig(fixedWord(option[2:]), false, alias, k)
			continue
		case strings.HasPrefix(option, "--config-env="):
			u.r.plain = false
			u.gitConfig(fixedWord(option[len("--config-env="):]), true, alias, k)
			continue
		case slices.Contains(gitValues, option):
			i++
			continue
		case slices.Contains(gitFlags, option),
			hasAnyPrefix(option, []string{"--git-dir=", "--work-tree=", "--namespace=", "--super-prefix=", "--list-cmds=", "--attr-source="}):
			continue
		case strings.HasPrefix(option, "--exec-path="):
			u.r.lose("`" + shorten(option, 60) + "` changes what git runs")
			continue
		case option == "--exec-path":
			continue
		default:
			u.gitDoubt(words[i+1:], k, "")
			return
		}
		break
	}
	if i >= len(words) {
		return
	}
	sub := append([]word{words[0]}, words[i:]...)
	sub[0] = fixedWord("git")
	u.derive(sub, k)
	if words[i].known {
		u.gitRuns(words[i].text, words[i+1:], k)
		u.gitAlias(alias, words[i].text, words[i+1:], k)
	}
}

// gitDoubt: which word is the sub-command is not certain.
func (u *unwrapper) gitDoubt(rest []word, k kind, why string) {
	u.r.doubtful = true
	if why != "" {
		u.r.lose(why)
	}
	for i, w := range rest {
		if i >= maxDoubts {
			u.r.lose("git with more than " + fmt.Sprint(maxDoubts) + " words that may be its sub-command")
			return
		}
		if w.known && !strings.HasPrefix(w.text, "-") {
			u.derive(append([]word{fixedWord("git")}, rest[i:]...), max(k, possible))
		}
	}
}

// gitConfig looks at one -c name=value.
func (u *unwrapper) gitConfig(setting word, fromEnv bool, alias map[string]string, k kind) {
	if !setting.known {
		u.r.lose("git setting `" + shorten(setting.text, 60) + "`")
		return
	}
	key, value, _ := strings.Cut(setting.text, "=")
	lower := strings.ToLower(key)
	name, isAlias := strings.CutPrefix(lower, "alias.")
	runs := isAlias || strings.HasPrefix(value, "!") || hasAnyPrefix(lower, []string{"include", "pager.", "interactive.", "browser.", "web."}) || slices.ContainsFunc(gitTextKeys, func(part string) bool {
		return strings.Contains(lower[strings.LastIndexByte(lower, '.')+1:], part)
	}) || lower == "core.hookspath"
	switch {
	case !runs:
	case fromEnv, strings.HasPrefix(lower, "include"), lower == "core.hookspath" && value != "/dev/null" && value != "":
		u.r.lose("git setting `" + shorten(setting.text, 60) + "` names commands that are not in the text")
	case isAlias:
		alias[name] = value
	case value == "" || value == "true" || value == "false" || value == "cat":
	default:
		u.script(strings.TrimPrefix(value, "!"), posix, nil, max(k, possible))
	}
}

// gitAlias expands an alias given on the same command line.
func (u *unwrapper) gitAlias(alias map[string]string, sub string, rest []word, k kind) {
	value, ok := alias[strings.ToLower(sub)]
	if !ok {
		return
	}
	if text, shell := strings.CutPrefix(value, "!"); shell {
		// git gives the words after the alias to its text as "$@", at the end.
		if len(rest) > 0 {
			quoted, known := quoteWords(rest)
			if !known {
				quoted = `"$@"`
			}
			text += " " + quoted
		}
		u.script(text, posix, nil, max(k, possible))
		return
	}
	parts, err := splitWords(value)
	if err != nil || len(parts) == 0 {
		return
	}
	delete(alias, strings.ToLower(sub))
	inner := append(fixedWords(append([]string{"git"}, parts...)), rest...)
	u.command(inner, max(k, possible), stdin{})
	u.gitAlias(alias, parts[0], rest, k)
}

// quoteWords writes words for a shell; false if one is not known.
func quoteWords(words []word) (string, bool) {
	quoted := make([]string, len(words))
	for i, w := range words {
		if !w.known {
			return "", false
		}
		quoted[i] = "'" + strings.ReplaceAll(w.text, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " "), true
}

// gitRuns handles sub-commands with a command in their arguments.
func (u *unwrapper) gitRuns(sub string, args []word, k kind) {
	switch sub {
	case "for-each-repo":
		for i, a := range args {
			if a.known && !strings.HasPrefix(a.text, "-") {
				u.command(append([]word{fixedWord("git")}, args[i:]...), max(k, possible), stdin{})
			}
		}
	case "bisect":
		if len(args) > 1 && args[0].text == "run" {
			u.r.plain = false
			u.command(args[1:], k, stdin{})
		}
	case "submodule":
		for i, a := range args {
			if a.text == "foreach" {
				u.r.plain = false
				rest := args[i+1:]
				for len(rest) > 0 && rest[0].known && strings.HasPrefix(rest[0].text, "-") {
					rest = rest[1:]
				}
				u.evalText(rest, k, "git submodule foreach")
				return
			}
		}
	case "rebase":
		u.optionText([]string{"-x", "--exec"}, args, k)
	case "filter-branch":
		u.optionText(
			[]string{
				"--setup", "--env-filter", "--tree-filter", "--index-filter", "--parent-filter", "--msg-filter",
				"--commit-filter", "--tag-name-filter",
			},
			args,
			k,
		)
	case "difftool":
		u.optionText([]string{"-x", "--extcmd"}, args, k)
	case "grep":
		u.optionText([]string{"-O", "--open-files-in-pager"}, args, k)
	case "clone", "fetch", "pull", "ls-remote":
		u.optionText([]string{"-u", "--upload-pack"}, args, k)
	case "push":
		u.optionText([]string{"--receive-pack", "--exec"}, args, k)
	case "config":
		for i, a := range args {
			if a.known && strings.HasPrefix(strings.ToLower(a.text), "alias.") && i+1 < len(args) {
				u.r.lose("`git config " + shorten(a.text, 40) + "` makes a new command")
			}
		}
	}
}
