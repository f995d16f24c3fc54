package auth

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/runnertest"
)

// refusal is an answer of the token endpoint with an error code.
func refusal(status int, code string) runnertest.TokenAnswer {
	return runnertest.TokenAnswer{Status: status, Body: `{"error":{"code":"` + code + `","message":"no"}}`}
}

// TestRefreshFailures is the table of what a token endpoint may answer, with an
// access token that has run out: no request to the model, a class, a bounded
// number of requests, and auth.json as it was.
func TestRefreshFailures(t *testing.T) {
	html := "<!doctype html><title>Sign in to the guest network</title>"
	for _, tc := range []struct {
		name     string
		answer   runnertest.TokenAnswer
		class    string
		again    bool // retryable
		requests int
		says     string
	}{
		{"expired", refusal(401, "refresh_token_expired"), ClassRefreshExpired, false, 1, "has expired"},
		{"reused", refusal(401, "refresh_token_reused"), ClassRefreshReused, false, 1, "was already used"},
		{"invalidated", refusal(401, "refresh_token_invalidated"), ClassRefreshRevoked, false, 1, "was revoked"},
		{"401 with another code", refusal(401, "teapot"), ClassRefreshRefused, false, 1, "401"},
		{"401 without a body", runnertest.TokenAnswer{Status: 401}, ClassRefreshRefused, false, 1, "401"},
		{"401 with HTML", runnertest.TokenAnswer{Status: 401, Body: html}, ClassRefreshRefused, false, 1, "401"},
		{"expired with 400", refusal(400, "refresh_token_expired"), ClassRefreshExpired, false, 1, "has expired"},
		{"reused with 403", refusal(403, "refresh_token_reused"), ClassRefreshReused, false, 1, "was already used"},
		{"invalidated with 500", refusal(500, "refresh_token_invalidated"), ClassRefreshRevoked, false, 1, "was revoked"},
		{"reused with 200", refusal(200, "refresh_token_reused"), ClassRefreshReused, false, 1, "was already used"},
		{"invalid_grant", runnertest.TokenAnswer{Status: 400, Body: `{"error":"invalid_grant"}`}, ClassRefreshRefused, false, 1, "not valid"},
		{"code at the top", runnertest.TokenAnswer{Status: 401, Body: `{"code":"refresh_token_reused"}`}, ClassRefreshReused, false, 1, "already used"},
		{"500", runnertest.TokenAnswer{Status: 500, Body: "oops"}, ClassRefreshUnavailable, true, maxAttempts, "HTTP 500"},
		{"503 with HTML", runnertest.TokenAnswer{Status: 503, Body: html}, ClassRefreshUnavailable, true, maxAttempts, "HTTP 503"},
		{"429", runnertest.TokenAnswer{Status: 429}, ClassRefreshRateLimited, true, maxAttempts, "429"},
		{"429 for long", runnertest.TokenAnswer{Status: 429, Header: http.Header{"Retry-After": {"3600"}}}, ClassRefreshRateLimited, true, 1, "1h0m0s"},
		{"200 with HTML", runnertest.TokenAnswer{Status: 200, Body: html}, ClassRefreshBadAnswer, true, 1, "not JSON"},
		{"200 with {}", runnertest.TokenAnswer{Status: 200, Body: "{}"}, ClassRefreshBadAnswer, true, 1, "without an access token"},
		{"200 with nothing", runnertest.TokenAnswer{Status: 200}, ClassRefreshBadAnswer, true, 1, "not JSON"},
		{"200 with null", runnertest.TokenAnswer{Status: 200, Body: "null"}, ClassRefreshBadAnswer, true, 1, "not JSON"},
		{"200 with empty tokens", runnertest.TokenAnswer{Status: 200, Body: `{"access_token":"","refresh_token":"","id_token":""}`}, ClassRefreshBadAnswer, true, 1, "without an access token"},
		{"200 with a number", runnertest.TokenAnswer{Status: 200, Body: `{"access_token":1}`}, ClassRefreshBadAnswer, true, 1, "without an access token"},
		{"200 with a line break in the token", runnertest.TokenAnswer{Status: 200, Body: `{"access_token":"a\r\nX-Evil: 1"}`}, ClassRefreshBadAnswer, true, 1, "characters"},
		{"200 with a token that has run out", runnertest.TokenAnswer{Status: 200, Body: `{"access_token":"` + runnertest.JWT(map[string]any{"exp": 1700000000}) + `"}`}, ClassRefreshBadAnswer, true, 1, "already run out"},
		{"redirect", runnertest.TokenAnswer{Status: 307, Header: http.Header{"Location": {"http://127.0.0.1:1/elsewhere"}}}, ClassRefreshUnavailable, true, 1, "HTTP 307"},
		{"404", runnertest.TokenAnswer{Status: 404, Body: html}, ClassRefreshUnavailable, true, 1, "HTTP 404"},
		{"connection dropped", runnertest.TokenAnswer{Drop: true}, ClassRefreshUnavailable, true, maxAttempts, ""},
		{"not HTTP", runnertest.TokenAnswer{Raw: "rt-test-0 rt-test-0\r\n\r\n"}, ClassRefreshUnavailable, true, maxAttempts, ""},
		{"too slow", runnertest.TokenAnswer{Delay: time.Hour, Honest: true}, ClassRefreshUnavailable, true, maxAttempts, "no answer within"},
		{"stalled body", runnertest.TokenAnswer{Status: 200, Body: "{}", Stall: time.Hour}, ClassRefreshUnavailable, true, maxAttempts, "no answer within"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, -time.Hour)
			r.src.bounds.attempt = 200 * time.Millisecond
			before := r.read()
			r.tokens.Always(tc.answer)
			c := r.load()
			header, err := authorize(c)
			if got := classOf(t, err); got != tc.class {
				t.Fatalf("class %q (%v), want %q", got, err, tc.class)
			}
			e := err.(*Error)
			if e.Retryable != tc.again || !strings.Contains(e.Message, tc.says) || e.Hint() == "" {
				t.Errorf("retryable %v, message %q, hint %q", e.Retryable, e.Message, e.Hint())
			}
			if !tc.again && !strings.Contains(e.Hint(), "auth import") {
				t.Errorf("a permanent failure without advice to reseed: %q", e.Hint())
			}
			if header != "" {
				t.Errorf("the request carries %q", header)
			}
			// Asked again at once, by the same run and by another: no storm.
			for range 5 {
				if _, err := authorize(c); classOf(t, err) != tc.class {
					t.Errorf("then: %v", err)
				}
			}
			if _, err := authorize(r.load()); classOf(t, err) != tc.class {
				t.Errorf("another run: %v", err)
			}
			if n := len(r.tokens.Requests()); n != tc.requests {
				t.Errorf("%d requests, want %d", n, tc.requests)
			}
			if now := r.read(); now != before {
				t.Errorf("auth.json changed:\n%s", now)
			}
			if left := r.beside(); left != nil {
				t.Errorf("left behind: %q", left)
			}
			for _, text := range []string{err.Error(), e.Hint(), strings.Join(r.notices(), " ")} {
				if strings.Contains(text, "rt-test-0") {
					t.Errorf("tells the refresh token: %q", text)
				}
			}
		})
	}
}

