package model_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
	"github.com/nightshift-ci/nightshift/runner/runnertest"
)

func texts(items []model.Item) []string {
	var out []string
	for _, it := range items {
		out = append(out, string(it.Raw))
	}
	return out
}

// Every item form becomes the same output item in process and over the wire.
func TestScriptItems(t *testing.T) {
	const text = `[{"items":[
		{"message":"hi <b>","phase":"commentary"},
		{"reasoning":["a","b"],"encrypted":"e"},
		{"call":"exec_command","args":{"cmd":"ls"}},
		{"call":"weigh","namespace":"mcp__scales","call_id":"c9","args":"raw {"},
		{"custom":"apply_patch","call_id":"c2","input":"*** Begin"},
		{"web_search":{"type":"search","query":"q"}},
		{"raw":{"type":"hologram","z":1.0}}]}]`
	want := []string{
		`{"type":"message","id":"msg_r1_0","status":"completed","role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"hi <b>","annotations":[]}]}`,
		`{"type":"reasoning","id":"rs_r1_1","summary":[{"type":"summary_text","text":"a"},{"type":"summary_text","text":"b"}],"encrypted_content":"e","content":null}`,
		`{"type":"function_call","id":"fc_r1_2","status":"completed","call_id":"call_r1_2","name":"exec_command","arguments":"{\"cmd\":\"ls\"}"}`,
		`{"type":"function_call","id":"fc_r1_3","status":"completed","call_id":"c9","namespace":"mcp__scales","name":"weigh","arguments":"raw {"}`,
		`{"type":"custom_tool_call","id":"ctc_r1_4","status":"completed","call_id":"c2","name":"apply_patch","input":"*** Begin"}`,
		`{"type":"web_search_call","id":"ws_r1_5","status":"completed","action":{"type":"search","query":"q"}}`,
		`{"type":"hologram","z":1.0}`,
	}
	s := script(t, text, model.Options{})
	played := collect(t.Context(), s, ask("hello"))
	if played.err != nil {
		t.Fatal(played.err)
	}
	if diff := cmp.Diff(want, texts(played.done.Items)); diff != "" {
		t.Error(diff)
	}
	served := collect(t.Context(), client(t, runnertest.NewServer(t, text), model.Options{}), ask("hello"))
	if served.err != nil {
		t.Fatal(served.err)
	}
	if diff := cmp.Diff(texts(played.done.Items), texts(served.done.Items)); diff != "" {
		t.Error(diff)
	}
}

func output(callID, text string) model.Item {
	b, err := json.Marshal(map[string]string{"type": "function_call_output", "call_id": callID, "output": text})
	if err != nil {
		panic(err)
	}
	return model.Item{Raw: b}
}

func TestScriptCapture(t *testing.T) {
	r := ask("hello")
	r.Input = append(r.Input, output("c1", "session ID 17 and session ID 18"), output("c2", "session ID 99, word"))
	for args, want := range map[string]string{
		`{"session_id":"{{capture:session ID (\\d+)}}"}`:    `{"session_id":99}`,
		`{"session_id":"{{capture@c1:session ID (\\d+)}}"}`: `{"session_id":18}`,
		`{"a":"x{{capture:ID (\\d{2})}}y"}`:                 `{"a":"x99y"}`,
		`{"a":"{{capture:(wo..)}}"}`:                        `{"a":"word"}`,
		`"{\"a\":{{capture:ID (\\d{1,2})}}}"`:               `{"a":99}`,
	} {
		s := script(t, `[{"items":[{"call":"x","call_id":"c","args":`+args+`}]}]`, model.Options{})
		o := collect(t.Context(), s, r)
		if o.err != nil {
			t.Errorf("%s: %v", args, o.err)
			continue
		}
		var call struct{ Arguments string }
		if err := json.Unmarshal(o.done.Items[0].Raw, &call); err != nil || call.Arguments != want {
			t.Errorf("%s gave %s, want %s", args, call.Arguments, want)
		}
	}
	s := script(t, `[{"items":[{"message":"{{capture:nowhere (x)}}"}]}]`, model.Options{})
	if o := collect(t.Context(), s, r); o.api(t).Class != "script" {
		t.Errorf("error %v, want class script", o.err)
	}
}

