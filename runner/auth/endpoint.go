package auth

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The public token endpoint and the id of the public client.
const (
	tokenURL = "https://auth.openai.com/oauth/token"
	clientID = "app_EMoamEEZ73f0CkXaXp7hrann"
)

// maxAnswer bounds what is read of one answer, in bytes.
const maxAnswer = 1 << 20

// maxAttempts bounds the requests for one refresh. Three survive a hiccup; more
// would be a storm when many jobs meet an endpoint that is down.
const maxAttempts = 3

// maxRetryAfter is the longest wait that an endpoint may ask for inside a
// refresh. A longer one ends the refresh as rate limited.
const maxRetryAfter = 10 * time.Second

// endpoint is the token endpoint.
type endpoint struct {
	url    string
	http   *http.Client
	bounds bounds
}

// exchange asks for new tokens, with retries. stop ends it between attempts,
// never within one: an answer on its way is worth waiting for.
func (p *endpoint) exchange(ctx context.Context, refresh Secret, reason string, stop <-chan struct{}) (renewed, *Error) {
	pause := p.bounds.pause
	for attempt := 1; ; attempt++ {
		n, fail := p.ask(ctx, refresh, reason)
		if fail == nil {
			return n, nil
		}
		wait := pause/2 + rand.N(pause)
		if fail.after > 0 {
			wait = fail.after + rand.N(p.bounds.pause)
		}
		fail.Error.after = fail.after
		if !fail.again || attempt == maxAttempts || fail.after > maxRetryAfter {
			return n, fail.Error
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-stop:
			timer.Stop()
			return n, fail.Error
		case <-ctx.Done():
			timer.Stop()
			return n, fail.Error
		}
		pause *= 2
	}
}

// failure is one attempt that brought no login.
type failure struct {
	*Error
	again bool          // another attempt may help at once
	after time.Duration // Retry-After
}

