//go:build linux

package sandbox

import (
	"fmt"
	"os"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

// Init must be the first call in main. In a program that the package started
// itself it does that program's work and never returns; otherwise it returns at
// once. helpers are the functions that Command.Helper may name. (A program that
// was started as the init of a sandbox does not even get to main: see package
// confine.)
func Init(helpers map[string]HelperFunc) {
	if len(os.Args) == 0 {
		return
	}
	if os.Args[0] == confine.HelperName {
		os.Exit(helperMain(helpers))
	}
}

// helperMain runs one helper; the kernel confines this process already.
func helperMain(helpers map[string]HelperFunc) int {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "sandbox: no helper named")
		return 127
	}
	f, ok := helpers[os.Args[1]]
	if !ok {
		fmt.Fprintf(os.Stderr, "sandbox: no helper %q in this program\n", os.Args[1])
		return 127
	}
	return f(os.Args[2:], os.Stdin, os.Stdout, os.Stderr)
}