func TestScriptMatchAndExhaustion(t *testing.T) {
	s := script(t, `[{"match":{"contains":"call_a"},"items":[{"message":"A"}]},{"items":[{"message":"B"}]}]`, model.Options{})
	if o := collect(t.Context(), s, ask("hello")); !strings.Contains(texts(o.done.Items)[0], `"B"`) {
		t.Errorf("first reply %s", texts(o.done.Items))
	}
	if s.Left() != 1 {
		t.Errorf("%d replies left", s.Left())
	}
	if o := collect(t.Context(), s, ask("call_a")); !strings.Contains(texts(o.done.Items)[0], `"A"`) {
		t.Errorf("second reply %s", texts(o.done.Items))
	}
	o := collect(t.Context(), s, ask("more"))
	if api := o.api(t); api.Class != "script" || !errors.Is(o.err, model.ErrExhausted) || len(o.layers) != 0 {
		t.Errorf("error %v with %d retries", o.err, len(o.layers))
	}
}

func TestScriptErrors(t *testing.T) {
	for text, want := range map[string]string{
		``:                            "script bad.json: it holds no reply",
		`[]`:                          "script bad.json: it holds no reply",
		"{\"items\":[]}\n{\"itmes\":": "line 2: unexpected EOF",
		`{"itmes":[]}`:                `line 1: json: unknown field "itmes"`,
		"{\"items\":[]}\n\n{\"items\":[{\"mesage\":\"x\"}]}":                   `line 3: json: unknown field "mesage"`,
		`[{"items":[{"message":"x","call":"y"}]}]`:                             `reply 1: an item has exactly one of`,
		`[{"items":[],"end":"maybe"}]`:                                         `"end" is "completed", "failed", "incomplete" or "none", not "maybe"`,
		`[{"status":99}]`:                                                      `"status" is a number from 200 to 599`,
		`[{"status":500,"items":[]}]`:                                          `a plain HTTP answer`,
		`[{"items":[],"hang_s":-1}]`:                                           `not a time between 0 and 86400 seconds`,
		`[{"items":[{"message":"{{capture:(}}"}]}]`:                            `missing closing )`,
		`[{"items":[{"message":"{{capture:x}}"}]}]`:                            `has no group to capture`,
		`[{"items":[{"message":"{{capture:(x)"}]}]`:                            `has no end`,
		`{"script":"nightshift","version":2}`:                                  `this program plays "nightshift" version 1`,
		`{"responses":[],"on_exhausted":{"x":1}}`:                              `on_exhausted: json: unknown field "x"`,
		`{"responses":[{"items":[]}],"model_script":[]}`:                       `both "responses" and "model_script"`,
		`{"model_script":[{"items":[]}],"routes":{"GET /x":{"status":"two"}}}`: `routes: GET /x:`,
	} {
		_, err := model.NewScript("bad.json", []byte(text), model.Options{})
		var bad *model.ScriptError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) || bad.Hint() == "" {
			t.Errorf("%s\nerror %v\nwant  %s", text, err, want)
		}
	}
}

// answerTool plays a session by hand: what the runner would do between two
// requests.
func session(t *testing.T, s model.Streamer, outputs ...string) []string {
	t.Helper()
	r := ask("fix the test")
	var said []string
	for _, out := range append(outputs, "") {
		o := collect(t.Context(), s, r)
		if o.err != nil {
			t.Fatal(o.err)
		}
		said = append(said, texts(o.done.Items)...)
		r.Input = append(r.Input, o.done.Items...)
		var call struct {
			CallID string `json:"call_id"`
		}
		if err := json.Unmarshal(o.done.Items[len(o.done.Items)-1].Raw, &call); err != nil {
			t.Fatal(err)
		}
		r.Input = append(r.Input, output(call.CallID, out))
	}
	return said
}

const live = `[
	{"items":[{"reasoning":["look"],"encrypted":"e"},{"call":"exec_command","call_id":"c1","args":{"cmd":"go test"}}],"usage":{"input":10,"output":2}},
	{"items":[{"call":"write_stdin","call_id":"c2","args":{"session_id":"{{capture:session ID (\\d+)}}","chars":""}}]},
	{"items":[{"message":"done"}],"end_turn":true}]`

