package runner

import (
	"maps"
	"slices"
	"strings"

	"github.com/nightshift-ci/nightshift/policy"
)

// NamedSecret is a secret and the name shown in its place.
type NamedSecret struct{ Name, Value string }

// ConfiguredSecrets are the values written into the configuration that must be
// masked wherever they turn up, such as in the error of a service that repeats a
// header: those whose name or form speaks of a secret in headers, parameters of
// addresses, addresses themselves, variables and arguments of servers.
func ConfiguredSecrets(c *policy.Config) []NamedSecret {
	var found secretsFound
	found.headers(c.Provider.HTTPHeaders)
	found.named(c.Provider.QueryParams)
	found.named(map[string]string{"base_url": c.Provider.BaseURL})
	found.named(c.Environment.Set)
	for _, e := range []policy.Exporter{c.OTel.Logs, c.OTel.Traces, c.OTel.Metrics} {
		found.headers(e.Headers)
		found.named(map[string]string{"endpoint": e.Endpoint})
	}
	for _, name := range slices.Sorted(maps.Keys(c.MCPServers)) {
		s := c.MCPServers[name]
		found.headers(s.HTTPHeaders)
		found.named(s.Env)
		found.named(map[string]string{"url": s.URL})
		found.arguments(s.Args)
	}
	return found
}

type secretsFound []NamedSecret

func (f *secretsFound) named(values map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if secret := policy.SecretIn(name, values[name]); looksSecret(secret) {
			*f = append(*f, NamedSecret{name, secret})
		}
	}
}

// headers knows besides that a credential is the last word of its header.
func (f *secretsFound) headers(values map[string]string) {
	f.named(values)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if lower := strings.ToLower(name); !strings.Contains(lower, "auth") && !strings.Contains(lower, "cookie") {
			continue
		}
		for _, secret := range headerSecrets(name + ": " + values[name]) {
			if looksSecret(secret) {
				*f = append(*f, NamedSecret{name, secret})
			}
		}
	}
}

// arguments reads "--api-key=X" and "--api-key X".
func (f *secretsFound) arguments(args []string) {
	for i, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !strings.HasPrefix(arg, "-") {
			name, value, ok = "argument", arg, true
			if i > 0 && strings.HasPrefix(args[i-1], "-") && !strings.Contains(args[i-1], "=") {
				name = args[i-1]
			}
		}
		if ok {
			f.named(map[string]string{strings.ReplaceAll(strings.TrimLeft(name, "-"), "-", "_"): value})
		}
	}
}
