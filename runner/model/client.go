package model

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// Options of a Client. The zero value of every field but BaseURL is usable.
type Options struct {
	// BaseURL is the provider's base, "https://…/v1"; requests go to
	// {BaseURL}/responses.
	BaseURL string
	// Headers and Query are the provider's http_headers and query_params.
	Headers http.Header
	Query   map[string]string
	// Auth puts the credential on each request; nil sends none.
	Auth Authorizer
	// Originator and UserAgent are the headers of these names.
	Originator string
	UserAgent  string

	// RequestMaxRetries and StreamMaxRetries bound the two layers of retries;
	// nil stands for the defaults 4 and 5.
	RequestMaxRetries *int
	StreamMaxRetries  *int
	// IdleTimeout bounds the time without a real event, the wait for the
	// response headers included (default 5 min). Comments and keep-alive events
	// do not count.
	IdleTimeout time.Duration
	// ResponseTimeout bounds one attempt as a whole (default 1 h).
	ResponseTimeout time.Duration
	// RetryBudget bounds the time that one Stream call spends on waiting and on
	// attempts that brought nothing (default 5 min). A Retry-After beyond it
	// ends the call at once.
	RetryBudget time.Duration

	// HTTP replaces the client's own HTTP client; redirects are refused anyway.
	HTTP *http.Client
	// Proxy chooses the proxy when HTTP is nil; nil uses none. The environment
	// is not read here.
	Proxy func(*http.Request) (*url.URL, error)

	// Now and Rand (0 ≤ x < 1) replace the clock and the jitter.
	Now  func() time.Time
	Rand func() float64
	// Emit takes model.request, model.response and model.retried records; it
	// must be safe for concurrent use. Nil drops them.
	Emit func(event.Event)
}

// Client talks to one provider. It may be used by several goroutines at once.
type Client struct{ o Options }

// NewClient checks o and returns a client. It opens no connection.
func NewClient(o Options) (*Client, error) { return &Client{o: o}, nil }

// Stream makes the request.
func (c *Client) Stream(ctx context.Context, r Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) { yield(Delta{}, errors.New("not yet")) }
}

// Compact asks the provider's compaction endpoint.
func (c *Client) Compact(ctx context.Context, r Request) (Response, error) {
	return Response{}, errors.New("not yet")
}

// Close drops idle connections.
func (c *Client) Close() {}
