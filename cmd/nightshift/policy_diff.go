package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/nightshift-ci/nightshift/policy"
)

// policyDiffCmd compares two requirement files.
type policyDiffCmd struct {
	policyFlags
	JSON bool   `name:"json" help:"Print as JSON."`
	A    string `arg:"" help:"The requirements file in force."`
	B    string `arg:"" help:"The new one."`
}

// policyDiff is the JSON of a comparison.
type policyDiff struct {
	Requirements []policy.Change     `json:"requirements"`
	Here         []policy.Difference `json:"effective_here"`
	// Errors are why no run would start here under B, if so.
	Errors []string `json:"errors,omitempty"`
}

// Run prints what changes: in the files, and for a run in this folder.
func (c *policyDiffCmd) Run(rt *runtime) error {
	read := func(name string) ([]byte, error) {
		data, err := rt.readInput(rt.abs(name), maxConfig)
		if err != nil {
			return nil, usageError("%s cannot be read: %v", name, errText(err))
		}
		return data, nil
	}
	a, err := read(c.A)
	if err != nil {
		return err
	}
	b, err := read(c.B)
	if err != nil {
		return err
	}
	d := policyDiff{Here: []policy.Difference{}}
	if d.Requirements, err = policy.Compare(c.A, a, c.B, b); err != nil {
		return err
	}
	if d.Requirements == nil {
		d.Requirements = []policy.Change{}
	}
	if err := c.here(rt, &d); err != nil {
		return err
	}
	if c.JSON {
		err = writeJSON(rt.stdout, d)
	} else {
		err = printDiff(rt.stdout, d)
	}
	if err == nil && len(d.Requirements)+len(d.Here)+len(d.Errors) > 0 {
		return exitSilently(1)
	}
	return err
}

// here compares the effective values of a run in this folder.
func (c *policyDiffCmd) here(rt *runtime, d *policyDiff) error {
	src, err := c.sources(rt)
	if err != nil {
		return err
	}
	with := func(file string) (*policy.Policy, error) {
		s := src
		s.Requirements = append(append([]string{}, src.Requirements...), rt.abs(file))
		return policy.Load(s)
	}
	before, errA := with(c.A)
	after, errB := with(c.B)
	var many *policy.Errors
	switch {
	case errA != nil:
		// Nothing runs today, so there is nothing to compare with.
		return nil
	case errors.As(errB, &many):
		for _, e := range many.List {
			d.Errors = append(d.Errors, e.Error())
		}
		return nil
	case errB != nil:
		return errB
	}
	if list := policy.Differences(before, after); list != nil {
		d.Here = list
	}
	return nil
}

func printDiff(w io.Writer, d policyDiff) error {
	var b strings.Builder
	show := func(v any) string {
		if v == nil {
			return "(not set)"
		}
		text, err := jsonText(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		return text
	}
	if len(d.Requirements) == 0 {
		b.WriteString("the files demand the same\n")
	}
	for _, r := range d.Requirements {
		fmt.Fprintf(&b, "%-9s %s: %s -> %s\n", r.Effect, r.Key, show(r.Before), show(r.After))
	}
	for _, h := range d.Here {
		fmt.Fprintf(&b, "here      %s: %s -> %s\n", h.Key, show(h.Before), show(h.After))
	}
	for _, e := range d.Errors {
		fmt.Fprintf(&b, "here      no run would start: %s\n", e)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
