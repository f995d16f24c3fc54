package runnertest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"
)

// Tokens is a token endpoint over real HTTP that is as strict as one can be: a
// refresh token works once, and the one that was used is refused from then on
// with refresh_token_reused. Queued answers make it slow, broken or lying.
//
// It also knows which access tokens are good, so that a model server can refuse
// the others. All methods may be called from any goroutine.
type Tokens struct {
	// URL is the address of the endpoint, for CODEX_REFRESH_TOKEN_URL_OVERRIDE.
	URL string

	server *httptest.Server

	mu       sync.Mutex
	account  string
	lifetime time.Duration // of issued access tokens; 0: opaque ones
	delay    time.Duration
	serial   int
	refresh  string          // the one that works
	access   map[string]bool // issued and not revoked
	queue    []TokenAnswer
	requests []TokenRequest
	done     int
}

// TokenAnswer is one answer that is not the honest one.
type TokenAnswer struct {
	Status int
	Header http.Header
	Body   string
	// Delay comes before the answer, Stall between its header and its body.
	Delay, Stall time.Duration
	// Drop closes the connection instead of answering; Raw is sent as it is
	// instead of HTTP.
	Drop bool
	Raw  string
	// Spend uses the refresh token up although the answer does not say so: the
	// worst kind of failure.
	Spend bool
	// Honest gives the right answer after Delay; Fields are put over it, and
	// those that are "-" are left out.
	Honest bool
	Fields map[string]string
}

// TokenRequest is one request that the endpoint got.
type TokenRequest struct {
	ClientID     string `json:"client_id"`
	GrantType    string `json:"grant_type"`
	RefreshToken string `json:"refresh_token"`
	Reason       string `json:"refresh_reason"`

	Method string      `json:"-"`
	Header http.Header `json:"-"`
	Body   string      `json:"-"`
	Time   time.Time   `json:"-"`
}

// NewTokens starts an endpoint for one account and stops it at the end of the
// test. Its access tokens live for an hour.
func NewTokens(tb TB) *Tokens {
	tb.Helper()
	t := &Tokens{account: "acct-test-0001", lifetime: time.Hour, refresh: "rt-test-0", access: map[string]bool{}}
	t.server = httptest.NewServer(http.HandlerFunc(t.serve))
	t.URL = t.server.URL + "/oauth/token"
	tb.Cleanup(t.Close)
	return t
}

// Close stops the endpoint and drops its connections.
func (t *Tokens) Close() {
	t.server.CloseClientConnections()
	t.server.Close()
}

// Then queues answers; when they are used up the endpoint is honest again.
func (t *Tokens) Then(answers ...TokenAnswer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = append(t.queue, answers...)
}

// Always makes every answer a.
func (t *Tokens) Always(a TokenAnswer) { t.Then(slices.Repeat([]TokenAnswer{a}, 1000)...) }

// Lifetime sets how long the next access tokens live; 0 makes them opaque.
func (t *Tokens) Lifetime(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lifetime = d
}

// Delay makes every honest answer slow.
func (t *Tokens) Delay(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.delay = d
}

// Requests returns all requests so far.
func (t *Tokens) Requests() []TokenRequest {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.requests)
}

// Refreshes counts the honest answers: rotations of the refresh token.
func (t *Tokens) Refreshes() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done
}

// Refresh returns the refresh token that works now.
func (t *Tokens) Refresh() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refresh
}

// Valid tells whether the Authorization header of r holds an access token of
// this endpoint that was not revoked and has not run out, and whether its
// account header fits.
func (t *Tokens) Valid(r *http.Request) bool {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	t.mu.Lock()
	defer t.mu.Unlock()
	return ok && t.access[token] && r.Header.Get("ChatGPT-Account-ID") == t.account && !expired(token)
}

// Revoke makes every access token so far bad, as a server-side logout does.
func (t *Tokens) Revoke() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.access)
}

// Login returns an auth.json whose access token lives for life (negative: it
// has run out) and whose refresh token works.
func (t *Tokens) Login(life time.Duration) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	access := t.newAccess(life)
	return fmt.Appendf(nil, `{
  "OPENAI_API_KEY": null,
  "auth_mode": "chatgpt",
  "tokens": {
    "id_token": %q,
    "access_token": %q,
    "refresh_token": %q,
    "account_id": %q,
    "x_unknown": {"kept": [1, 2.50, "\u00e9"]}
  },
  "last_refresh": %q,
  "x_note":   "kept by the owner"
}
`, IDToken(t.account), access, t.refresh, t.account, time.Now().Add(-24*time.Hour).UTC().Format(time.RFC3339))
}

