package runner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseSchema(t *testing.T) {
	for _, c := range []struct{ schema, want string }{
		{`{`, "s.json is not valid JSON: 1:"}, {"{\n  \"a\": ,\n}", "2:8"}, {`7`, "not a JSON schema"}, {`"x"`, "not a JSON schema"}, {`[]`, "not a JSON schema"},
		{`{"type":"strin"}`, "not a valid JSON schema"}, {`{"$ref":"file:///etc/passwd"}`, "not a valid JSON schema"},
		{`{"$ref":"https://example.com/x"}`, "not a valid JSON schema"}, {`{"$ref":"other.json"}`, "not a valid JSON schema"},
		{`{"pattern":"("}`, "not a valid JSON schema"}, {`{"minimum":1e99999}`, "out of range"}, {``, "not valid JSON"}, {`{} {}`, "not valid JSON"},
		{`{}`, ""}, {`true`, ""}, {`{"type":"object"}`, ""}, {`{"$ref":"#/$defs/a","$defs":{"a":{"type":"string"}}}`, ""},
	} {
		_, err := ParseSchema("s.json", []byte(c.schema))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.schema, err, c.want)
		}
	}
}

func TestUnsupportedKeywords(t *testing.T) {
	s, err := ParseSchema("s.json", []byte(`{"allOf":[{"not":{}}],"properties":{"not":{"oneOf":[true]},"allOf":{}},"enum":[{"not":1}],"$defs":{"if":{"minProperties":1}}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/$defs/if/minProperties", "/allOf", "/allOf/0/not", "/properties/not/oneOf"}
	if !slices.Equal(s.Unsupported, want) {
		t.Errorf("%v, want %v", s.Unsupported, want)
	}
}

// TestExtremeAnswers: no answer, however odd, takes long or breaks the check.
func TestExtremeAnswers(t *testing.T) {
	for _, schema := range []string{`{"properties":{"n":{"type":"integer"}}}`, `{"properties":{"n":{"minimum":1}}}`, `{"properties":{"n":{"enum":[1]}}}`,
		`{"properties":{"n":{"multipleOf":0.1}}}`, `{"uniqueItems":true}`, `{"$defs":{"a":{"properties":{"n":{"$ref":"#/$defs/a"}}}},"$ref":"#/$defs/a"}`} {
		s, err := ParseSchema("s.json", []byte(schema))
		if err != nil {
			t.Fatal(err)
		}
		for name, answer := range map[string]string{
			"exponent": `{"n":1e9999}`, "great exponent": `{"n":1e999999999}`, "exponent of exponents": `{"n":1e99999999999999999999}`, "tiny": `{"n":-1e-999999999}`,
			"digits": `{"n":` + strings.Repeat("9", 1<<20) + `}`, "in a list": `{"n":[[1E+9999999]]}`, "alone": `1e9999999`,
			"deep": strings.Repeat("[", 9000) + strings.Repeat("]", 9000), "deeper": strings.Repeat("[", 200_000), "bad UTF-8": "{\"n\":\"\xff\xfe\"}",
			"deep names": strings.Repeat(`{"n":`, 9000) + "1" + strings.Repeat("}", 9000), "twice": `{"n":1,"n":"x"}`,
		} {
			begin := time.Now()
			problems := s.Check([]byte(answer))
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("%s, %s: it took %s", schema, name, took)
			}
			if strings.Contains(answer, "99999") && !strings.Contains(fmt.Sprint(problems), "out of range") {
				t.Errorf("%s, %s: %.200q", schema, name, problems)
			}
			for _, p := range problems {
				if len(p) > 1<<20 {
					t.Errorf("%s, %s: a problem of %d bytes", schema, name, len(p))
				}
			}
		}
	}
}
