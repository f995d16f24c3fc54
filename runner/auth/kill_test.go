package auth

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/runnertest"
)

// killScene is one way in which a new auth.json is stored.
type killScene struct {
	name string
	make func(t *testing.T, home string, login []byte) // lays out auth.json
	bar  string
	how  string
}

var killScenes = []killScene{
	{name: "rename", how: byRename, make: plainFile},
	{name: "in place", how: inPlace, make: func(t *testing.T, home string, login []byte) {
		plainFile(t, home, login)
		if err := os.Link(filepath.Join(home, fileName), filepath.Join(home, "other-name")); err != nil {
			t.Fatal(err)
		}
	}},
	{name: "journal", how: inPlace, bar: recoverySuffix, make: plainFile},
}

func plainFile(t *testing.T, home string, login []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(home, fileName), login, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestKillAtEveryStep kills a refresh before each of its steps, half-written
// files included. What the next start finds must be the old bundle or the new
// one, byte for byte; and once the new one was synced to disk, the new one.
func TestKillAtEveryStep(t *testing.T) {
	points := 0
	for _, sc := range killScenes {
		t.Run(sc.name, func(t *testing.T) {
			for at := 1; ; at++ {
				if !killOnce(t, sc, at) {
					points += at - 1
					t.Logf("%d points", at-1)
					return
				}
			}
		})
	}
	if points < 50 {
		t.Errorf("only %d points were tried", points)
	}
}

func killOnce(t *testing.T, sc killScene, at int) (killed bool) {
	tokens := runnertest.NewTokens(t)
	home := t.TempDir()
	old := tokens.Login(-time.Hour)
	sc.make(t, home, old)
	log := filepath.Join(t.TempDir(), "steps")
	r, killed := startChild(t, childSpec{Home: home, URL: tokens.URL, KillAt: at, Log: log, Bar: sc.bar}).finish(t)
	steps, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if !killed {
		if r.Class != "" || len(r.Refreshed) != 1 || r.Refreshed[0].Persisted != sc.how {
			t.Fatalf("an undisturbed refresh: %+v", r)
		}
		checkHome(t, sc, home, old, tokens, true, steps)
		return false
	}
	checkHome(t, sc, home, old, tokens, isDurable(steps), steps)
	return true
}

// TestKillWhileRecovering kills a refresh, and then the start that finishes what
// it left, at every step of that.
func TestKillWhileRecovering(t *testing.T) {
	for _, sc := range killScenes {
		t.Run(sc.name, func(t *testing.T) {
			tried := 0
			for at := 15; at < 56; at += 8 {
				for again := 1; ; again++ {
					if !killTwice(t, sc, at, again) {
						break
					}
					tried++
				}
			}
			if tried == 0 {
				t.Error("nothing was ever recovered")
			}
			t.Logf("%d points", tried)
		})
	}
}

func killTwice(t *testing.T, sc killScene, first, second int) (killed bool) {
	tokens := runnertest.NewTokens(t)
	home := t.TempDir()
	old := tokens.Login(-time.Hour)
	sc.make(t, home, old)
	log := filepath.Join(t.TempDir(), "steps")
	if _, killed = startChild(t, childSpec{Home: home, URL: tokens.URL, KillAt: first, Log: log, Bar: sc.bar}).finish(t); !killed {
		return false
	}
	steps, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	durable := isDurable(steps)
	_, killed = startChild(t, childSpec{Home: home, URL: tokens.URL, KillAt: second, Log: log, Bar: sc.bar, SkipAuth: true}).finish(t)
	all, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if killed {
		checkHome(t, sc, home, old, tokens, durable, all)
	}
	return killed
}

// isDurable tells from the steps of a killed run whether the new bundle had been
// synced to disk.
func isDurable(steps []byte) bool {
	_, after, asked := strings.Cut(string(steps), "http body")
	if !asked {
		return false
	}
	lines := strings.Split(strings.TrimSpace(after), "\n")
	for i, l := range lines {
		if strings.Contains(l, " sync ") && i < len(lines)-1 { // the last step did not happen
			return true
		}
	}
	return false
}

// checkHome starts again after a kill and looks at what there is.
func checkHome(t *testing.T, sc killScene, home string, old []byte, tokens *runnertest.Tokens, durable bool, steps []byte) {
	t.Helper()
	// The clock of a run that only reads: nothing is refreshed here.
	c, err := Load(context.Background(), Sources{
		Home: home, RefreshURL: "http://127.0.0.1:1/none",
		Provider: Provider{Name: "mock", RequiresOpenAIAuth: true},
	})
	if err != nil {
		t.Fatalf("after a kill: %v\n%s", err, steps)
	}
	got := c.login.bundle.refresh.Reveal()
	spent := tokens.Refresh() != "rt-test-0"
	switch {
	case got == "rt-test-0" && !durable:
		if b := bytes.TrimRight(c.login.bundle.raw, "\t"); !bytes.Equal(b, old) {
			t.Fatalf("the old bundle changed:\n%s\n%s", b, steps)
		}
	case spent && got == tokens.Refresh():
		checkKept(t, old, c.login.bundle.raw)
	default:
		t.Fatalf("refresh token %q; the endpoint's is %q; durable %v\n%s", got, tokens.Refresh(), durable, steps)
	}
	text, err := os.ReadFile(filepath.Join(home, fileName))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseBundle(text); err != nil {
		t.Fatalf("auth.json %v\n%s", err, steps)
	}
	if sc.name == "in place" {
		if other, err := os.ReadFile(filepath.Join(home, "other-name")); err != nil || !bytes.Equal(other, text) {
			t.Fatalf("the other name of the file was left behind (%v)\n%s", err, steps)
		}
	}
	if got != tokens.Refresh() {
		return // spent by the endpoint in the moment of the kill: no client can help
	}
	// A whole refresh after that works and cleans up.
	r := runChild(t, childSpec{Home: home, URL: tokens.URL})
	if r.Class == ClassRefreshReused && tokens.Refresh() != got {
		return // the endpoint came to the killed process's request only now
	}
	if r.Class != "" {
		t.Fatalf("the refresh after the kill: %s\n%s", r.Message, steps)
	}
	for _, n := range r.Beside {
		if strings.Contains(n, recoverySuffix) && durable {
			t.Errorf("left behind: %s\n%s", n, steps)
		}
	}
}

// checkKept tells whether what nobody changed is still there byte for byte.
func checkKept(t *testing.T, old, now []byte) {
	t.Helper()
	// A kill before the very last byte, the final line break, costs just that.
	if got, want := foreignBytes(t, now), foreignBytes(t, old); strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Fatalf("foreign bytes changed:\n%s\nwas\n%s", got, want)
	}
}

