package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
)

// httpServer is a server of the SDK over HTTP; asJSON answers without streams.
func httpServer(t *testing.T, asJSON bool, guard func(*http.Request) int) *httptest.Server {
	t.Helper()
	srv := sdk.NewServer(&sdk.Implementation{Name: "web", Version: "1"}, &sdk.ServerOptions{Instructions: "Over the web."})
	sdk.AddTool(srv, &sdk.Tool{Name: "shout", Description: "Shouts.", Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}},
		func(ctx context.Context, _ *sdk.CallToolRequest, in struct {
			Text string `json:"text"`
		}) (*sdk.CallToolResult, struct {
			Loud string `json:"loud"`
		}, error) {
			if in.Text == "hang" {
				select {
				case <-ctx.Done():
				case <-time.After(2 * time.Second): // the word of the cancellation may never come
				}
			}
			return nil, struct {
				Loud string `json:"loud"`
			}{strings.ToUpper(in.Text)}, nil
		})
	h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return srv }, &sdk.StreamableHTTPOptions{JSONResponse: asJSON})
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if guard != nil {
			if code := guard(r); code != 0 {
				w.WriteHeader(code)
				return
			}
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		for one := range srv.Sessions() {
			_ = one.Close()
		}
		ts.Close()
	})
	return ts
}

func web(url string) policy.MCPServer {
	return policy.MCPServer{Enabled: true, URL: url, StartupTimeout: 20 * time.Second, ToolTimeout: 20 * time.Second}
}

func lookup(values map[string]string) func(*Options) {
	return func(o *Options) {
		o.LookupEnv = func(name string) (string, bool) { v, ok := values[name]; return v, ok }
	}
}

func TestStreamableHTTP(t *testing.T) {
	for _, asJSON := range []bool{true, false} {
		var seen atomic.Int64
		ts := httpServer(t, asJSON, func(r *http.Request) int {
			if r.Header.Get("Authorization") != "Bearer tok-123" || r.Header.Get("X-Team") != "pears" || r.Header.Get("X-Key") != "k" {
				return http.StatusUnauthorized
			}
			seen.Add(1)
			return 0
		})
		cfg := web(ts.URL)
		cfg.BearerTokenEnvVar, cfg.HTTPHeaders, cfg.EnvHTTPHeaders = "TOKEN", map[string]string{"X-Team": "pears"}, map[string]string{"X-Key": "KEY"}
		s, rec := fixture(t, map[string]policy.MCPServer{"s": cfg}, lookup(map[string]string{"TOKEN": "tok-123", "KEY": "k"}))
		check(t, s.Ready(t.Context()))
		if got := rec.statuses(); got != "s ready" {
			t.Fatalf("%s: %s", got, rec.message("failed"))
		}
		r := call(t, s, "shout", `{"text":"quiet"}`)
		if r.Status != event.Completed || shown(r) != `"WALL\n{\"loud\":\"QUIET\"}"` {
			t.Errorf("JSON %v: %s", asJSON, r.Output)
		}
		if specs := Specs(s.Tools()); !strings.Contains(string(specs[len(specs)-1]), "Over the web.") {
			t.Errorf("specs: %s", specs)
		}
		check(t, s.Close())
		if seen.Load() < 4 {
			t.Errorf("%d requests", seen.Load())
		}
	}
}

func TestHTTPFailures(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // so that the server notices the client's end
		<-r.Context().Done()
	}))
	t.Cleanup(hang.Close)
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}))
	t.Cleanup(endless.Close)
	junk := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }))
	t.Cleanup(junk.Close)
	unauthorized := httpServer(t, true, func(*http.Request) int { return http.StatusUnauthorized })

	var stolen atomic.Int64
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
	t.Cleanup(thief.Close)
	moved := httptest.NewServer(http.RedirectHandler(thief.URL, http.StatusTemporaryRedirect))
	t.Cleanup(moved.Close)

	servers := map[string]policy.MCPServer{
		"gone": web(gone.URL), "hang": web(hang.URL), "endless": web(endless.URL), "junk": web(junk.URL), "unauthorized": web(unauthorized.URL),
		"moved": web(moved.URL), "scheme": web("ftp://example.com"), "notoken": web(hang.URL), "noheader": web(hang.URL), "split": web(hang.URL),
	}
	set := func(name string, f func(*policy.MCPServer)) { c := servers[name]; f(&c); servers[name] = c }
	set("hang", func(c *policy.MCPServer) { c.StartupTimeout = 300 * time.Millisecond })
	set("moved", func(c *policy.MCPServer) { c.BearerTokenEnvVar = "TOKEN" })
	set("notoken", func(c *policy.MCPServer) { c.BearerTokenEnvVar = "UNSET" })
	set("noheader", func(c *policy.MCPServer) { c.EnvHTTPHeaders = map[string]string{"X": "UNSET"} })
	set("split", func(c *policy.MCPServer) { c.HTTPHeaders = map[string]string{"X": "a\r\nY: b"} })
	s, rec := fixture(t, servers, lookup(map[string]string{"TOKEN": "tok-123"}))
	check(t, s.Ready(t.Context()))
	said := map[string]string{
		"gone": "the request to its url failed: dial tcp", "hang": "startup_timeout_sec of 300ms", "endless": "", "junk": "", "unauthorized": "Unauthorized; it wants a credential: name the variable that holds its token in mcp_servers.unauthorized.bearer_token_env_var", "moved": "redirects",
		"scheme": "not an HTTP address", "notoken": "UNSET, which is not set", "noheader": "UNSET, which is not set", "split": "line break",
	}
	failed := 0
	for range 200 {
		if failed = strings.Count(rec.statuses(), " failed"); failed == len(servers) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if failed != len(servers) {
		t.Errorf("statuses: %s", rec.statuses())
	}
	for _, e := range rec.all() {
		if st, ok := e.(event.ServerStatus); ok {
			if !strings.Contains(st.Message, said[st.Server]) || strings.Contains(st.Message, "tok-123") {
				t.Errorf("%s: %q", st.Server, st.Message)
			}
		}
	}
	if stolen.Load() != 0 {
		t.Error("a redirect took the request, and its token, elsewhere")
	}
}

