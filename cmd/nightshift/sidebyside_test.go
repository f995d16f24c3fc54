package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The comparison with the reference. testdata/compat/NAME.json holds cases: how
// the world is laid out, what the model answers, what is run.
// testdata/compat/reference/NAME.json is what the reference left of each, recorded
// by TestCompatSideBySide -compat.record, which needs its program; TestCompatRecorded
// needs nothing. A difference that no rule of testdata/compat/known.json names is a
// fault, and so is a rule that names none: every rule points to the row of
// COMPATIBILITY.md that says why.

var recordReference = flag.Bool("compat.record", false, "with "+referenceVariable+": rewrite what the reference left of each case")

// referenceVariable is the path of the reference's program.
const referenceVariable = "NIGHTSHIFT_TEST_REFERENCE"

// compared is one case. Its fields are those of a golden scenario, and these.
type compared struct {
	scenario
	// Steps takes the place of the scenario's: argv or shell text for each.
	Steps []comparedStep
	// Bare: Config is the whole of config.toml.
	Bare bool
	Env  map[string]string
	// NoKey leaves out the credentials.
	NoKey bool `json:"no_key"`
	// Setup is shell text run in the workspace before the steps.
	Setup string
	// Across: the steps are also run by the two programs in turns.
	Across bool
}

type comparedStep struct {
	Argv  []string
	Shell string
	// Stdin is a text or {"base64": …}; null is /dev/null.
	Stdin json.RawMessage
	Cwd   string
	Env   map[string]string
}

