package model_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
	"github.com/nightshift-ci/nightshift/runner/runnertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client returns a client of srv; no retries unless o asks for them.
func client(t *testing.T, srv *runnertest.Server, o model.Options) *model.Client {
	t.Helper()
	o.BaseURL = srv.URL + "/v1"
	if o.RequestMaxRetries == nil {
		o.RequestMaxRetries = new(int)
	}
	if o.StreamMaxRetries == nil {
		o.StreamMaxRetries = new(int)
	}
	c, err := model.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func field(t *testing.T, body []byte, name string) string {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatalf("body is not JSON: %v", err)
	}
	return string(m[name])
}

// The body has the reference's fields, in an order that keeps what changes
// behind what does not.
func TestRequestBody(t *testing.T) {
	srv := runnertest.NewServer(t, `[{"items":[{"message":"ok"}]},{"items":[{"message":"ok"}]}]`)
	c := client(t, srv, model.Options{})
	r := ask("hello")
	r.Tools = []json.RawMessage{[]byte(`{"type":"function","name":"exec_command"}`)}
	r.Parallel, r.Effort, r.Summary, r.Verbosity = true, "medium", "auto", "low"
	r.Tier = "flex"
	r.Schema = json.RawMessage(`{"type":"object"}`)
	r.MaxTokens = 500
	r.Metadata = map[string]string{"turn_id": "t1", "session_id": r.CacheKey}
	if o := collect(t.Context(), c, r); o.err != nil {
		t.Fatal(o.err)
	}
	want := `{"model":"gpt-5.5","stream":true,"store":false,"tools":[{"type":"function","name":"exec_command"}],` +
		`"tool_choice":"auto","parallel_tool_calls":true,"reasoning":{"effort":"medium","summary":"auto"},"service_tier":"flex",` +
		`"include":["reasoning.encrypted_content"],"prompt_cache_key":"0199aaaa-0000-7000-8000-000000000001","max_output_tokens":500,` +
		`"text":{"verbosity":"low","format":{"type":"json_schema","strict":true,"schema":{"type":"object"},"name":"codex_output_schema"}},` +
		`"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hello"}]}],` +
		`"client_metadata":{"session_id":"0199aaaa-0000-7000-8000-000000000001","turn_id":"t1"}}`
	if diff := cmp.Diff(want, string(srv.ModelRequests()[0].Body)); diff != "" {
		t.Error(diff)
	}
	if o := collect(t.Context(), c, ask("hello")); o.err != nil {
		t.Fatal(o.err)
	}
	body := srv.ModelRequests()[1].Body
	for _, absent := range []string{"tools", "text", "reasoning", "instructions", "previous_response_id", "client_metadata"} {
		if got := field(t, body, absent); got != "" {
			t.Errorf("field %s = %s, want none", absent, got)
		}
	}
}

