package policy

import (
	"fmt"
	"slices"
	"strings"
)

// ErrorKind tells what an [Error] means for the exit code.
type ErrorKind int

// Kinds of errors.
const (
	// KindUsage is a mistake in configuration or flags: exit code 2.
	KindUsage ErrorKind = iota
	// KindPolicy is a requirement that is violated, impossible or unreadable:
	// exit code 3.
	KindPolicy
)

// Error is one mistake in a layer, with its place where there is one.
type Error struct {
	File         string // "" for flags
	Line, Column int    // from 1; 0: the whole file
	Key          string // dotted key, or the flag
	Message      string
	HintText     string
	Kind         ErrorKind
}

// Error is a sentence that starts with the place.
func (e *Error) Error() string {
	if at := e.place(); at != "" {
		return at + ": " + e.Message
	}
	return e.Message
}

// Hint tells what to do, or is empty.
func (e *Error) Hint() string { return e.HintText }

func (e *Error) place() string {
	switch {
	case e.File == "":
		return ""
	case e.Line == 0:
		return e.File
	case e.Column == 0:
		return fmt.Sprintf("%s:%d", e.File, e.Line)
	}
	return fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column)
}

// Errors are all mistakes that Load found, in the order of the layers.
type Errors struct{ List []*Error }

// Error joins the sentences, one a line.
func (e *Errors) Error() string {
	lines := make([]string, len(e.List))
	for i, one := range e.List {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Hint is the first hint there is.
func (e *Errors) Hint() string {
	for _, one := range e.List {
		if one.HintText != "" {
			return one.HintText
		}
	}
	return ""
}

// Kind is KindPolicy if any of the errors is.
func (e *Errors) Kind() ErrorKind {
	if slices.ContainsFunc(e.List, func(one *Error) bool { return one.Kind == KindPolicy }) {
		return KindPolicy
	}
	return KindUsage
}

// Unwrap gives the single errors to errors.As.
func (e *Errors) Unwrap() []error {
	out := make([]error, len(e.List))
	for i, one := range e.List {
		out[i] = one
	}
	return out
}
