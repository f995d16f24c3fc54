// Package early begins the sandbox of a run while the rest of the program is
// still being initialised. The init of a sandbox needs some milliseconds to be
// up, and so do the libraries that this program is made of; on two processors
// both pass at once. Go initialises a package as soon as everything it imports
// is ready, so this one must import little.
package early

import (
	"os"
	"slices"
	"strings"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// Sandbox is the sandbox begun for the command line of this process, nil if that
// does not look as if it wanted one. This is a guess: the caller that really parses
// the command line uses the sandbox or closes it.
var Sandbox = begin(os.Args)

func begin(args []string) *sandbox.Early {
	if !Wants(args) {
		return nil
	}
	return sandbox.StartEarly()
}

// IsRun tells whether a word of the command line runs a turn.
func IsRun(word string) bool {
	switch word {
	case "exec", "e", "resume", "fork", "review":
		return true
	}
	return false
}

// unconfined are the words with which no sandbox is made, or no task is run.
var unconfined = []string{string(sandbox.FullAccess), "--yolo", "--dangerously-bypass-approvals-and-sandbox", "-h", "--help", "-V", "--version"}

// Wants tells whether args, the program's name first, look like a command that
// opens one sandbox; options may stand before it. A wrong answer costs some
// milliseconds and nothing else.
func Wants(args []string) bool {
	if len(args) == 0 {
		return false
	}
	at := 1 + slices.IndexFunc(args[1:], func(word string) bool { return IsRun(word) || word == "sandbox" })
	return (at == 1 || at > 1 && strings.HasPrefix(args[1], "-")) &&
		!slices.ContainsFunc(args, func(word string) bool { return slices.Contains(unconfined, word) })
}