// ask makes one request.
func (p *endpoint) ask(ctx context.Context, refresh Secret, reason string) (renewed, *failure) {
	ctx, cancel := context.WithTimeout(ctx, p.bounds.attempt)
	defer cancel()
	body, err := json.Marshal(struct {
		ClientID     string `json:"client_id"`
		GrantType    string `json:"grant_type"`
		RefreshToken string `json:"refresh_token"`
		Reason       string `json:"refresh_reason"`
	}{clientID, "refresh_token", refresh.Reveal(), reason})
	if err != nil {
		return renewed{}, p.broken(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		f := p.broken(err)
		f.Message, f.again = "the login could not be refreshed: the address of the token endpoint is not valid", false
		return renewed{}, f
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Close = true // one request; no connection is left behind
	resp, err := p.http.Do(req)
	if err != nil {
		return renewed{}, p.broken(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil && resp.StatusCode/100 == 2 {
		return renewed{}, p.broken(err)
	}
	return p.judge(resp, text)
}

// broken is a request that got no answer.
func (p *endpoint) broken(err error) *failure {
	return &failure{again: true, Error: &Error{
		Class:     ClassRefreshUnavailable,
		Message:   fmt.Sprintf("the login could not be refreshed: %s: %s", p.name(), plainly(err, p.bounds.attempt)),
		Retryable: true,
		hint:      "the login itself may be good: check the network and the proxy settings, then run again",
	}}
}

// plainly says what went wrong on the network. Only errors that cannot quote
// what the other side sent are repeated: it could send back our token.
func plainly(err error, bound time.Duration) string {
	var (
		ne   net.Error
		op   *net.OpError
		dns  *net.DNSError
		cert *tls.CertificateVerificationError
	)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &ne) && ne.Timeout():
		return fmt.Sprintf("no answer within %s", bound)
	case errors.As(err, &dns):
		return dns.Error()
	case errors.As(err, &cert):
		return cert.Error()
	case errors.As(err, &op):
		return op.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed before the answer was complete"
	}
	return "the answer is not HTTP, or the connection broke"
}

// name is the endpoint without query and user.
func (p *endpoint) name() string {
	u, err := url.Parse(p.url)
	if err != nil || u.Host == "" {
		return "the token endpoint"
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// refusals are the answers after which only a new login helps, by error code.
// Their sentences are those that users search for.
var refusals = map[string]struct{ class, text string }{
	"refresh_token_expired":     {ClassRefreshExpired, "the refresh token has expired"},
	"refresh_token_reused":      {ClassRefreshReused, "the refresh token was already used"},
	"refresh_token_invalidated": {ClassRefreshRevoked, "the refresh token was revoked"},
	"refresh_token_revoked":     {ClassRefreshRevoked, "the refresh token was revoked"},
	"invalid_grant":             {ClassRefreshRefused, "the refresh token is not valid"},
}

// judge sorts an answer. Error codes count whatever the status is; a body that
// is not a login never does.
func (p *endpoint) judge(resp *http.Response, text []byte) (renewed, *failure) {
	code, fields := readAnswer(text)
	status := resp.StatusCode
	if r, ok := refusals[code]; ok {
		return renewed{}, p.refused(r.class, r.text, fmt.Sprintf("%s, HTTP %d", code, status))
	}
	switch {
	case status == http.StatusUnauthorized:
		return renewed{}, p.refused(ClassRefreshRefused, "the refresh token was refused", "HTTP 401")
	case status == http.StatusTooManyRequests:
		f := p.transient(ClassRefreshRateLimited, "the token endpoint answered 429 Too Many Requests")
		f.after = retryAfter(resp.Header.Get("Retry-After"))
		if f.after > maxRetryAfter {
			f.Message += fmt.Sprintf(" and asked to wait %s", f.after)
		}
		return renewed{}, f
	case status >= 500 || status == http.StatusRequestTimeout || status == http.StatusTooEarly:
		f := p.transient(ClassRefreshUnavailable, fmt.Sprintf("the token endpoint answered HTTP %d", status))
		f.after = retryAfter(resp.Header.Get("Retry-After"))
		return renewed{}, f
	case status < 200 || status > 299:
		f := p.transient(ClassRefreshUnavailable, fmt.Sprintf("the token endpoint answered HTTP %d", status))
		f.again = false // a redirect, a gateway's page: the same again
		f.hint = "something between this machine and the token endpoint answered in its place; check the proxy settings"
		return renewed{}, f
	case fields == nil:
		return renewed{}, p.senseless("with something that is not JSON, as a login page or a proxy does")
	}
	n := renewed{
		idToken: NewSecret(fields["id_token"]),
		access:  NewSecret(fields["access_token"]),
		refresh: NewSecret(fields["refresh_token"]),
	}
	for _, s := range []Secret{n.idToken, n.access, n.refresh} {
		if !headerSafe(s) {
			return renewed{}, p.senseless("with a token that has characters no token can have")
		}
	}
	if n.access.Empty() {
		return n, p.senseless("without an access token")
	}
	return n, nil
}

// senseless is a 200 that is not a login. It is not tried again in this refresh:
// the endpoint may have spent the token.
func (p *endpoint) senseless(how string) *failure {
	f := p.transient(ClassRefreshBadAnswer, "the token endpoint answered HTTP 200 "+how)
	f.again = false
	return f
}

func (p *endpoint) transient(class, what string) *failure {
	return &failure{again: true, Error: &Error{
		Class:     class,
		Message:   "the login could not be refreshed: " + what,
		Retryable: true,
		hint:      "the login itself may be good: run again later",
	}}
}

func (p *endpoint) refused(class, what, how string) *failure {
	return &failure{Error: &Error{
		Class:   class,
		Message: fmt.Sprintf("the login could not be refreshed: %s (%s)", what, how),
		hint:    reseedHint,
	}}
}

// readAnswer reads the string fields of an answer and its error code, which
// stands in one of several places. fields is nil if the text is not an object.
func readAnswer(text []byte) (code string, fields map[string]string) {
	var body map[string]json.RawMessage
	if json.Unmarshal(text, &body) != nil || body == nil {
		return "", nil
	}
	fields = map[string]string{}
	for k, v := range body {
		var s string
		if json.Unmarshal(v, &s) == nil {
			fields[k] = s
		}
	}
	var nested struct {
		Code  string `json:"code"`
		Type  string `json:"type"`
		Error string `json:"error"`
	}
	_ = json.Unmarshal(body["error"], &nested) // absent, or a string
	for _, c := range []string{nested.Code, fields["error"], fields["code"], nested.Error, nested.Type, fields["error_code"]} {
		if c = strings.ToLower(strings.TrimSpace(c)); c != "" {
			code = c
			if _, known := refusals[c]; known {
				return c, fields
			}
		}
	}
	return code, fields
}

// retryAfter reads a Retry-After of seconds; a date or nonsense is no request.
func retryAfter(v string) time.Duration {
	n, err := strconv.Atoi(strings.TrimSpace(v))
	if err != nil || n <= 0 || n > 1<<20 {
		return 0
	}
	return time.Duration(n) * time.Second
}
