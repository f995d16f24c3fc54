package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/nightshift-ci/nightshift/report"
	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/event"
)

// heartbeat is how often a line says that a long step is still going on: some
// CI services kill a job that prints nothing for ten minutes.
const heartbeat = 30 * time.Second

// sinkSet is where the log of a session goes.
type sinkSet struct {
	human  *mutable
	closes []func() error
	trace  string
	github bool
	stderr io.Writer
	fold   *report.Reporter
	files  *outFiles
	// taken: a report goes to stdout, in the place of the final message.
	taken bool
	// places tells which flag writes a file, by its real path.
	places map[string]string
}

// openSinks turns flags into sinks: the only place that knows all formats. What
// cannot be opened is found here, before anything runs.
func (s *session) openSinks() (*sinkSet, error) {
	rt, f := s.rt, s.flags
	set := &sinkSet{stderr: rt.stderr, github: rt.getenv("GITHUB_ACTIONS") == "true" && !f.NoGitHub,
		files: &outFiles{tree: rt.workTree(f.Cd), ending: rt.ending}}
	set.onFinish(set.files.release)
	if set.github && !s.job.silent && runnerReads(rt.stderr) {
		s.mask.Watch(githubMasks(rt.stderr))
	}
	outs, taken, err := rt.reportOutputs(f.Report, f.JSON)
	if err != nil {
		return nil, err
	}
	set.taken = taken
	for _, out := range []struct{ flag, path, what string }{{"--events", f.Events, "file"}, {"--record", f.Record, "file"}, {"--report-dir", f.ReportDir, "folder"}} {
		if out.path == stdoutName {
			return nil, usageError("%s -: it cannot go to stdout; name a %s", out.flag, out.what)
		}
	}
	if f.ReportDir != "" { // other outputs may lie in it
		if err := os.MkdirAll(rt.abs(f.ReportDir), 0o755); err != nil {
			return nil, usageError("--report-dir: %v", err)
		}
	}
	switch {
	case s.job.silent || set.taken:
	case f.JSON:
		s.log.Attach(report.NewWire(rt.stdout))
	default:
		s.log.Attach(report.NewFinal(rt.stdout))
	}
	if !s.job.silent {
		set.human = &mutable{Human: report.NewHuman(rt.stderr, report.HumanOptions{Color: rt.color(f.Color), Progress: isTerminal(rt.stderr) && !f.JSON,
			Heartbeat: heartbeat, Brief: f.JSON})}
		s.log.Attach(set.human)
	}
	if f.Events != "" {
		path := rt.abs(f.Events)
		if err := set.hold("--events", path); err != nil {
			return nil, usageError("--events %s: %v", f.Events, err)
		}
		s.log.Attach(report.NewJSONLFile(path, set.files.live))
	}
	if f.LastMessage != "" {
		path := rt.abs(f.LastMessage)
		if err := set.hold("--output-last-message", path); err != nil {
			return nil, usageError("failed to open last message file %q: %v", f.LastMessage, err)
		}
		s.log.Attach(report.NewLastMessage(path, set.files.create, func(line string) { fmt.Fprintln(rt.stderr, "Warning: "+line) }))
	}
	if err := s.openReports(set, outs); err != nil {
		return set, err
	}
	if f.Record != "" {
		if at, err := placeOf(rt.abs(f.Record)); err == nil && !at.direct {
			if err := set.claim("--record", at.path); err != nil {
				return set, usageError("--record %s: %v", f.Record, err)
			}
		}
	}
	return set, nil
}

// hold prepares path for what a flag writes. Two of them in one file would
// leave only the later one, or a mixture.
func (set *sinkSet) hold(flag, path string) error {
	if err := set.files.hold(path); err != nil {
		return err
	}
	at := set.files.held[path]
	if at.direct {
		return nil // a device or a pipe takes many
	}
	return set.claim(flag, at.path)
}