func TestHTTPCallsAreBounded(t *testing.T) {
	ts := httpServer(t, false, nil)
	cfg := web(ts.URL)
	cfg.ToolTimeout = 300 * time.Millisecond
	s, _ := fixture(t, map[string]policy.MCPServer{"s": cfg}, nil)
	check(t, s.Ready(t.Context()))
	if r := call(t, s, "shout", `{"text":"hang"}`); r.Status != event.Failed || !strings.Contains(string(r.Output), "timed out awaiting tools/call after 300ms") {
		t.Errorf("%s", r.Output)
	}
	if r := call(t, s, "shout", `{"text":"ok"}`); r.Status != event.Completed {
		t.Errorf("after a time-out: %s", r.Output)
	}
	behind := ts.Config.Handler
	ts.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) })
	if r := call(t, s, "shout", `{"text":"ok"}`); r.Status != event.Failed || !strings.Contains(string(r.Output), "Bad Gateway") {
		t.Errorf("a proxy's error: %s", r.Output)
	}
	ts.Config.Handler = behind
	ts.CloseClientConnections()
	ts.Close()
	if r := call(t, s, "shout", `{"text":"ok"}`); r.Status != event.Failed {
		t.Errorf("after the server's end: %s", r.Output)
	}
}

func TestRightMethod(t *testing.T) {
	for in, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"raw:tools/call","params":{"name":"<x>"}}` + "\n": `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"<x>"}}` + "\n",
		`{"jsonrpc":"2.0","method":"ping","params":{"x":"\"method\":\"raw:tools/call\""}}`:  `{"jsonrpc":"2.0","method":"ping","params":{"x":"\"method\":\"raw:tools/call\""}}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"method":"raw:x"}}`:              `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"method":"raw:x"}}`,
		`not json "method":"raw:x"`: `not json "method":"raw:x"`,
	} {
		if got := string(rightMethod([]byte(in))); got != want {
			t.Errorf("%s:\n got %s\nwant %s", in, got, want)
		}
	}
	var m map[string]any
	if err := json.Unmarshal(rightMethod([]byte(`{"jsonrpc":"2.0","id":"a","method":"raw:tools/list","params":{}}`)), &m); err != nil || m["id"] != "a" {
		t.Errorf("%v %v", m, err)
	}
}

// A server that was started anew knows the sessions of before no longer; a new
// one is begun and the call made once more. One that knows none stays lost, and
// a refusal of another kind is not tried again.
func TestLostSessions(t *testing.T) {
	for _, asJSON := range []bool{true, false} {
		for name, c := range map[string]struct {
			code     int
			always   bool
			want     event.Status
			sessions int
		}{"started anew": {http.StatusNotFound, false, event.Completed, 2}, "gone": {http.StatusNotFound, true, event.Failed, 1}, "refused": {http.StatusUnauthorized, false, event.Failed, 1}} {
			var mu sync.Mutex
			var lost bool
			sessions, calls := map[string]bool{}, 0
			ts := httpServer(t, asJSON, func(r *http.Request) int {
				mu.Lock()
				defer mu.Unlock()
				id := r.Header.Get("Mcp-Session-Id")
				if id == "" && lost && c.always {
					return c.code
				}
				if id == "" || r.Method != http.MethodPost {
					return 0
				}
				old := sessions[id]
				if !lost {
					sessions[id] = true
					return 0
				}
				if calls++; old && (c.code == http.StatusNotFound || calls == 1) {
					return c.code
				}
				sessions[id] = false
				return 0
			})
			s, rec := fixture(t, map[string]policy.MCPServer{"s": web(ts.URL)}, nil)
			check(t, s.Ready(t.Context()))
			if r := call(t, s, "shout", `{"text":"a"}`); r.Status != event.Completed {
				t.Fatalf("%s: %s", name, r.Output)
			}
			mu.Lock()
			lost = true
			mu.Unlock()
			for range 2 {
				if r := call(t, s, "shout", `{"text":"loud"}`); r.Status != c.want || strings.Contains(string(r.Output), "LOUD") != (c.want == event.Completed) {
					t.Errorf("%s: %s %s", name, r.Status, r.Output)
				}
			}
			mu.Lock()
			if len(sessions) != c.sessions {
				t.Errorf("%s: %d sessions, want %d", name, len(sessions), c.sessions)
			}
			mu.Unlock()
			told := 0
			for _, e := range rec.all() {
				if n, ok := e.(event.Notice); ok && n.Class == "mcp_session_renewed" {
					told++
				}
			}
			if told != c.sessions-1 {
				t.Errorf("%s: told %d times", name, told)
			}
		}
	}
}
