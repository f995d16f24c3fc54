package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// downs are the ways in which a service can be down; each returns host:port.
func downs() map[string]func(t *testing.T) string {
	answering := func(h http.HandlerFunc) func(t *testing.T) string {
		return func(t *testing.T) string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := &http.Server{Handler: h}
			go func() { _ = s.Serve(l) }()
			t.Cleanup(func() { _ = s.Close() })
			return l.Addr().String()
		}
	}
	return map[string]func(t *testing.T) string{
		"refuses": func(t *testing.T) string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			return l.Addr().String()
		},
		"says nothing": silent,
		"resets": func(t *testing.T) string {
			return accepting(t, func(c net.Conn) {
				if tcp, ok := c.(*net.TCPConn); ok {
					_ = tcp.SetLinger(0)
				}
				_ = c.Close()
			})
		},
		"fails": answering(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }),
		"refers": answering(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+r.Host+r.URL.Path, http.StatusTemporaryRedirect)
		}),
		"babbles": answering(flood(200, "", "babble")),
		"trickles": answering(func(w http.ResponseWriter, _ *http.Request) {
			for write(w, " ") {
				time.Sleep(100 * time.Millisecond)
			}
		}),
		"half says": answering(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			write(w, `{"access_`)
		}),
	}
}

// TestFaultCollectorDown: a collector that is down loses telemetry and nothing
// else. The run says how much, and ends within the flush timeout.
func TestFaultCollectorDown(t *testing.T) {
	notShort(t)
	for name, down := range downs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.layOut(t, scenario{Model: "gpt-5.5", Config: fmt.Sprintf("\n[otel]\nflush_timeout = \"2s\"\nexporter = { otlp-http = { endpoint = \"http://%s/v1/logs\", protocol = \"binary\" } }\n", down(t))})
			w.play(t, `{"items":[{"call":"exec_command","call_id":"a","args":{"cmd":"echo ran >> side.txt"}}]}`+"\n"+`{"items":[{"message":"done"}]}`)
			res := process{args: []string{"exec", "--json", "-s", "workspace-write", "--report-dir", w.base + "/reports", "Do it."}, dir: w.ws,
				env: append(w.env(), "MOCK_API_KEY=dummy-key"), timeout: time.Minute}.run(t)
			t.Logf("FAULT collector %s | 1 | exit code %d, %s", name, res.code, res.took.Round(10*time.Millisecond))
			if res.code != 0 || res.took > 20*time.Second {
				t.Errorf("exit code %d after %s\n%s\n%s", res.code, res.took, excerptOf(res.stdout), excerptOf(res.stderr))
			}
			w.wholeReports(t, w.base+"/reports", 0, name)
			raw, err := os.ReadFile(w.base + "/reports/report.json")
			if err != nil || name != "babbles" && !strings.Contains(string(raw), "elemetry") {
				t.Errorf("the report does not speak of telemetry (%v)\n%s", err, excerptOf(raw))
			}
			if left := w.leftovers(5 * time.Second); len(left) > 0 {
				t.Errorf("processes live on: %v", left)
			}
		})
	}
}

// TestFaultTokensDown: a login that is due and cannot be renewed is kept as it
// is, the run ends in time with 5, and the login works when the endpoint does.
func TestFaultTokensDown(t *testing.T) {
	notShort(t)
	for name, down := range downs() {
		t.Run(name, func(t *testing.T) {
			if os.Getenv(roundsVariable) == "" && slices.Contains([]string{"says nothing", "trickles"}, name) {
				t.Skip("takes a minute; the lane runs it")
			}
			t.Parallel()
			w, tokens := loginWorld(t, -time.Hour)
			w.play(t, sayHello)
			before, err := os.ReadFile(w.home + "/auth.json")
			if err != nil {
				t.Fatal(err)
			}
			p := process{args: []string{"exec", "--json", "Do it."}, dir: w.ws, env: append(w.env(), "CODEX_REFRESH_TOKEN_URL_OVERRIDE=http://"+down(t)+"/oauth/token"), timeout: 4 * time.Minute}
			res := p.run(t)
			t.Logf("FAULT token endpoint %s | 1 | exit code %d, %s", name, res.code, res.took.Round(10*time.Millisecond))
			if !slices.Contains([]int{5, 6}, res.code) {
				t.Errorf("exit code %d after %s\n%s\n%s", res.code, res.took, excerptOf(res.stdout), excerptOf(res.stderr))
			}
			if after, err := os.ReadFile(w.home + "/auth.json"); err != nil || string(after) != string(before) {
				t.Errorf("auth.json was changed (%v)\n%s", err, after)
			}
			w.onlyWhole(t, w.home, "config.toml", []string{"auth.json", "auth.json.lock", "sessions", "thread-writer-locks"})
			// Runs do not ask again for a while; a person may.
			if next := w.nightshift(t, tokens, "", nil, "auth", "refresh"); next.code != 0 {
				t.Errorf("afterwards the login cannot be refreshed: %d\n%s", next.code, excerptOf(next.stderr))
			}
			if next := w.nightshift(t, tokens, "", nil, p.args...); next.code != 0 {
				t.Errorf("afterwards the run ends with %d\n%s", next.code, excerptOf(next.stderr))
			}
		})
	}
}
