// Package model talks to the Responses API: request, stream, retries,
// recording. A response counts only when its terminal event has come.
package model

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// Item is one entry of the history, kept and sent back verbatim.
type Item struct {
	Raw json.RawMessage
}

// Request is one POST to {base_url}/responses.
type Request struct {
	Model     string
	Input     []Item
	Tools     []json.RawMessage // nil: no tools are offered
	Parallel  bool
	Effort    string
	Summary   string
	Verbosity string
	Tier      string // service_tier, "" is the service's default
	// Schema, if set, is sent as text.format with the name codex_output_schema.
	Schema    json.RawMessage
	CacheKey  string // thread id
	Metadata  map[string]string
	Headers   http.Header
	Purpose   string // turn, compaction, final_answer, repair, review
	MaxTokens int64
	// Emit takes the records of this request instead of Options.Emit: a sub-agent
	// has a log of its own. Nil leaves them there.
	Emit func(event.Event)
}

// Delta is one step of a response. Exactly one field is set.
type Delta struct {
	// Progress: bytes arrived; Text is the visible part, if any.
	Progress *Progress
	// Broken: the attempt failed after it had finished items or named its cost.
	// Retrying or the error comes next.
	Broken *Broken
	// Retrying: the attempt failed, everything yielded since Stream began is
	// void, and the request will be made again.
	Retrying *Retrying
	// Done: the terminal event. It is the last delta.
	Done *Response
}

// Progress is a sign of life of the stream.
type Progress struct {
	Text  string
	Event string
}

// Broken is what a failed attempt had brought.
type Broken struct {
	// Items were finished. Those of a response that will never come as a whole
	// are worth keeping, except for the calls among them.
	Items []Item
	// Usage is what the service counted for a response that it broke off itself.
	Usage event.Usage
}

// Retrying describes a failed attempt.
type Retrying struct {
	Err     *APIError
	Layer   string // LayerRequest, LayerStream, LayerCredential
	Attempt int    // 1, 2, …
	Max     int
	Delay   time.Duration
}

// Message is the text of the stream's error event, "Reconnecting... 1/5
// (reason)". It is empty for retries that the stream does not show: those of
// the request layer and the one after a renewed credential.
func (r Retrying) Message() string {
	if r.Layer != LayerStream {
		return ""
	}
	return fmt.Sprintf("Reconnecting... %d/%d (%s)", r.Attempt, r.Max, r.Err.Message)
}

// Layers of retries.
const (
	LayerRequest    = "request"    // same request again, silently
	LayerStream     = "stream"     // whole request again, shown as an error event
	LayerCredential = "credential" // once more after the credential was renewed, silently
)

// Response is a finished response; Items are its output items in order.
type Response struct {
	ID        string
	ServiceID string
	Model     string
	Status    string
	Items     []Item
	// Announced are searches of the service as they were when they began, by id.
	Announced  map[string]json.RawMessage
	Usage      event.Usage
	EndTurn    *bool
	FirstEvent time.Duration
	Duration   time.Duration
	Attempts   int
}

// APIError is a request that failed. Message is the text the reference shows;
// Class is a stable word.
type APIError struct {
	Class      string // unauthorized, forbidden, quota, usage_limit, rate_limit, overloaded, server_error, bad_request, context_length, invalid_model, network, stream_ended, idle_timeout, incomplete, content_filter, invalid_prompt, …
	Message    string
	Status     int
	Code       string
	Retryable  bool
	RetryAfter time.Duration
	ServiceID  string // the service's id of the request, if it named one
	hint       string
	cause      error
}

// Error is the message of the reference.
func (e *APIError) Error() string { return e.Message }

// Unwrap returns the transport error, if any.
func (e *APIError) Unwrap() error { return e.cause }

// Hint tells what to do.
func (e *APIError) Hint() string { return e.hint }

// Authorizer puts the credential on a request. Refused is called after a 401:
// nil means that the credential was renewed and one retry is worth it.
type Authorizer interface {
	Authorize(*http.Request) error
	Refused(context.Context) error
}

// Streamer is what a run needs of a model; Client, Script and Recorder fit.
type Streamer interface {
	Stream(context.Context, Request) iter.Seq2[Delta, error]
}

// Compactor is a Streamer whose provider can shorten a history itself; ask for
// it with a type assertion. An *APIError of class not_found means that this
// provider cannot.
type Compactor interface {
	Compact(context.Context, Request) (Response, error)
}
