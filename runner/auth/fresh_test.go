package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/runnertest"
)

// TestWhenDue holds the triggers of a refresh to the reference's.
func TestWhenDue(t *testing.T) {
	day := 24 * time.Hour
	for _, tc := range []struct {
		name   string
		life   time.Duration // 0: opaque
		age    time.Duration // of last_refresh
		reason string        // "": not due
	}{
		{"far from its end", time.Hour, time.Minute, ""},
		{"305 s left", 305 * time.Second, time.Minute, ""},
		{"295 s left", 295 * time.Second, time.Minute, reasonExpiry},
		{"run out", -time.Second, time.Minute, reasonExpiry},
		{"far from its end, refreshed long ago", time.Hour, 30 * day, ""},
		{"opaque, 7.98 days", 0, 7*day + 23*time.Hour + 31*time.Minute, ""},
		{"opaque, 8.02 days", 0, 8*day + 29*time.Minute, reasonScheduled},
		{"opaque, from the future", 0, -day, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, tc.life)
			old := r.read()
			var file struct {
				LastRefresh string `json:"last_refresh"`
			}
			if err := json.Unmarshal([]byte(old), &file); err != nil {
				t.Fatal(err)
			}
			r.write([]byte(strings.Replace(old, file.LastRefresh, time.Now().Add(-tc.age).UTC().Format(time.RFC3339), 1)))
			c := r.load()
			reason, due := c.Due()
			if _, err := authorize(c); err != nil {
				t.Fatal(err)
			}
			reqs := r.tokens.Requests()
			if tc.reason == "" {
				if due || len(reqs) != 0 {
					t.Errorf("due %v, %d requests", due, len(reqs))
				}
				return
			}
			if reason != tc.reason || len(reqs) != 1 || reqs[0].Reason != tc.reason {
				t.Errorf("due for %q, requests %+v", reason, reqs)
			}
		})
	}
}

