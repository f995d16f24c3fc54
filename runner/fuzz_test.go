package runner

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
	"github.com/nightshift-ci/nightshift/runner/workspace"
)

// FuzzReview reads answers of a review: whatever the model wrote, there is one
// message, and findings are in range.
func FuzzReview(f *testing.F) {
	for _, s := range []string{
		"", "fine", "{}", `{"findings":[]}`, `{"findings":null}`, "```json\n{\"findings\":[],\"overall_explanation\":\"ok\"}\n```",
		`{"findings":[{"title":"t","body":"b","confidence_score":2,"priority":9,"code_location":{"absolute_file_path":"/ws/a","line_range":{"start":-4,"end":-9}}}]}`,
		`{"findings":[{"priority":-1,"code_location":{"absolute_file_path":"../../etc/passwd"}}],"overall_correctness":"x"}`,
		`{"findings":[{"code_location":{"line_range":{"start":1e99}}}]}`, `x { "findings": [{}] } y }`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		seen := &memory{}
		r := &run{log: event.NewLog(nil, nil, seen), final: answer, state: runState{facts: workspace.Facts{Root: "/ws"}}}
		r.finishReview()
		if n := len(finished[event.AgentMessage](seen)); n != 1 {
			t.Fatalf("%d messages", n)
		}
		rv := r.state.review
		for _, found := range all[event.FindingReported](seen) {
			if rank(found.Severity) >= len(Severities) || found.EndLine < found.StartLine {
				t.Errorf("%+v", found)
			}
		}
		for _, bound := range Severities {
			o := rv.gate(Outcome{}, bound)
			if !rv.structured && o.ExitCode != ExitGate {
				t.Error("an unreadable review passes the gate")
			}
		}
		if rv.structured && r.final == "" {
			t.Error("a review without a message")
		}
	})
}

// FuzzSchema compiles schemas and checks answers: neither reads a file nor
// panics, and a schema that was accepted can be sent.
func FuzzSchema(f *testing.F) {
	for _, s := range [][2]string{
		{`{}`, `{}`}, {`true`, `1`}, {`false`, `1`}, {`[]`, ``}, {`{"type":"object","required":["n"]}`, `{"n":1}`},
		{`{"$ref":"file:///etc/passwd"}`, `1`}, {`{"$ref":"https://example.com/s.json"}`, `1`}, {`{"$ref":"#"}`, `1`},
		{`{"$defs":{"a":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}`, `1`}, {`{"pattern":"(a+)+$"}`, `"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"`},
		{`{"type":"string","minLength":-1}`, `""`}, {`{"properties":{"not":{"type":"string"}}}`, `{"not":1}`}, {`{"multipleOf":0.1}`, `1e308`},
		{`{"enum":[1,1]}`, "1"}, {`{"allOf":[{"not":{}}]}`, `null`},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, schema, answer string) {
		s, err := ParseSchema("schema.json", []byte(schema))
		if err != nil {
			if !strings.Contains(err.Error(), "schema.json") {
				t.Errorf("the error does not name the file: %v", err)
			}
			return
		}
		if !json.Valid(s.JSON) {
			t.Errorf("accepted, and no JSON: %q", s.JSON)
		}
		for _, problem := range s.Check([]byte(answer)) {
			if problem == "" {
				t.Error("a problem without a word")
			}
		}
	})
}

// FuzzItem reads items of a response as the loop does.
func FuzzItem(f *testing.F) {
	for _, s := range []string{
		`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]}`, `{"type":"message","content":null}`,
		`{"type":"function_call","call_id":"c","name":"exec_command","arguments":"{}"}`, `{"type":"function_call","arguments":{"a":1}}`,
		`{"type":"function_call","name":"update_plan","arguments":17}`, `{"type":"reasoning","summary":[{"text":"a"},{}]}`,
		`{"type":"web_search_call","action":{"type":"search","queries":[]}}`, `{"type":"web_search_call","action":7}`, `[]`, `{"type":{}}`,
		`{"type":"custom_tool_call","input":"\ud800"}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		seen := &memory{}
		n := 0
		o := Options{NewID: func() string { n++; return strconv.Itoa(n) }, Log: event.NewLog(nil, nil, seen)}
		r := &run{Options: o, log: o.Log, clock: &clock{}}
		if !json.Valid([]byte(raw)) {
			return // the client has seen to that
		}
		calls, err := r.absorb(&model.Response{Items: []model.Item{{Raw: json.RawMessage(raw)}}})
		if err != nil && Classify(err).ExitCode == ExitSuccess {
			t.Error("an error that is a success")
		}
		for _, c := range calls {
			if c.Custom && !utf8.ValidString(c.Input) {
				t.Errorf("input %q", c.Input)
			}
			hookView(c, "t", "/")
			rewritten(c, json.RawMessage(`{"command":"x"}`))
		}
		r.log.CloseItems()
		if bad := itemFaults(seen.records()); len(bad) > 0 {
			t.Error(bad)
		}
		for _, it := range r.history.items {
			if string(it.Raw) != raw {
				t.Errorf("the history holds %q for %q", it.Raw, raw)
			}
		}
		closedCalls(r.history.items, r)
		userMessages(r.history.items)
	})
}