// TestRefreshRecovers shows that a failure that passes is not a failure.
func TestRefreshRecovers(t *testing.T) {
	for name, bad := range map[string]runnertest.TokenAnswer{
		"500":     {Status: 500},
		"429":     {Status: 429},
		"dropped": {Drop: true},
	} {
		r := newRig(t, -time.Hour)
		r.tokens.Then(bad, bad)
		if _, err := authorize(r.load()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := len(r.tokens.Requests()); n != 3 {
			t.Errorf("%s: %d requests", name, n)
		}
	}
}

// TestEndpointIsGone is an endpoint that nobody listens on.
func TestEndpointIsGone(t *testing.T) {
	r := newRig(t, -time.Hour)
	r.tokens.Close()
	_, err := authorize(r.load())
	if classOf(t, err) != ClassRefreshUnavailable || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
}

// TestTransientWithGoodToken shows that a run whose token has not run out goes
// on, says so, and does not hammer the endpoint.
func TestTransientWithGoodToken(t *testing.T) {
	r := newRig(t, 2*time.Minute) // due, since it ends within five minutes
	r.tokens.Always(runnertest.TokenAnswer{Status: 503})
	c := r.load()
	for range 10 {
		if header, err := authorize(c); err != nil || header == "" {
			t.Fatal(err)
		}
	}
	if n := len(r.tokens.Requests()); n != maxAttempts {
		t.Errorf("%d requests", n)
	}
	if n := r.notices(); len(n) != 1 || n[0] != "auth_refresh_failed" {
		t.Errorf("notices %q", n)
	}
}

// TestPermanentWithGoodToken shows that a login that is gone ends the run even
// while its token lasts: exit 5 now is better than in the middle of a turn.
func TestPermanentWithGoodToken(t *testing.T) {
	r := newRig(t, 2*time.Minute)
	r.tokens.Always(refusal(401, "refresh_token_invalidated"))
	if _, err := authorize(r.load()); classOf(t, err) != ClassRefreshRevoked {
		t.Error(err)
	}
}

// TestCoolingEnds shows that a transient failure is tried again later.
func TestCoolingEnds(t *testing.T) {
	r := newRig(t, -time.Hour)
	now := time.Now()
	r.src.Now = func() time.Time { return now }
	r.tokens.Then(runnertest.TokenAnswer{Status: 200, Body: "{}"})
	c := r.load()
	if _, err := authorize(c); classOf(t, err) != ClassRefreshBadAnswer {
		t.Fatal(err)
	}
	now = now.Add(29 * time.Second)
	if _, err := authorize(c); err == nil {
		t.Fatal("tried again too early")
	}
	now = now.Add(2 * time.Second)
	if _, err := authorize(c); err != nil {
		t.Fatal(err)
	}
}

// TestRequestShape compares the request with the reference's.
func TestRequestShape(t *testing.T) {
	r := newRig(t, -time.Hour)
	if _, err := authorize(r.load()); err != nil {
		t.Fatal(err)
	}
	req := r.tokens.Requests()[0]
	want := `{"client_id":"app_EMoamEEZ73f0CkXaXp7hrann","grant_type":"refresh_token","refresh_token":"rt-test-0","refresh_reason":"proactive_expiry"}`
	if req.Method != http.MethodPost || req.Body != want || req.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %s %v", req.Method, req.Body, req.Header)
	}
	if req.Header.Get("Authorization") != "" {
		t.Error("the request to the token endpoint carries an Authorization header")
	}
}

