package runner

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nightshift-ci/nightshift/policy"
)

// TestConfiguredSecrets: what is written into the configuration and speaks of a
// secret is masked; addresses, versions and settings stay readable.
func TestConfiguredSecrets(t *testing.T) {
	t.Parallel()
	c := policy.Config{
		Provider: policy.Provider{
			BaseURL: "https://user:pw-fake-12345@models.example.com/v1",
			HTTPHeaders: map[string]string{"api-key": "hdr-fake-1", "Authorization": "Bearer bearer-fake-2", "x-key-mode": "fast", "x-team": "platform-7", "x-tenant": "R4nd0mFake99Value10", "OpenAI-Beta": "responses=v1",
				"x-release": "team-platform-release-2026"},
			QueryParams: map[string]string{"key": "query-fake-3", "api-version": "2025-04-01-preview", "sig": "sig-fake-11"},
		},
		Environment: policy.EnvironmentPolicy{Set: map[string]string{"DEPLOY_TOKEN": "set-fake-4", "MODE": "ci-build-9"}},
		OTel:        policy.OTel{Traces: policy.Exporter{Endpoint: "https://otel.example.com", Headers: map[string]string{"x-otlp-api-key": "otel-fake-5"}}},
		MCPServers: map[string]policy.MCPServer{
			"tool": {Args: []string{"-y", "pkg-name-1", "--api-key", "arg-fake-6", "--token=arg-fake-7", "--verbose"}, Env: map[string]string{"API_TOKEN": "env-fake-8"}},
			"far":  {URL: "https://mcp.example.com/x?code=code-fake-12&page=chapter-13", HTTPHeaders: map[string]string{"X-Auth": "mcp-fake-9"}},
		},
	}
	got := map[string]bool{}
	for _, s := range ConfiguredSecrets(&c) {
		got[s.Value] = true
	}
	want := map[string]bool{}
	for _, v := range []string{"pw-fake-12345", "hdr-fake-1", "bearer-fake-2", "query-fake-3", "set-fake-4", "otel-fake-5", "arg-fake-6", "arg-fake-7", "env-fake-8", "mcp-fake-9",
		"R4nd0mFake99Value10", "sig-fake-11", "code-fake-12"} {
		want[v] = true
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
