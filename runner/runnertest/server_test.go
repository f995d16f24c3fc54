package runnertest_test

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/nightshift-ci/nightshift/runner/runnertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func post(t *testing.T, url, body string) (*http.Response, string, error) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	defer c.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	return res, string(got), err
}

// The sequence of events is the usual one of the service.
func TestEventSequence(t *testing.T) {
	srv := runnertest.NewServer(t, `[{"items":[
		{"reasoning":["a"]},{"message":"hello"},{"call":"x","args":{}},{"custom":"y","input":"z"},{"web_search":{"type":"search"}}]}]`)
	res, body, err := post(t, srv.URL+"/v1/responses", `{"input":[]}`)
	if err != nil {
		t.Fatal(err)
	}
	if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("content type %q", got)
	}
	if res.ContentLength != -1 {
		t.Error("the body is not chunked")
	}
	var kinds []string
	for _, m := range regexp.MustCompile(`(?m)^event: response\.(.*)$`).FindAllStringSubmatch(body, -1) {
		kinds = append(kinds, m[1])
	}
	want := strings.Fields(`created in_progress
		output_item.added reasoning_summary_part.added reasoning_summary_text.delta reasoning_summary_text.done reasoning_summary_part.done output_item.done
		output_item.added content_part.added output_text.delta output_text.delta output_text.done content_part.done output_item.done
		output_item.added function_call_arguments.delta function_call_arguments.delta function_call_arguments.done output_item.done
		output_item.added custom_tool_call_input.delta custom_tool_call_input.done output_item.done
		output_item.added web_search_call.in_progress web_search_call.searching web_search_call.completed output_item.done
		completed`)
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
}

func TestPlainReplies(t *testing.T) {
	srv := runnertest.NewServer(t, `{"model_script":[{"status":429,"headers":{"retry-after":"2"},"body":{"error":{"a":"x, y: \"z\"","b":[1,null]}}}],
		"routes":{"POST /oauth/token":{"status":200,"body":{"ok":true}},"POST /gone":{"status":404,"body":"nothing here"}}}`)
	res, body, err := post(t, srv.URL+"/v1/responses", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"error": {"a": "x, y: \"z\"", "b": [1, null]}}`; res.StatusCode != 429 || res.Header.Get("Retry-After") != "2" || body != want {
		t.Errorf("%d %v %s", res.StatusCode, res.Header, body)
	}
	if _, body, err = post(t, srv.URL+"/oauth/token", `x`); err != nil || body != `{"ok": true}` {
		t.Errorf("%s, %v", body, err)
	}
	if res, body, err = post(t, srv.URL+"/gone", ``); err != nil || res.StatusCode != 404 || body != "nothing here" {
		t.Errorf("%v %s, %v", res, body, err)
	}
	if res, body, err = post(t, srv.URL+"/v1/responses", `{}`); err != nil || res.StatusCode != 500 || !strings.Contains(body, "no reply is left") {
		t.Errorf("%v %s, %v", res, body, err)
	}
	if p := srv.Problems(); len(p) != 1 {
		t.Errorf("problems %v", p)
	}
	if n, m := len(srv.Requests()), len(srv.ModelRequests()); n != 4 || m != 2 {
		t.Errorf("%d requests, %d to the model; want 4 and 2", n, m)
	}
	if got := string(srv.Requests()[1].Body); got != "x" {
		t.Errorf("recorded body %q", got)
	}
}

// A broken ending is broken for every client, not only for ours.
func TestBrokenEndings(t *testing.T) {
	for name, reply := range map[string]string{
		"none":  `{"items":[{"message":"x"}],"end":"none"}`,
		"cut":   `{"items":[{"message":"x"}],"cut_mid_item":true}`,
		"reset": `{"items":[{"message":"x"}],"end":"none","reset":true}`,
		"hang":  `{"items":[{"message":"x"}],"hang_s":0.2}`,
	} {
		srv := runnertest.NewServer(t, `[`+reply+`]`)
		_, body, err := post(t, srv.URL+"/v1/responses", `{}`)
		if err == nil || strings.Contains(body, "response.completed") {
			t.Errorf("%s: error %v, body %q", name, err, body)
		}
	}
}

func TestTimes(t *testing.T) {
	srv := runnertest.NewServer(t, `[{"delay_s":0.2,"gap_s":0.2,"items":[{"message":"a"},{"message":"b"}],"hang_s":0.2,"end":"completed"}]`)
	begin := time.Now()
	_, body, err := post(t, srv.URL+"/v1/responses", `{}`)
	if took := time.Since(begin); err != nil || took < 600*time.Millisecond || !strings.Contains(body, "response.completed") {
		t.Errorf("took %v, %v, %q", took, err, body)
	}
}

func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	urls := make(chan string, 1)
	done := make(chan error, 1)
	go func() {
		done <- runnertest.Serve(ctx, []byte(`[{"items":[{"message":"hi"}]}]`), "127.0.0.1:0", func(u string) { urls <- u })
	}()
	if _, body, err := post(t, <-urls+"/v1/responses", `{}`); err != nil || !strings.Contains(body, "hi") {
		t.Errorf("%q, %v", body, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := runnertest.Serve(t.Context(), []byte(`{`), "127.0.0.1:0", nil); err == nil {
		t.Error("a broken script is served")
	}
}

// Closing the server does not wait for a stream that hangs.
func TestCloseWhileHanging(t *testing.T) {
	srv := runnertest.NewServer(t, `[{"items":[],"hang_s":3600}]`)
	errs := make(chan error, 1)
	go func() {
		_, _, err := post(t, srv.URL+"/v1/responses", `{}`)
		errs <- err
	}()
	for len(srv.Requests()) == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	srv.Close()
	if err := <-errs; err == nil {
		t.Error("the hanging stream ended well")
	}
}
