package runner

import (
	"maps"
	"net/url"
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
	found.parameters(c.Provider.QueryParams)
	found.address("base_url", c.Provider.BaseURL)
	found.named(c.Environment.Set)
	for _, e := range []policy.Exporter{c.OTel.Logs, c.OTel.Traces, c.OTel.Metrics} {
		found.headers(e.Headers)
		found.address("endpoint", e.Endpoint)
	}
	for _, name := range slices.Sorted(maps.Keys(c.MCPServers)) {
		s := c.MCPServers[name]
		found.headers(s.HTTPHeaders)
		found.named(s.Env)
		found.address("url", s.URL)
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

// address finds the password and the parameters of a URL.
func (f *secretsFound) address(name, text string) {
	f.named(map[string]string{name: text})
	u, err := url.Parse(text)
	if err != nil {
		return
	}
	query, parameters := u.Query(), map[string]string{}
	for key := range query {
		parameters[key] = query.Get(key)
	}
	f.parameters(parameters)
}

// parameters knows the short names that signatures and keys have in addresses.
func (f *secretsFound) parameters(values map[string]string) {
	f.named(values)
	f.drawn(values)
	for _, name := range []string{"sig", "code", "signature", "auth"} {
		if value := values[name]; looksSecret(value) {
			*f = append(*f, NamedSecret{name, value})
		}
	}
}

// drawn finds values that look as if they were drawn by lot, whatever their name
// is: long, of one piece, with letters of both cases and digits, or very many
// digits. Names of machines, versions and media types are not.
func (f *secretsFound) drawn(values map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := strings.TrimSpace(values[name])
		if len(value) < 16 || strings.ContainsAny(value, " \t/;,:@<>(){}\"'") {
			continue
		}
		digits := bytesIn(value, '0', '9')
		if digits >= 4 && (bytesIn(value, 'A', 'Z') >= 2 && bytesIn(value, 'a', 'z') >= 2 || len(value) >= 20 && digits*3 >= len(value)) {
			*f = append(*f, NamedSecret{name, value})
		}
	}
}

// bytesIn is how many bytes of text lie in a range.
func bytesIn(text string, from, to byte) (n int) {
	for i := range len(text) {
		if text[i] >= from && text[i] <= to {
			n++
		}
	}
	return n
}

// headers knows besides that a credential is the last word of its header.
func (f *secretsFound) headers(values map[string]string) {
	f.named(values)
	f.drawn(values)
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
