package main

import (
	"context"
	"fmt"
	"iter"
	"os"

	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
	"github.com/nightshift-ci/nightshift/runner/runnertest"
)

// debugCmd looks inside.
type debugCmd struct {
	PromptInput promptInputCmd `cmd:"" help:"Print the exact first request of a run, secrets masked. Nothing is sent."`
	Server      modelServerCmd `cmd:"" help:"Serve a scripted model over HTTP, for tests of clients."`
}

// promptInputCmd prints the request that exec would send first.
type promptInputCmd struct {
	runFlags `embed:""`
	Prompt   *string `arg:"" optional:"" help:"What to do; - reads it from stdin."`
}

// Run builds the request exactly as exec does, on an ephemeral thread. It needs
// no credential.
func (c *promptInputCmd) Run(rt *runtime) error {
	quiet := *rt
	quiet.stdout = os.Stderr
	c.Ephemeral, c.JSON, c.NoGitHub = true, true, true
	c.Report, c.ReportDir, c.Events, c.LastMessage, c.Record = nil, "", "", "", ""
	var body []byte
	s := quiet.session(&c.runFlags, job{mode: "exec", silent: true, answer: &capture{body: &body}})
	err := s.run(promptSources{arg: c.Prompt, file: c.PromptFile})
	if body == nil {
		if err == nil {
			err = fmt.Errorf("no request was made")
		}
		return err
	}
	_, err = fmt.Fprintf(rt.stdout, "%s\n", s.mask.MaskJSON(body))
	return err
}

// capture keeps the first request and answers it with an end.
type capture struct {
	body *[]byte
}

// Stream keeps r and yields an empty answer.
func (c *capture) Stream(_ context.Context, r model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		var err error
		if *c.body, err = model.Body(r); err != nil {
			yield(model.Delta{}, err)
			return
		}
		yield(model.Delta{Done: &model.Response{Model: r.Model, Status: "completed", Usage: event.Usage{}}}, nil)
	}
}

// modelServerCmd serves a script on loopback.
type modelServerCmd struct {
	Script string `arg:"" help:"File with the replies, one JSON object a line."`
	Addr   string `default:"127.0.0.1:0" help:"Address to listen on."`
}

// Run serves until a signal comes. The base URL is the first line on stdout.
func (c *modelServerCmd) Run(rt *runtime) error {
	data, err := rt.readInput(rt.abs(c.Script), maxScript)
	if err != nil {
		return usageError("debug server: %v", err)
	}
	if _, err := model.ParseScript(c.Script, data); err != nil {
		return usageError("debug server: %w", err)
	}
	err = runnertest.Serve(rt.ctx, data, c.Addr, func(url string) { fmt.Fprintln(rt.stdout, url) })
	if cause := context.Cause(rt.ctx); cause != nil {
		return exitSilently(runner.Classify(cause).ExitCode)
	}
	return err
}
