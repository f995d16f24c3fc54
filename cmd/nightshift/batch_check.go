package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/auth"
	"github.com/nightshift-ci/nightshift/runner/batch"
	"github.com/nightshift-ci/nightshift/runner/workspace"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// preflight finds before the first task whatever would fail a task before it
// began.
type preflight struct {
	rt   *runtime
	cmd  *batchRunCmd
	git  *batch.Git
	out  string
	key  string
	base string // folder that relative names of the tasks file start from

	policies map[string]error   // by overrides
	refs     map[string]*lookUp // by repository and ref
	looking  errgroup.Group
}

// lookUp is the search for a ref in a repository of this machine.
type lookUp struct {
	lines []int // of the tasks that name it
	err   error // settled when preflight.looking has ended
}

// lookUps bounds how many repositories are looked at side by side.
const lookUps = 8

// maxTasksFile bounds the tasks file.
const maxTasksFile = 256 << 20

// tasks reads the tasks file and every file it names. All mistakes are
// reported together, with their lines.
func (p *preflight) tasks(stdin io.Reader) ([]batch.Task, error) {
	name, data, err := p.read(stdin)
	if err != nil {
		return nil, err
	}
	template := p.cmd.Prompt
	if f := p.cmd.PromptFile; f != "" {
		b, err := p.rt.readInput(p.rt.abs(f), maxPrompt)
		if err == nil {
			template, err = decodeText(b)
		}
		if err != nil {
			return nil, usageError("--prompt-file %s: %v", f, errText(err))
		}
	}
	p.policies, p.refs = map[string]error{}, map[string]*lookUp{}
	p.looking.SetLimit(lookUps)
	ids := map[string]bool{}
	repo := p.cmd.Repo // a flag's path starts from the working folder, a task's from its file
	if path, local := batch.Local(repo); local && repo != "" {
		repo = p.rt.abs(path)
	}
	release := p.git.Hold()
	tasks, err := batch.ReadTasks(name, data, batch.ReadOptions{Prompt: template, Repo: repo, ReadFile: p.readFile,
		Check: func(t *batch.Task) []error { ids[t.ID] = true; return p.check(t) }})
	if err = p.withRefs(name, err); err != nil {
		return nil, errors.Join(exitError{code: runner.ExitUsage, err: err}, release())
	}
	if err := release(); err != nil {
		return nil, err
	}
	for _, id := range p.cmd.Only {
		if !ids[id] {
			return nil, usageError("--only %s: there is no such task in %s", id, name)
		}
	}
	return tasks, nil
}

func (p *preflight) read(stdin io.Reader) (name string, data []byte, err error) {
	name, p.base = p.cmd.Tasks, filepath.Dir(p.rt.abs(p.cmd.Tasks))
	if name == "-" {
		if isTerminal(stdin) {
			return "", nil, usageError("--tasks -: stdin is a terminal; pipe the tasks")
		}
		name, p.base = "stdin", p.rt.cwd
		data, err = io.ReadAll(io.LimitReader(stdin, maxTasksFile+1))
		if err == nil && len(data) > maxTasksFile {
			err = fmt.Errorf("it is larger than %d MiB", maxTasksFile>>20)
		}
	} else {
		data, err = p.rt.readInput(p.rt.abs(name), maxTasksFile)
	}
	if err != nil {
		return "", nil, usageError("--tasks %s: %v", p.cmd.Tasks, errText(err))
	}
	text, err := decodeText(data)
	if err != nil {
		return "", nil, usageError("--tasks %s: %v", p.cmd.Tasks, err)
	}
	return name, []byte(text), nil
}

func (p *preflight) at(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(p.base, name)
}

