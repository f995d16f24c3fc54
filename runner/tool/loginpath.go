package tool

import (
	"path"
	"slices"
	"strings"
)

// profileShells read /etc/profile as login shells and understand export and
// case as POSIX has them.
var profileShells = [...]string{"bash", "sh", "dash", "ash", "ksh", "mksh", "zsh"}

// longestArgument is what Linux takes as one argument, with its final zero, on
// machines with pages of 4 KiB; a command that just fits must not be refused.
const longestArgument = 32 * 4096

// LoginPath makes a command of a login shell find the programs of its
// environment. /etc/profile of Debian and others sets PATH anew, and what the
// job, a setup step or the image had put there would be gone: a language and its
// tools, mostly. A profile that keeps PATH or adds to it has its way. Other
// commands are returned as they are.
func LoginPath(argv, env []string) []string {
	if len(argv) != 3 || argv[1] != "-lc" || !slices.Contains(profileShells[:], path.Base(argv[0])) {
		return argv
	}
	search := ""
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = value
		}
	}
	if search == "" {
		return argv
	}
	quoted := "'" + strings.ReplaceAll(search, "'", `'\''`) + "'"
	// On the line of the command, whose numbers of lines stay right. export, since
	// a PATH that the profile made read-only must not end the command.
	// An empty PATH adds nothing: what follows a last colon is the working folder.
	keep := `case ":${PATH-}:" in *:` + quoted + `:*) ;; *) export PATH=` + quoted + `"${PATH:+:$PATH}" ;; esac; `
	if len(keep)+len(argv[2]) >= longestArgument {
		return argv
	}
	return []string{argv[0], argv[1], keep + argv[2]}
}