// TestPartialAnswers are answers that lack something, or hold something odd.
func TestPartialAnswers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		fields map[string]string
		class  string
		keeps  []string // fields of auth.json that stay
		notice string
	}{
		{"no refresh token", map[string]string{"refresh_token": "-"}, "", []string{"refresh_token"}, ""},
		{"no id token", map[string]string{"id_token": "-"}, "", []string{"id_token"}, ""},
		{"bad id token", map[string]string{"id_token": "not-a-jwt"}, "", []string{"id_token"}, "auth_id_token"},
		{"id token of another account", map[string]string{"id_token": runnertest.IDToken("acct-other-0009")}, ClassAccountChanged, []string{"id_token", "access_token"}, ""},
		{"access token of another account", map[string]string{"access_token": accessOf("acct-other-0009", "")}, ClassAccountChanged, []string{"id_token", "access_token"}, ""},
		{"id token of another user", map[string]string{"id_token": loginToken("acct-test-0001", "user-other-0009")}, ClassAccountChanged, []string{"id_token", "access_token"}, ""},
		{"access token of another user", map[string]string{"access_token": accessOf("", "user-other-0009")}, ClassAccountChanged, []string{"id_token", "access_token"}, ""},
		{"access token that names the same login", map[string]string{"access_token": accessOf("acct-test-0001", "user-test-0001")}, "", nil, ""},
		{"no access token", map[string]string{"access_token": "-"}, ClassRefreshBadAnswer, []string{"id_token", "access_token"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, -time.Hour)
			before := tokensOf(t, r.read())
			r.tokens.Then(runnertest.TokenAnswer{Honest: true, Fields: tc.fields})
			_, err := authorize(r.load())
			if got := classOf(t, err); got != tc.class {
				t.Fatalf("%q %v", got, err)
			}
			after := tokensOf(t, r.read())
			for _, k := range tc.keeps {
				if before[k] != after[k] {
					t.Errorf("%s changed", k)
				}
			}
			// The refresh token was replaced by the endpoint, so it must be in the
			// file whatever else the answer was worth.
			if tc.fields["refresh_token"] == "" && after["refresh_token"] != r.tokens.Refresh() {
				t.Errorf("the new refresh token was lost: %q", after["refresh_token"])
			}
			if got := strings.Join(r.notices(), " "); got != tc.notice {
				t.Errorf("notices %q", got)
			}
		})
	}
}

