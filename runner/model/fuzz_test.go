package model_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/model"
)

// Whatever a server sends, reading it ends, without a panic, in a response or an
// error.
func FuzzStream(f *testing.F) {
	for _, seed := range []string{
		"",
		"data: [DONE]\n\n",
		": c\r\rdata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\"}}\r\r",
		"event: response.output_item.done\ndata: {\"output_index\":0,\"item\":{\"type\":\"message\",\"id\":\"a\"}}\n\n",
		"data: {\"type\":\"response.output_item.done\",\"output_index\":-1,\"item\":{\"type\":\"reasoning\",\"summary\":null}}\n\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":1e99}}}\n\n",
		"data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":7,\"message\":[]}}}\n\n",
		"data: {\"type\":\"response.incomplete\",\"response\":{\"incomplete_details\":null}}\n\n",
		"data: {\"type\":\"error\",\"error\":\"text\"}\n\n",
	} {
		f.Add(seed, 200)
		f.Add(seed, 429)
	}
	f.Fuzz(func(t *testing.T, stream string, code int) {
		if code < 200 || code > 599 {
			return
		}
		c, err := model.NewClient(model.Options{
			BaseURL: "http://service.example/v1", RequestMaxRetries: new(int), StreamMaxRetries: new(int),
			HTTP: &http.Client{Transport: wire(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: code, Header: http.Header{"Retry-After": {stream}}, Body: io.NopCloser(strings.NewReader(stream)), Request: r}, nil
			})},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		o := collect(ctx, c, ask("x"))
		if (o.done == nil) == (o.err == nil) {
			t.Errorf("response %v, error %v: want exactly one", o.done, o.err)
		}
	})
}

// Whatever a script file holds, it parses or is refused; what parses plays
// without a panic, and an answer is always a whole plan.
func FuzzScript(f *testing.F) {
	for _, seed := range []string{
		live,
		`{"script":"nightshift","version":1}` + "\n" + `{"items":[{"raw":{"type":"x"}}],"request":{"items":1,"new":[{"type":"message","digest":"00"}]}}`,
		`{"responses":[{"status":429,"headers":{"Retry-After":"2"},"body":{"a":[1,"x"]}}],"on_exhausted":{"sse":"data: x"},"routes":{"GET /x":{"status":200,"body":{"base64":"AAAA"}}}}`,
		`{"items":[{"message":"é{{capture@c1:(\\d+)}}","deltas":3}],"cut_mid_item":true,"reset":true,"usage":null}`,
		`{"failure":{"class":"quota","message":"m"}}`,
		`{"compact":true,"items":[],"end":"incomplete"}`,
	} {
		f.Add([]byte(seed))
	}
	body := []byte(`{"input":[{"type":"function_call_output","call_id":"c1","output":"session ID 7"},{"type":"message","content":[{"text":"x"}]}]}`)
	f.Fuzz(func(t *testing.T, data []byte) {
		book, err := model.ParseScript("fuzz", data)
		if err != nil {
			return
		}
		for range min(book.Left(), 5) + 1 {
			plan, err := book.Answer("POST", "/v1/responses", body)
			if err == nil && plan.Failure == nil && plan.Status == 0 {
				t.Error("an answer has no status")
			}
		}
		if _, err := book.Answer("GET", "/x", nil); err != nil {
			t.Logf("route: %v", err)
		}
	})
}
