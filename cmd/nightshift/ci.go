package main

import (
	"fmt"
	goruntime "runtime"
	"strings"
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
