package main

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// networked runs the program against base, in a world whose model server
// answers once.
func networked(t *testing.T, w *world, base string, env ...string) result {
	t.Helper()
	if err := w.server.Load([]byte(done)); err != nil {
		t.Fatal(err)
	}
	config := "model = \"m\"\nmodel_provider = \"x\"\n[model_providers.x]\nname = \"x\"\nenv_key = \"KEY\"\nrequest_max_retries = 0\nstream_max_retries = 0\n"
	w.write(t, w.home+"/config.toml", fmt.Appendf(nil, "%sbase_url = %q\n", config, base), 0o644)
	return process{args: []string{"exec", "--json", "--skip-git-repo-check", "x"}, dir: w.ws, env: append(append(w.env(), "KEY=sk-made-up-0000"), env...), timeout: time.Minute}.run(t)
}

// forward passes requests on to the world's model server.
func forward(t *testing.T, w *world) http.Handler {
	t.Helper()
	u, err := url.Parse(w.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	// Not the transport of all: servers of other tests close its connections when they end.
	own := &http.Transport{}
	t.Cleanup(own.CloseIdleConnections)
	return &httputil.ReverseProxy{Transport: own, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }}
}

// The file of authorities that the reference's variable names counts, before
// the usual one; one that is of no use is told.
func TestAuthorities(t *testing.T) {
	w := newWorld(t)
	ts := httptest.NewTLSServer(forward(t, w))
	defer ts.Close()
	ours, empty, missing := filepath.Join(w.base, "ours.pem"), filepath.Join(w.base, "empty.pem"), filepath.Join(w.base, "missing.pem")
	w.write(t, ours, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ts.Certificate().Raw}), 0o644)
	w.write(t, empty, nil, 0o644)
	for _, c := range []struct {
		env  []string
		code int
		says string
	}{
		{nil, 6, "unknown authority"},
		{[]string{"CODEX_CA_CERTIFICATE=" + ours}, 0, ""},
		{[]string{"SSL_CERT_FILE=" + ours}, 0, ""},
		{[]string{"CODEX_CA_CERTIFICATE=" + ours, "SSL_CERT_FILE=" + empty}, 0, ""},
		{[]string{"CODEX_CA_CERTIFICATE=", "SSL_CERT_FILE=" + ours}, 0, ""},
		{[]string{"CODEX_CA_CERTIFICATE=" + missing}, 6, "CODEX_CA_CERTIFICATE names " + missing + ", which cannot be read"},
		{[]string{"SSL_CERT_FILE=" + empty}, 6, "SSL_CERT_FILE names " + empty + ", which holds no certificate"},
	} {
		res := networked(t, w, ts.URL+"/v1", c.env...)
		if res.code != c.code || !strings.Contains(string(res.stderr), c.says) || c.code == 0 && strings.Contains(string(res.stderr), "note:") {
			t.Errorf("%v: exit code %d\n%s", c.env, res.code, res.stderr)
		}
	}
}

// ALL_PROXY counts where the variable for the scheme is not set.
func TestAllProxy(t *testing.T) {
	w := newWorld(t)
	proxy := httptest.NewServer(forward(t, w))
	defer proxy.Close()
	nowhere := "http://127.0.0.1:9"
	for _, c := range []struct {
		env  []string
		code int
	}{
		{[]string{"ALL_PROXY=" + proxy.URL}, 0},
		{[]string{"all_proxy=" + proxy.URL}, 0},
		{[]string{"HTTP_PROXY=" + proxy.URL, "ALL_PROXY=" + nowhere}, 0},
		{[]string{"HTTP_PROXY=" + nowhere, "ALL_PROXY=" + proxy.URL}, 6},
		{[]string{"ALL_PROXY=" + proxy.URL, "NO_PROXY=.invalid"}, 6},
	} {
		if res := networked(t, w, "http://model.invalid/v1", c.env...); res.code != c.code {
			t.Errorf("%v: exit code %d\n%s", c.env, res.code, res.stderr)
		}
	}
}

// An address that no request can be sent to is a mistake of the configuration.
func TestUnusableAddress(t *testing.T) {
	w := newWorld(t)
	if res := networked(t, w, "localhost:8080/v1"); res.code != 2 || !strings.Contains(string(res.stderr), "requests go to {base_url}/responses") {
		t.Errorf("exit code %d\n%s", res.code, res.stderr)
	}
}