// newAccess issues an access token.
func (t *Tokens) newAccess(life time.Duration) string {
	t.serial++
	token := fmt.Sprintf("opaque-access-%d", t.serial)
	if life != 0 {
		token = JWT(map[string]any{"exp": time.Now().Add(life).Unix(), "jti": fmt.Sprint("access-", t.serial)})
	}
	t.access[token] = true
	return token
}

// IDToken makes an id token of an account.
func IDToken(account string) string {
	return JWT(map[string]any{
		"email": "robot@example.com",
		"https://api.openai.com/auth": map[string]any{
			"chatgpt_account_id": account, "chatgpt_plan_type": "team", "chatgpt_user_id": "user-test-0001",
		},
	})
}

// JWT makes an unsigned JSON web token.
func JWT(claims map[string]any) string {
	body, err := json.Marshal(claims)
	if err != nil {
		panic(err) // the claims of a test always encode
	}
	enc := base64.RawURLEncoding
	return enc.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + enc.EncodeToString(body) + "." + enc.EncodeToString([]byte("not-a-signature"))
}

func expired(token string) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	var claims struct {
		Exp int64 `json:"exp"`
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	return err != nil || json.Unmarshal(body, &claims) != nil || claims.Exp != 0 && time.Now().Unix() >= claims.Exp
}

func (t *Tokens) serve(w http.ResponseWriter, r *http.Request) {
	var body strings.Builder
	req := TokenRequest{Method: r.Method, Header: r.Header.Clone(), Time: time.Now()}
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Body.Read(buf)
		body.Write(buf[:n])
		if err != nil {
			break
		}
	}
	req.Body = body.String()
	// A body that is not JSON is refused below: its token is empty.
	_ = json.Unmarshal([]byte(req.Body), &req)

	t.mu.Lock()
	t.requests = append(t.requests, req)
	a := TokenAnswer{Honest: true, Delay: t.delay}
	if len(t.queue) > 0 {
		a, t.queue = t.queue[0], t.queue[1:]
	}
	t.mu.Unlock()

	if !sleep(r, a.Delay) {
		return
	}
	if a.Spend {
		t.rotate(req.RefreshToken)
	}
	switch {
	case a.Honest:
		t.honest(w, req, a)
	case a.Drop || a.Raw != "":
		hangUp(w, a.Raw)
	default:
		for k, v := range a.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(a.Status)
		if a.Stall > 0 {
			_ = http.NewResponseController(w).Flush() // a stalled body needs a sent header
			sleep(r, a.Stall)
		}
		fmt.Fprint(w, a.Body)
	}
}

// rotate uses token up and returns the login that it bought.
func (t *Tokens) rotate(token string) (access, refresh string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if token != t.refresh {
		return "", "", false
	}
	access = t.newAccess(t.lifetime)
	t.refresh = fmt.Sprintf("rt-test-%d", t.serial)
	t.done++
	return access, t.refresh, true
}

func (t *Tokens) honest(w http.ResponseWriter, req TokenRequest, a TokenAnswer) {
	w.Header().Set("Content-Type", "application/json")
	access, refresh, ok := t.rotate(req.RefreshToken)
	if !ok {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error":{"code":"refresh_token_reused","message":"Your refresh token has already been used."}}`)
		return
	}
	fields := map[string]string{"id_token": IDToken(t.account), "access_token": access, "refresh_token": refresh}
	for k, v := range a.Fields {
		if fields[k] = v; v == "-" {
			delete(fields, k)
		}
	}
	out, err := json.Marshal(fields)
	if err != nil {
		panic(err) // strings always encode
	}
	fmt.Fprint(w, string(out))
}

// sleep waits; false means that the client went away meanwhile.
func sleep(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// hangUp closes the connection, after raw if there is any.
func hangUp(w http.ResponseWriter, raw string) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if raw != "" {
		// The client may be gone; that is the point.
		_, _ = buf.WriteString(raw)
		_ = buf.Flush()
	}
	_ = conn.Close()
}
