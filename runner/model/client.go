package model

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
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
	// attempts that never reached the service (default 5 min). A Retry-After
	// beyond it ends the call at once.
	RetryBudget time.Duration

	// MaxResponseBytes bounds one response on the wire, deltas and comments
	// included (default 128 MiB).
	MaxResponseBytes int64

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
type Client struct {
	o        Options
	base     *url.URL // with the provider's query
	http     *http.Client
	requests atomic.Int64

	mu sync.Mutex
	// turns holds, per thread, the turn state to be echoed.
	turns map[string]turnState
}

type turnState struct{ turn, value string }

// NewClient checks o and returns a client. It opens no connection.
func NewClient(o Options) (*Client, error) {
	base, err := url.Parse(o.BaseURL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, &BaseURLError{URL: o.BaseURL}
	}
	if o.RequestMaxRetries == nil {
		o.RequestMaxRetries = new(int)
		*o.RequestMaxRetries = defaultRequestRetries
	}
	if o.StreamMaxRetries == nil {
		o.StreamMaxRetries = new(int)
		*o.StreamMaxRetries = defaultStreamRetries
	}
	orDefault(&o.IdleTimeout, defaultIdleTimeout)
	orDefault(&o.ResponseTimeout, defaultResponseTimeout)
	orDefault(&o.RetryBudget, defaultRetryBudget)
	if o.MaxResponseBytes <= 0 {
		o.MaxResponseBytes = defaultMaxResponse
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.Emit == nil {
		o.Emit = func(event.Event) {}
	}
	if len(o.Query) > 0 {
		q := base.Query()
		for name, value := range o.Query {
			q.Set(name, value)
		}
		base.RawQuery = q.Encode()
	}
	return &Client{o: o, base: base, http: httpClient(o), turns: map[string]turnState{}}, nil
}

func orDefault(d *time.Duration, v time.Duration) {
	if *d <= 0 {
		*d = v
	}
}

// BaseURLError is a base_url that no request can be sent to.
type BaseURLError struct{ URL string }

// Error names the value.
func (e *BaseURLError) Error() string {
	return fmt.Sprintf("base_url %q is not the address of a service", e.URL)
}

// Hint shows what is wanted.
func (e *BaseURLError) Hint() string {
	return `base_url looks like "https://service.example/v1"; requests go to {base_url}/responses`
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call is one Stream or Compact call.
type call struct {
	Request
	number  int
	body    []byte
	compact bool
	yield   func(Delta, error) bool
}

// Stream makes the request, again after failures that may pass, and yields its
// deltas. The last one is Done, or an error:
//  1. *APIError: the service failed, and no retry is left or could help;
//  2. the cause of ctx, when ctx has ended;
//  3. an error of the Authorizer;
//  4. any other error: the request could not be made from r.
//
// Breaking out of the loop ends the request.
func (c *Client) Stream(ctx context.Context, r Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		body, err := encode(r)
		if err != nil {
			yield(Delta{}, err)
			return
		}
		c.run(ctx, &call{Request: r, body: body, yield: yield})
	}
}

// Compact asks the provider's compaction endpoint ({base_url}/responses/compact)
// for a shorter history. The items of the response replace r.Input. Errors are
// those of Stream; providers without the endpoint answer with class not_found or
// rejected.
func (c *Client) Compact(ctx context.Context, r Request) (Response, error) {
	body, err := encodeCompact(r)
	if err != nil {
		return Response{}, err
	}
	var (
		out  Response
		fail error
	)
	c.run(ctx, &call{Request: r, body: body, compact: true, yield: func(d Delta, err error) bool {
		if fail = err; d.Done != nil {
			out = *d.Done
		}
		return true
	}})
	return out, fail
}

// errStopped marks an attempt that the caller of Stream broke off.
var errStopped = errors.New("the caller stopped reading")

// run makes attempts until one succeeds or none is left.
func (c *Client) run(ctx context.Context, k *call) {
	k.number = int(c.requests.Add(1))
	emit := c.o.Emit
	if k.Emit != nil {
		emit = k.Emit
	}
	s := &schedule{requestMax: max(*c.o.RequestMaxRetries, 0), streamMax: max(*c.o.StreamMaxRetries, 0), budget: c.o.RetryBudget, rand: c.o.Rand}
	for attempt := 1; ; attempt++ {
		if ctx.Err() != nil {
			k.yield(Delta{}, context.Cause(ctx))
			return
		}
		emit(event.ModelRequest{Request: k.number, Attempt: attempt, Purpose: k.Purpose, Model: k.Model, Bytes: len(k.body), Items: len(k.Input)})
		begin := c.o.Now()
		done, f := c.attempt(ctx, k, begin)
		if f != nil && f.broken != nil && !k.yield(Delta{Broken: f.broken}, nil) {
			return
		}
		switch {
		case f == nil:
			done.Attempts = attempt
			emit(event.ModelResponse{
				Request: k.number, Model: done.Model, ResponseID: done.ID, ServiceID: done.ServiceID, Status: done.Status,
				Usage: done.Usage, FirstEventMS: done.FirstEvent.Milliseconds(), DurationMS: done.Duration.Milliseconds(),
			})
			k.yield(Delta{Done: done}, nil)
			return
		case f.final == errStopped:
			return
		case ctx.Err() != nil:
			k.yield(Delta{}, context.Cause(ctx))
			return
		case f.final != nil:
			k.yield(Delta{}, f.final)
			return
		}
		if f.unreached {
			s.spend(c.o.Now().Sub(begin))
		}
		re, again := c.again(ctx, s, f)
		if !again {
			if attempt > 1 {
				f.err.hint = joinHints(fmt.Sprintf("gave up after %d attempts", attempt), f.err.hint)
			}
			k.yield(Delta{}, f.err)
			return
		}
		emit(event.ModelRetried{
			Request: k.number, Attempt: re.Attempt, Max: re.Max, Layer: re.Layer, Class: f.err.Class,
			Status: f.err.Status, Message: f.err.Message, DelayMS: re.Delay.Milliseconds(),
		})
		if !k.yield(Delta{Retrying: &re}, nil) {
			return
		}
		if err := sleep(ctx, re.Delay); err != nil {
			k.yield(Delta{}, err)
			return
		}
	}
}

// again decides on a retry; a refused credential is renewed first, if it can be.
// When a renewed one is refused too, there is nothing left to try.
func (c *Client) again(ctx context.Context, s *schedule, f *failure) (Retrying, bool) {
	if !f.unauthorized || c.o.Auth == nil {
		return s.next(f)
	}
	if s.renewals < maxRenewals {
		err := c.o.Auth.Refused(ctx)
		if err == nil {
			return s.renewed(f), true
		}
		f.because(err)
		var h interface{ Hint() string }
		if errors.As(err, &h) && h.Hint() != "" {
			f.err.hint = h.Hint() // it knows the credential, we know only the status
		}
	}
	if s.renewals > 0 {
		return Retrying{}, false
	}
	return s.next(f)
}

// attempt makes one request and reads its response to the terminal event.
func (c *Client) attempt(ctx context.Context, k *call, begin time.Time) (*Response, *failure) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := watch(cancel, c.o.IdleTimeout, c.o.ResponseTimeout)
	defer watch.stop()

	res, f := c.post(ctx, k)
	if f == nil && k.compact {
		return c.readCompact(ctx, res, begin)
	}
	if f != nil {
		return nil, c.timedOut(ctx, f)
	}
	defer func() { _ = res.Body.Close() }() // what remains of it is not wanted
	r, f := newReader(res, watch, begin, c.o)
	if f != nil {
		return nil, c.timedOut(ctx, f)
	}
	for {
		progress, done, f := r.next()
		switch {
		case f != nil:
			f = c.timedOut(ctx, f)
			f.broken = r.broken()
			return nil, f
		case done != nil:
			drain(r.body, cancel, res.ProtoMajor)
			return done, nil
		}
		if !k.yield(Delta{Progress: progress}, nil) {
			return nil, &failure{final: errStopped}
		}
	}
}

