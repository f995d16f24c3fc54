// Package runnertest is the other side of the wire: a scripted Responses
// server over real loopback HTTP, for tests of every package and, through
// [Serve], for shell scripts and clients in other languages. It plays the same
// scripts as the built-in scripted model (model.ParseScript), but over a socket,
// where connections can really hang, break and be reset.
package runnertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nightshift-ci/nightshift/runner/model"
)

// maxBody bounds the part of a request that is kept.
const maxBody = 256 << 20

// TB is the part of testing.TB that the server needs, so that the package can be
// linked without package testing.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(string, ...any)
}

// Request is one request that the server got.
type Request struct {
	Method string
	Path   string // without the query
	Query  string
	Header http.Header
	Body   []byte
	Time   time.Time // of its arrival
}

// Server is a scripted Responses server on 127.0.0.1. Its methods may be called
// at any time from any goroutine.
type Server struct {
	// URL is "http://127.0.0.1:PORT"; the model's base is URL + "/v1".
	URL  string
	Port int

	http   *http.Server
	served chan struct{}
	stop   context.CancelFunc

	mu       sync.Mutex
	book     *model.Playbook
	problems []error
	requests []Request
	conns    int
}

// NewServer starts a server that plays script (see model.ParseScript for the
// formats) and stops it at the end of the test.
func NewServer(tb TB, script string) *Server {
	tb.Helper()
	s, err := Start("127.0.0.1:0", []byte(script))
	if err != nil {
		tb.Fatalf("starting the model server: %v", err)
	}
	tb.Cleanup(s.Close)
	return s
}

// Start starts a server on addr, "127.0.0.1:0" for any free port. An empty
// script answers every model request with 500 until Load is called.
func Start(addr string, script []byte) (*Server, error) {
	s := &Server{served: make(chan struct{})}
	if err := s.Load(script); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.URL = "http://" + l.Addr().String()
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		s.Port = a.Port
	}
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 30 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       s.accepted,
		ErrorLog:          log.New(io.Discard, "", 0), // broken connections are what it is for
	}
	go func() {
		defer close(s.served)
		if err := s.http.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.note(err)
		}
	}()
	return s, nil
}

// Load replaces the script; requests so far are kept. The port of the server is
// known before it is needed in a script.
func (s *Server) Load(script []byte) error {
	var book *model.Playbook
	if len(script) > 0 {
		var err error
		if book, err = model.ParseScript("script", script); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book = book
	return nil
}

// Close stops the server and drops its connections.
func (s *Server) Close() {
	s.stop()
	if err := s.http.Close(); err != nil {
		s.note(err)
	}
	<-s.served
}

// Requests returns all requests so far, in order of arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ModelRequests returns the POSTs to …/responses.
func (s *Server) ModelRequests() []Request {
	return slices.DeleteFunc(s.Requests(), func(r Request) bool { return !model.IsModelPath(r.Method, r.Path) })
}

// Problems returns what the script could not answer.
func (s *Server) Problems() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.problems)
}

func (s *Server) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, err)
}

// Connections is the number of connections made so far.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

type connKey struct{}

func (s *Server) accepted(ctx context.Context, c net.Conn) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns++
	return context.WithValue(ctx, connKey{}, c)
}

// ServeHTTP records the request and plays the answer.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return // the client went away
	}
	s.mu.Lock()
	s.requests = append(s.requests, Request{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery,
		Header: r.Header.Clone(), Body: body, Time: time.Now(),
	})
	book := s.book
	s.mu.Unlock()
	plan, err := answer(book, r, body)
	if err != nil {
		s.note(err)
		plan = model.Plan{
			Status: http.StatusInternalServerError,
			Header: http.Header{"Content-Type": {"application/json"}},
			Steps:  []model.Step{{Data: []byte(`{"error": {"message": ` + strconv.Quote(err.Error()) + `, "type": "server_error", "code": null}}`)}},
		}
	}
	play(w, r, plan)
}

func answer(book *model.Playbook, r *http.Request, body []byte) (model.Plan, error) {
	if book == nil {
		return model.Plan{}, errors.New("the server has no script")
	}
	plan, err := book.Answer(r.Method, r.URL.Path, body)
	if err == nil && plan.Failure != nil {
		err = fmt.Errorf("the recorded session failed here: %w", plan.Failure)
	}
	return plan, err
}

// play writes the plan to the wire. Bodies are chunked; every step is flushed. A
// server that is closed in the meantime breaks the answer off.
func play(w http.ResponseWriter, r *http.Request, plan model.Plan) {
	ctx := r.Context()
	if !wait(ctx, plan.Wait) {
		panic(http.ErrAbortHandler)
	}
	for name, values := range plan.Header {
		w.Header()[name] = values
	}
	if plan.End != model.EndReset || len(plan.Steps) > 0 {
		w.WriteHeader(plan.Status)
	}
	c := http.NewResponseController(w)
	for _, step := range plan.Steps {
		if !wait(ctx, step.Wait) {
			panic(http.ErrAbortHandler)
		}
		if _, err := w.Write(step.Data); err != nil {
			return // the client went away
		}
		if err := c.Flush(); err != nil {
			return
		}
	}
	switch plan.End {
	case model.EndReset:
		if conn, ok := ctx.Value(connKey{}).(*net.TCPConn); ok {
			_ = conn.SetLinger(0) // then closing resets; if not, closing must do
		}
		panic(http.ErrAbortHandler)
	case model.EndAbort:
		panic(http.ErrAbortHandler)
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Serve plays script on addr until ctx ends; ready gets the server's URL.
func Serve(ctx context.Context, script []byte, addr string, ready func(url string)) error {
	s, err := Start(addr, script)
	if err != nil {
		return err
	}
	ready(s.URL)
	<-ctx.Done()
	s.Close()
	return errors.Join(s.Problems()...)
}
