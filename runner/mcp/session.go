package mcp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// sessionHeader names the session of a request.
const sessionHeader = "Mcp-Session-Id"

// inSession sends a request in the session that the server knows at present. A
// server that was started anew answers 404 to the ones of before: it has done
// nothing, and the protocol wants a new session to be begun. The request is then
// sent once more.
func (c *carrier) inSession(out *http.Request) (*http.Response, error) {
	known := out.Header.Get(sessionHeader)
	c.mu.Lock()
	switch {
	case known != "" && c.session != "":
		known = c.session
		out.Header.Set(sessionHeader, known)
	case known == "" && c.hello == nil:
		c.hello = out
	}
	c.mu.Unlock()
	resp, err := c.base.RoundTrip(out)
	if err != nil || resp.StatusCode != http.StatusNotFound || known == "" || out.Method != http.MethodPost {
		return resp, err
	}
	id, err := c.renew(out.Context(), known)
	if err != nil {
		return resp, nil // the server's word on the request, which is the older trouble
	}
	again, err := resend(out.Context(), out, id)
	if err != nil {
		return resp, nil
	}
	_ = resp.Body.Close() // an answer that nobody needs
	return c.base.RoundTrip(again)
}

// resend is a request once more, in another session; "" is none.
func resend(ctx context.Context, r *http.Request, session string) (*http.Request, error) {
	again := r.Clone(ctx)
	again.Header.Del(sessionHeader)
	if session != "" {
		again.Header.Set(sessionHeader, session)
	}
	if r.GetBody == nil {
		return again, nil
	}
	var err error
	again.Body, err = r.GetBody()
	return again, err
}

// renew begins a session in place of a lost one, unless another request has done
// so already, and returns its name.
func (c *carrier) renew(ctx context.Context, lost string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != "" && c.session != lost {
		return c.session, nil
	}
	if c.hello == nil {
		return "", fmt.Errorf("nothing has begun the session %s", lost)
	}
	hello, err := resend(ctx, c.hello, "")
	if err != nil {
		return "", err
	}
	resp, err := c.base.RoundTrip(hello)
	if err != nil {
		return "", err
	}
	id := resp.Header.Get(sessionHeader)
	err = readOne(resp)
	if resp.StatusCode != http.StatusOK || id == "" || id == lost {
		return "", fmt.Errorf("no new session: %s", resp.Status)
	}
	if err != nil {
		return "", err
	}
	ready, err := resend(ctx, c.hello, id)
	if err != nil {
		return "", err
	}
	const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	ready.Body, ready.ContentLength = io.NopCloser(strings.NewReader(initialized)), int64(len(initialized))
	if resp, err = c.base.RoundTrip(ready); err != nil {
		return "", err
	}
	_ = resp.Body.Close() // it has none
	c.session = id
	c.renewed()
	return id, nil
}

// readOne reads an answer, of a stream the first event, and closes it.
func readOne(resp *http.Response) error {
	body := io.LimitReader(resp.Body, maxMessage)
	var err error
	if isStream(resp) {
		lines := bufio.NewReader(body)
		for seen := false; err == nil; {
			var line []byte
			line, err = lines.ReadBytes('\n')
			if seen && len(bytes.TrimSpace(line)) == 0 {
				break
			}
			seen = seen || bytes.HasPrefix(line, []byte("data:"))
		}
		if err == io.EOF {
			err = nil
		}
	} else {
		_, err = io.Copy(io.Discard, body)
	}
	_ = resp.Body.Close() // a stream may go on, and nobody listens
	return err
}