// TestShortLivedTokens shows that tokens that live shorter than the window are
// not renewed with each request.
func TestShortLivedTokens(t *testing.T) {
	r := newRig(t, -time.Hour)
	now := time.Now()
	r.src.Now = func() time.Time { return now }
	r.tokens.Lifetime(4 * time.Minute)
	c := r.load()
	for range 10 {
		if _, err := authorize(c); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.tokens.Refreshes(); n != 1 {
		t.Errorf("%d refreshes", n)
	}
	now = now.Add(3 * time.Minute)
	if _, err := authorize(c); err != nil {
		t.Fatal(err)
	}
	if n := r.tokens.Refreshes(); n != 2 {
		t.Errorf("%d refreshes", n)
	}
}

// TestSameTokenAgain is an endpoint that answers with what it was to replace.
func TestSameTokenAgain(t *testing.T) {
	r := newRig(t, 0)
	old := tokensOf(t, r.read())
	r.src.Now = func() time.Time { return time.Now().Add(9 * 24 * time.Hour) }
	r.tokens.Then(runnertest.TokenAnswer{Status: 200, Body: fmt.Sprintf(`{"access_token":%q}`, old["access_token"])})
	c := r.load()
	for range 5 { // opaque, so nobody knows that it has run out: the run goes on
		if _, err := authorize(c); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.tokens.Requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// refuse sends one request that the service answers with 401.
func refuse(t *testing.T, c *Credential) error {
	t.Helper()
	if _, err := authorize(c); err != nil {
		t.Fatal(err)
	}
	return c.Refused(context.Background())
}

// TestRefusedRefreshes is the plain recovery: one refresh, one retry.
func TestRefusedRefreshes(t *testing.T) {
	r := newRig(t, time.Hour)
	c := r.load()
	before, err := authorize(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Refused(context.Background()); err != nil {
		t.Fatal(err)
	}
	after, err := authorize(c)
	if err != nil || after == before {
		t.Errorf("%v, same token %v", err, after == before)
	}
	reqs := r.tokens.Requests()
	if len(reqs) != 1 || reqs[0].Reason != reasonRefused {
		t.Errorf("%+v", reqs)
	}
	// The new token is refused as well: the end, with no second refresh.
	if err := c.Refused(context.Background()); classOf(t, err) != ClassTokenRefused {
		t.Error(err)
	}
	if n := len(r.tokens.Requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// TestRefusedReloads: another process has refreshed meanwhile.
func TestRefusedReloads(t *testing.T) {
	r := newRig(t, time.Hour)
	c := r.load()
	if _, err := authorize(c); err != nil {
		t.Fatal(err)
	}
	r.write(r.tokens.Login(2 * time.Hour))
	if err := c.Refused(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := len(r.tokens.Requests()); n != 0 {
		t.Errorf("%d requests", n)
	}
	if e := r.refreshes(); len(e) != 1 || e[0].Outcome != "reloaded" {
		t.Errorf("%+v", e)
	}
	// Refused again: now it is refreshed, since that was not tried yet.
	if err := refuse(t, c); err != nil {
		t.Fatal(err)
	}
	if n := len(r.tokens.Requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// TestRefusedFailures are the ends of a recovery.
func TestRefusedFailures(t *testing.T) {
	for _, tc := range []struct {
		name  string
		do    func(r *rig)
		class string
	}{
		{"permanent", func(r *rig) { r.tokens.Always(refusal(401, "refresh_token_reused")) }, ClassRefreshReused},
		{"transient", func(r *rig) { r.tokens.Always(runnertest.TokenAnswer{Status: 502}) }, ClassRefreshUnavailable},
		{"senseless", func(r *rig) { r.tokens.Always(runnertest.TokenAnswer{Status: 200, Body: "{}"}) }, ClassRefreshBadAnswer},
		{"other account", func(r *rig) { r.write([]byte(chatgptFile("acct-other"))) }, ClassAccountChanged},
		{"other user of the same account", func(r *rig) {
			other := loginToken("acct-test-0001", "user-other-0009")
			r.write([]byte(strings.Replace(r.read(), runnertest.IDToken("acct-test-0001"), other, 1)))
		}, ClassAccountChanged},
		{"a key instead", func(r *rig) { r.write([]byte(apiKeyFile)) }, ClassAccountChanged},
		{"logged out", func(r *rig) { r.write(nil) }, ClassCorrupt},
		{"no refresh token", func(r *rig) {
			r.write([]byte(strings.Replace(r.read(), `"refresh_token"`, `"was_refresh_token"`, 1)))
		}, ClassNoRefreshToken},
		{"external tokens", func(r *rig) {
			r.write([]byte(strings.Replace(r.read(), `"chatgpt"`, `"chatgptAuthTokens"`, 1)))
		}, ClassTokenExpired},
		{"workspace no longer allowed", func(r *rig) {
			r.src.ForcedWorkspaces[0] = "another"
		}, ClassForbiddenWorkspace},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, time.Hour)
			r.src.ForcedWorkspaces = []string{"acct-test-0001"}
			c := r.load()
			if _, err := authorize(c); err != nil {
				t.Fatal(err)
			}
			tc.do(r)
			err := c.Refused(context.Background())
			if got := classOf(t, err); got != tc.class {
				t.Fatalf("%q %v, want %q", got, err, tc.class)
			}
			if n := len(r.tokens.Requests()); n > maxAttempts {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestKeysAreNotRenewed: a 401 to anything but a login is final, and says whose
// key it was.
func TestKeysAreNotRenewed(t *testing.T) {
	for _, tc := range []struct {
		s    Sources
		says string
	}{
		{Sources{Provider: withKey, LookupEnv: environment(map[string]string{"MOCK_KEY": "k-123"})}, "MOCK_KEY"},
		{Sources{Provider: openAI, APIKeyStdin: "k-123"}, "--api-key-stdin"},
		{Sources{Provider: keyless}, "names none"},
	} {
		tc.s.Home = t.TempDir()
		c, err := Load(context.Background(), tc.s)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Refused(context.Background())
		if classOf(t, err) != ClassKeyRefused || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), "401") || strings.Contains(err.Error(), "k-123") {
			t.Error(err)
		}
	}
}

// TestPersonalToken: the account is asked for once, and no request goes out with
// a token that the service does not know.
func TestPersonalToken(t *testing.T) {
	answers := []int{500, 200}
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/user-auth-credential/whoami" || r.Header.Get("Authorization") != "Bearer at-personal-1" {
			t.Errorf("%s %v", r.URL, r.Header)
		}
		status := answers[min(asked, len(answers)-1)]
		asked++
		w.WriteHeader(status)
		if status == 200 {
			fmt.Fprint(w, `{"chatgpt_account_id":"acct-p","email":"robot@example.com"}`)
		}
	}))
	defer srv.Close()
	load := func(set func(*Sources)) *Credential {
		t.Helper()
		s := Sources{
			Home: t.TempDir(), Provider: openAI, bounds: bounds{pause: time.Millisecond},
			LookupEnv: environment(map[string]string{"CODEX_ACCESS_TOKEN": "at-personal-1", "CODEX_AUTHAPI_BASE_URL": srv.URL + "/"}),
		}
		set(&s)
		c, err := Load(context.Background(), s)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := load(func(*Sources) {})
	for range 3 {
		req, err := http.NewRequest(http.MethodPost, "http://127.0.0.1:1/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Authorize(req); err != nil || req.Header.Get("ChatGPT-Account-ID") != "acct-p" {
			t.Errorf("%v %v", err, req.Header)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
	if _, err := authorize(load(func(s *Sources) { s.ForcedWorkspaces = []string{"other"} })); classOf(t, err) != ClassForbiddenWorkspace {
		t.Error(err)
	}
	if _, err := authorize(load(func(s *Sources) { s.ForcedWorkspaces = []string{"acct-p"} })); err != nil {
		t.Error(err)
	}
	answers = []int{401}
	if header, err := authorize(load(func(*Sources) {})); classOf(t, err) != ClassKeyRefused || header != "" {
		t.Errorf("%v %q", err, header)
	}
	answers = []int{503}
	if _, err := authorize(load(func(*Sources) {})); classOf(t, err) != ClassRefreshUnavailable {
		t.Error(err)
	}
}

// TestExpiredAccessToken is a token from the environment that has run out.
func TestExpiredAccessToken(t *testing.T) {
	token := runnertest.JWT(map[string]any{"exp": 1700000000, "https://api.openai.com/auth": map[string]any{"chatgpt_account_id": "a"}})
	c, err := Load(context.Background(), Sources{Home: t.TempDir(), Provider: openAI, LookupEnv: environment(map[string]string{"CODEX_ACCESS_TOKEN": token})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := authorize(c); classOf(t, err) != ClassTokenExpired {
		t.Error(err)
	}
}

// TestForcedRefresh is the maintenance job: due or not, and in spite of what an
// earlier failure advises.
func TestForcedRefresh(t *testing.T) {
	r := newRig(t, time.Hour)
	c := r.load()
	if err := c.Refresh(context.Background()); err != nil || r.tokens.Refreshes() != 1 {
		t.Fatal(err)
	}
	r.tokens.Then(refusal(401, "refresh_token_expired"))
	if err := c.Refresh(context.Background()); classOf(t, err) != ClassRefreshExpired {
		t.Error(err)
	}
	if err := c.Refresh(context.Background()); err != nil {
		t.Error(err)
	}
	k, err := Load(context.Background(), Sources{Home: t.TempDir(), Provider: openAI, APIKeyStdin: "sk"})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Refresh(context.Background()); classOf(t, err) != ClassUnsupported {
		t.Error(err)
	}
}

// TestNotRenewable: a copy without a refresh token, and tokens that another
// program renews, are used as long as they last and no longer.
func TestNotRenewable(t *testing.T) {
	for _, tc := range []struct {
		name, old, new string
		life           time.Duration
		class          string
	}{
		{"no refresh token, two minutes left", `"refresh_token"`, `"x"`, 2 * time.Minute, ""},
		{"no refresh token, opaque and old", `"refresh_token"`, `"x"`, 0, ""},
		{"no refresh token, run out", `"refresh_token"`, `"x"`, -time.Minute, ClassNoRefreshToken},
		{"external, two minutes left", `"chatgpt"`, `"chatgptAuthTokens"`, 2 * time.Minute, ""},
		{"external, run out", `"chatgpt"`, `"chatgptAuthTokens"`, -time.Minute, ClassTokenExpired},
	} {
		r := newRig(t, tc.life)
		if tc.life == 0 {
			r.src.Now = func() time.Time { return time.Now().Add(30 * 24 * time.Hour) }
		}
		r.write([]byte(strings.Replace(r.read(), tc.old, tc.new, 1)))
		if _, err := authorize(r.load()); classOf(t, err) != tc.class {
			t.Errorf("%s: %v", tc.name, err)
		}
		if n := len(r.tokens.Requests()); n != 0 {
			t.Errorf("%s: %d requests", tc.name, n)
		}
	}
}
