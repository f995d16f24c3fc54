package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/event"
)

// exitError is an error with the exit code of the process.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

// exitSilently ends the process with code after everything was already said.
func exitSilently(code int) error {
	if code == 0 {
		return nil
	}
	return exitError{code: code}
}

// usageError marks what the user typed wrongly: exit code 2. An input whose
// reading a signal ended is no mistake of the user: the signal is returned.
func usageError(format string, args ...any) error { return usageHint("", format, args...) }

// usageHint is a usageError that says what to do; "" says nothing.
func usageHint(hint, format string, args ...any) error {
	for _, arg := range args {
		var sig runner.SignalError
		if err, ok := arg.(error); ok && errors.As(err, &sig) {
			return sig
		}
	}
	err := fmt.Errorf(format, args...)
	if hint != "" {
		err = &hintError{err, hint}
	}
	return exitError{code: runner.ExitUsage, err: err}
}

// hinter is an error that says what to do about it.
type hinter interface{ Hint() string }

// explain prints err as "error:" and "hint:" lines and returns the exit code.
func explain(rt *runtime, err error) int {
	if err == nil {
		return 0
	}
	code := runner.Classify(err).ExitCode
	var coded exitError
	if errors.As(err, &coded) {
		code = coded.code
		if coded.err == nil {
			return code
		}
	}
	if !errors.Is(err, syscall.EPIPE) { // a reader that left, as `head` does, needs no message
		printError(rt.stderr, rt.jobMask(), err)
	}
	return code
}

// printError writes every joined error on a line of its own, each with its
// hint, so that three mistakes cost one round trip. A hint is said once. What was
// mistyped may be a secret that was meant for another place.
func printError(w io.Writer, mask *event.Redactor, err error) {
	var b strings.Builder
	printErrors(&b, err, map[string]bool{})
	// An error that cannot be written has nowhere else to go.
	_, _ = io.WriteString(w, mask.Mask(b.String()))
}

func printErrors(w io.Writer, err error, said map[string]bool) {
	parts := joined(err)
	for _, one := range parts {
		printErrors(w, one, said)
	}
	if len(parts) > 0 {
		for e := err; e != nil; e = errors.Unwrap(e) { // what is around them has its own
			printHint(w, e, said)
		}
		return
	}
	text := err.Error()
	if many := (interface{ Unwrap() []error })(nil); errors.As(err, &many) {
		text = strings.ReplaceAll(text, "\n", "; ") // one sentence around several is one error
	}
	fmt.Fprintf(w, "error: %s\n", text)
	var h hinter
	if errors.As(err, &h) {
		printHint(w, h, said)
	}
}

// joined returns the errors that err is a list of, and none if err has words of
// its own, which would be lost.
func joined(err error) []error {
	var many interface{ Unwrap() []error }
	if !errors.As(err, &many) {
		return nil
	}
	parts, lines := many.Unwrap(), []string{}
	for _, one := range parts {
		lines = append(lines, one.Error())
	}
	if err.Error() != strings.Join(lines, "\n") {
		return nil
	}
	return parts
}

func printHint(w io.Writer, v any, said map[string]bool) {
	if h, ok := v.(hinter); ok && h.Hint() != "" && !said[h.Hint()] {
		said[h.Hint()] = true
		fmt.Fprintf(w, "hint: %s\n", h.Hint())
	}
}
