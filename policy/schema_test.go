package policy

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestSampleConfiguration: every documented setting is known.
func TestSampleConfiguration(t *testing.T) {
	data, err := os.ReadFile("testdata/sample.toml")
	if err != nil {
		t.Fatal(err)
	}
	if errs := Lint("config", "config.toml", data); errs != nil {
		t.Fatalf("mistakes in the sample: %v", &Errors{List: errs})
	}
	p := load(
		t,
		map[string]string{
			"home/config.toml":          string(data),
			"home/instructions.txt":     "Work.",
			"home/compact.txt":          "Sum up.",
			"home/agents/reviewer.toml": "model = \"small\"",
			"home/certs/ca.pem":         "x",
			"home/certs/client.pem":     "x",
			"home/certs/key.pem":        "x",
		},
		func(s *Sources) {
			s.Strict = true
			s.LookupEnv = func(name string) (string, bool) { return "value of " + name, true }
		},
	)
	c := p.Config()
	if c.OTel.Logs.Headers["x-otlp-api-key"] != "value of OTLP_KEY" || c.OTel.Logs.CACertificate != "/home/u/.codex/certs/ca.pem" {
		t.Errorf("exporter: %+v", c.OTel.Logs)
	}
	if c.Agents.Roles["reviewer"].Model != "small" || c.Instructions != "Work." || c.CompactPrompt != "Sum up." {
		t.Errorf("roles %+v, instructions %q, compact prompt %q", c.Agents.Roles, c.Instructions, c.CompactPrompt)
	}
	if s := c.MCPServers["docs"]; !slices.Equal(s.EnvVars, []string{"LOCAL_TOKEN", "REMOTE_TOKEN"}) || !s.Required {
		t.Errorf("server: %+v", s)
	}
	unused := 0
	for _, n := range p.Notices() {
		if n.Class == "unused_key" {
			unused++
		}
	}
	if unused == 0 {
		t.Error("settings without effect are not told")
	}
	for _, name := range []string{"GITHUB_TOKEN", "AUTH_ENV", "OTLP_KEY"} {
		if !slices.Contains(p.SecretVariables(), name) {
			t.Errorf("%s is not among the secrets %q", name, p.SecretVariables())
		}
	}
}

// TestEveryKeyIsDocumented: the tables of keys are complete and sound.
func TestEveryKeyIsDocumented(t *testing.T) {
	for name, keys := range map[string][]key{"config": configKeys(), "profile": profileKeys(), "requirements": requirementKeys()} {
		seen := map[string]bool{}
		for _, k := range keys {
			if k.doc == "" || k.typ == "" {
				t.Errorf("%s: %s has no text or no type", name, k.path)
			}
			if seen[k.path] {
				t.Errorf("%s: %s is listed twice", name, k.path)
			}
			seen[k.path] = true
			if m := wrongType(&node{kind: kString, text: "\x00"}, k.typ); strings.Contains(m, "unknown type") {
				t.Errorf("%s: %s: %s", name, k.path, m)
			}
		}
	}
}

// TestSchema: the published schemas are valid, accept the sample and refuse what
// Load refuses.
func TestSchema(t *testing.T) {
	compile := func(name string) *jsonschema.Schema {
		t.Helper()
		data, err := Schema(name)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource(name+".json", doc); err != nil {
			t.Fatal(err)
		}
		s, err := c.Compile(name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	validate := func(s *jsonschema.Schema, text string) error {
		t.Helper()
		var v map[string]any
		if err := toml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		return s.Validate(doc)
	}
	sample, err := os.ReadFile("testdata/sample.toml")
	if err != nil {
		t.Fatal(err)
	}
	config, requirements := compile("config"), compile("requirements")
	if err := validate(config, string(sample)); err != nil {
		t.Errorf("the sample: %v", err)
	}
	for text, ok := range map[string]bool{
		"model = \"x\"": true, "modle = \"x\"": false, "model = 3": false, "sandbox_mode = \"x\"": false, "[limits]\nmax_wall_time = \"10m\"": true, "[limits]\nmax_wall_time = \"soon\"": false,
		"[otel]\nexporter = \"none\"": true, "[profiles.a]\nmodel = \"x\"": true, "[sandbox]\nmemory = \"1GiB\"": true, "approval_policy = \"never\"": true, "[hooks]\nStop = []": true, "[hooks]\nNope = []": false,
	} {
		if err := validate(config, text); (err == nil) != ok {
			t.Errorf("config %q: %v", text, err)
		}
	}
	for text, ok := range map[string]bool{
		"allowed_sandbox_modes = [\"read-only\"]": true, "allowed_sandbox_mode = []": false, "allowed_approval_policies = []": false, "[rules]\nprefix_rules = [{ pattern = [{ token = \"a\" }], decision = \"forbidden\" }]": true,
		"[limits]\nmax_turns = 3": true, "[mcp_servers.a.identity]\ncommand = \"x\"": true,
	} {
		if err := validate(requirements, text); (err == nil) != ok {
			t.Errorf("requirements %q: %v", text, err)
		}
	}
	if _, err := Schema("other"); err == nil {
		t.Error("a schema that does not exist")
	}
}
