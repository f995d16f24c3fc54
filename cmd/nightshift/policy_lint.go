package main

import (
	"fmt"
	"strings"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner"
)

// policyLintCmd checks files of a policy repository.
type policyLintCmd struct {
	JSON  bool     `name:"json" help:"Print the mistakes as JSON."`
	As    string   `placeholder:"KIND" enum:",config,requirements,rules" default:"" help:"What the files are: config, requirements or rules; guessed from their names otherwise."`
	Files []string `arg:"" help:"Files to check: *.rules, *requirements*.toml, and config.toml."`
}

// finding is one mistake as JSON.
type finding struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Key     string `json:"key,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Run checks every file before it fails.
func (c *policyLintCmd) Run(rt *runtime) error {
	var all []*policy.Error
	for _, name := range c.Files {
		data, err := rt.readInput(rt.abs(name), maxConfig)
		if err != nil {
			all = append(all, &policy.Error{File: name, Message: "cannot be read: " + errText(err).Error(), Kind: policy.KindPolicy})
			continue
		}
		kind := c.As
		if kind == "" {
			kind = policy.LintKind(name)
		}
		all = append(all, policy.Lint(kind, name, data)...)
	}
	if c.JSON {
		out := []finding{}
		for _, e := range all {
			out = append(out, finding{e.File, e.Line, e.Column, e.Key, e.Message, e.Hint()})
		}
		if err := writeJSON(rt.stdout, out); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		if !c.JSON {
			_, err := fmt.Fprintf(rt.stdout, "no mistakes in %s\n", strings.Join(c.Files, ", "))
			return err
		}
		return nil
	}
	errs := &policy.Errors{List: all}
	code := runner.ExitUsage
	if errs.Kind() == policy.KindPolicy {
		code = runner.ExitPolicy
	}
	if c.JSON {
		return exitSilently(code)
	}
	return exitError{code: code, err: errs}
}
