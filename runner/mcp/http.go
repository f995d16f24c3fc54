package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// httpTransport prepares a streamable HTTP connection. Headers whose variable
// is not set are an error: a server must not be asked without its credential.
func (s *server) httpTransport() (sdk.Transport, error) {
	endpoint, err := url.Parse(s.cfg.URL)
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "http" && endpoint.Scheme != "https" {
		return nil, fmt.Errorf("its url %q is not an HTTP address", s.cfg.URL)
	}
	header := http.Header{}
	for name, value := range s.cfg.HTTPHeaders {
		header.Set(name, value)
	}
	for name, variable := range s.cfg.EnvHTTPHeaders {
		value, ok := s.set.o.LookupEnv(variable)
		if !ok || value == "" {
			return nil, fmt.Errorf("its header %s comes from the variable %s, which is not set", name, variable)
		}
		header.Set(name, value)
	}
	if variable := s.cfg.BearerTokenEnvVar; variable != "" {
		token, ok := s.set.o.LookupEnv(variable)
		if !ok || token == "" {
			return nil, fmt.Errorf("its token comes from the variable %s, which is not set", variable)
		}
		header.Set("Authorization", "Bearer "+token)
	}
	for name, values := range header {
		if strings.ContainsAny(name+strings.Join(values, ""), "\r\n\x00") {
			return nil, fmt.Errorf("its header %s holds a line break", name)
		}
	}
	client := http.Client{}
	if s.set.o.HTTP != nil {
		client = *s.set.o.HTTP
	}
	base := client.Transport
	if base == nil {
		own := &http.Transport{ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 4}
		context.AfterFunc(s.ctx, own.CloseIdleConnections)
		base = own
	}
	client.Timeout = 0 // calls have their own bounds
	client.Transport = &carrier{base: base, endpoint: endpoint, header: header, life: s.ctx, renewed: func() {
		s.notice("mcp_session_renewed", fmt.Sprintf("MCP server %s no longer knew its session; a new one was begun", s.cfg.Name))
	}}
	client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return errors.New("it redirects to another address, which is not followed")
	}
	return &sdk.StreamableClientTransport{
		Endpoint: s.cfg.URL, HTTPClient: &client, MaxRetries: 1, DisableStandaloneSSE: true, MaxEventSize: maxMessage,
	}, nil
}

// carrier adds headers for one endpoint, bounds answers, ends requests with the
// server's life, and begins a new session where the server has lost one.
type carrier struct {
	base     http.RoundTripper
	endpoint *url.URL
	header   http.Header
	life     context.Context
	renewed  func() // after each new session

	mu      sync.Mutex
	hello   *http.Request // the first request, which began the session
	session string        // in place of the one that the SDK knows; "" until it was lost
}

// RoundTrip sends one request.
func (c *carrier) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != c.endpoint.Scheme || req.URL.Host != c.endpoint.Host {
		return nil, fmt.Errorf("request to %s, which is not this server", req.URL.Host)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	stop := context.AfterFunc(c.life, func() { cancel(context.Cause(c.life)) })
	end := func() { stop(); cancel(nil) }
	out := req.Clone(ctx)
	for name, values := range c.header {
		out.Header[name] = values
	}
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		if err = errors.Join(err, req.Body.Close()); err != nil {
			end()
			return nil, err
		}
		body = rightMethod(body)
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	resp, err := c.inSession(out)
	if err != nil {
		end()
		return nil, err
	}
	most := int64(maxMessage)
	if isStream(resp) {
		most = maxStream
	}
	resp.Body = &boundedBody{body: resp.Body, left: most, end: end}
	return resp, nil
}

func isStream(r *http.Response) bool {
	return strings.HasPrefix(strings.ToLower(r.Header.Get("Content-Type")), "text/event-stream")
}

// maxStream bounds all events of one answer together; the SDK bounds each.
const maxStream = 8 * maxMessage

// boundedBody fails beyond its bound.
type boundedBody struct {
	body io.ReadCloser
	left int64
	end  func()
}

// Read reads within the bound.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errLongMessage
	}
	n, err := b.body.Read(p)
	b.left -= int64(n)
	return n, err
}

// Close ends the request.
func (b *boundedBody) Close() error {
	defer b.end()
	return b.body.Close()
}
