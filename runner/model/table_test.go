package model_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
)

// outcome is what a caller of Stream saw.
type outcome struct {
	done   *model.Response
	err    error
	shown  []string // error events of the wire stream
	layers []string // layer of every retry
	took   time.Duration
}

func (o outcome) api(t *testing.T) *model.APIError {
	t.Helper()
	var api *model.APIError
	if !errors.As(o.err, &api) {
		t.Fatalf("error = %v, want an *APIError", o.err)
	}
	return api
}

func collect(ctx context.Context, s model.Streamer, r model.Request) outcome {
	var o outcome
	begin := time.Now()
	for d, err := range s.Stream(ctx, r) {
		switch {
		case err != nil:
			o.err = err
		case d.Retrying != nil:
			if m := d.Retrying.Message(); m != "" {
				o.shown = append(o.shown, m)
			}
			o.layers = append(o.layers, d.Retrying.Layer)
		case d.Done != nil:
			o.done = d.Done
		}
	}
	o.took = time.Since(begin)
	return o
}

// ask is a small request.
func ask(text string) model.Request {
	return model.Request{
		Model: "gpt-5.5", Purpose: "turn", CacheKey: "0199aaaa-0000-7000-8000-000000000001",
		Input: []model.Item{{Raw: []byte(`{"type":"message","role":"user","content":[{"type":"input_text","text":"` + text + `"}]}`)}},
	}
}