func (p *preflight) readFile(name string) ([]byte, error) {
	data, err := p.rt.readInput(p.at(name), maxPrompt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, errText(err))
	}
	text, err := decodeText(data)
	if err == nil && strings.TrimSpace(text) == "" {
		err = errors.New("the file is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return []byte(text), nil
}

// check looks at one task: its schema, its overrides and, where it is on this
// machine, its repository.
func (p *preflight) check(t *batch.Task) []error {
	var errs []error
	if len(t.OutputSchema) > 0 {
		if _, err := runner.ParseSchema("output_schema", t.OutputSchema); err != nil {
			errs = append(errs, err)
		}
	}
	if len(t.Config) > 0 {
		key := strings.Join(t.Config, "\x00")
		if _, seen := p.policies[key]; !seen {
			_, err := p.policy(t.Config)
			p.policies[key] = err
		}
		if err := p.policies[key]; err != nil {
			errs = append(errs, fmt.Errorf("config: %w", err))
		}
	}
	path, local := batch.Local(t.Repo)
	if !local {
		return errs
	}
	t.Repo = p.at(path)
	key := t.Repo + "\x00" + t.Ref
	l := p.refs[key]
	if l == nil {
		l = &lookUp{}
		p.refs[key] = l
		repo, ref := t.Repo, t.Ref
		p.looking.Go(func() error { l.err = p.repository(repo, ref); return nil })
	}
	l.lines = append(l.lines, t.Line)
	return errs
}

// withRefs adds the repositories that cannot be used to the mistakes of the
// file.
func (p *preflight) withRefs(name string, err error) error {
	if werr := p.looking.Wait(); werr != nil {
		return werr
	}
	file := &batch.FileError{Name: name}
	if err != nil && !errors.As(err, &file) {
		return err
	}
	for _, l := range p.refs {
		for _, line := range l.lines {
			if l.err != nil {
				file.Mistakes = append(file.Mistakes, batch.Mistake{Line: line, Text: l.err.Error()})
			}
		}
	}
	if len(file.Mistakes) == 0 {
		return nil
	}
	slices.SortFunc(file.Mistakes, func(a, b batch.Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), strings.Compare(a.Text, b.Text))
	})
	return file
}

func (p *preflight) repository(path, ref string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("repo %s: %w", path, errText(err))
	}
	if !fi.IsDir() {
		return fmt.Errorf("repo %s is not a folder", path)
	}
	_, err = p.git.Resolve(p.rt.ctx, path, ref)
	var unsupported *sandbox.UnsupportedError
	if errors.As(err, &unsupported) {
		return nil // reported once, by machine
	}
	return err
}

// session reads the configuration as a task would, and runs nothing.
func (p *preflight) session(overrides []string) (*session, error) {
	flags := p.cmd.runFlags
	flags.Config = append(append([]string(nil), flags.Config...), overrides...)
	if p.cmd.BudgetCost > 0 && flags.MaxCost == 0 {
		flags.MaxCost = p.cmd.BudgetCost // a budget, too, cannot be kept without prices
	}
	s := p.rt.session(&flags, job{mode: "exec"})
	s.begin()
	s.workdir = p.out
	var err error
	s.home, err = p.rt.codexHome()
	return s, err
}

func (p *preflight) policy(overrides []string) (*policy.Policy, error) {
	s, err := p.session(overrides)
	if err != nil {
		return nil, err
	}
	src, err := s.policySources()
	if err != nil {
		return nil, err
	}
	return policy.Load(src)
}

// machine finds out whether any task can run at all: the policy, the sandbox
// and the credential. It takes a second; finding out task by task takes the night.
func (p *preflight) machine() error {
	s, err := p.session(nil)
	if err != nil {
		return err
	}
	if s.policy, err = p.policy(nil); err != nil {
		return err
	}
	if _, err := s.readSchema(); err != nil {
		return err
	}
	if _, err := s.readImages(); err != nil {
		return err
	}
	if err := p.sandbox(s); err != nil {
		return err
	}
	if p.cmd.ModelScript != "" {
		if _, err := os.Stat(p.rt.abs(p.cmd.ModelScript)); err != nil {
			return usageError("--model-script %s: %v", p.cmd.ModelScript, errText(err))
		}
		return nil
	}
	cred, err := auth.Load(p.rt.ctx, s.authSources(p.key))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.rt.ctx), finishBound)
	defer cancel()
	return cred.Close(ctx)
}

func (p *preflight) sandbox(s *session) error {
	facts, err := workspace.Find(p.out)
	if err != nil {
		return err
	}
	private, err := os.MkdirTemp("", "nightshift-")
	if err != nil {
		return fmt.Errorf("no private folder: %w", err)
	}
	defer removeAll(private)
	conf, err := runner.Confine(runner.ConfineOptions{Policy: s.policy, Workdir: p.out, Facts: facts, Home: s.home,
		UserHome: p.rt.userHome(), Private: private, LookupEnv: p.rt.lookupEnv})
	if err != nil {
		return err
	}
	box, err := sandbox.Open(p.rt.ctx, conf.Spec)
	if err != nil {
		return err
	}
	return box.Close()
}
