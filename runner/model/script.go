package model

import (
	"bytes"
	"context"
	"io"
	"iter"
	"net/http"
	"sync"
	"syscall"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// ScriptOptions are the client's options; those about the address, the
// credential and the connection are ignored.
type ScriptOptions = Options

// Script plays a recorded session with no network. It is a Client whose requests
// are answered in this process, so retries, waits, time-outs and broken streams
// behave as they would on the wire. It implements Streamer and Compactor.
type Script struct {
	client *Client
	book   *Playbook
	emit   func(event.Event)

	mu         sync.Mutex
	divergence string
}

// NewScript parses data (see ParseScript); name is its file name, for messages.
// The first request that leaves the recorded session is reported in a notice of
// class script_divergence; one that has no reply ends with an
// *APIError of class script.
func NewScript(name string, data []byte, o ScriptOptions) (*Script, error) {
	book, err := ParseScript(name, data)
	if err != nil {
		return nil, err
	}
	s := &Script{book: book, emit: o.Emit}
	o.BaseURL, o.Auth, o.Proxy, o.Query, o.Headers = "http://script.invalid/v1", nil, nil, nil, nil
	o.HTTP = &http.Client{Transport: roundTripper(s.answer)}
	s.client, err = NewClient(o)
	return s, err
}

// Stream answers with the next reply of the script.
func (s *Script) Stream(ctx context.Context, r Request) iter.Seq2[Delta, error] {
	return s.client.Stream(ctx, r)
}

// Compact answers with the next recorded compaction; a script without one
// answers with class not_found.
func (s *Script) Compact(ctx context.Context, r Request) (Response, error) {
	return s.client.Compact(ctx, r)
}

// Divergence tells the first place where the session left the recording, ""
// when it did not.
func (s *Script) Divergence() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.divergence
}

// Left is the number of replies that were not played.
func (s *Script) Left() int { return s.book.Left() }

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// scriptedError passes an error through the HTTP client.
type scriptedError struct{ err error }

func (e *scriptedError) Error() string { return e.err.Error() }

// answer plays the wire.
func (s *Script) answer(req *http.Request) (*http.Response, error) {
	var sent bytes.Buffer
	if req.Body != nil {
		_, err := sent.ReadFrom(req.Body)
		_ = req.Body.Close() // it is a buffer
		if err != nil {
			return nil, err
		}
	}
	plan, err := s.book.Answer(req.Method, req.URL.Path, sent.Bytes())
	if err != nil {
		f := fail(ClassScript, err.Error()).because(err)
		if d := s.Divergence(); d != "" {
			f.hinting("%s", d)
		}
		return nil, &scriptedError{f.err}
	}
	s.compare(plan)
	if plan.Failure != nil {
		return nil, &scriptedError{plan.Failure}
	}
	ctx := req.Context()
	if err := sleep(ctx, plan.Wait); err != nil {
		return nil, err
	}
	if plan.End == EndReset && len(plan.Steps) == 0 {
		return nil, syscall.ECONNRESET
	}
	return &http.Response{
		Status: statusLine(plan.Status), StatusCode: plan.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: plan.Header.Clone(), ContentLength: -1, Request: req,
		Body: &planBody{ctx: ctx, steps: plan.Steps, end: plan.End},
	}, nil
}

// compare tells the first divergence.
func (s *Script) compare(p Plan) {
	what := p.mark.differs(p.input)
	if what == "" {
		return
	}
	s.mu.Lock()
	first := s.divergence == ""
	if first {
		s.divergence = what
	}
	s.mu.Unlock()
	if first && s.emit != nil {
		s.emit(event.Notice{
			Class: "script_divergence", Message: what, Origin: s.book.name,
			Hint: "the replies were recorded for another course of the session; what follows may not fit",
		})
	}
}

// planBody plays the steps of a plan to a reader.
type planBody struct {
	ctx   context.Context
	steps []Step
	rest  []byte
	end   Ending
}

// Read implements io.Reader.
func (b *planBody) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if len(b.steps) == 0 {
			return 0, b.end.err()
		}
		step := b.steps[0]
		b.steps = b.steps[1:]
		if step.Wait > 0 {
			if err := sleep(b.ctx, step.Wait); err != nil {
				return 0, err
			}
		}
		b.rest = step.Data
	}
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (b *planBody) Close() error {
	b.steps, b.rest = nil, nil
	return nil
}

func (e Ending) err() error {
	switch e {
	case EndAbort:
		return io.ErrUnexpectedEOF
	case EndReset:
		return syscall.ECONNRESET
	}
	return io.EOF
}

// failureMark is an error that a recorded session ended with.
type failureMark struct {
	Class     string `json:"class"`
	Message   string `json:"message"`
	Status    int    `json:"status,omitempty"`
	Code      string `json:"code,omitempty"`
	Retryable bool   `json:"retryable,omitempty"`
	Hint      string `json:"hint,omitempty"`
}

func (m *failureMark) err() *APIError {
	return &APIError{Class: m.Class, Message: m.Message, Status: m.Status, Code: m.Code, Retryable: m.Retryable, hint: m.Hint}
}