func (set *sinkSet) claim(flag, real string) error {
	if other, ok := set.places[real]; ok && other != flag {
		return fmt.Errorf("it is written by %s already; name another file", other)
	}
	if set.places == nil {
		set.places = map[string]string{}
	}
	set.places[real] = flag
	return nil
}

// stdoutName stands for stdout in the place of a path.
const stdoutName = "-"

// reportOutputs reads --report. One report may go to stdout, which carries one
// thing: taken tells that it does, and that stream, the events of --json, does
// not fit beside it.
func (rt *runtime) reportOutputs(flags []string, stream bool) (outs []report.Output, taken bool, err error) {
	var errs []error
	for _, arg := range flags {
		out, err := report.ParseOutput(arg)
		switch {
		case err != nil:
			errs = append(errs, err)
			continue
		case out.Path != stdoutName:
			out.Path = rt.abs(out.Path)
		case stream:
			errs = append(errs, fmt.Errorf("--report %s: stdout carries the events of --json; name a file", arg))
		case taken:
			errs = append(errs, fmt.Errorf("--report %s: stdout carries one report; name a file", arg))
		default:
			taken = true
		}
		outs = append(outs, out)
	}
	if len(errs) > 0 {
		return nil, false, exitError{code: runner.ExitUsage, err: errors.Join(errs...)}
	}
	return outs, taken, nil
}

// keepOpen is stdout as the file of a report.
type keepOpen struct{ io.Writer }

// Close leaves it open.
func (keepOpen) Close() error { return nil }

// orStdout is create where "-" is stdout.
func (rt *runtime) orStdout(create report.Create) report.Create {
	return func(path string) (io.WriteCloser, error) {
		if path == stdoutName {
			return keepOpen{rt.stdout}, nil
		}
		return create(path)
	}
}

// openReports makes the reporter of --report, --report-dir and the CI service.
func (s *session) openReports(set *sinkSet, outs []report.Output) error {
	rt, f := s.rt, s.flags
	o := report.Options{Create: rt.orStdout(set.files.create), Append: rt.orStdout(appendFile)}
	for _, out := range outs {
		if out.Path != stdoutName {
			if err := set.hold("--report "+out.Format, out.Path); err != nil {
				return usageError("--report %s=%s: %v", out.Format, out.Path, err)
			}
		}
		o.Outputs = append(o.Outputs, out)
	}
	if f.ReportDir != "" {
		if err := s.openReportDir(set, &o); err != nil {
			return err
		}
	}
	if f.SignKey != "" {
		signer, err := readSigner(rt, rt.abs(f.SignKey))
		if err != nil {
			return usageError("--sign-key %s: %v", f.SignKey, err)
		}
		o.Sign = signer
	}
	if set.github && !s.job.silent {
		s.addGitHubFiles(&o)
	}
	if len(o.Outputs) == 0 && !set.github {
		return nil
	}
	r, err := report.NewReporter(o)
	if err != nil {
		return usageError("%w", err)
	}
	set.fold = r
	s.log.Attach(r)
	return nil
}

// openReportDir adds the files of --report-dir, its event log among them.
func (s *session) openReportDir(set *sinkSet, o *report.Options) error {
	rt, f := s.rt, s.flags
	dir := rt.abs(f.ReportDir)
	log := filepath.Join(dir, "events.jsonl")
	for _, out := range append(report.DirOutputs(), report.Output{Format: "events", Path: "events.jsonl"}) {
		out.Path = filepath.Join(dir, out.Path)
		// Another flag may name the same file, if it is for the same report.
		flag := "--report " + out.Format
		if out.Path == log {
			flag = "--events"
		}
		if err := set.hold(flag, out.Path); err != nil {
			return usageError("--report-dir %s: %s: %v", f.ReportDir, filepath.Base(out.Path), err)
		}
		if out.Path != log {
			o.Outputs = append(o.Outputs, out)
		}
	}
	o.ReportDir, o.PatchFile = dir, filepath.Join(dir, "changes.patch")
	if f.Events == "" || set.files.held[rt.abs(f.Events)].path != set.files.held[log].path {
		s.log.Attach(report.NewJSONLFile(log, set.files.live))
	}
	return nil
}