// Items come back byte for byte, and a request's body up to the end of its input
// is the beginning of the next one's.
func TestHistoryIsAppendOnly(t *testing.T) {
	odd := `{"type":"function_call", "id":"fc_1",  "status":"completed","call_id":"c1","name":"exec_command","arguments":"{\"cmd\":\"a <b> && c\"}","x_new":{"b":1,"a":[1.0,1e3]},"u":"\u2028é"}`
	srv := runnertest.NewServer(t, `[
		{"sse":`+quote("data: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":"+odd+"}\n\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\"}}\n\n")+`},
		{"items":[{"reasoning":["hm"],"encrypted":"e"},{"message":"ok"}]},
		{"items":[{"message":"ok"}]}]`)
	c := client(t, srv, model.Options{})
	r := ask("a <b> & c")
	r.Metadata = map[string]string{"turn_id": "t1"}
	for range 3 {
		o := collect(t.Context(), c, r)
		if o.err != nil {
			t.Fatal(o.err)
		}
		r.Input = append(r.Input, o.done.Items...)
		r.Input = append(r.Input, model.Item{Raw: []byte(`{"type":"function_call_output","call_id":"c1","output":"x"}`)})
		r.Metadata["request"] = fmt.Sprint(len(r.Input))
	}
	reqs := srv.ModelRequests()
	if !bytes.Contains(reqs[1].Body, []byte(odd)) {
		t.Errorf("the item did not come back verbatim:\n%s", reqs[1].Body)
	}
	for i := 1; i < len(reqs); i++ {
		prefix := reqs[i-1].Body[:bytes.Index(reqs[i-1].Body, []byte(`],"client_metadata"`))]
		if !bytes.HasPrefix(reqs[i].Body, prefix) {
			t.Errorf("request %d does not begin with request %d:\n%s\n%s", i+1, i, prefix, reqs[i].Body)
		}
	}
	if !bytes.Contains(reqs[2].Body, []byte(`"encrypted_content":"e","content":null}`)) {
		t.Errorf("a reasoning item lacks content:null: %s", reqs[2].Body)
	}
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestHeaders(t *testing.T) {
	srv := runnertest.NewServer(t, `[{"items":[],"headers":{"x-codex-turn-state":"opaque"}},{"items":[]},{"items":[]}]`)
	c := client(t, srv, model.Options{
		Originator: "codex_exec", UserAgent: "codex_exec/1 (Linux)", Auth: &key{"sk-test-1"},
		Headers: http.Header{"x-team": {"a"}}, Query: map[string]string{"api-version": "2"},
	})
	r := ask("hello")
	r.Metadata = map[string]string{"turn_id": "t1", "x-codex-turn-metadata": `{"workspaces":"/tmp/ä𝄞"}`, "x-codex-window-id": "w:0"}
	r.Headers = http.Header{"x-openai-subagent": {"review"}, "thread-id": {"child"}}
	for _, turn := range []string{"t1", "t1", "t2"} {
		r.Metadata["turn_id"] = turn
		if o := collect(t.Context(), c, r); o.err != nil {
			t.Fatal(o.err)
		}
	}
	reqs := srv.ModelRequests()
	want := map[string]string{
		"authorization": "Bearer sk-test-1", "originator": "codex_exec", "user-agent": "codex_exec/1 (Linux)",
		"session-id": r.CacheKey, "thread-id": "child", "x-client-request-id": r.CacheKey, "x-codex-window-id": "w:0",
		"x-codex-turn-metadata": `{"workspaces":"/tmp/\u00e4\ud834\udd1e"}`, "x-openai-subagent": "review", "x-team": "a",
		"accept": "text/event-stream", "content-type": "application/json", "accept-encoding": "gzip", "x-codex-turn-state": "",
	}
	for name, value := range want {
		if got := reqs[0].Header.Get(name); got != value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
	for name := range reqs[0].Header {
		if strings.HasPrefix(name, "X-Stainless") {
			t.Errorf("header %s is sent", name)
		}
	}
	if reqs[0].Query != "api-version=2" {
		t.Errorf("query %q", reqs[0].Query)
	}
	if got := reqs[1].Header.Get("x-codex-turn-state"); got != "opaque" {
		t.Errorf("the turn state is not echoed: %q", got)
	}
	if got := reqs[2].Header.Get("x-codex-turn-state"); got != "" {
		t.Errorf("the turn state of one turn is sent in another: %q", got)
	}
}

// key is an API key: it cannot be renewed.
type key struct{ value string }

func (k *key) Authorize(r *http.Request) error {
	r.Header.Set("Authorization", "Bearer "+k.value)
	return nil
}
func (k *key) Refused(context.Context) error { return errors.New("an API key cannot be renewed") }

// login is a credential that can be renewed.
type login struct {
	key
	renewed atomic.Int32
	fail    error
}

func (l *login) Refused(context.Context) error {
	l.renewed.Add(1)
	l.value += "+"
	return l.fail
}

const unauthorized = `{"status":401,"body":{"error":{"message":"no","code":"invalid_api_key"}}}`

func TestRenewedCredential(t *testing.T) {
	five := 5
	srv := runnertest.NewServer(t, `[`+unauthorized+`,{"items":[{"message":"ok"}]}]`)
	l := &login{key: key{"a"}}
	o := collect(t.Context(), client(t, srv, model.Options{Auth: l, StreamMaxRetries: &five}), ask("hello"))
	if o.err != nil || len(o.shown) != 0 || l.renewed.Load() != 1 {
		t.Errorf("error %v, shown %q, %d renewals; want a silent success after one", o.err, o.shown, l.renewed.Load())
	}
	if got := srv.ModelRequests()[1].Header.Get("Authorization"); got != "Bearer a+" {
		t.Errorf("the retry carries %q", got)
	}

	srv = runnertest.NewServer(t, always(unauthorized))
	l = &login{key: key{"a"}}
	o = collect(t.Context(), client(t, srv, model.Options{Auth: l, StreamMaxRetries: &five}), ask("hello"))
	if n := len(srv.ModelRequests()); o.api(t).Class != "unauthorized" || n != 3 || len(o.shown) != 0 {
		t.Errorf("class %s after %d requests", o.api(t).Class, n)
	}

	gone := errors.New("signed out")
	srv = runnertest.NewServer(t, always(unauthorized))
	l = &login{key: key{"a"}, fail: gone}
	o = collect(t.Context(), client(t, srv, model.Options{Auth: l, StreamMaxRetries: &five}), ask("hello"))
	if n := len(srv.ModelRequests()); !errors.Is(o.err, gone) || n > 2 {
		t.Errorf("error %v after %d requests, want one that wraps %v", o.err, n, gone)
	}
}

type noCredential struct{ key }

func (*noCredential) Authorize(*http.Request) error { return errNoKey }

//lint:ignore ST1005 the reference's sentence
var errNoKey = errors.New("Missing environment variable: `NAME`.")

func TestMissingCredential(t *testing.T) {
	srv := runnertest.NewServer(t, always(`{"items":[]}`))
	o := collect(t.Context(), client(t, srv, model.Options{Auth: &noCredential{}}), ask("hello"))
	if !errors.Is(o.err, errNoKey) || len(srv.Requests()) != 0 {
		t.Errorf("error %v, %d requests; want the authorizer's error and none", o.err, len(srv.Requests()))
	}
}

func TestUsageAndEvents(t *testing.T) {
	srv := runnertest.NewServer(t, `[`+status(503, `"x"`)+`,
		{"items":[{"message":"ok"}],"model":"gpt-5.5-1","end_turn":false,"usage":{"input":1000,"cached":600,"cache_write":12,"output":40,"reasoning":25}}]`)
	var events []event.Event
	one := 1
	c := client(t, srv, model.Options{RequestMaxRetries: &one, Emit: func(e event.Event) { events = append(events, e) }})
	o := collect(t.Context(), c, ask("hello"))
	if o.err != nil {
		t.Fatal(o.err)
	}
	if diff := cmp.Diff(event.Usage{Input: 1000, CachedInput: 600, CacheWriteInput: 12, Output: 40, Reasoning: 25}, o.done.Usage); diff != "" {
		t.Error(diff)
	}
	if o.done.EndTurn == nil || *o.done.EndTurn || o.done.Attempts != 2 || o.done.ID != "resp_r2" || o.done.ServiceID != "req_2" || o.done.Model != "gpt-5.5-1" {
		t.Errorf("response %+v", o.done)
	}
	var kinds []event.Kind
	for _, e := range events {
		kinds = append(kinds, event.KindOf(e))
	}
	if diff := cmp.Diff([]event.Kind{"model.request", "model.retried", "model.request", "model.response"}, kinds); diff != "" {
		t.Error(diff)
	}
}

// Cancelling ends the call at once, wherever it is, with the cause.
// What a failed attempt had finished is handed over before the next attempt or
// the error, with the tokens of a response that the service broke off itself.
func TestBroken(t *testing.T) {
	for name, tt := range map[string]struct {
		script string
		want   []string
	}{
		"cut, then whole": {`{"items":[{"message":"one"},{"call":"x","args":{}}],"end":"none"},{"items":[{"message":"two"}]}`, []string{"broken 2 0", "retrying", "done"}},
		"nothing came":    {`{"items":[],"end":"none"},{"items":[{"message":"two"}]}`, []string{"retrying", "done"}},
		"incomplete":      {`{"items":[{"message":"one"}],"end":"incomplete","usage":{"input":70,"output":7}}`, []string{"broken 1 77", "error"}},
		"failed":          {`{"items":[{"message":"one"}],"end":"failed","error":{"code":"invalid_prompt","message":"no"}}`, []string{"broken 1 0", "error"}},
	} {
		one := 1
		c := client(t, runnertest.NewServer(t, "["+tt.script+"]"), model.Options{StreamMaxRetries: &one})
		var got []string
		for d, err := range c.Stream(t.Context(), ask("hello")) {
			switch {
			case err != nil:
				got = append(got, "error")
			case d.Broken != nil:
				got = append(got, fmt.Sprint("broken ", len(d.Broken.Items), " ", d.Broken.Usage.Total()))
			case d.Retrying != nil:
				got = append(got, "retrying")
			case d.Done != nil:
				got = append(got, "done")
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestCancel(t *testing.T) {
	cause := errors.New("stop now")
	for name, script := range map[string]string{
		"before headers": `{"items":[],"delay_s":600}`,
		"in the stream":  `{"items":[{"message":"x"}],"hang_s":600}`,
		"in a wait":      status(429, `"x"`, "Retry-After", "200"),
	} {
		t.Run(name, func(t *testing.T) {
			srv := runnertest.NewServer(t, always(script))
			five := 5
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			time.AfterFunc(200*time.Millisecond, func() { cancel(cause) })
			o := collect(ctx, client(t, srv, model.Options{StreamMaxRetries: &five}), ask("hello"))
			if o.err != cause {
				t.Errorf("error %v, want the cause", o.err)
			}
		})
	}
}

// A caller that breaks off ends the request; nothing leaks (see TestMain).
func TestBreakOff(t *testing.T) {
	srv := runnertest.NewServer(t, always(`{"items":[{"message":"x"}],"hang_s":600}`))
	c := client(t, srv, model.Options{})
	for range c.Stream(t.Context(), ask("hello")) {
		break
	}
}

func TestConnectionIsReused(t *testing.T) {
	srv := runnertest.NewServer(t, always(`{"items":[{"message":"x"}]}`))
	c := client(t, srv, model.Options{})
	for range 5 {
		if o := collect(t.Context(), c, ask("hello")); o.err != nil {
			t.Fatal(o.err)
		}
	}
	if n := srv.Connections(); n != 1 {
		t.Errorf("5 requests used %d connections, want 1", n)
	}
}

func TestCompact(t *testing.T) {
	srv := runnertest.NewServer(t, `[{"compact":true,"items":[{"raw":{"type":"compaction","encrypted_content":"x"}}]}]`)
	c := client(t, srv, model.Options{})
	got, err := c.Compact(t.Context(), ask("long"))
	if err != nil || len(got.Items) != 1 || string(got.Items[0].Raw) != `{"type":"compaction","encrypted_content":"x"}` || got.Usage.Input != 100 {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = c.Compact(t.Context(), ask("long"))
	var api *model.APIError
	if !errors.As(err, &api) || api.Class != "not_found" {
		t.Errorf("error %v, want class not_found", err)
	}
}

func TestBadBaseURL(t *testing.T) {
	for _, u := range []string{"", "service.example/v1", "ftp://service.example", "http://", "http://[::1"} {
		_, err := model.NewClient(model.Options{BaseURL: u})
		var bad *model.BaseURLError
		if !errors.As(err, &bad) {
			t.Errorf("%q: error %v, want a BaseURLError", u, err)
		}
	}
}

func TestRequestThatCannotBeEncoded(t *testing.T) {
	srv := runnertest.NewServer(t, always(`{"items":[]}`))
	r := ask("hello")
	r.Input = append(r.Input, model.Item{Raw: []byte(`{"type":`)})
	if o := collect(t.Context(), client(t, srv, model.Options{}), r); o.err == nil || len(srv.Requests()) != 0 {
		t.Errorf("error %v, %d requests", o.err, len(srv.Requests()))
	}
}

// Every class has its row: a meaning and a hint.
func TestClassTable(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range model.Classes() {
		if c.Name == "" || c.Meaning == "" || c.Hint == "" || seen[c.Name] {
			t.Errorf("row %+v", c)
		}
		seen[c.Name] = true
	}
}
