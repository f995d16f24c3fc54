package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// HelperName is the name under which [Helper] is registered with the sandbox.
const HelperName = "apply-patch"

// Request is what [Helper] reads from its input: one JSON value.
type Request struct {
	Scope
	Patch string `json:"patch"`
	// Check verifies only.
	Check bool `json:"check,omitempty"`
}

// Stages of a [Response].
const (
	Verified = "verified" // every hunk fits; writing begins
	Done     = "done"     // everything is written
	Stopped  = "stopped"  // the patch did not come to its end: see Class
)

// Classes of a Response with the stage Stopped.
const (
	ClassParse    = "parse"    // the text is not a patch
	ClassRejected = "rejected" // a path may not be changed
	ClassVerify   = "verify"   // the patch does not fit the files
	ClassWrite    = "write"    // a file could not be written
)

// Response is one line of [Helper]'s output: Verified when the writing begins,
// then Done or Stopped.
type Response struct {
	Stage string `json:"stage"`
	// Changes are all changes of the patch, sorted by path.
	Changes []PathChange `json:"changes"`
	// Summary lists the files changed, "A path" lines first, then M, then D, as
	// the patch writes them. With Stopped these are the changes made
	// before the failing one.
	Summary []string `json:"summary,omitempty"`
	Class   string   `json:"class,omitempty"`
	// Reason is that of a RejectedError.
	Reason string `json:"reason,omitempty"`
	// Message is a sentence; Headline the first half of a write error's.
	Message  string `json:"message,omitempty"`
	Headline string `json:"headline,omitempty"`
}

// Helper reads a [Request] and applies its patch. It is to run confined: the
// checks of this package and the kernel's then both have to fail before a file
// outside is touched. The result is 0 when the patch was applied, 1 when not,
// 2 when the request cannot be read or answered.
func Helper(_ []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var req Request
	if err := json.NewDecoder(stdin).Decode(&req); err != nil {
		fmt.Fprintf(stderr, "apply-patch: reading the request: %s\n", err)
		return 2
	}
	out := json.NewEncoder(stdout)
	out.SetEscapeHTML(false)
	// A run that ends asks its commands to end, too. A patch that has begun to
	// write is finished first: it takes milliseconds, and half of one, or an
	// unfinished file, would lie in the workspace. SIGKILL still comes after the
	// grace.
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(asked)
	code := 0
	for _, r := range run(req, func(r Response) error { return out.Encode(r) }) {
		if err := out.Encode(r); err != nil {
			fmt.Fprintf(stderr, "apply-patch: answering: %s\n", err)
			return 2
		}
		if r.Stage == Stopped {
			code = 1
		}
	}
	return code
}

// run applies the patch of req and returns the last response. verified is
// called before the first write; if it fails nothing is written.
func run(req Request, verified func(Response) error) []Response {
	p, err := Parse(req.Patch)
	if err != nil {
		return []Response{stopped(err, nil)}
	}
	plan, err := Prepare(p, req.Scope)
	if err != nil {
		return []Response{stopped(err, Named(p, req.Workdir))}
	}
	defer plan.Close()
	changes := plan.Changes()
	if req.Check {
		return []Response{{Stage: Verified, Changes: changes}}
	}
	if err := verified(Response{Stage: Verified, Changes: changes}); err != nil {
		return []Response{stopped(err, changes)}
	}
	done, err := plan.Apply()
	if err != nil {
		r := stopped(err, changes)
		r.Summary = Summary(p.Changes[:len(done)])
		return []Response{r}
	}
	return []Response{{Stage: Done, Changes: changes, Summary: Summary(p.Changes[:len(done)])}}
}

func stopped(err error, changes []PathChange) Response {
	r := Response{Stage: Stopped, Class: ClassVerify, Message: err.Error(), Changes: changes}
	if changes == nil {
		r.Changes = []PathChange{}
	}
	var parse *ParseError
	var rejected *RejectedError
	var write *WriteError
	switch {
	case errors.As(err, &parse):
		r.Class = ClassParse
	case errors.As(err, &rejected):
		r.Class, r.Reason = ClassRejected, rejected.Reason
	case errors.As(err, &write):
		r.Class, r.Headline = ClassWrite, write.Headline()
	}
	return r
}

// Summary lists changed files as the model is told: "A", "M", "D" and the path
// as the patch writes it, added files first, then changed ones under their new
// path, then removed ones.
func Summary(done []Change) []string {
	lists := map[string][]string{}
	seen := map[string]bool{}
	for _, c := range done {
		letter, path := "M", c.Path
		switch {
		case c.Kind == Add:
			letter = "A"
		case c.Kind == Delete:
			letter = "D"
		case c.MoveTo != "":
			path = c.MoveTo
		}
		line := letter + " " + path
		if !seen[line] {
			seen[line] = true
			lists[letter] = append(lists[letter], line)
		}
	}
	var out []string
	for _, letter := range []string{"A", "M", "D"} {
		out = append(out, lists[letter]...)
	}
	return out
}
