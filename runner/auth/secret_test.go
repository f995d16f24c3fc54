package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/runnertest"
)

// TestSecretDoesNotPrint tries every verb and encoder, also where fmt calls no
// methods.
func TestSecretDoesNotPrint(t *testing.T) {
	const canary = "canary-7f3a"
	s := NewSecret(canary)
	type holder struct {
		Public  Secret
		private Secret
		deep    struct{ list []Secret }
		ptr     *Secret
		m       map[string]Secret
	}
	h := holder{Public: s, private: s, ptr: &s, m: map[string]Secret{"k": s}}
	h.deep.list = []Secret{s}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%p", "%t", "%c"} {
		for _, v := range []any{s, &s, h, &h, []Secret{s}, []any{h, fmt.Errorf("wrapped: %v", s)}} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
	}
	fmt.Fprintln(&out, s, h, &h)
	if b, err := json.Marshal(h); err != nil {
		t.Error(err)
	} else {
		out.Write(b)
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "s", s, "h", h)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "s", s, "h", h)
	for _, form := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary)} {
		if strings.Contains(out.String(), form) {
			t.Errorf("printed as %q in %s", form, out.String())
		}
	}
	if s.Reveal() != canary || NewSecret("").Reveal() != "" || !NewSecret("").Empty() {
		t.Error("Reveal")
	}
}

// TestNothingTells prints everything that a credential consists of, says and
// leaves on disk, over a whole life with refreshes, failures and a write-back,
// and looks for the tokens.
func TestNothingTells(t *testing.T) {
	r := newRig(t, -time.Hour)
	r.src.APIKeyStdin = ""
	r.src.Provider.BearerToken = "" // set below, where it is the credential
	o := &outside{down: 1}
	r.src.Writeback = o.put
	r.tokens.Then(
		runnertest.TokenAnswer{Status: 500, Body: "rt-test-0 eyJhbGciOi"},
		runnertest.TokenAnswer{Raw: "rt-test-0\r\n\r\n"},
		runnertest.TokenAnswer{Honest: true},
		refusal(401, "refresh_token_reused"),
	)
	var out bytes.Buffer
	tell := func(v any) {
		fmt.Fprintf(&out, "%v %+v %#v %s\n", v, v, v, v)
		if e, ok := v.(*Error); ok {
			fmt.Fprintln(&out, e.Message, e.Hint(), e.Unwrap())
		}
	}
	c := r.load()
	secrets := c.Secrets()
	if _, err := authorize(c); err != nil {
		t.Fatal(err)
	}
	tell(c.Refused(context.Background()))
	secrets = append(secrets, c.Secrets()...)
	tell(c)
	tell(r.src)
	tell(r.src.Provider)
	tell(c.login)
	tell(c.choice)
	tell(c.Summary())
	tell(Inspect(context.Background(), r.src))
	tell(c.Close(context.Background()))
	r.mu.Lock()
	for _, e := range r.events {
		tell(e)
		if b, err := json.Marshal(e); err != nil {
			t.Error(err)
		} else {
			out.Write(b)
		}
	}
	masked := strings.Join(r.masked, "\n")
	r.mu.Unlock()
	if len(secrets) < 6 {
		t.Fatalf("only %d secrets are known", len(secrets))
	}
	for _, s := range secrets {
		if strings.Contains(out.String(), s) {
			t.Errorf("%.12s… is told", s)
		}
		if !strings.Contains(masked, s) {
			t.Errorf("%.12s… was not masked", s)
		}
	}
	entries, err := os.ReadDir(r.src.Home)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == fileName {
			continue
		}
		b, err := os.ReadFile(filepath.Join(r.src.Home, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range secrets {
			if bytes.Contains(b, []byte(s)) {
				t.Errorf("%s holds a token", e.Name())
			}
		}
	}
	fmt.Fprintf(&out, "%v %+v %#v", Sources{APIKeyStdin: "sk-canary"}, Provider{BearerToken: "sk-canary"}, &Sources{Provider: Provider{BearerToken: "sk-canary"}})
	if strings.Contains(out.String(), "sk-canary") {
		t.Error("the sources tell their keys")
	}
}
