package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// scriptVersion is the version of the format a Recorder writes.
const scriptVersion = 1

// Recorder wraps a Streamer and writes a script of what it answers, one line
// per response, each flushed to the disk before the response is handed on: a
// run that is killed leaves a script that plays up to there. Attempts that were
// made again are not recorded, a final failure is. It may be used by several
// goroutines at once; lines stand in the order in which responses ended.
type Recorder struct {
	inner Streamer
	w     io.Writer
	mask  event.Masker

	mu      sync.Mutex
	started bool
	err     error
	known   map[string]int // per thread, the input items that need no mark
}

// NewRecorder records inner to w, masked with m (nil: nothing is masked). If w
// has a Sync method, it is called after each line.
func NewRecorder(inner Streamer, w io.Writer, m event.Masker) *Recorder {
	return &Recorder{inner: inner, w: w, mask: m, known: map[string]int{}}
}

// Err is the first error of writing the recording. The run goes on without it;
// the caller must report it at the end.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Stream passes q on and records the response.
func (r *Recorder) Stream(ctx context.Context, q Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		for d, err := range r.inner.Stream(ctx, q) {
			r.result(q, d.Done, err, false)
			if !yield(d, err) {
				return
			}
		}
	}
}

// Compact passes q on, if the wrapped Streamer can compact, and records the
// answer.
func (r *Recorder) Compact(ctx context.Context, q Request) (Response, error) {
	c, ok := r.inner.(Compactor)
	if !ok {
		f := fail(ClassNotFound, "this provider has no compaction endpoint")
		f.err.Status = http.StatusNotFound
		return Response{}, f.err
	}
	out, err := c.Compact(ctx, q)
	if err == nil {
		r.result(q, &out, nil, true)
	}
	return out, err
}

// line is one reply as a Recorder writes it. Its fields are fields of reply.
type line struct {
	Request requestMark  `json:"request"`
	Compact bool         `json:"compact,omitempty"`
	ID      string       `json:"response_id,omitempty"`
	Model   string       `json:"model,omitempty"`
	Items   []rawItem    `json:"items,omitempty"`
	Usage   *usage       `json:"usage,omitempty"`
	EndTurn *bool        `json:"end_turn,omitempty"`
	Failure *failureMark `json:"failure,omitempty"`
}

type rawItem struct {
	Raw json.RawMessage `json:"raw"`
}

func (r *Recorder) result(q Request, done *Response, err error, compact bool) {
	var api *APIError
	if done == nil && !errors.As(err, &api) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := line{Request: r.mark(q), Compact: compact}
	if api != nil {
		l.Failure = &failureMark{api.Class, api.Message, api.Status, api.Code, api.Retryable, api.hint}
	} else {
		outputs := toolOutputs(rawInput(q.Input))
		l.ID, l.Model, l.EndTurn = done.ID, done.Model, done.EndTurn
		u := done.Usage
		l.Usage = &usage{Input: u.Input, Cached: u.CachedInput, CacheWrite: u.CacheWriteInput, Output: u.Output, Reasoning: u.Reasoning}
		for _, it := range done.Items {
			l.Items = append(l.Items, rawItem{portable(it.Raw, outputs)})
		}
		r.known[q.CacheKey] = len(q.Input) + len(done.Items)
	}
	r.write(l)
}

func (r *Recorder) write(l line) {
	if r.err != nil {
		return
	}
	var out bytes.Buffer
	if !r.started {
		r.started = true
		fmt.Fprintf(&out, "{\"script\":\"nightshift\",\"version\":%d}\n", scriptVersion)
	}
	text := plainJSON(l)
	if r.mask != nil {
		text = r.mask.MaskJSON(text)
	}
	out.Write(text)
	out.WriteByte('\n')
	_, err := r.w.Write(out.Bytes())
	if err == nil {
		if s, ok := r.w.(interface{ Sync() error }); ok {
			err = s.Sync()
		}
	}
	if err != nil {
		r.err = fmt.Errorf("writing the recording of the session: %w", err)
	}
}

func rawInput(items []Item) []json.RawMessage {
	out := make([]json.RawMessage, len(items))
	for i, it := range items {
		out[i] = it.Raw
	}
	return out
}

// sessionArgument is a session id in the arguments of a call, such as
// write_stdin's.
var sessionArgument = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`("session_id"\s*:\s*)(\d+)`) })

// portable replaces the session id in a recorded call with a placeholder: ids
// are given anew in each run. The id is captured from the output of the call
// that named it.
func portable(raw json.RawMessage, outputs []toolOutput) json.RawMessage {
	var call struct {
		Type      string `json:"type"`
		Arguments string `json:"arguments"`
	}
	if json.Unmarshal(raw, &call) != nil || call.Type != "function_call" {
		return raw
	}
	m := sessionArgument().FindStringSubmatchIndex(call.Arguments)
	if m == nil {
		return raw
	}
	id := call.Arguments[m[4]:m[5]]
	for i := len(outputs) - 1; i >= 0; i-- {
		o := outputs[i]
		named, err := regexp.MatchString(`session ID `+id+`\b`, o.text)
		if err != nil || !named || strings.ContainsAny(o.callID, ":{}") {
			continue
		}
		filled := call.Arguments[:m[4]] + `{{capture@` + o.callID + `:session ID (\d+)}}` + call.Arguments[m[5]:]
		out, err := eachString(raw, func(s string) (json.RawMessage, error) {
			if s == call.Arguments {
				return plainJSON(filled), nil
			}
			return nil, nil
		})
		if err == nil {
			return out
		}
	}
	return raw
}
