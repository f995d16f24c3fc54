package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"os"

	"golang.org/x/net/http/httpproxy"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// proxy follows the usual variables of the environment that the process was
// given; ALL_PROXY counts where the one for the scheme is not set.
func (rt *runtime) proxy() func(*http.Request) (*url.URL, error) {
	first := func(names ...string) string {
		for _, n := range names {
			if v := rt.getenv(n); v != "" {
				return v
			}
		}
		return ""
	}
	cfg := &httpproxy.Config{HTTPProxy: first("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"),
		HTTPSProxy: first("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"), NoProxy: first("NO_PROXY", "no_proxy")}
	find := cfg.ProxyFunc()
	return func(r *http.Request) (*url.URL, error) { return find(r.URL) }
}

// The variables that name a file of certificate authorities; the reference's
// own comes first.
const (
	ownAuthorities   = "CODEX_CA_CERTIFICATE"
	usualAuthorities = "SSL_CERT_FILE"
)

// trustAuthorities lets crypto/x509, which knows the usual variable only, read
// the file that the reference's names. Commands get the environment as it was.
func (rt *runtime) trustAuthorities() error {
	if file := rt.getenv(ownAuthorities); file != "" {
		return os.Setenv(usualAuthorities, file)
	}
	return nil
}

// authorityNotices tells of a file of authorities that is of no use. All that a
// connection says later is that the service's certificate is unknown.
func (rt *runtime) authorityNotices() []event.Notice {
	name, file := ownAuthorities, rt.getenv(ownAuthorities)
	if file == "" {
		name, file = usualAuthorities, rt.getenv(usualAuthorities)
	}
	if file == "" {
		return nil
	}
	why := "which holds no certificate in PEM form"
	text, err := rt.readInput(rt.abs(file), maxAuthorities)
	switch {
	case err != nil:
		why = "which cannot be read: " + err.Error()
	case bytes.Contains(text, []byte("-----BEGIN CERTIFICATE-----")):
		return nil
	}
	return []event.Notice{{Class: "authorities", Message: fmt.Sprintf("%s names %s, %s", name, file, why),
		Hint: "without it the service's certificate may be refused; write the authority's certificate there, or unset " + name}}
}

// maxAuthorities bounds a file of authorities, in bytes; the usual ones have
// some 200 kB.
const maxAuthorities = 16 << 20