// What was recorded plays again, in another process with other session ids.
func TestRecordAndPlay(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "session.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rec := model.NewRecorder(script(t, live, model.Options{}), file, nil)
	before := session(t, rec, "Chunk ID: aaaaaa\nWall time: 1.2000 seconds\nProcess running with session ID 17\n", "exit 0 in 12ms")
	if rec.Err() != nil {
		t.Fatal(rec.Err())
	}
	recording, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(recording, []byte("fix the test")) != true || bytes.Contains(recording, []byte(`"session_id":17`)) {
		t.Errorf("the recording should name the prompt and no session id:\n%s", recording)
	}
	var notices []event.Notice
	play := script(t, string(recording), model.Options{Emit: func(e event.Event) {
		if n, ok := e.(event.Notice); ok {
			notices = append(notices, n)
		}
	}})
	after := session(t, play, "Chunk ID: bbbbbb\nWall time: 9.9000 seconds\nProcess running with session ID 4\n", "exit 0 in 99ms")
	for i := range before {
		before[i] = strings.Replace(before[i], `\"session_id\":17`, `\"session_id\":4`, 1)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
	if len(notices) != 0 || play.Divergence() != "" || play.Left() != 0 {
		t.Errorf("notices %v, divergence %q, %d left", notices, play.Divergence(), play.Left())
	}

	// The same session with another tool output is told, once.
	play = script(t, string(recording), model.Options{Emit: func(e event.Event) {
		if n, ok := e.(event.Notice); ok {
			notices = append(notices, n)
		}
	}})
	session(t, play, "FAIL\nProcess running with session ID 4\n", "exit 1 in 99ms")
	want := `the function call output of call c1 differs from the recorded one: recorded "Chunk ID: <id>\nWall time: <time>\nProcess running with session ID <id>\n", now "FAIL\nProcess running with session ID <id>\n"`
	if len(notices) != 1 || notices[0].Class != "script_divergence" || notices[0].Message != want || play.Divergence() != want {
		t.Errorf("notices %+v\nwant %s", notices, want)
	}
}

type star struct{}

func (star) MaskJSON(b []byte) []byte {
	return bytes.ReplaceAll(b, []byte("sk-secret"), []byte("***"))
}

// syncer counts what a file would be asked to do.
type syncer struct {
	bytes.Buffer
	syncs int
	full  bool
}

func (s *syncer) Write(p []byte) (int, error) {
	if s.full {
		return 0, errors.New("no space left on device")
	}
	return s.Buffer.Write(p)
}
func (s *syncer) Sync() error { s.syncs++; return nil }

func TestRecorderMasksAndSyncs(t *testing.T) {
	w := &syncer{}
	rec := model.NewRecorder(script(t, `[{"items":[{"message":"the key is sk-secret"}]},`+status(403, `"sk-secret"`)+`]`, model.Options{StreamMaxRetries: new(int)}), w, star{})
	for d, err := range rec.Stream(t.Context(), ask("with sk-secret")) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Done != nil && w.syncs != 1 {
			t.Errorf("the response was handed on after %d syncs", w.syncs)
		}
	}
	failed := collect(t.Context(), rec, ask("again"))
	if bytes.Contains(w.Bytes(), []byte("sk-secret")) || !bytes.Contains(w.Bytes(), []byte("the key is ***")) {
		t.Errorf("recording:\n%s", w)
	}
	play := script(t, w.String(), model.Options{})
	if o := collect(t.Context(), play, ask("with ***")); o.err != nil {
		t.Error(o.err)
	}
	again := collect(t.Context(), play, ask("again"))
	if got, want := again.api(t), failed.api(t); got.Class != want.Class || got.Status != want.Status || got.Hint() != want.Hint() {
		t.Errorf("replayed failure %+v, want %+v", got, want)
	}
	w.full = true
	rec = model.NewRecorder(script(t, live, model.Options{}), w, nil)
	if o := collect(t.Context(), rec, ask("x")); o.err != nil || rec.Err() == nil {
		t.Errorf("stream error %v, recorder error %v; want none and one", o.err, rec.Err())
	}
}

// A session that was compacted by the provider plays again.
func TestRecordCompaction(t *testing.T) {
	var w bytes.Buffer
	rec := model.NewRecorder(script(t, `[{"compact":true,"items":[{"raw":{"type":"compaction","x":1}}]}]`, model.Options{}), &w, nil)
	got, err := rec.Compact(t.Context(), ask("long"))
	if err != nil || len(got.Items) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	again, err := script(t, w.String(), model.Options{}).Compact(t.Context(), ask("long"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(texts(got.Items), texts(again.Items)); diff != "" {
		t.Error(diff)
	}
	_, err = model.NewRecorder(plain{}, io.Discard, nil).Compact(t.Context(), ask("long"))
	var api *model.APIError
	if !errors.As(err, &api) || api.Class != "not_found" {
		t.Errorf("error %v, want class not_found", err)
	}
}

type plain struct{}

func (plain) Stream(context.Context, model.Request) iter.Seq2[model.Delta, error] { return nil }

// Scripts wait in real time, but a cancelled context ends the wait.
func TestScriptCancel(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	s := script(t, always(`{"items":[{"message":"x"}],"hang_s":3600}`), model.Options{})
	if o := collect(ctx, s, ask("x")); !errors.Is(o.err, context.DeadlineExceeded) {
		t.Errorf("error %v", o.err)
	}
}