func script(t *testing.T, text string, o model.Options) *model.Script {
	t.Helper()
	if o.Rand == nil {
		o.Rand = func() float64 { return 0.5 }
	}
	s, err := model.NewScript("test", []byte(text), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// always is a script that gives the same reply for ever.
func always(reply string) string {
	return `{"responses":[],"on_exhausted":` + reply + `}`
}

func status(code int, body string, headers ...string) string {
	h := []string{}
	for i := 0; i+1 < len(headers); i += 2 {
		h = append(h, fmt.Sprintf("%q:%q", headers[i], headers[i+1]))
	}
	return fmt.Sprintf(`{"status":%d,"headers":{%s},"body":%s}`, code, strings.Join(h, ","), body)
}

const at = ", url: http://script.invalid/v1/responses"

// TestFailureTable walks the table of failures: how often each is tried again,
// how long that takes, what is said and under which word.
func TestFailureTable(t *testing.T) {
	const cutText = "stream disconnected before completion: Transport error: network error: error decoding response body"
	const closedText = "stream disconnected before completion: stream closed before response.completed"
	tests := []struct {
		name     string
		reply    string
		requests int
		seconds  float64 // of waiting, jitter off
		class    string
		message  string
	}{
		{"500", status(500, `{"error":{"message":"boom"}}`), 30, 24.2, "server_error", "We’re currently experiencing high demand, which may cause temporary errors."},
		{"502", status(502, `"bad gateway"`), 30, 24.2, "server_error", "unexpected status 502 Bad Gateway: bad gateway" + at},
		{"503", status(503, `{"error":{"message":"busy"}}`), 30, 24.2, "server_error", "unexpected status 503 Service Unavailable: busy" + at},
		{"504", status(504, `""`), 30, 24.2, "server_error", "unexpected status 504 Gateway Timeout: " + at},
		{"520", status(520, `"x"`), 30, 24.2, "server_error", "unexpected status 520 <unknown status code>: x" + at},
		{"529", status(529, `"x"`), 30, 24.2, "server_error", "unexpected status 529 <unknown status code>: x" + at},
		{"reset", `{"reset":true,"sse":""}`, 6, 6.2, "stream_ended", cutText},
		{"401", status(401, `{"error":{"message":"no"}}`), 2, 0.2, "unauthorized", "unexpected status 401 Unauthorized: no" + at},
		{"402", status(402, `{"error":{"message":"no"}}`), 2, 0.2, "quota", "unexpected status 402 Payment Required: no" + at},
		{"403", status(403, `{"error":{"message":"no"}}`), 2, 0.2, "forbidden", "unexpected status 403 Forbidden: no" + at},
		{"404", status(404, `"gone"`), 2, 0.2, "not_found", "unexpected status 404 Not Found: gone" + at},
		{"405", status(405, `"no"`), 2, 0.2, "rejected", "unexpected status 405 Method Not Allowed: no" + at},
		{"408", status(408, `"slow"`), 6, 6.2, "server_error", "unexpected status 408 Request Timeout: slow" + at},
		{"409", status(409, `"no"`), 6, 6.2, "rejected", "unexpected status 409 Conflict: no" + at},
		{"413", status(413, `"big"`), 2, 0.2, "too_large", "unexpected status 413 Payload Too Large: big" + at},
		{"422", status(422, `"no"`), 2, 0.2, "rejected", "unexpected status 422 Unprocessable Entity: no" + at},
		{"451", status(451, `"no"`), 2, 0.2, "rejected", "unexpected status 451 Unavailable For Legal Reasons: no" + at},
		{"400", status(400, `{"error":{"message":"bad","code":null}}`), 1, 0, "bad_request", `{"error": {"message": "bad", "code": null}}`},
		{"400 invalid_prompt", status(400, `{"error":{"message":"bad","code":"invalid_prompt"}}`), 1, 0, "invalid_prompt", "bad"},
		{"400 model_not_found", status(400, `{"error":{"message":"no model","code":"model_not_found"}}`), 1, 0, "invalid_model", "no model"},
		{"404 model_not_found", status(404, `{"error":{"message":"no model","code":"model_not_found"}}`), 1, 0, "invalid_model", "no model"},
		{"400 context", status(400, `{"error":{"message":"x","code":"context_length_exceeded"}}`), 1, 0, "context_length", "Codex ran out of room in the model's context window. Start a new thread or clear earlier history before retrying."},
		{"429 bare", status(429, `{"error":{"message":"slow down","code":"rate_limit_exceeded"}}`), 6, 6.2, "rate_limit", "exceeded retry limit, last status: 429 Too Many Requests"},
		{"429 too large for any minute", status(429, `{"error":{"message":"Request too large for m in organization o on tokens per min (TPM): Limit 30000, Requested 91276. The input or output tokens must be reduced in order to run successfully.","type":"tokens","code":"rate_limit_exceeded"}}`), 1, 0, "too_large", "rate limit exceeded: Request too large for m in organization o on tokens per min (TPM): Limit 30000, Requested 91276. The input or output tokens must be reduced in order to run successfully."},
		{"429 hint in text", status(429, `{"error":{"message":"Please try again in 3s."}}`), 6, 15, "rate_limit", "exceeded retry limit, last status: 429 Too Many Requests"},
		{"429 seconds", status(429, `"x"`, "Retry-After", "7"), 6, 35, "rate_limit", "exceeded retry limit, last status: 429 Too Many Requests"},
		{"429 milliseconds", status(429, `"x"`, "retry-after-ms", "1500"), 6, 7.5, "rate_limit", "exceeded retry limit, last status: 429 Too Many Requests"},
		{"429 hour", status(429, `"x"`, "Retry-After", "3600"), 1, 0, "rate_limit", "exceeded retry limit, last status: 429 Too Many Requests"},
		{"429 absurd", status(429, `"x"`, "Retry-After", "1e400"), 1, 0, "rate_limit", "exceeded retry limit, last status: 429 Too Many Requests"},
		{"429 garbage", status(429, `"x"`, "Retry-After", "soon"), 6, 6.2, "rate_limit", "exceeded retry limit, last status: 429 Too Many Requests"},
		{"429 negative", status(429, `"x"`, "Retry-After", "-5"), 6, 6.2, "rate_limit", "exceeded retry limit, last status: 429 Too Many Requests"},
		{"429 budget", status(429, `"x"`, "Retry-After", "120"), 3, 240, "rate_limit", "exceeded retry limit, last status: 429 Too Many Requests"},
		{"429 quota", status(429, `{"error":{"message":"x","code":"insufficient_quota"}}`, "Retry-After", "1"), 1, 0, "quota", "Quota exceeded. Check your plan and billing details."},
		{"429 usage limit", status(429, `{"error":{"type":"usage_limit_reached","message":"Limit hit","resets_in_seconds":3600}}`, "retry-after", "3600"), 1, 0, "usage_limit", "The usage limit of the account is reached: Limit hit. It resets in 1h0m0s."},
		{"503 retry-after", status(503, `"x"`, "Retry-After", "2"), 30, 58, "server_error", "unexpected status 503 Service Unavailable: x" + at},
		{"503 overloaded", status(503, `{"error":{"message":"x","code":"server_is_overloaded"}}`), 5, 3, "overloaded", "Selected model is at capacity. Please try a different model."},
		{"503 slow_down", status(503, `{"error":{"message":"easy","code":"slow_down"}}`), 30, 24.2, "rate_limit", "rate limit exceeded: easy"},
		{"307", status(307, `""`, "Location", "http://elsewhere.example/v1/responses?key=1"), 1, 0, "redirect", "unexpected status 307 Temporary Redirect: " + at},
		{"302", status(302, `""`, "Location", "/login"), 1, 0, "redirect", "unexpected status 302 Found: " + at},
		{"204", status(204, `""`), 6, 6.2, "bad_response", "unexpected status 204 No Content: " + at},
		{"cut", `{"items":[{"message":"half"}],"cut_mid_item":true}`, 6, 6.2, "stream_ended", cutText},
		{"no end", `{"items":[{"message":"half"}],"end":"none"}`, 6, 6.2, "stream_ended", cutText},
		{"early clean end", `{"sse":"data: {\"type\":\"response.created\",\"response\":{}}\n\n"}`, 6, 6.2, "stream_ended", closedText},
		{"empty stream", `{"sse":""}`, 6, 6.2, "stream_ended", closedText},
		{"idle", `{"items":[{"message":"half"}],"hang_s":900}`, 6, 6.2 + 6*300, "idle_timeout", "stream disconnected before completion: idle timeout waiting for SSE"},
		{"idle before headers", `{"items":[],"delay_s":900}`, 6, 6.2 + 6*300, "idle_timeout", "stream disconnected before completion: idle timeout waiting for SSE"},
		{"failed", `{"items":[],"end":"failed","error":{"code":"server_error","message":"oh"}}`, 6, 6.2, "server_error", "stream disconnected before completion: oh"},
		{"failed unknown", `{"items":[],"end":"failed","error":{"code":"moon_phase","message":"oh"}}`, 6, 6.2, "server_error", "stream disconnected before completion: oh"},
		{"failed without error", `{"items":[],"end":"failed"}`, 6, 6.2, "server_error", "stream disconnected before completion: response.failed event received"},
		{"failed too large", `{"items":[],"end":"failed","error":{"code":"rate_limit_exceeded","message":"Request too large for m: Limit 3, Requested 9."}}`, 1, 0, "too_large", "rate limit exceeded: Request too large for m: Limit 3, Requested 9."},
		{"failed rate limit", `{"items":[],"end":"failed","error":{"code":"rate_limit_exceeded","message":"Please try again in 1.5s."}}`, 6, 7.5, "rate_limit", "rate limit exceeded: Please try again in 1.5s."},
		{"failed slow_down", `{"items":[],"end":"failed","error":{"code":"slow_down","message":"easy"}}`, 6, 6.2, "rate_limit", "rate limit exceeded: easy"},
		{"failed context", `{"items":[],"end":"failed","error":{"code":"context_length_exceeded","message":"x"}}`, 1, 0, "context_length", "Codex ran out of room in the model's context window. Start a new thread or clear earlier history before retrying."},
		{"failed quota", `{"items":[],"end":"failed","error":{"code":"insufficient_quota","message":"x"}}`, 1, 0, "quota", "Quota exceeded. Check your plan and billing details."},
		{"failed plan", `{"items":[],"end":"failed","error":{"code":"usage_not_included","message":"x"}}`, 1, 0, "usage_limit", "This account's plan does not include the model service."},
		{"failed prompt", `{"items":[],"end":"failed","error":{"code":"invalid_prompt","message":"refused"}}`, 1, 0, "invalid_prompt", "refused"},
		{"failed overloaded", `{"items":[],"end":"failed","error":{"code":"server_is_overloaded","message":"x"}}`, 1, 0, "overloaded", "Selected model is at capacity. Please try a different model."},
		{"error event", `{"sse":"event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"oh\"}\n\n"}`, 6, 6.2, "server_error", "stream disconnected before completion: oh"},
		{"nested error event", `{"sse":"data: {\"type\":\"error\",\"error\":{\"code\":\"invalid_prompt\",\"message\":\"oh\"}}\n\n"}`, 1, 0, "invalid_prompt", "oh"},
		{"incomplete", `{"items":[],"end":"incomplete"}`, 1, 0, "incomplete", "Incomplete response returned, reason: max_output_tokens"},
		{"filtered", `{"items":[],"end":"incomplete","reason":"content_filter"}`, 6, 6.2, "content_filter", "stream disconnected before completion: Incomplete response returned, reason: content_filter"},
		{"login page", `{"status":200,"headers":{"content-type":"text/html"},"body":"<html>Sign in</html>"}`, 6, 6.2, "bad_response", "stream disconnected before completion: the service answered with text/html, not with an event stream"},
		{"json error with 200", status(200, `{"error":{"code":"invalid_prompt","message":"oh"}}`), 1, 0, "invalid_prompt", "oh"},
		{"broken vital event", `{"sse":"event: response.output_item.done\ndata: {\"type\":\"respo\n\n"}`, 6, 6.2, "stream_ended", cutText},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var requests int
				s := script(t, always(tt.reply), model.Options{Emit: func(e event.Event) {
					if _, ok := e.(event.ModelRequest); ok {
						requests++
					}
				}})
				got := collect(t.Context(), s, ask("hello"))
				api := got.api(t)
				if requests != tt.requests || api.Class != tt.class || api.Message != tt.message {
					t.Errorf("%d requests, class %q, message %q\nwant %d requests, class %q, message %q",
						requests, api.Class, api.Message, tt.requests, tt.class, tt.message)
				}
				if s := got.took.Seconds(); math.Abs(s-tt.seconds) > 0.01 {
					t.Errorf("took %v of waiting, want %v s", got.took, tt.seconds)
				}
				if api.Hint() == "" {
					t.Error("no hint")
				}
				if len(got.layers) != tt.requests-1 {
					t.Errorf("%d retries told, want %d", len(got.layers), tt.requests-1)
				}
			})
		})
	}
}

