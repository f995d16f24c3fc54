package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// goldenMode is another way to run a golden scenario.
type goldenMode struct {
	name string
	// before runs first, with a reply that costs nothing; "" is nothing.
	before string
	// command stands before the prompt.
	command func(thread string) []string
	// keep tells whether an event of the golden stream is to be seen in this mode.
	keep func(line map[string]any) bool
}

var goldenModes = []goldenMode{
	{"resume", "Begin", func(thread string) []string { return []string{"resume", thread} }, func(map[string]any) bool { return true }},
	{"fork", "Begin", func(thread string) []string { return []string{"fork", thread} }, func(map[string]any) bool { return true }},
	{"review", "", func(string) []string { return []string{"review"} }, func(line map[string]any) bool {
		// A review shows one message, made of the answer, and no usage.
		delete(line, "usage")
		kind, _ := at(line, "item.type")
		return kind != "agent_message"
	}},
}

// TestCompatGoldenModes: a resumed or forked thread and a review run the golden
// scenarios like exec does.
func TestCompatGoldenModes(t *testing.T) {
	files, err := filepath.Glob("testdata/golden/*.scenario.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".scenario.json")
		switch name {
		case "prompt_with_stdin_block": // these modes do not read stdin beside a prompt
			continue
		case "resume_cumulative_usage": // has the mode in it
			continue
		case "retry_exhausted_500", "unauthorized": // have no reply to begin with
			continue
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range goldenModes {
			switch {
			case name == "output_schema_and_last_message" && mode.name == "review":
				continue // a review has an answer of its own form
			case name == "context_length_exceeded" && mode.before != "":
				continue // there is something to compact, which is tried once
			case timed[name] && mode.name == "fork":
				continue // takes its time, and resume has shown the same
			}
			t.Run(name+"/"+mode.name, func(t *testing.T) {
				t.Parallel()
				problem := playMode(t, name, raw, mode)
				if problem != "" && timed[name] {
					t.Logf("trying once more after: %s", problem)
					problem = playMode(t, name, raw, mode)
				}
				if problem != "" {
					t.Error(problem)
				}
			})
		}
	}
}

func playMode(t *testing.T, name string, raw []byte, mode goldenMode) string {
	t.Helper()
	w := newWorld(t)
	var s scenario
	if err := json.Unmarshal(w.fillJSON(raw), &s); err != nil {
		t.Fatal(err)
	}
	thread := ""
	if mode.before != "" {
		var replies []json.RawMessage
		if err := json.Unmarshal(s.Responses, &replies); err != nil {
			t.Fatal(err)
		}
		replies = slices.Insert(replies, 0, json.RawMessage(`{"items":[{"message":"Begun."}],"usage":{"input":0,"cached":0,"output":0,"reasoning":0}}`))
		var err error
		if s.Responses, err = json.Marshal(replies); err != nil {
			t.Fatal(err)
		}
	}
	w.layOut(t, s)
	if mode.before != "" {
		res := w.runStep(t, scenarioStep{Argv: []string{"exec", "--json", mode.before}})
		if thread = res.thread(t); res.code != 0 || thread == "" {
			t.Fatalf("the first turn ended with %d\n%s", res.code, excerptOf(res.stderr))
		}
	}
	prompt := len(s.Argv) - 1
	res := w.runStep(t, scenarioStep{Argv: slices.Insert(slices.Clone(s.Argv), prompt, mode.command(thread)...), Stdin: s.Stdin})
	golden, err := os.ReadFile("testdata/golden/" + name + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	// The server numbers its searches by the replies it has given.
	stdout := strings.ReplaceAll(w.normalise(string(res.stdout)), `"ws_r2_`, `"ws_r1_`)
	want, got := mode.filter(t, string(golden)), mode.filter(t, stdout)
	if diff := compareStreams(want, got, s.Order == "parallel"); diff != "" {
		return fmt.Sprintf("%s\nstderr:\n%s", diff, excerptOf(res.stderr))
	}
	if code, ok := wantedExit(s.Expect.ExitCode, 0); ok && res.code != code {
		return fmt.Sprintf("exit code %d, want %d\nstderr:\n%s", res.code, code, excerptOf(res.stderr))
	}
	return ""
}

// filter leaves out what this mode does not show.
func (m goldenMode) filter(t *testing.T, stream string) string {
	t.Helper()
	lines, bad := decodeLines(stream)
	if bad != "" {
		return stream
	}
	var out strings.Builder
	for _, line := range lines {
		if !m.keep(line) {
			continue
		}
		text, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(text, '\n'))
	}
	return out.String()
}
