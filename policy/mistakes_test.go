package policy

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// wrongValues are values of every type; each is wrong for most keys.
var wrongValues = []string{`"zz"`, `7`, `-1`, `true`, `[7]`, `["zz"]`, `{}`, `1979-05-27`}

// TestOneMistakeOneError: a value that is wrong is told once, whatever else is
// made of it later.
func TestOneMistakeOneError(t *testing.T) {
	files := map[string][]key{"home/config.toml": configKeys(), "etc/requirements.toml": requirementKeys()}
	m := newMachine(t)
	for file, keys := range files {
		for _, k := range keys {
			for _, value := range wrongValues {
				path := strings.ReplaceAll(strings.ReplaceAll(k.path, "*[]", "PreToolUse"), "*", "zz")
				text := withCompanions(file, path) + path + " = " + value + "\n"
				at := m.write(file, text)
				_, err := Load(m.sources())
				var all *Errors
				if errors.As(err, &all) && len(all.List) > 1 {
					t.Errorf("%s:\n%s\n%v", file, text, all)
				}
				if err := os.Remove(at); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// companions are keys without which a table is a mistake by itself.
var companions = []struct{ file, below, key, value, not string }{
	{"home", "mcp_servers.zz", "mcp_servers.zz.command", `"true"`, ".url"},
	{"etc", "mcp_servers.zz.identity", "mcp_servers.zz.identity.command", `"true"`, ".url"},
	{"home", "model_providers.zz", "model_provider", `"zz"`, ""},
	{"home", "model_providers.zz", "model_providers.zz.base_url", `"http://zz.example"`, ""},
	{"", "otel.exporter.otlp-http", "otel.exporter.otlp-http.endpoint", `"http://zz.example"`, ""},
	{"", "otel.exporter.otlp-http", "otel.exporter.otlp-http.protocol", `"json"`, ""},
	{"", "otel.exporter.otlp-grpc", "otel.exporter.otlp-grpc.endpoint", `"http://zz.example"`, ""},
	{"", "otel.trace_exporter.otlp-http", "otel.trace_exporter.otlp-http.endpoint", `"http://zz.example"`, ""},
	{"", "otel.trace_exporter.otlp-http", "otel.trace_exporter.otlp-http.protocol", `"json"`, ""},
	{"", "otel.trace_exporter.otlp-grpc", "otel.trace_exporter.otlp-grpc.endpoint", `"http://zz.example"`, ""},
	{"", "otel.metrics_exporter.otlp-http", "otel.metrics_exporter.otlp-http.endpoint", `"http://zz.example"`, ""},
	{"", "otel.metrics_exporter.otlp-http", "otel.metrics_exporter.otlp-http.protocol", `"json"`, ""},
	{"", "otel.metrics_exporter.otlp-grpc", "otel.metrics_exporter.otlp-grpc.endpoint", `"http://zz.example"`, ""},
}

// withCompanions is what must stand beside a key.
func withCompanions(file, path string) string {
	var b strings.Builder
	for _, c := range companions {
		if strings.HasPrefix(file, c.file) && strings.HasPrefix(path, c.below+".") && !strings.HasPrefix(c.key, path) && !(c.not != "" && strings.HasSuffix(path, c.not)) {
			fmt.Fprintf(&b, "%s = %s\n", c.key, c.value)
		}
	}
	return b.String()
}