// comparedCases are the cases of all files, by "FILE/CASE".
func comparedCases(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	out := map[string]json.RawMessage{}
	files, err := filepath.Glob("testdata/compat/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		if name == "known" {
			continue
		}
		var set struct {
			Common map[string]json.RawMessage
			Cases  map[string]map[string]json.RawMessage
		}
		readJSON(t, file, &set)
		for title, own := range set.Cases {
			fields := maps.Clone(set.Common)
			if fields == nil {
				fields = map[string]json.RawMessage{}
			}
			maps.Copy(fields, own)
			text, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			out[name+"/"+title] = text
		}
	}
	golden, err := filepath.Glob("testdata/golden/*.scenario.json")
	if err != nil || len(out) == 0 || len(golden) == 0 {
		t.Fatalf("%d cases, %d scenarios: %v", len(out), len(golden), err)
	}
	for _, file := range golden {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), `"order": "parallel"`) {
			continue // its events have no order that could be compared here
		}
		out["golden/"+strings.TrimSuffix(filepath.Base(file), ".scenario.json")] = raw
	}
	return out
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// play runs the steps of a case, each by the program that by names, and returns
// what they left.
func play(t *testing.T, raw []byte, by func(step int) string) observation {
	t.Helper()
	w := newWorld(t)
	var c compared
	if err := json.Unmarshal(w.fillJSON(raw), &c); err != nil {
		t.Fatal(err)
	}
	if c.Model == "" {
		c.Model = "gpt-5.5"
	}
	w.layOut(t, c.scenario)
	if c.Bare {
		w.write(t, w.home+"/config.toml", []byte(c.Config), 0o600)
	}
	if c.Setup != "" {
		cmd := exec.Command("/bin/sh", "-ec", c.Setup)
		cmd.Dir, cmd.Env = w.ws, append(w.env(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("setup: %v\n%s", err, out)
		}
	}
	if c.Steps == nil {
		step := comparedStep{Argv: c.Argv}
		if c.Stdin != nil {
			step.Stdin, _ = json.Marshal(*c.Stdin) // a string
		}
		c.Steps = []comparedStep{step}
	}
	var seen observation
	words := map[string]bool{}
	for i, step := range c.Steps {
		res := w.runCompared(t, c, step, by(i), words)
		w.threads = append(w.threads, res.thread(t))
		seen.Steps = append(seen.Steps, w.observeStep(res))
	}
	w.observe(t, &seen, words)
	return seen
}

func (w *world) runCompared(t *testing.T, c compared, step comparedStep, program string, words map[string]bool) result {
	t.Helper()
	p := process{program: program, dir: w.ws, env: w.env(), timeout: 2 * time.Minute}
	if !c.NoKey {
		p.env = append(p.env, "MOCK_API_KEY=dummy-key", "CODEX_API_KEY=dummy-key")
	}
	for _, vars := range []map[string]string{c.Env, step.Env} {
		for name, value := range vars {
			p.env = append(p.env, name+"="+w.fill(value))
		}
	}
	if step.Cwd != "" {
		p.dir = filepath.Join(w.ws, step.Cwd)
	}
	for _, a := range step.Argv {
		p.args = append(p.args, w.fill(a))
		words[w.fill(a)] = true
	}
	if step.Shell != "" {
		bin := filepath.Join(w.base, "bin")
		if err := os.MkdirAll(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(bin + "/codex") // of the step before
		if err := os.Symlink(program, bin+"/codex"); err != nil {
			t.Fatal(err)
		}
		p.program, p.args = "/bin/bash", []string{"-c", w.fill(step.Shell)}
		p.env = append(p.env, "PATH="+bin+":"+os.Getenv("PATH"))
	}
	if len(step.Stdin) > 0 && string(step.Stdin) != "null" {
		var text string
		if json.Unmarshal(step.Stdin, &text) != nil {
			var binary struct{ Base64 string }
			if err := json.Unmarshal(step.Stdin, &binary); err != nil {
				t.Fatal(err)
			}
			b, err := base64.StdEncoding.DecodeString(binary.Base64)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		words[strings.TrimSpace(text)] = true
		p.stdin = strings.NewReader(text)
	}
	return p.run(t)
}

// TestCompatRecorded compares with what was recorded of the reference.
func TestCompatRecorded(t *testing.T) {
	notShort(t)
	rules := readRules(t)
	cases := comparedCases(t)
	recorded := map[string]map[string]observation{}
	for name := range cases {
		file, _, _ := strings.Cut(name, "/")
		if recorded[file] == nil && file != "golden" { // golden scenarios have a test of their own
			recorded[file] = readRecorded(t, "testdata/compat/reference/"+file+".json")
		}
	}
	for file, titles := range recorded {
		for title := range titles {
			if cases[file+"/"+title] == nil {
				t.Errorf("reference/%s.json has a case %q that is none any more", file, title)
			}
		}
	}
	t.Run("cases", func(t *testing.T) {
		for name, raw := range cases {
			file, title, _ := strings.Cut(name, "/")
			if file == "golden" {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				want, ok := recorded[file][title]
				if !ok {
					t.Fatalf("the reference's result is not recorded; run this with %s and -compat.record", referenceVariable)
				}
				needs(t, raw)
				ours := binary(t)
				var unknown []string
				for range 3 { // a busy machine can miss a moment
					unknown = rules.unknown(name, want.differences(play(t, raw, func(int) string { return ours })))
					if len(unknown) == 0 {
						return
					}
				}
				t.Errorf("differs from the reference:\n  %s", strings.Join(unknown, "\n  "))
			})
		}
	})
	if !strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		rules.checkUsed(t, func(r *rule) bool { return !r.Live })
	}
}

// needs skips a case whose shell text calls a program that is not there.
func needs(t *testing.T, raw []byte) {
	t.Helper()
	for _, program := range []string{"jq", "python3"} {
		if regexp.MustCompile(`\b` + program + `\b`).Match(raw) {
			if _, err := exec.LookPath(program); err != nil {
				t.Skipf("%s is not installed", program)
			}
		}
	}
}

// TestCompatSideBySide runs every case by both programs, and those that go on
// with a thread by both in turns.
func TestCompatSideBySide(t *testing.T) {
	reference := os.Getenv(referenceVariable)
	if reference == "" {
		t.Skipf("%s does not name the reference's program; see .ci/lanes/slow-compat.sh", referenceVariable)
	}
	rules := readRules(t)
	cases := comparedCases(t)
	results := make(chan played, len(cases))
	t.Run("cases", func(t *testing.T) {
		for name, raw := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				needs(t, raw)
				var want observation
				compare := func() (unknown []string) {
					want = play(t, raw, func(int) string { return reference })
					for _, side := range sidesOf(t, raw, reference, binary(t)) {
						for _, d := range rules.unknown(name, want.differences(play(t, raw, side.by))) {
							unknown = append(unknown, side.name+": "+d)
						}
					}
					return unknown
				}
				if *recordReference {
					results <- played{name, play(t, raw, func(int) string { return reference })}
					return
				}
				unknown := compare()
				for again := 0; again < 2 && len(unknown) > 0; again++ { // either may have missed a moment
					unknown = compare()
				}
				if len(unknown) > 0 {
					t.Errorf("differs from the reference:\n  %s", strings.Join(unknown, "\n  "))
				}
				results <- played{name, want}
			})
		}
	})
	close(results)
	found := map[string]map[string]observation{}
	for r := range results {
		file, title, _ := strings.Cut(r.name, "/")
		if found[file] == nil {
			found[file] = map[string]observation{}
		}
		found[file][title] = r.observation
	}
	if *recordReference {
		writeRecorded(t, found)
		return
	}
	if len(found) > 0 && !strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		rules.checkUsed(t, func(*rule) bool { return true })
	}
}