// addGitHubFiles adds the files that GitHub gives a step. Nobody asked for them:
// a job in a container without these files does its work all the same.
func (s *session) addGitHubFiles(o *report.Options) {
	rt := s.rt
	for _, file := range []struct{ format, variable string }{{"github-summary", "GITHUB_STEP_SUMMARY"}, {"github-output", "GITHUB_OUTPUT"}} {
		path := rt.getenv(file.variable)
		if path == "" {
			continue
		}
		path = rt.abs(path)
		if err := appendable(path); err != nil {
			s.notices = append(s.notices, event.Notice{Class: "github_file", Origin: file.variable,
				Message: fmt.Sprintf("%s names %s, which cannot be written, so it is left out: %v", file.variable, path, errText(err)),
				Hint:    "mount that file into the container, or add --no-github"})
			continue
		}
		o.Outputs = append(o.Outputs, report.Output{Format: file.format, Path: path})
	}
	if fi, err := os.Stat(rt.getenv("GITHUB_STEP_SUMMARY")); err == nil {
		o.SummaryBytes = max(1, report.StepSummaryLimit-int(fi.Size()))
	}
}

// workTree names the work tree of a run in dir ("": the current folder), as it
// is written and as it really is. Outputs in it must not be led out of it.
func (rt *runtime) workTree(dir string) []string {
	top := rt.abs(dir)
	for at := top; at != filepath.Dir(at); at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			top = at
			break
		}
	}
	if real, err := filepath.EvalSymlinks(top); err == nil && real != top {
		return []string{top, real}
	}
	return []string{top}
}

// outputs are the files that the process writes about the run: those of the
// flags, and files that stdout and stderr were sent to.
func (s *session) outputs() []string {
	out := s.sinks.files.own()
	for _, stream := range []any{s.rt.stdout, s.rt.stderr} {
		f, ok := stream.(*os.File)
		if !ok {
			continue
		}
		if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
			continue
		}
		if path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); err == nil {
			out = append(out, path)
		}
	}
	if s.flags.Record != "" {
		if path, err := filepath.EvalSymlinks(s.rt.abs(s.flags.Record)); err == nil {
			out = append(out, path)
		}
	}
	return out
}

// mute silences the text for people: the rest is said by somebody else.
func (set *sinkSet) mute() {
	if set.human != nil {
		set.human.off = true
	}
}

// mutable is a sink that can be switched off. The log calls it under its lock,
// and mute is called while nothing else emits.
type mutable struct {
	*report.Human
	off bool
}

// Handle passes the record on unless muted.
func (m *mutable) Handle(r event.Record) error {
	if m.off {
		return nil
	}
	return m.Human.Handle(r)
}

// onFinish registers something to close after the log.
func (set *sinkSet) onFinish(f func() error) { set.closes = append(set.closes, f) }

// close ends what the log does not close itself, and shows the annotations of
// the CI service.
func (set *sinkSet) close() error {
	var errs []error
	for _, f := range set.closes {
		errs = append(errs, f())
	}
	if set.github && set.fold != nil {
		errs = append(errs, report.Annotate(set.stderr, set.fold.Summary()))
	}
	return errors.Join(errs...)
}

// color decides about colours.
func (rt *runtime) color(when string) bool {
	switch when {
	case "always":
		return true
	case "never":
		return false
	}
	if rt.getenv("NO_COLOR") != "" || rt.getenv("TERM") == "dumb" {
		return false
	}
	return isTerminal(rt.stderr) || rt.getenv("FORCE_COLOR") == "1"
}

// traceParent is the trace context that requests and commands carry.
func (set *sinkSet) traceParent() string { return set.trace }

var _ event.Sink = (*report.Reporter)(nil)
