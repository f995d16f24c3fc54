// Package runnertest is the other side of the wire: a scripted Responses
// server over real loopback HTTP, for tests of every package and, through
// [Serve], for shell scripts and clients in other languages.
package runnertest

import (
	"context"
	"errors"
	"net/http"
	"time"
)

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
	Time   time.Time
}

// Server is a scripted Responses server on 127.0.0.1.
type Server struct {
	// URL is "http://127.0.0.1:PORT"; the model's base is URL + "/v1".
	URL  string
	Port int
}

// NewServer starts a server that plays script (see model.ParseScript for the
// formats) and stops it at the end of the test.
func NewServer(tb TB, script string) *Server {
	tb.Helper()
	tb.Fatalf("not yet")
	return nil
}

// Requests returns all requests so far, in order of arrival.
func (s *Server) Requests() []Request { return nil }

// ModelRequests returns the POSTs to …/responses.
func (s *Server) ModelRequests() []Request { return nil }

// Close stops the server and drops its connections.
func (s *Server) Close() {}

// Serve plays script on addr until ctx ends; ready gets the server's URL.
func Serve(ctx context.Context, script []byte, addr string, ready func(url string)) error {
	return errors.New("not yet")
}
