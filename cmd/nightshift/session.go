package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/auth"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
	"github.com/nightshift-ci/nightshift/runner/rollout"
)

// finishBound is how long closing the sinks may take: files, then telemetry.
const finishBound = 6 * time.Second

// session is one invocation of exec, resume, fork or review: it collects what
// the run is made of, runs it, and tells how it ended.
type session struct {
	rt    *runtime
	flags *runFlags
	job   job

	// The rest is made on the way.
	home    string
	workdir string
	private string // folder of the run
	log     *event.Log
	mask    *event.Redactor
	cleanup []func()
	policy  *policy.Policy
	newID   func() string
	now     func() time.Time
	sinks   *sinkSet
	cred    *auth.Credential
	// notices wait for the run's first record.
	notices []event.Notice
}

// job is what a subcommand asks of a session besides its flags. What it does not
// ask for is left zero.
type job struct {
	mode   string         // as the log names it: exec, resume, fork, review, …
	silent bool           // nothing of the run is shown
	prompt *string        // instead of the arguments and stdin: review, batch
	thread threadPick     // to begin with: resume, fork
	review reviewJob      // review
	task   taskJob        // batch
	answer model.Streamer // instead of a model, so that no credential is needed: debug
}

// reviewJob is what a review is about. base and commit must exist.
type reviewJob struct {
	base, commit string
	failOn       string // the severity that makes a finding a failure
}

// taskJob makes a session one task of a batch.
type taskJob struct {
	id    string
	watch event.Sink                          // sees every record besides the sinks of the flags
	gate  func(model.Streamer) model.Streamer // holds each request until the batch lets it pass
}

func (rt *runtime) session(f *runFlags, j job) *session {
	return &session{rt: rt, flags: f, job: j}
}

// run carries the invocation out. Whatever happens after the flags were read
// ends in the log, so reports are complete on every ending.
func (s *session) run(src promptSources) error {
	defer s.close()
	s.begin()
	if s.flags.Deterministic {
		s.log.Rewrite(unmeasured)
	}
	sinks, err := s.openSinks()
	if err != nil {
		return err
	}
	s.sinks = sinks
	if w := s.job.task.watch; w != nil {
		s.log.Attach(w)
	}
	opts, err := s.prepared(src)
	if err != nil {
		return s.failed(err)
	}
	s.log.Settle()
	res := runner.Run(s.rt.ctx, *opts)
	return s.finish(res.Completed)
}

// begin makes what everything else of the session needs: clock, mask and log.
func (s *session) begin() {
	s.clock()
	s.mask = s.rt.jobMask()
	s.log = event.NewLog(s.now, s.mask)
}

// openQuietly prepares a session that shows nothing: for commands that look at
// the configuration of a run, or use part of it.
func (s *session) openQuietly() error {
	s.job.silent = true
	s.begin()
	var err error
	if s.sinks, err = s.openSinks(); err != nil {
		return err
	}
	if s.home, err = s.rt.codexHome(); err != nil {
		return err
	}
	if err := s.findWorkdir(); err != nil {
		return err
	}
	return s.loadPolicy()
}

// close undoes what the session prepared, last first.
func (s *session) close() {
	for i := len(s.cleanup) - 1; i >= 0; i-- {
		s.cleanup[i]()
	}
}

// clock sets the sources of ids and times; under --deterministic both are
// counted, so that two runs of one script are equal byte for byte.
func (s *session) clock() {
	s.now, s.newID = time.Now, func() string { return uuid.Must(uuid.NewV7()).String() }
	if !s.flags.Deterministic {
		return
	}
	c := &fixedClock{t: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), task: s.job.task.id}
	s.now, s.newID = c.now, c.id
}

// prepared is prepare; a bug in it is one more way to fail, since sinks are open.
func (s *session) prepared(src promptSources) (o *runner.Options, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &runner.Panic{Value: v, Stack: debug.Stack()}
		}
	}()
	return s.prepare(src)
}