// played is what a case left.
type played struct {
	name string
	observation
}

// side says which program runs which step.
type side struct {
	name string
	by   func(step int) string
}

// sidesOf are the ways to run a case that are compared with the reference alone.
func sidesOf(t *testing.T, raw []byte, reference, ours string) []side {
	t.Helper()
	var c compared
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	out := []side{{"ours", func(int) string { return ours }}}
	if c.Across {
		out = append(out,
			side{"the reference, then ours", func(i int) string { return []string{reference, ours}[i%2] }},
			side{"ours, then the reference", func(i int) string { return []string{ours, reference}[i%2] }})
	}
	return out
}

// recording is a file of what the reference left: lists of headers and tools,
// which are nearly always the same, stand once, and "=NAME" in their places.
type recording struct {
	Lists map[string][]string    `json:"lists"`
	Cases map[string]observation `json:"cases"`
}

func readRecorded(t *testing.T, path string) map[string]observation {
	t.Helper()
	var r recording
	readJSON(t, path, &r)
	for _, o := range r.Cases {
		for i := range o.Requests {
			for _, list := range []*[]string{&o.Requests[i].Headers, &o.Requests[i].Tools} {
				if len(*list) == 1 && strings.HasPrefix((*list)[0], "=") {
					*list = r.Lists[(*list)[0][1:]]
				}
			}
		}
	}
	return r.Cases
}

// writeRecorded keeps what the reference left, one case a line.
func writeRecorded(t *testing.T, found map[string]map[string]observation) {
	t.Helper()
	current := comparedCases(t)
	for file, cases := range found {
		if file == "golden" {
			continue
		}
		path := "testdata/compat/reference/" + file + ".json"
		old := map[string]observation{}
		if _, err := os.Stat(path); err == nil {
			old = readRecorded(t, path)
		}
		maps.Copy(old, cases)
		maps.DeleteFunc(old, func(title string, _ observation) bool { return current[file+"/"+title] == nil })
		lists, names := map[string][]string{}, map[string]string{}
		once := func(list []string) []string {
			if len(list) == 0 {
				return nil
			}
			text := strings.Join(list, "\n")
			if names[text] == "" {
				names[text] = fmt.Sprint(len(names) + 1)
				lists[names[text]] = list
			}
			return []string{"=" + names[text]}
		}
		var b strings.Builder
		for i, title := range slices.Sorted(maps.Keys(old)) {
			o := old[title]
			o.Requests = slices.Clone(o.Requests)
			for j := range o.Requests {
				o.Requests[j].Headers, o.Requests[j].Tools = once(o.Requests[j].Headers), once(o.Requests[j].Tools)
			}
			if i > 0 {
				b.WriteString(",\n")
			}
			fmt.Fprintf(&b, "%q: %s", title, encodePlainly(t, o))
		}
		text := fmt.Sprintf("{\"lists\": %s,\n\"cases\": {\n%s\n}}\n", encodePlainly(t, lists), b.String())
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func encodePlainly(t *testing.T, v any) []byte {
	t.Helper()
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(text.Bytes())
}