// loginToken is a token that names an account and a user, accessOf one that is
// good for an hour besides.
func loginToken(account, user string) string { return tokenOf(account, user, nil) }

func accessOf(account, user string) string {
	return tokenOf(account, user, map[string]any{"exp": time.Now().Add(time.Hour).Unix()})
}

func tokenOf(account, user string, claims map[string]any) string {
	all := map[string]any{"https://api.openai.com/auth": map[string]any{"chatgpt_account_id": account, "chatgpt_user_id": user}}
	maps.Copy(all, claims)
	return runnertest.JWT(all)
}

// TestSenselessRotation is the endpoint that would empty a login: it takes the
// refresh token, gives another one and no access token, again and again.
func TestSenselessRotation(t *testing.T) {
	for _, life := range []time.Duration{2 * time.Minute, -time.Hour} {
		r := newRig(t, life)
		o := &outside{}
		r.src.Writeback = o.put
		r.tokens.Always(runnertest.TokenAnswer{Honest: true, Fields: map[string]string{"access_token": "-"}})
		for range 2 { // runs
			c := r.load()
			for range 5 {
				if _, err := authorize(c); (err != nil) != (life < 0) {
					t.Fatal(err)
				}
			}
		}
		if n := len(r.tokens.Requests()); n != 1 {
			t.Errorf("%d requests", n)
		}
		if tokensOf(t, r.read())["refresh_token"] != r.tokens.Refresh() || o.has != r.read() {
			t.Error("the new refresh token was lost")
		}
	}
}

func tokensOf(t *testing.T, text string) map[string]string {
	t.Helper()
	var file struct{ Tokens map[string]any }
	if err := json.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for k, v := range file.Tokens {
		if s, ok := v.(string); ok {
			out[k] = s
		}
	}
	return out
}

// TestCancelledRunKeepsTheAnswer shows that a run which ends while an answer is
// on its way leaves at once, and that the answer is stored all the same.
func TestCancelledRunKeepsTheAnswer(t *testing.T) {
	r := newRig(t, -time.Hour)
	r.tokens.Delay(300 * time.Millisecond)
	c := r.load()
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := context.DeadlineExceeded
	go func() {
		for len(r.tokens.Requests()) == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel(cause)
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:1/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Authorize(req); err != cause {
		t.Errorf("Authorize: %v", err)
	}
	if r.tokens.Refreshes() != 0 {
		t.Error("Authorize waited for the answer")
	}
	if err := c.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := tokensOf(t, r.read())["refresh_token"]; got != r.tokens.Refresh() || got == "rt-test-0" {
		t.Errorf("auth.json has %q, the endpoint wants %q", got, r.tokens.Refresh())
	}
}

// TestCancelledRunSpendsNothing shows that a run which ends before its request
// is out does not send it.
func TestCancelledRunSpendsNothing(t *testing.T) {
	r := newRig(t, -time.Hour)
	c := r.load()
	l, e := c.store.lock(context.Background())
	if e != nil {
		t.Fatal(e)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:1/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Authorize(req); err == nil {
		t.Error("authorized")
	}
	l.release()
	if err := c.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if n := len(r.tokens.Requests()); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// TestCloseIsBounded shows that Close does not wait longer than it may.
func TestCloseIsBounded(t *testing.T) {
	r := newRig(t, -time.Hour)
	r.tokens.Always(runnertest.TokenAnswer{Delay: time.Hour, Honest: true})
	r.src.bounds.attempt = 500 * time.Millisecond
	c := r.load()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:1/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Authorize(req); err == nil {
		t.Error("authorized")
	}
	if err := c.Close(ctx); len(r.tokens.Requests()) > 0 && classOf(t, err) != ClassRefreshUnavailable {
		t.Error(err)
	}
}