// foreignBytes is a bundle with the values that a refresh writes cut out.
func foreignBytes(t *testing.T, text []byte) string {
	t.Helper()
	top, err := parseObject(text)
	if err != nil {
		t.Fatal(err)
	}
	tokens, ok := (&fieldReader{text: text}).object(top, "tokens")
	if !ok {
		t.Fatal("no tokens")
	}
	var edits []edit
	for _, k := range []string{"id_token", "access_token", "refresh_token"} {
		edits = append(edits, edit{tokens, k, []byte("0")})
	}
	out, err := applyEdits(text, append(edits, edit{top, "last_refresh", []byte("0")}))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestKillAtRandom kills real refreshes, with no steps put into them, at random
// instants.
func TestKillAtRandom(t *testing.T) {
	for _, sc := range killScenes[:2] {
		t.Run(sc.name, func(t *testing.T) {
			for range 15 {
				tokens := runnertest.NewTokens(t)
				home, gate := t.TempDir(), filepath.Join(t.TempDir(), "go")
				old := tokens.Login(-time.Hour)
				sc.make(t, home, old)
				c := startChild(t, childSpec{Home: home, URL: tokens.URL, Gate: gate})
				awaitFile(t, gate+".ready")
				if err := os.WriteFile(gate, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				time.Sleep(rand.N(25 * time.Millisecond))
				_ = c.cmd.Process.Signal(syscall.SIGKILL)
				_ = c.cmd.Wait() // killed, or done before
				text, err := os.ReadFile(filepath.Join(home, fileName))
				if err != nil {
					t.Fatal(err)
				}
				checkHome(t, sc, home, old, tokens, false, append([]byte("random\n"), text...))
			}
		})
	}
}
