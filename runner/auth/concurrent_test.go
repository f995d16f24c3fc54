package auth

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestManyProcesses starts 32 runs on one auth.json with a token endpoint that
// takes each refresh token once. One of them refreshes, all of them succeed.
func TestManyProcesses(t *testing.T) {
	const n = 32
	for _, sc := range []struct {
		name string
		life time.Duration
		// revoked: the access token looks good and the service refuses it.
		revoked bool
		link    bool // half of them know the file by another name
	}{
		{name: "run out", life: -time.Hour},
		{name: "refused by the service", life: time.Hour, revoked: true},
		{name: "two homes, one file", life: -time.Hour, link: true},
	} {
		t.Run(sc.name, func(t *testing.T) {
			r := newRig(t, sc.life)
			r.tokens.Delay(100 * time.Millisecond)
			if sc.revoked {
				r.tokens.Revoke()
			}
			model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if !r.tokens.Valid(req) {
					w.WriteHeader(http.StatusUnauthorized)
				}
			}))
			defer model.Close()
			homes := []string{r.src.Home}
			if sc.link {
				other := t.TempDir()
				if err := os.Symlink(r.path(), filepath.Join(other, fileName)); err != nil {
					t.Fatal(err)
				}
				homes = append(homes, other)
			}
			gate := filepath.Join(t.TempDir(), "go")
			var all []*child
			for i := range n {
				all = append(all, startChild(t, childSpec{Home: homes[i%len(homes)], URL: r.tokens.URL, Gate: gate, Model: model.URL}))
			}
			if err := os.WriteFile(gate, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			refreshed := 0
			for i, c := range all {
				got, _ := c.finish(t)
				if got.Class != "" || got.Status != http.StatusOK {
					t.Errorf("run %d: %s %s, HTTP %d", i, got.Class, got.Message, got.Status)
				}
				for _, e := range got.Refreshed {
					if e.Outcome == "refreshed" {
						refreshed++
					}
				}
			}
			if refreshed != 1 || r.tokens.Refreshes() != 1 || len(r.tokens.Requests()) != 1 {
				t.Errorf("%d runs refreshed, %d rotations, %d requests; want one of each", refreshed, r.tokens.Refreshes(), len(r.tokens.Requests()))
			}
		})
	}
}

// TestManyProcessesOneDeadLogin shows that a login that is gone is asked about
// once, and not by every job of a machine.
func TestManyProcessesOneDeadLogin(t *testing.T) {
	r := newRig(t, -time.Hour)
	r.tokens.Always(refusal(401, "refresh_token_expired"))
	gate := filepath.Join(t.TempDir(), "go")
	var all []*child
	for range 16 {
		all = append(all, startChild(t, childSpec{Home: r.src.Home, URL: r.tokens.URL, Gate: gate}))
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if got, _ := c.finish(t); got.Class != ClassRefreshExpired {
			t.Errorf("%s %s", got.Class, got.Message)
		}
	}
	if n := len(r.tokens.Requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// TestDeadHolder shows that the lock of a killed process is free.
func TestDeadHolder(t *testing.T) {
	r := newRig(t, -time.Hour)
	r.tokens.Delay(time.Hour)
	c := startChild(t, childSpec{Home: r.src.Home, URL: r.tokens.URL})
	for range 1000 {
		if len(r.tokens.Requests()) > 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := c.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, killed := c.finish(t); !killed {
		t.Fatal("not killed")
	}
	r.tokens.Delay(0)
	if _, err := authorize(r.load()); err != nil {
		t.Fatal(err)
	}
}

// TestStoppedHolder shows that a wait for the lock ends, and spends nothing.
func TestStoppedHolder(t *testing.T) {
	r := newRig(t, -time.Hour)
	r.tokens.Delay(time.Hour)
	c := startChild(t, childSpec{Home: r.src.Home, URL: r.tokens.URL})
	defer func() {
		_ = c.cmd.Process.Signal(syscall.SIGKILL)
		_, _ = c.finish(t)
	}()
	for range 1000 {
		if len(r.tokens.Requests()) > 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.src.bounds.lockWait = 100 * time.Millisecond
	_, err := authorize(r.load())
	if got := classOf(t, err); got != ClassLockTimeout {
		t.Errorf("%s %v", got, err)
	}
	if n := len(r.tokens.Requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// TestOneProcessManyRequests shows that the requests of one run share a refresh,
// before their time and after a 401.
func TestOneProcessManyRequests(t *testing.T) {
	for _, life := range []time.Duration{-time.Hour, time.Hour} {
		r := newRig(t, life)
		r.tokens.Delay(20 * time.Millisecond)
		if life > 0 {
			r.tokens.Revoke()
		}
		c := r.load()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for range 3 {
					req, err := http.NewRequest(http.MethodPost, "http://127.0.0.1:1/", nil)
					if err != nil {
						t.Error(err)
						return
					}
					if err := c.Authorize(req); err != nil {
						t.Error(err)
						return
					}
					if r.tokens.Valid(req) {
						return
					}
					if err := c.Refused(context.Background()); err != nil {
						t.Error(err)
						return
					}
				}
				t.Error("never got a good token")
			})
		}
		wg.Wait()
		if n := r.tokens.Refreshes(); n != 1 {
			t.Errorf("life %s: %d refreshes", life, n)
		}
	}
}
