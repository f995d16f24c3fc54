package main

import (
	"fmt"
	"net/http"
	"net/url"
	goruntime "runtime"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

// originator is the "originator" header, which tells the service what program asks.
func (rt *runtime) originator() string {
	if o := rt.getenv("CODEX_INTERNAL_ORIGINATOR_OVERRIDE"); o != "" {
		return o
	}
	return "codex_exec"
}

func (rt *runtime) userAgent() string {
	t := rt.getenv("TERM")
	if t == "" {
		t = "unknown"
	}
	return fmt.Sprintf("%s/%s (Linux; %s) %s (nightshift; %s)", rt.originator(), version, goruntime.GOARCH, t, version)
}

// proxy follows the usual variables of the environment that the process was
// given.
func (rt *runtime) proxy() func(*http.Request) (*url.URL, error) {
	first := func(names ...string) string {
		for _, n := range names {
			if v := rt.getenv(n); v != "" {
				return v
			}
		}
		return ""
	}
	cfg := &httpproxy.Config{HTTPProxy: first("HTTP_PROXY", "http_proxy"), HTTPSProxy: first("HTTPS_PROXY", "https_proxy"),
		NoProxy: first("NO_PROXY", "no_proxy")}
	find := cfg.ProxyFunc()
	return func(r *http.Request) (*url.URL, error) { return find(r.URL) }
}

// requester is who asked for the run, by the variables of CI systems.
func (rt *runtime) requester() string {
	for _, n := range []string{"GITHUB_TRIGGERING_ACTOR", "GITHUB_ACTOR", "GITLAB_USER_LOGIN", "BUILDKITE_BUILD_CREATOR", "CIRCLE_USERNAME", "BUILD_REQUESTEDFOR", "BUILD_USER"} {
		if v := rt.getenv(n); v != "" {
			return v
		}
	}
	return ""
}

// job names the CI job, as a URL where there is one.
func (rt *runtime) job() string {
	if repo, id := rt.getenv("GITHUB_REPOSITORY"), rt.getenv("GITHUB_RUN_ID"); repo != "" && id != "" {
		return strings.TrimRight(rt.getenv("GITHUB_SERVER_URL"), "/") + "/" + repo + "/actions/runs/" + id
	}
	for _, n := range []string{"CI_JOB_URL", "BUILDKITE_BUILD_URL", "CIRCLE_BUILD_URL", "BUILD_URL", "SLURM_JOB_ID"} {
		if v := rt.getenv(n); v != "" {
			return v
		}
	}
	return ""
}
