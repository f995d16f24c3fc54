package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Texts of the reference.
const (
	textHighDemand  = "We’re currently experiencing high demand, which may cause temporary errors."
	textAtCapacity  = "Selected model is at capacity. Please try a different model."
	textQuota       = "Quota exceeded. Check your plan and billing details."
	textNoRoom      = "Codex ran out of room in the model's context window. Start a new thread or clear earlier history before retrying."
	textCut         = "stream disconnected before completion: Transport error: network error: error decoding response body"
	textClosed      = "stream disconnected before completion: stream closed before response.completed"
	textIdle        = "stream disconnected before completion: idle timeout waiting for SSE"
	textSending     = "stream disconnected before completion: error sending request"
	prefixStream    = "stream disconnected before completion: "
	prefixRateLimit = "rate limit exceeded: "
)

// maxMessage bounds the part of a message that the service wrote.
const maxMessage = 16 << 10

// failure is a failed attempt and what may follow it.
type failure struct {
	err *APIError
	// final is an error that is not the service's (a credential that could not
	// be had, a request that cannot be encoded): it is passed on as it is.
	final error
	// retryRequest and retryStream name the layers that may try again.
	retryRequest, retryStream bool
	// once limits the stream layer to one retry.
	once bool
	// wait is what the service asked for.
	wait    time.Duration
	hasWait bool
	// unauthorized: a renewed credential makes one more attempt worth it.
	unauthorized bool
	// broken is what the attempt had brought, or nil.
	broken *Broken
	// unreached: the attempt's time counts against the retry budget.
	unreached bool
}

func (f *failure) streamMax() int {
	if f.once {
		return 1
	}
	return math.MaxInt
}

func (f *failure) overBudget(wait, budget time.Duration) {
	rest := wait.Round(time.Millisecond).String()
	if wait > 1000*time.Hour {
		rest = "far longer"
	}
	f.err.hint = joinHints(fmt.Sprintf("the next attempt would have to wait %s, more than what is left of the retry budget of %s", rest, budget), f.err.hint)
}

func joinHints(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	}
	return a + "; " + b
}

// fail makes a failure of class with the reference's message.
func fail(class, message string) *failure {
	row := lookup(class)
	return &failure{err: &APIError{Class: class, Message: message, Retryable: row.Retryable, hint: row.Hint}}
}

func (f *failure) because(cause error) *failure { f.err.cause = cause; return f }

// hinting puts what is special about this failure before the hint of its class.
func (f *failure) hinting(format string, args ...any) *failure {
	f.err.hint = joinHints(fmt.Sprintf(format, args...), f.err.hint)
	return f
}

func (f *failure) waiting(d time.Duration) *failure {
	f.wait, f.hasWait = d, true
	f.err.RetryAfter = d
	return f
}

// request lets both layers retry, stream the second one only.
func (f *failure) request() *failure      { f.retryRequest = true; return f }
func (f *failure) stream() *failure       { f.retryStream = true; return f }
func (f *failure) onlyOnce() *failure     { f.retryStream, f.once = true, true; return f }
func (f *failure) both() *failure         { return f.request().stream() }
func (f *failure) notReached() *failure   { f.unreached = true; return f }
func (f *failure) mayRenew() *failure     { f.unauthorized = true; return f }
func (f *failure) code(c string) *failure { f.err.Code = c; return f }

// serviceError is the error object in a body or an event. Type and code are
// used alike by services, so kind() takes whichever is set.
type serviceError struct {
	Message         string      `json:"message"`
	Type            string      `json:"type"`
	Code            anyText     `json:"code"`
	Param           anyText     `json:"param"`
	ResetsAt        json.Number `json:"resets_at"`
	ResetsInSeconds json.Number `json:"resets_in_seconds"`
}

// anyText takes a string, and numbers and null without failing.
type anyText string

// UnmarshalJSON takes any value; what is not a string keeps its JSON text.
func (t *anyText) UnmarshalJSON(b []byte) error {
	var s string
	switch {
	case string(b) == "null":
		*t = ""
	case json.Unmarshal(b, &s) == nil:
		*t = anyText(s)
	default:
		*t = anyText(b)
	}
	return nil
}

// is tells whether the error's code or type is one of words.
func (e serviceError) is(words ...string) bool {
	for _, w := range words {
		if string(e.Code) == w || e.Type == w {
			return true
		}
	}
	return false
}

func (e serviceError) name() string {
	if e.Code != "" {
		return string(e.Code)
	}
	return e.Type
}