// timedOut replaces the failure that the watchdog's cancellation looks like.
func (c *Client) timedOut(ctx context.Context, f *failure) *failure {
	switch context.Cause(ctx) {
	case errIdle:
		return idle(c.o.IdleTimeout)
	case errEndless:
		return fail(ClassIdleTimeout, prefixStream+"the response did not end").stream().hinting("no final event came within %s", c.o.ResponseTimeout)
	}
	return f
}

// post sends the request and returns the response once its headers have come.
func (c *Client) post(ctx context.Context, k *call) (*http.Response, *failure) {
	path, accept := "responses", "text/event-stream"
	if k.compact {
		path, accept = "responses/compact", "application/json"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.JoinPath(path).String(), bytes.NewReader(k.body))
	if err != nil {
		return nil, &failure{final: err}
	}
	req.Header.Set("Content-Type", "application/json")
	c.setHeaders(req, k.Request, c.turnState(k.Request))
	req.Header.Set("Accept", accept)
	if c.o.Auth != nil {
		if err := c.o.Auth.Authorize(req); err != nil {
			return nil, &failure{final: err}
		}
	}
	res, err := c.http.Do(req)
	var scripted *scriptedError
	switch {
	case errors.As(err, &scripted):
		return nil, &failure{final: scripted.err}
	case err != nil:
		return nil, transportFailure(err)
	case res.StatusCode != http.StatusOK:
		return nil, c.refused(res)
	}
	c.keepTurnState(k.Request, res.Header.Get(turnStateHeader))
	return res, nil
}

// refused reads an answer that is no stream, as far as it is worth showing.
func (c *Client) refused(res *http.Response) *failure {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	_ = res.Body.Close() // nothing of it is wanted any more
	if err != nil && len(body) == 0 {
		body = []byte("(the body could not be read: " + err.Error() + ")")
	}
	f := httpFailure(res.StatusCode, res.Header, body, res.Request.URL, c.o.Now())
	f.err.ServiceID = res.Header.Get("X-Request-Id")
	return f
}

func (c *Client) turnState(r Request) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.turns[r.CacheKey]; t.turn == r.Metadata["turn_id"] {
		return t.value
	}
	return ""
}

func (c *Client) keepTurnState(r Request, value string) {
	if value == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turns[r.CacheKey] = turnState{r.Metadata["turn_id"], value}
}