// prepare collects everything a run is made of, in an order in which the
// cheapest mistakes are found first and nothing secret is read too early.
func (s *session) prepare(src promptSources) (*runner.Options, error) {
	rt, f := s.rt, s.flags
	var err error
	if s.home, err = rt.codexHome(); err != nil {
		return nil, err
	}
	if err := s.findWorkdir(); err != nil {
		return nil, err
	}
	if err := s.enterWorktree(); err != nil {
		return nil, err
	}
	src.reader, src.stdin, src.silence = rt.stdin, rt.stdin, f.IdlePromptWait
	key, err := s.keyFromStdin(&src)
	if err != nil {
		return nil, err
	}
	if err := s.loadPolicy(); err != nil {
		return nil, err
	}
	if s.policy.Config().HideReasoning && s.sinks.human != nil {
		s.sinks.human.HideReasoning()
	}
	prompt, err := s.readPrompt(src)
	if err != nil {
		return nil, err
	}
	if err := s.checkProject(); err != nil {
		return nil, err
	}
	images, err := s.readImages()
	if err != nil {
		return nil, err
	}
	schema, err := s.readSchema()
	if err != nil {
		return nil, err
	}
	if s.private, err = s.makePrivate(); err != nil {
		return nil, err
	}
	thread, err := s.openThread()
	if err != nil {
		return nil, err
	}
	streamer, err := s.openModel(key)
	if err != nil {
		return nil, err
	}
	opts := &runner.Options{
		Version: version, Mode: s.job.mode, Policy: s.policy, Log: s.log, Mask: s.mask, Model: streamer,
		Credential: s.credential(), Environ: rt.environ, Workdir: s.workdir, Home: s.home, SystemDir: rt.systemDir, UserHome: rt.userHome(),
		Outputs: s.outputs(), Private: s.private, Notices: s.notices, Prompt: prompt, Images: images, Schema: schema, Thread: *thread,
		Task: s.job.task.id, InstructionsFrom: f.InstructionsFrom, ReviewBase: s.job.review.base, ReviewCommit: s.job.review.commit, Strict: f.Strict,
		FailOn: s.job.review.failOn, Requester: rt.requester(), Job: rt.job(),
		TraceParent: s.sinks.traceParent(), Hurry: s.hurry(), NewID: s.newID, Now: s.now, Agents: s.agents(), Diag: s.diag(), Early: rt.early,
		HTTP: &http.Client{Transport: &http.Transport{Proxy: rt.proxy()}},
	}
	if f.Deterministic { // who asked, and where, would differ between equal runs
		opts.Requester, opts.Job = "", ""
	}
	return opts, nil
}

