package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// unattended is one case of what goes wrong in CI: how the world is laid out,
// what the model says, what is run and what is expected of each step.
type unattended struct {
	ID, Title string
	Setup     caseSetup
	Script    json.RawMessage `json:"model_script"`
	Exhausted json.RawMessage `json:"on_exhausted"`
	Routes    json.RawMessage
	Command   []caseStep
	Expect    []caseExpect
	// AcceptAlso holds a second accepted result for a file.
	AcceptAlso map[string]json.RawMessage `json:"accept_also"`
}

type caseSetup struct {
	Git          *bool
	GitSetup     string `json:"git_setup"`
	Files        map[string]json.RawMessage
	Config       string          `json:"config_toml"`
	Requirements *string         `json:"requirements_toml"`
	Auth         json.RawMessage `json:"auth_json"`
	Env          map[string]string
	Wrap         *wrapping
}

type caseStep struct {
	Args     []string
	Cwd      string
	Stdin    json.RawMessage
	Stdout   string
	Signal   *caseSignal
	Parallel int
	TimeoutS float64 `json:"timeout_s"`
	Wants    struct {
		MaxTurns int     `json:"max_turns"`
		MaxWallS float64 `json:"max_wall_s"`
	}
	Wrap *wrapping
	Env  map[string]string
}

type caseSignal struct {
	When   struct{ File string }
	AfterS float64 `json:"after_s"`
	Sig    string
}

func TestCompatUnattended(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld(t)
			var c unattended
			if err := json.Unmarshal(w.fillJSON(raw), &c); err != nil {
				t.Fatal(err)
			}
			w.layOutCase(t, c)
			for i, step := range c.Command {
				seen := w.runCase(t, c, step)
				for _, r := range seen.results {
					w.threads = append(w.threads, r.thread(t))
				}
				seen.accept = c.AcceptAlso
				seen.check(t, c.Expect[i])
			}
		})
	}
}

// layOutCase writes the workspace, the home, the policy and the script.
func (w *world) layOutCase(t *testing.T, c unattended) {
	t.Helper()
	for name, raw := range c.Setup.Files {
		w.write(t, filepath.Join(w.ws, name), contentOf(t, raw), 0o644)
	}
	if c.Setup.Git == nil || *c.Setup.Git {
		w.git(t, w.ws, "init", "-q", "-b", "main")
		w.git(t, w.ws, "config", "core.autocrlf", "false")
		w.git(t, w.ws, "add", "-A")
		w.git(t, w.ws, "commit", "-q", "--allow-empty", "-m", "start")
	}
	if c.Setup.GitSetup != "" {
		cmd := exec.Command("/bin/sh", "-ec", c.Setup.GitSetup)
		cmd.Dir, cmd.Env = w.ws, append(w.env(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git_setup: %v\n%s", err, out)
		}
	}
	w.write(t, w.home+"/config.toml", []byte(c.Setup.Config), 0o600)
	if c.Setup.Requirements != nil {
		w.write(t, w.system+"/requirements.toml", []byte(*c.Setup.Requirements), 0o644)
	}
	if len(c.Setup.Auth) > 0 && string(c.Setup.Auth) != "null" {
		w.write(t, w.home+"/auth.json", c.Setup.Auth, 0o600)
	}
	script := map[string]json.RawMessage{"model_script": c.Script}
	if len(c.Exhausted) > 0 {
		script["on_exhausted"] = c.Exhausted
	}
	if len(c.Routes) > 0 {
		script["routes"] = c.Routes
	}
	text, err := json.Marshal(script)
	if err != nil {
		t.Fatal(err)
	}
	if string(c.Script) == "[]" && len(c.Exhausted) == 0 {
		return // the model must not be asked at all
	}
	if err := w.server.Load(text); err != nil {
		t.Fatal(err)
	}
}

// contentOf is the content of a file: text, or {"base64": …}.
func contentOf(t *testing.T, raw json.RawMessage) []byte {
	t.Helper()
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []byte(text)
	}
	var bin struct{ Base64 string }
	if err := json.Unmarshal(raw, &bin); err != nil {
		t.Fatal(err)
	}
	b, err := base64.StdEncoding.DecodeString(bin.Base64)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// runCase runs one step, as many times at once as it asks for.
func (w *world) runCase(t *testing.T, c unattended, step caseStep) *observed {
	t.Helper()
	seen := &observed{world: w, from: len(w.server.Requests()), before: map[string][]byte{}}
	seen.remember(c)
	p := process{program: w.program, dir: w.ws, timeout: time.Duration(step.TimeoutS * float64(time.Second)), oneLine: step.Stdout == "@close_after_first_line"}
	if p.timeout == 0 {
		p.timeout = time.Minute
	}
	if step.Cwd != "" {
		p.dir = w.fill(step.Cwd)
	}
	p.env = w.env()
	for _, vars := range []map[string]string{c.Setup.Env, step.Env} {
		for name, value := range vars {
			p.env = append(p.env, name+"="+value)
		}
	}
	for _, a := range step.Args {
		p.args = append(p.args, w.fill(a))
	}
	// The subcommand stands first; options may stand anywhere behind it.
	if step.Wants.MaxTurns > 0 {
		p.args = append(p.args[:1:1], append([]string{"--max-turns", fmt.Sprint(step.Wants.MaxTurns)}, p.args[1:]...)...)
	}
	if step.Wants.MaxWallS > 0 {
		p.args = append(p.args[:1:1], append([]string{"--max-wall-time", fmt.Sprint(time.Duration(step.Wants.MaxWallS * float64(time.Second)))}, p.args[1:]...)...)
	}
	wrap := c.Setup.Wrap
	if step.Wrap != nil {
		wrap = step.Wrap
	}
	if wrap != nil {
		p.wrap = func(cmd *exec.Cmd) { wrap.apply(t, w, cmd) }
	}
	if step.Signal != nil {
		p.send = func(ctx context.Context, proc *os.Process) { seen.signal(ctx, *step.Signal, proc) }
	}
	stdin := stdinOf(t, step.Stdin)
	p.open = stdin.open
	seen.results = make([]result, max(step.Parallel, 1))
	var runs sync.WaitGroup
	for i := range seen.results {
		runs.Go(func() {
			p := p
			p.stdin = stdin.reader()
			seen.results[i] = p.run(t)
		})
	}
	runs.Wait()
	return seen
}

// signal sends the signal once the file exists.
func (o *observed) signal(ctx context.Context, s caseSignal, proc *os.Process) {
	for {
		if _, err := os.Stat(s.When.File); err == nil {
			break
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
	select {
	case <-time.After(time.Duration(s.AfterS * float64(time.Second))):
		o.signalled = time.Now()
		_ = proc.Signal(signalOf(s.Sig)) // it may have ended by itself
	case <-ctx.Done():
	}
}

// input is the stdin of a step.
type input struct {
	text string
	open bool
	null bool
}

func (in input) reader() io.Reader {
	if in.null || in.open {
		return nil
	}
	return strings.NewReader(in.text)
}

func stdinOf(t *testing.T, raw json.RawMessage) input {
	t.Helper()
	if len(raw) == 0 || string(raw) == "null" {
		return input{null: true}
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return input{text: text, open: text == "@open"}
	}
	var built struct {
		Prefix, Repeat, Suffix string
		Times                  int
		Base64                 []byte
	}
	if err := json.Unmarshal(raw, &built); err != nil {
		t.Fatal(err)
	}
	return input{text: string(built.Base64) + built.Prefix + strings.Repeat(built.Repeat, built.Times) + built.Suffix}
}
