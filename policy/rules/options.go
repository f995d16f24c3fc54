package rules

import (
	"slices"
	"strings"
)

// How options are written on command lines: what a word is, and where the value
// of an option stands.

func isAssignment(text string) bool {
	name, _, ok := strings.Cut(text, "=")
	if !ok || name == "" || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	for i := range len(name) {
		if !isWordByte(name[i]) {
			return false
		}
	}
	return true
}

func hasAnyPrefix(text string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(text, p) })
}

// optionIn tells whether text is one of the options, with or without a value
// attached. A short one may stand in a cluster: -qc is -q -c.
func optionIn(text string, options []string) bool {
	return slices.ContainsFunc(options, func(o string) bool {
		if text == o {
			return true
		}
		if !isShort(o) {
			return strings.HasPrefix(text, o+"=")
		}
		return inCluster(text, o) > 0
	})
}

func isShort(option string) bool { return len(option) == 2 && option[0] == '-' && option[1] != '-' }

// inCluster is the offset of a short option in a cluster of them, 0 if it is
// not there.
func inCluster(text, option string) int {
	if len(text) < 2 || text[0] != '-' || text[1] == '-' {
		return 0
	}
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == option[1]:
			return i
		case !isWordByte(text[i]):
			return 0 // the value of another option has begun
		}
	}
	return 0
}

// optionValue is the value of an option that optionIn found; used tells whether
// it is the next word.
func optionValue(text string, options []string, next []word) (value word, used bool) {
	for _, o := range options {
		switch {
		case text == o:
			if len(next) == 0 {
				return fixedWord(""), false
			}
			return next[0], true
		case strings.HasPrefix(text, o+"="):
			return fixedWord(text[len(o)+1:]), false
		case isShort(o) && inCluster(text, o) > 0:
			if at := inCluster(text, o); at < len(text)-1 {
				return fixedWord(text[at+1:]), false
			}
			if len(next) == 0 {
				return fixedWord(""), false
			}
			return next[0], true
		}
	}
	return fixedWord(""), false
}

// sshTextKeys are the settings of `ssh -o` that are command lines.
var sshTextKeys = []string{"ProxyCommand=", "LocalCommand=", "KnownHostsCommand="}

// optionText looks at options whose value is a command line.
func (u *unwrapper) optionText(options []string, args []word, k kind) {
	for i, a := range args {
		if !a.known || !optionIn(a.text, options) {
			continue
		}
		u.r.plain = false
		value, _ := optionValue(a.text, options, args[i+1:])
		if !value.known {
			u.r.lose("`" + shorten(value.text, 60) + "` as the value of " + a.text)
			continue
		}
		text := strings.TrimPrefix(value.text, "exec=") // of tar --checkpoint-action
		for _, key := range sshTextKeys {
			text = strings.TrimPrefix(text, key)
		}
		u.script(text, posix, nil, max(k, possible))
		switch a.text {
		case "-x", "-X", "--exec", "--exec-batch": // of fd: a command, not one word
			u.command(args[i+1:], max(k, possible), stdin{})
		}
	}
}