// parseServiceError reads {"error":{…}}, {"error":"text"}, {"message":…} or a
// bare error object. ok is false when b is none of these.
func parseServiceError(b []byte) (serviceError, bool) {
	var outer struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(b, &outer) != nil {
		return serviceError{}, false
	}
	raw := outer.Error
	if len(raw) == 0 || string(raw) == "null" {
		raw = b
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return serviceError{Message: text}, text != ""
	}
	var e serviceError
	if json.Unmarshal(raw, &e) != nil {
		// One odd field must not hide the message.
		var loose map[string]json.RawMessage
		if json.Unmarshal(raw, &loose) != nil {
			return serviceError{}, false
		}
		e = serviceError{}
		_ = json.Unmarshal(loose["message"], &e.Message)
		_ = json.Unmarshal(loose["type"], &e.Type)
		if len(loose["code"]) > 0 {
			_ = e.Code.UnmarshalJSON(loose["code"])
		}
	}
	return e, e.Message != "" || e.name() != ""
}

// resets returns the wait until a usage limit resets.
func (e serviceError) resets(now time.Time) (time.Duration, bool) {
	if s, err := e.ResetsInSeconds.Float64(); err == nil && s >= 0 && s < 1e9 {
		return time.Duration(s * float64(time.Second)), true
	}
	if s, err := e.ResetsAt.Float64(); err == nil && s > 0 && s < 1e11 {
		return max(time.Unix(int64(s), 0).Sub(now), 0), true
	}
	return 0, false
}

// httpFailure classifies an answer that is not 200; body is its bounded start.
func httpFailure(status int, h http.Header, body []byte, at *url.URL, now time.Time) *failure {
	e, isJSON := parseServiceError(body)
	said := string(body)
	if isJSON && e.Message != "" {
		said = e.Message
	}
	said = strings.ToValidUTF8(excerpt(said, maxMessage), "\uFFFD")
	unexpected := fmt.Sprintf("unexpected status %s: %s, url: %s", statusLine(status), said, shownURL(at))
	f := byStatus(status, e, body, said, unexpected, now)
	f.err.Status, f.err.Code = status, e.name()
	if wait, ok := retryAfter(h, now); ok && (f.retryRequest || f.retryStream) {
		f.waiting(wait)
	}
	if status >= 300 && status < 400 {
		f.hinting("the answer points to %s", excerpt(shownLocation(h.Get("Location")), 200))
	}
	return f
}

// byStatus is the reference's table of statuses, with its weak rows made
// stricter: what can never succeed is tried at most once more.
func byStatus(status int, e serviceError, body []byte, said, unexpected string, now time.Time) *failure {
	if f := hardCode(e, said, now); f != nil {
		return f
	}
	switch {
	case status < 500 && e.is("context_length_exceeded"):
		return fail(ClassContextLength, textNoRoom)
	case status < 500 && e.is("invalid_prompt"):
		return fail(ClassInvalidPrompt, said)
	case status < 500 && e.is("model_not_found"):
		return fail(ClassInvalidModel, said)
	case status == 400:
		return fail(ClassBadRequest, strings.ToValidUTF8(excerpt(string(body), maxMessage), "\uFFFD"))
	case status == 401:
		return fail(ClassUnauthorized, unexpected).onlyOnce().mayRenew()
	case status == 402:
		return fail(ClassQuota, unexpected).onlyOnce()
	case status == 403:
		return fail(ClassForbidden, unexpected).onlyOnce()
	case status == 404:
		return fail(ClassNotFound, unexpected).onlyOnce()
	case status == 408:
		return fail(ClassServerError, unexpected).stream()
	case status == 409:
		return fail(ClassRejected, unexpected).stream()
	case status == 413:
		return fail(ClassTooLarge, unexpected).onlyOnce()
	case status == 429:
		return rateLimited(said)
	case status == 503 && e.is("server_is_overloaded"):
		return fail(ClassOverloaded, textAtCapacity).request()
	case status == 503 && e.is("slow_down"):
		return fail(ClassRateLimit, prefixRateLimit+said).both()
	case status == 500:
		return fail(ClassServerError, textHighDemand).hinting("the service said: %s", excerpt(said, 500)).both()
	case status > 500:
		return fail(ClassServerError, unexpected).both()
	case status >= 300 && status < 400:
		return fail(ClassRedirect, unexpected)
	case status >= 400:
		return fail(ClassRejected, unexpected).onlyOnce()
	}
	return fail(ClassBadResponse, unexpected).stream()
}

// rateLimited is a 429 with no harder reason. The reference gives up at once
// when no Retry-After stands beside it; a job at night rather waits as long as
// the message asks, or backs off.
func rateLimited(said string) *failure {
	if tooLargeForever(said) {
		return fail(ClassTooLarge, prefixRateLimit+said)
	}
	f := fail(ClassRateLimit, "exceeded retry limit, last status: 429 Too Many Requests").stream()
	if said != "" {
		f.hinting("the service said: %s", excerpt(said, 500))
	}
	if wait, ok := tryAgainIn(said); ok {
		f.waiting(wait)
	}
	return f
}