// errText drops the operation and path that a PathError repeats.
func errText(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// loadPolicy reads every layer. All mistakes in all of them are reported together.
func (s *session) loadPolicy() error {
	src, err := s.policySources()
	if err != nil {
		return err
	}
	s.policy, err = policy.Load(src)
	if err != nil {
		return err
	}
	for name, value := range runner.NamedSecrets(s.rt.environ, s.policy.SecretVariables()) {
		s.mask.Add(value, name)
	}
	for _, secret := range runner.ConfiguredSecrets(s.policy.Config()) {
		s.mask.Add(secret.Value, secret.Name)
	}
	return s.attachTelemetry()
}

// policySources are the layers that the flags and the machine name.
func (s *session) policySources() (policy.Sources, error) {
	src := policy.Sources{
		Files: s.rt.files(), SystemDir: s.rt.systemDir, Home: s.home, UserHome: s.rt.userHome(), Cwd: s.workdir,
		Profile: s.flags.Profile, Flags: s.flags.policyFlags(s.rt), IgnoreUser: s.flags.IgnoreUserConfig,
		IgnoreRules: s.flags.IgnoreRules, Strict: s.flags.StrictConfig, LookupEnv: s.rt.lookupEnv,
	}
	host, err := os.Hostname()
	if err != nil {
		return src, fmt.Errorf("the host name cannot be read: %w", err)
	}
	src.Hostname = host
	for _, r := range s.flags.Requirements {
		src.Requirements = append(src.Requirements, s.rt.abs(r))
	}
	src.Overrides, err = s.flags.overrides(s.workdir)
	return src, err
}

// agents is the pool of sub-agents, nil where the configuration wants none.
func (s *session) agents() *runner.AgentPool {
	cfg := s.policy.Config()
	if !cfg.Features["multi_agent"] && !cfg.Features["enable_fanout"] && len(cfg.Agents.Roles) == 0 && cfg.Agents.MaxThreads == 0 {
		return nil
	}
	return runner.NewAgentPool(cfg.Agents)
}

// overrides are -c, --enable and --disable in the order of their kinds.
func (f *runFlags) overrides(workdir string) ([]policy.Override, error) {
	var out []policy.Override
	for _, c := range f.Config {
		o, err := policy.ParseOverride(c)
		if err != nil {
			return nil, exitError{code: runner.ExitUsage, err: err}
		}
		out = append(out, o)
	}
	features := func(names []string, flag, value string) error {
		for _, name := range names {
			if name == "" {
				return usageError("%s needs the name of a feature, not an empty text", flag)
			}
			out = append(out, policy.Override{Key: "features." + name, Value: value, Flag: flag + " " + name})
		}
		return nil
	}
	if err := errors.Join(features(f.Enable, "--enable", "true"), features(f.Disable, "--disable", "false")); err != nil {
		return nil, err
	}
	if f.Trust {
		out = append(out, policy.Override{Key: fmt.Sprintf("projects.%q.trust_level", workdir), Value: `"trusted"`, Flag: "--trust"})
	}
	return out, nil
}

// hurry is called when a limit ends the run: outputs that nobody reads must not
// delay it. The tasks of a batch share their outputs, so a limit of one task does
// nothing to them.
func (s *session) hurry() func() {
	if s.job.task.id != "" {
		return nil
	}
	return s.rt.ending.hurry
}

// openThread makes or finds the thread.
func (s *session) openThread() (*runner.Thread, error) {
	store := &rollout.Store{Home: s.home, Now: s.now, Mask: s.mask}
	th := &runner.Thread{Source: s.flags.ThreadSource}
	cfg := s.policy.Config()
	meta := rollout.Meta{ID: s.newID(), Cwd: s.workdir, Originator: s.rt.originator(), Version: version, Source: "exec",
		ThreadSource: s.flags.ThreadSource, Provider: cfg.ModelProvider, Model: cfg.Model}
	if !s.job.thread.wanted() {
		th.ID = meta.ID
		if s.flags.Ephemeral {
			return th, nil
		}
		w, err := store.Create(meta)
		if err != nil {
			s.notices = append(s.notices, event.Notice{Class: "thread_not_saved", Message: "the thread cannot be saved, so this run cannot be resumed: " + err.Error()})
			return th, nil
		}
		th.Store = w
		return th, nil
	}
	info, err := s.job.thread.find(store, s.workdir)
	if err != nil {
		return nil, err
	}
	var h rollout.History
	if s.job.mode == "fork" {
		th.Store, h, err = store.Fork(s.rt.ctx, info, meta)
		th.ID, th.ParentID = meta.ID, info.ID
	} else {
		th.Store, h, err = store.Resume(s.rt.ctx, info)
		th.ID = info.ID
	}
	if err != nil {
		return nil, err
	}
	s.notices = append(s.notices, h.Notices...)
	th.Usage, th.Model, th.Base, th.LastTokens = h.Usage, h.Model, h.Base, h.Last.Total()
	for _, it := range h.Items {
		th.History = append(th.History, it.Raw)
	}
	return th, nil
}

// failed ends an invocation that never became a run.
func (s *session) failed(err error) error {
	s.log.Settle()
	o := runner.Classify(err)
	var coded exitError
	if errors.As(err, &coded) {
		o.ExitCode = coded.code
		for _, c := range runner.ExitCodes {
			if c.Code == coded.code {
				o.Outcome, o.Class = c.Outcome, c.Outcome
			}
		}
	}
	if sig, ok := s.rt.signal(); ok {
		err, o = sig, runner.Classify(sig)
	}
	for _, n := range s.notices {
		s.log.Emit(n)
	}
	s.sinks.mute() // the error is printed once, with its hint, below
	s.log.Emit(event.Error{Message: o.Message, Class: o.Class})
	s.log.Emit(event.TurnFailed{Error: o.Failure()})
	printError(s.rt.stderr, s.mask, err)
	return s.finish(event.RunCompleted{Outcome: o.Outcome, Class: o.Class, ExitCode: o.ExitCode, Message: o.Message, Hint: o.Hint, Retryable: o.Retryable})
}

// finish writes the last record and closes the sinks. The exit code is the one
// of the last record; a file that was asked for and could not be written turns
// a success into 8. A signal that comes before the last record is written has
// ended the run, whatever it had come to.
func (s *session) finish(c event.RunCompleted) error {
	if err := s.closeCredential(); err != nil {
		printError(s.rt.stderr, s.mask, err)
		if c.ExitCode == 0 {
			o := runner.Classify(err)
			c.Outcome, c.Class, c.ExitCode, c.Message, c.Hint = o.Outcome, o.Class, o.ExitCode, o.Message, o.Hint
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), finishBound)
	defer cancel()
	defer context.AfterFunc(s.rt.ctx, func() { time.AfterFunc(s.rt.ending.left(), cancel) })()
	s.log.Flush(ctx, c)
	if s.job.task.id == "" {
		s.rt.ending.settle()
	}
	if sig, ok := s.rt.signal(); ok && c.ExitCode != runner.ExitInternal {
		o := runner.Classify(sig)
		c.Outcome, c.Class, c.ExitCode, c.Message, c.Hint, c.Retryable = o.Outcome, o.Class, o.ExitCode, o.Message, o.Hint, o.Retryable
	}
	err := errors.Join(s.log.Finish(ctx, c), s.sinks.close())
	code := c.ExitCode
	if err != nil {
		printError(s.rt.stderr, s.mask, err)
		if code == 0 {
			code = runner.ExitOutput
		}
	}
	return exitSilently(code)
}