// A date in Retry-After is a time, not a number.
func TestRetryAfterDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		when := time.Now().Add(20 * time.Second).UTC().Format(http.TimeFormat)
		s := script(t, `[`+status(429, `"x"`, "Retry-After", when)+`,{"items":[{"message":"ok"}]}]`, model.Options{})
		got := collect(t.Context(), s, ask("hello"))
		if got.err != nil || got.took != 20*time.Second {
			t.Errorf("took %v, error %v; want 20s and success", got.took, got.err)
		}
		past := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
		s = script(t, `[`+status(429, `"x"`, "Retry-After", past)+`,{"items":[{"message":"ok"}]}]`, model.Options{})
		got = collect(t.Context(), s, ask("hello"))
		if got.err != nil || got.took != 200*time.Millisecond {
			t.Errorf("took %v, error %v; want the first back-off and success", got.took, got.err)
		}
	})
}

// Delays stay within ten per cent of the series.
func TestJitter(t *testing.T) {
	for _, r := range []float64{0, 0.5, 0.999999} {
		synctest.Test(t, func(t *testing.T) {
			s := script(t, always(status(409, `"x"`)), model.Options{Rand: func() float64 { return r }})
			got := collect(t.Context(), s, ask("hello"))
			want := 6.2 * (0.9 + 0.2*r)
			if math.Abs(got.took.Seconds()-want) > 0.01 {
				t.Errorf("took %v with jitter %v, want %v s", got.took, r, want)
			}
		})
	}
}

