package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/nightshift-ci/nightshift/report"
	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/event"
)

// replayCmd renders a recorded log again: every format, byte for byte as the
// live run wrote it.
type replayCmd struct {
	Events      string   `arg:"" help:"Event log of --events or events.jsonl of a report folder; - is stdin."`
	Report      []string `sep:"none" placeholder:"FORMAT=PATH" help:"Write one report. Repeatable."`
	ReportDir   string   `placeholder:"DIR" help:"Write the usual set of reports into DIR."`
	JSON        bool     `name:"json" help:"Print the wire events on stdout, as exec --json did."`
	LastMessage string   `name:"output-last-message" short:"o" placeholder:"FILE" help:"Write the final message to FILE."`
	SignKey     string   `placeholder:"FILE" help:"Sign the provenance with this PEM private key."`
	Color       string   `default:"auto" placeholder:"WHEN" enum:"auto,always,never" help:"always, never or auto."`
	Quiet       bool     `short:"q" help:"No text on stderr and stdout, only the reports that were asked for."`
}

// Run replays the log.
func (c *replayCmd) Run(rt *runtime) error {
	in, err := rt.openInput(c.Events)
	if err != nil {
		return usageError("cannot read the event log: %v", err)
	}
	defer in.Close()
	sinks, err := c.sinks(rt)
	if err != nil {
		return err
	}
	if err := report.Replay(rt.ctx, in, sinks...); err != nil {
		if bad := new(event.DecodeError); errors.As(err, &bad) {
			return usageError("%s: %w", c.Events, bad)
		}
		return exitError{code: runner.ExitOutput, err: fmt.Errorf("replay %s: %w", c.Events, err)}
	}
	return nil
}

func (c *replayCmd) sinks(rt *runtime) ([]event.Sink, error) {
	outs, taken, err := rt.outputs(c.Report, c.ReportDir, c.JSON)
	if err != nil {
		return nil, err
	}
	var sinks []event.Sink
	switch {
	case c.Quiet:
	case taken:
		sinks = append(sinks, report.NewHuman(rt.stderr, report.HumanOptions{Color: rt.color(c.Color)}))
	case c.JSON:
		sinks = append(sinks, report.NewWire(rt.stdout), report.NewHuman(rt.stderr, report.HumanOptions{Color: rt.color(c.Color), Brief: true}))
	default:
		sinks = append(sinks, report.NewHuman(rt.stderr, report.HumanOptions{Color: rt.color(c.Color)}), report.NewFinal(rt.stdout))
	}
	if c.LastMessage != "" {
		sinks = append(sinks, report.NewLastMessage(rt.abs(c.LastMessage), createFile, func(line string) { fmt.Fprintln(rt.stderr, line) }))
	}
	o := report.Options{Create: rt.orStdout(createFile), Append: rt.orStdout(appendFile), Outputs: outs}
	if c.ReportDir != "" {
		dir := rt.abs(c.ReportDir)
		o.ReportDir, o.PatchFile = dir, filepath.Join(dir, "changes.patch")
		if log := filepath.Join(dir, "events.jsonl"); !sameFile(rt.abs(c.Events), log) { // a broken log would become what could be read of it
			sinks = append(sinks, report.NewJSONLFile(log, createFile))
		}
	}
	if c.SignKey != "" {
		if o.Sign, err = readSigner(rt, rt.abs(c.SignKey)); err != nil {
			return nil, usageError("--sign-key %s: %v", c.SignKey, err)
		}
	}
	r, err := report.NewReporter(o)
	if err != nil {
		return nil, usageError("%w", err)
	}
	return append(sinks, r), nil
}

// sameFile tells whether both names lead to one file.
func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// outputs reads the report flags of commands that render logs.
func (rt *runtime) outputs(flags []string, dir string, stream bool) (outs []report.Output, taken bool, err error) {
	if outs, taken, err = rt.reportOutputs(flags, stream); err != nil {
		return nil, false, err
	}
	if dir == stdoutName {
		return nil, false, usageError("--report-dir -: it cannot go to stdout; name a folder")
	}
	if dir != "" {
		dir = rt.abs(dir)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, false, usageError("--report-dir: %v", err)
		}
		for _, out := range report.DirOutputs() {
			out.Path = filepath.Join(dir, out.Path)
			outs = append(outs, out)
		}
	}
	return outs, taken, nil
}

// openInput opens a file, or stdin for "-".
func (rt *runtime) openInput(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(rt.stdin), nil
	}
	f, err := os.Open(rt.abs(name))
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && fi.IsDir() {
		err = fmt.Errorf("%s is a folder", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// reportCmd works with reports of earlier runs.
type reportCmd struct {
	Merge  reportMergeCmd  `cmd:"" help:"Make one report of several runs. The order does not matter, and a run that is named twice counts once."`
	Schema reportSchemaCmd `cmd:"" help:"Print the JSON Schema of report.json or of the event log."`
}

// reportMergeCmd joins runs into one report.
type reportMergeCmd struct {
	Inputs []string `arg:"" help:"report.json files, merged reports, event logs or report folders."`
	Report []string `sep:"none" placeholder:"FORMAT=PATH" help:"Write one report: json, markdown, html, junit, sarif, ctrf, checkstyle, codequality. Repeatable; without it the merged JSON goes to stdout."`
}

// Run merges.
func (c *reportMergeCmd) Run(rt *runtime) error {
	var runs []*report.Summary
	var errs []error
	for _, name := range c.Inputs {
		some, err := rt.readRuns(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		runs = append(runs, some...)
	}
	if len(errs) > 0 {
		return exitError{code: runner.ExitUsage, err: errors.Join(errs...)}
	}
	outs, _, err := rt.outputs(c.Report, "", false)
	if err != nil {
		return err
	}
	merged := report.Merge(runs...)
	o := &report.Options{Create: rt.orStdout(createFile), Append: rt.orStdout(appendFile), Outputs: outs}
	if len(outs) > 0 {
		err = report.WriteAll(merged.Runs, o)
	} else {
		var b bytes.Buffer
		if err = report.Render(&b, "json", merged.Runs, o); err == nil {
			_, err = rt.stdout.Write(b.Bytes())
		}
	}
	if err != nil {
		return exitError{code: runner.ExitOutput, err: err}
	}
	return nil
}

// readRuns reads a file, or the report of a folder: its event log if there is
// one, since that holds most.
func (rt *runtime) readRuns(name string) ([]*report.Summary, error) {
	if fi, err := os.Stat(rt.abs(name)); err == nil && fi.IsDir() {
		dir := name
		name = filepath.Join(dir, "events.jsonl")
		if _, err := os.Stat(rt.abs(name)); err != nil {
			name = filepath.Join(dir, "report.json")
		}
	}
	f, err := rt.openInput(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return report.ReadRuns(f)
}

// reportSchemaCmd prints a schema.
type reportSchemaCmd struct {
	Of string `arg:"" optional:"" default:"report" enum:"report,events" help:"report or events."`
}

// Run prints it.
func (c *reportSchemaCmd) Run(rt *runtime) error {
	text := report.Schema
	if c.Of == "events" {
		text = event.Schema
	}
	_, err := rt.stdout.Write(text)
	return err
}