// tooLargeForever tells a request that by itself is more than the tokens of a
// minute from one that came too early. The code of both is that of a rate limit,
// and waiting helps only the second.
func tooLargeForever(said string) bool { return strings.HasPrefix(said, "Request too large for ") }

// hardCode recognises the codes that no retry can help, wherever they come from:
// a body, an event, any status.
func hardCode(e serviceError, said string, now time.Time) *failure {
	switch {
	case e.is("insufficient_quota", "billing_hard_limit_reached"):
		return fail(ClassQuota, textQuota).code(e.name())
	case e.is("usage_limit_reached"):
		return usageLimit(e, said, now)
	case e.is("usage_not_included"):
		return fail(ClassUsageLimit, "This account's plan does not include the model service.").code(e.name())
	}
	return nil
}

func usageLimit(e serviceError, said string, now time.Time) *failure {
	text := "The usage limit of the account is reached."
	if said != "" {
		text = "The usage limit of the account is reached: " + strings.TrimSuffix(said, ".") + "."
	}
	f := fail(ClassUsageLimit, text).code(e.name())
	if wait, ok := e.resets(now); ok {
		f.err.Message += fmt.Sprintf(" It resets in %s.", wait.Round(time.Second))
		f.err.RetryAfter = wait
	}
	return f
}

// responseFailure classifies response.failed and error events.
func responseFailure(e serviceError, now time.Time) *failure {
	said := strings.ToValidUTF8(excerpt(e.Message, maxMessage), "\uFFFD")
	if said == "" {
		said = cmp.Or(e.name(), "response.failed event received")
	}
	if f := hardCode(e, said, now); f != nil {
		return f
	}
	f := func() *failure {
		switch {
		case e.is("rate_limit_exceeded") && tooLargeForever(said):
			return fail(ClassTooLarge, prefixRateLimit+said)
		case e.is("rate_limit_exceeded"):
			f := fail(ClassRateLimit, prefixRateLimit+said).stream()
			if wait, ok := tryAgainIn(said); ok {
				f.waiting(wait)
			}
			return f
		case e.is("slow_down"):
			return fail(ClassRateLimit, prefixRateLimit+said).stream()
		case e.is("context_length_exceeded"):
			return fail(ClassContextLength, textNoRoom)
		case e.is("invalid_prompt"):
			return fail(ClassInvalidPrompt, said)
		case e.is("model_not_found"):
			return fail(ClassInvalidModel, said)
		case e.is("server_is_overloaded"):
			return fail(ClassOverloaded, textAtCapacity)
		}
		return fail(ClassServerError, prefixStream+said).stream()
	}()
	f.err.Code = e.name()
	return f
}

// incompleteFailure classifies response.incomplete.
func incompleteFailure(reason string) *failure {
	if reason == "" {
		reason = "unknown"
	}
	text := "Incomplete response returned, reason: " + excerpt(reason, 200)
	if reason == "content_filter" {
		return fail(ClassContentFilter, prefixStream+text).stream().code(reason)
	}
	return fail(ClassIncomplete, text).code(reason)
}

// cut is a stream that broke or ended before its terminal event.
func cut(cause error) *failure { return fail(ClassStreamEnded, textCut).stream().because(cause) }

// closed is a stream that ended in good order, but too early.
func closed() *failure {
	return fail(ClassStreamEnded, textClosed).stream().because(io.ErrUnexpectedEOF)
}

// idle is a stream, or a wait for one, in which nothing happened for d.
func idle(d time.Duration) *failure {
	return fail(ClassIdleTimeout, textIdle).stream().hinting("no event came for %s", d)
}

func oversized(what string, limit int64) *failure {
	return fail(ClassOversized, fmt.Sprintf("%s%s exceeds %d MiB", prefixStream, what, limit>>20))
}

// shownURL is u without what may be secret: user, query and fragment.
func shownURL(u *url.URL) string {
	if u == nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

func shownLocation(s string) string {
	u, err := url.Parse(s)
	if err != nil || s == "" {
		return "an address that cannot be read"
	}
	return shownURL(u)
}

func statusLine(status int) string {
	text := http.StatusText(status)
	switch {
	case status == http.StatusRequestEntityTooLarge:
		text = "Payload Too Large"
	case text == "":
		text = "<unknown status code>"
	}
	return fmt.Sprintf("%d %s", status, text)
}