// What the stream shows of retries is what the reference shows.
func TestShownRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := 1, 2
		s := script(t, always(status(500, `"boom"`)), model.Options{RequestMaxRetries: &one, StreamMaxRetries: &two})
		got := collect(t.Context(), s, ask("hello"))
		const text = "We’re currently experiencing high demand, which may cause temporary errors."
		if diff := cmp.Diff([]string{"Reconnecting... 1/2 (" + text + ")", "Reconnecting... 2/2 (" + text + ")"}, got.shown); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"request", "stream", "request", "stream", "request"}, got.layers); diff != "" {
			t.Error(diff)
		}
	})
}

type wire func(*http.Request) (*http.Response, error)

func (f wire) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A network that cannot be reached is tried for a bounded time.
func TestUnreachable(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	tests := []struct {
		name     string
		err      error
		each     time.Duration // what an attempt takes
		requests int
		took     time.Duration
		class    string
	}{
		{"refused", refused, 0, 30, 24200 * time.Millisecond, "network"},
		{"no such host", &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "x.invalid", IsNotFound: true}}, 0, 30, 24200 * time.Millisecond, "network"},
		{"black hole", &net.OpError{Op: "dial", Err: syscall.ETIMEDOUT}, 15 * time.Second, 20, 0, "network"},
		{"reset while sending", syscall.ECONNRESET, 0, 30, 24200 * time.Millisecond, "network"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				requests := 0
				c, err := model.NewClient(model.Options{
					BaseURL: "http://service.example/v1", Rand: func() float64 { return 0.5 },
					HTTP: &http.Client{Transport: wire(func(*http.Request) (*http.Response, error) {
						requests++
						time.Sleep(tt.each)
						return nil, tt.err
					})},
				})
				if err != nil {
					t.Fatal(err)
				}
				got := collect(t.Context(), c, ask("hello"))
				if api := got.api(t); api.Class != tt.class || requests != tt.requests {
					t.Errorf("class %s after %d requests, want %s after %d", api.Class, requests, tt.class, tt.requests)
				}
				if tt.took != 0 && got.took.Round(time.Millisecond) != tt.took {
					t.Errorf("took %v, want %v", got.took, tt.took)
				}
				if got.took > 6*time.Minute {
					t.Errorf("took %v, which the retry budget should have prevented", got.took)
				}
			})
		})
	}
}
