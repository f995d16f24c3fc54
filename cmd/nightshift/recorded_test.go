package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// replayable are golden scenarios that run commands, polls, patches and plans:
// what was recorded of them over the wire must play again without one.
var replayable = []string{
	"exec_ok_then_fail", "exec_long_poll", "patch_add_update_delete_move", "patch_bad_context_then_good",
	"reasoning_and_message", "todo_list", "usage_sums", "web_search", "output_schema_and_last_message",
}

// TestRecordedSession records each scenario with --record and plays the
// recording with --model-script in a fresh world without a server: the two
// streams are equal, and the replay never leaves the recording.
func TestRecordedSession(t *testing.T) {
	for _, name := range replayable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(filepath.Join("testdata/golden", name+".scenario.json"))
			if err != nil {
				t.Fatal(err)
			}
			recording := filepath.Join(t.TempDir(), "session.jsonl")
			live, _ := record(t, raw, "--record", recording)
			text, err := os.ReadFile(recording)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "dummy-key") {
				t.Error("the recording holds the key")
			}
			replayed, events := record(t, raw, "--model-script", recording)
			if diff := compareStreams(live, replayed, false); diff != "" {
				t.Errorf("the replay differs: %s", diff)
			}
			if strings.Contains(events, `"script_divergence"`) {
				t.Errorf("the replay left the recording:\n%s", excerptOf([]byte(events)))
			}
		})
	}
}

// TestScriptOption plays the golden scripts themselves in process: the built-in
// model and the server are the same to the program.
func TestScriptOption(t *testing.T) {
	for _, name := range append(slices.Clone(replayable), "plain_answer", "retry_500_then_ok", "stream_cut_reconnect", "bad_request") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, err := filepath.Abs(filepath.Join("testdata/golden", name+".scenario.json"))
			if err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(filepath.Join("testdata/golden", name+".jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			got, _ := record(t, raw, "--model-script", file)
			if diff := compareStreams(string(want), got, false); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// record runs a scenario with more options and returns its normalised stream and
// its full event log. With --model-script the server is closed first.
func record(t *testing.T, raw []byte, options ...string) (stream, events string) {
	t.Helper()
	w := newWorld(t)
	var s scenario
	if err := json.Unmarshal(w.fillJSON(raw), &s); err != nil {
		t.Fatal(err)
	}
	w.layOut(t, s)
	if options[0] == "--model-script" {
		w.server.Close()
	}
	log := w.base + "/events.jsonl"
	p := process{dir: w.ws, env: append(w.env(), "MOCK_API_KEY=dummy-key"), timeout: time.Minute}
	p.args = append([]string{s.Argv[0], "--events", log}, options...)
	p.args = append(p.args, s.Argv[1:]...)
	res := p.run(t)
	if len(res.stdout) == 0 {
		t.Fatalf("no stream, exit code %d\nstderr:\n%s", res.code, excerptOf(res.stderr))
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	return w.normalise(string(res.stdout)), string(text)
}
