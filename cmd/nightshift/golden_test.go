package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/model"
)

// scenario is one golden run of the reference: what is run, what the model
// answers and what must hold afterwards. The expected streams stand beside it,
// NAME.jsonl or NAME.1.jsonl and so on.
type scenario struct {
	What         string
	Model        string
	Argv         []string
	Stdin        *string
	Steps        []scenarioStep
	Files        map[string]string
	Dirty        map[string]string
	HomeFiles    map[string]string `json:"home_files"`
	Git          *bool
	Config       string
	ProviderOpts map[string]json.RawMessage `json:"provider_opts"`
	Signal       *scenarioSignal
	Order        string
	Responses    json.RawMessage
	OnExhausted  json.RawMessage `json:"on_exhausted"`
	Expect       scenarioExpect
}

type scenarioStep struct {
	Argv   []string
	Stdin  *string
	Signal *scenarioSignal
}

type scenarioSignal struct {
	Sig    string
	When   string
	AfterS float64 `json:"after_s"`
}

type scenarioExpect struct {
	ExitCode       json.RawMessage `json:"exit_code"`
	Requests       *int
	Files          map[string]*string
	StderrContains []string `json:"stderr_contains"`
	UserText       *string  `json:"user_text"`
	ModelSees      []struct {
		CallID   string `json:"call_id"`
		Regex    string
		Contains string
		Equals   *string
	} `json:"model_sees"`
	Request []struct {
		N      int
		Path   string
		Equals any
	}
	GapS [][3]float64 `json:"gap_s"`
}

// ownExit lists the scenarios in which this program tells with its exit code
// what the reference does not (README, "Exit codes").
var ownExit = map[string]int{
	"unauthorized":        5,
	"retry_exhausted_500": 6,
}

// timed are scenarios whose golden stream depends on a command being at a
// certain point at a certain time. On a machine that does other work the moment
// can be missed; then they are run once more.
var timed = map[string]bool{"exec_long_poll": true, "parallel_calls": true, "retry_500_then_ok": true, "retry_429_retry_after": true}

func TestCompatGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/golden/*.scenario.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".scenario.json")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			problems := playScenario(t, name, raw)
			if len(problems) > 0 && timed[name] {
				t.Logf("trying once more after: %s", strings.Join(problems, "\n"))
				problems = playScenario(t, name, raw)
			}
			for _, p := range problems {
				t.Error(p)
			}
		})
	}
}

// playScenario runs a scenario and returns what did not hold.
func playScenario(t *testing.T, name string, raw []byte) (problems []string) {
	t.Helper()
	complain := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	w := newWorld(t)
	var s scenario
	if err := json.Unmarshal(w.fillJSON(raw), &s); err != nil {
		t.Fatal(err)
	}
	w.layOut(t, s)
	steps := s.Steps
	if steps == nil {
		steps = []scenarioStep{{s.Argv, s.Stdin, s.Signal}}
	}
	var last result
	for i, step := range steps {
		res := w.runStep(t, step)
		w.threads = append(w.threads, res.thread(t))
		golden := "testdata/golden/" + name + ".jsonl"
		if s.Steps != nil {
			golden = fmt.Sprintf("testdata/golden/%s.%d.jsonl", name, i+1)
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := compareStreams(string(want), w.normalise(string(res.stdout)), s.Order == "parallel"); diff != "" {
			complain("%s: %s\nstderr:\n%s", golden, diff, excerptOf(res.stderr))
		}
		if want, ok := wantedExit(s.Expect.ExitCode, i); ok {
			if own, differs := ownExit[name]; differs {
				want = own
			}
			if res.code != want {
				complain("exit code %d, want %d\nstderr:\n%s", res.code, want, excerptOf(res.stderr))
			}
		}
		last = res
	}
	w.checkFacts(s.Expect, last, complain)
	return problems
}

// layOut writes the workspace, the home and the script.
func (w *world) layOut(t *testing.T, s scenario) {
	t.Helper()
	for name, text := range s.Files {
		w.write(t, filepath.Join(w.ws, name), []byte(text), 0o644)
	}
	if s.Git == nil || *s.Git {
		w.git(t, w.ws, "init", "-q", "-b", "main")
		w.git(t, w.ws, "add", "-A")
		w.git(t, w.ws, "commit", "-q", "--allow-empty", "-m", "start")
	}
	for name, text := range s.Dirty {
		w.write(t, filepath.Join(w.ws, name), []byte(text), 0o644)
	}
	for name, text := range s.HomeFiles {
		w.write(t, filepath.Join(w.home, name), []byte(text), 0o644)
	}
	config := fmt.Sprintf("model = %q\nmodel_provider = \"mock\"\n[model_providers.mock]\nname = \"mock\"\n"+
		"base_url = \"http://127.0.0.1:%d/v1\"\nwire_api = \"responses\"\nenv_key = \"MOCK_API_KEY\"\n", s.Model, w.server.Port)
	for _, key := range slices.Sorted(maps.Keys(s.ProviderOpts)) {
		config += key + " = " + string(s.ProviderOpts[key]) + "\n"
	}
	w.write(t, w.home+"/config.toml", []byte(config+s.Config), 0o600)
	if s.Responses == nil && s.OnExhausted == nil {
		return // the caller loads a script of its own
	}
	script := map[string]json.RawMessage{"responses": s.Responses}
	if s.OnExhausted != nil {
		script["on_exhausted"] = s.OnExhausted
	}
	text, err := json.Marshal(script)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.server.Load(text); err != nil {
		t.Fatal(err)
	}
}

func (w *world) runStep(t *testing.T, step scenarioStep) result {
	t.Helper()
	p := process{program: w.program, dir: w.ws, env: append(w.env(), "MOCK_API_KEY=dummy-key", "CODEX_API_KEY=dummy-key"), timeout: time.Minute}
	for _, a := range step.Argv {
		p.args = append(p.args, w.fill(a))
	}
	if step.Stdin != nil {
		p.stdin = strings.NewReader(*step.Stdin)
	}
	if sig := step.Signal; sig != nil {
		when := regexp.MustCompile(sig.When)
		seen := make(chan struct{}, 1)
		p.watch = func(line string) {
			if when.MatchString(line) {
				select {
				case seen <- struct{}{}:
				default:
				}
			}
		}
		p.send = func(ctx context.Context, proc *os.Process) {
			select {
			case <-seen:
			case <-ctx.Done():
				return
			}
			select {
			case <-time.After(time.Duration(sig.AfterS * float64(time.Second))):
				_ = proc.Signal(signalOf(sig.Sig)) // it may have ended by itself
			case <-ctx.Done():
			}
		}
	}
	return p.run(t)
}

func signalOf(name string) syscall.Signal {
	return map[string]syscall.Signal{
		"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT, "KILL": syscall.SIGKILL,
	}[strings.TrimPrefix(name, "SIG")]
}

func wantedExit(raw json.RawMessage, step int) (int, bool) {
	var one int
	if json.Unmarshal(raw, &one) == nil {
		return one, true
	}
	var each []int
	if json.Unmarshal(raw, &each) == nil && step < len(each) {
		return each[step], true
	}
	return 0, false
}

// checkFacts checks what was noted beside the streams.
func (w *world) checkFacts(e scenarioExpect, last result, complain func(string, ...any)) {
	requests := w.server.ModelRequests()
	if e.Requests != nil && len(requests) != *e.Requests {
		complain("%d requests, want %d", len(requests), *e.Requests)
	}
	for name, want := range e.Files {
		got, err := os.ReadFile(filepath.Join(w.ws, name))
		switch {
		case want == nil && err == nil:
			complain("%s exists", name)
		case want != nil && (err != nil || string(got) != *want):
			complain("%s is %q (%v), want %q", name, got, err, *want)
		}
	}
	for _, text := range e.StderrContains {
		if !strings.Contains(string(last.stderr), text) {
			complain("stderr lacks %q:\n%s", text, excerptOf(last.stderr))
		}
	}
	if e.UserText != nil && len(requests) > 0 {
		if got := lastUserText(requests[len(requests)-1].Body); got != *e.UserText {
			complain("the last user message is %q, want %q", got, *e.UserText)
		}
	}
	for _, see := range e.ModelSees {
		var texts []string
		for _, r := range requests {
			texts = append(texts, outputTexts(r.Body)[see.CallID]...)
		}
		ok := slices.ContainsFunc(texts, func(text string) bool {
			switch {
			case see.Equals != nil:
				return text == *see.Equals
			case see.Regex != "":
				return regexp.MustCompile("(?s)" + codePoint.ReplaceAllString(see.Regex, `\x{$1}`)).MatchString(text)
			}
			return strings.Contains(text, see.Contains)
		})
		if !ok {
			complain("the model sees %q of %s, want %+v", texts, see.CallID, see)
		}
	}
	for _, want := range e.Request {
		var body any
		if want.N > len(requests) || json.Unmarshal(requests[want.N-1].Body, &body) != nil {
			complain("there is no request %d", want.N)
			continue
		}
		if got, _ := at(body, want.Path); !reflect.DeepEqual(got, want.Equals) {
			complain("request %d has %s = %v, want %v", want.N, want.Path, got, want.Equals)
		}
	}
	for _, gap := range e.GapS {
		i := int(gap[0])
		if i >= len(requests) {
			complain("there is no request %d", i+1)
			continue
		}
		if s := requests[i].Time.Sub(requests[i-1].Time).Seconds(); s < gap[1] || s > gap[2] {
			complain("%.2f s between requests %d and %d, want %.2f to %.2f", s, i, i+1, gap[1], gap[2])
		}
	}
}

// codePoint is how the scenarios write a character by its number.
var codePoint = regexp.MustCompile(`\\u([0-9a-f]{4})`)

// lastUserText is the text of the last user message of a request.
func lastUserText(body []byte) string {
	var req struct {
		Input []struct {
			Type, Role string
			Content    json.RawMessage
		}
	}
	if json.Unmarshal(body, &req) != nil {
		return ""
	}
	for i := len(req.Input) - 1; i >= 0; i-- {
		if req.Input[i].Role == "user" {
			return partsText(req.Input[i].Content)
		}
	}
	return ""
}

// TestGoldenScriptsPlay checks that every golden script and every case is also a
// script for the built-in model.
func TestGoldenScriptsPlay(t *testing.T) {
	for _, pattern := range []string{"testdata/golden/*.scenario.json", "testdata/cases/*.json"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %d files", pattern, err, len(files))
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := model.NewScript(filepath.Base(file), raw, model.Options{}); err != nil {
				t.Error(err)
			}
		}
	}
}
