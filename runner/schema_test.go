package runner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func TestParseSchema(t *testing.T) {
	for _, c := range []struct{ schema, want string }{
		{`{`, "s.json is not valid JSON: 1:"}, {"{\n  \"a\": ,\n}", "2:8"}, {`7`, "not a JSON schema"}, {`"x"`, "not a JSON schema"}, {`[]`, "not a JSON schema"},
		{`{"type":"strin"}`, "not a valid JSON schema"}, {`{"$ref":"file:///etc/passwd"}`, "not a valid JSON schema"},
		{`{"$ref":"https://example.com/x"}`, "not a valid JSON schema"}, {`{"$ref":"other.json"}`, "not a valid JSON schema"},
		{`{"pattern":"("}`, "not a valid JSON schema"}, {`{"minimum":1e99999}`, "out of range"}, {``, "not valid JSON"}, {`{} {}`, "not valid JSON"},
		{`{"$ref":"#"}`, "leads back to itself"}, {`{"anyOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"not":{"$ref":"#/$defs/b"}},"b":{"$ref":"#/anyOf/0"}}}`, "leads back"},
		{`{"properties":{"a":{"$defs":{"x":{"$ref":"#/properties/a/$defs/x"}}}}}`, "leads back"}, {`{"$ref":"#/$defs/none"}`, "nothing is at"},
		{`{"properties":{"a":{"type":"strin"}}}`, "/properties/a/type"}, {`{"multipleOf":0}`, "not above zero"}, {`{"minLength":-1}`, "not a count"},
		{`{"exclusiveMinimum":true}`, "/exclusiveMinimum"}, {`{"$schema":"https://example.com/mine"}`, "not a draft"}, {`{"enum":7}`, "/enum"}, {`{"required":"a"}`, "/required"},
		{`{"$dynamicRef":"#a"}`, "only $ref"}, {`{"properties":7}`, "/properties"}, {`{"items":7}`, "not a valid"}, {`{"properties":{"a":[]}}`, "not a valid"},
		{`{"$ref":"#/$defs/n","$defs":{"n":{"properties":{"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}}}}}`, ""},
		{`{"anyOf":[{"properties":{"c":{"$ref":"#"}}}]}`, ""}, {`{"$schema":"http://json-schema.org/draft-04/schema#","type":"object"}`, ""},
		{`{"$ref":"#/$defs/a~1b%25c","$defs":{"a/b%c":{"type":"string"}}}`, ""}, {`{"items":[{"type":"string"}],"$schema":"http://json-schema.org/draft-07/schema"}`, ""},
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

// TestCheck compares what fits and what is said about what does not with a
// second library, which knows every draft.
func TestCheck(t *testing.T) {
	for _, c := range []struct{ schema, answer, want string }{
		{`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`, `{"n":"x"}`, "/properties/n: type"},
		{`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`, `{}`, "/: required"},
		{`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`, `{"n":1.0}`, ""},
		{`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`, `{"n":1,"m":2}`, "additional"},
		{`{"items":{"$ref":"#/$defs/a"},"$defs":{"a":{"enum":["x","y"]}}}`, `["x","z"]`, "/$defs/a: enum"},
		{`{"items":{"$ref":"#/$defs/a"},"$defs":{"a":{"enum":["x","y"]}}}`, `["x","y"]`, ""},
		{`{"anyOf":[{"type":"null"},{"type":"string","minLength":2}]}`, `"a"`, "anyOf"}, {`{"anyOf":[{"type":"null"},{"type":"string"}]}`, `null`, ""},
		{`{"type":["string","null"]}`, `7`, "type"}, {`false`, `1`, "/:"}, {`true`, `1`, ""}, {`{"const":12345678901234567890}`, `12345678901234567890`, ""},
		{`{"minimum":0.1,"maximum":0.3,"multipleOf":0.1}`, `0.4`, "maximum"}, {`{"pattern":"^a+$"}`, `"b"`, "pattern"}, {`{"type":"string"}`, `"a" "b"`, "one JSON value"},
		{`{"uniqueItems":true}`, `[1,1.0]`, "uniqueItems"}, {`{"maxItems":1}`, `[1,2]`, "maxItems"}, {`{"minProperties":1}`, `{}`, "minProperties"},
		{`{"oneOf":[{"type":"integer"},{"minimum":2}]}`, `3`, "oneOf"}, {`{"not":{"type":"string"}}`, `"x"`, "not"},
		{`{"$ref":"#/$defs/n","$defs":{"n":{"properties":{"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["next"]}}}`, `{"next":{"next":{"next":null}}}`, ""},
		{`{"$ref":"#/$defs/n","$defs":{"n":{"properties":{"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["next"]}}}`, `{"next":{"next":{"text":null}}}`, "anyOf"},
	} {
		s, err := ParseSchema("s.json", []byte(c.schema))
		if err != nil {
			t.Fatal(err)
		}
		problems := s.Check([]byte(c.answer))
		if (c.want == "") != (len(problems) == 0) || c.want != "" && !strings.Contains(problems[0], c.want) {
			t.Errorf("%s of %s: %q, want %q", c.answer, c.schema, problems, c.want)
		}
		if other, ok := secondOpinion(t, c.schema, c.answer); ok && other != (len(problems) == 0) {
			t.Errorf("%s of %s: %q, the other library says %v", c.answer, c.schema, problems, other)
		}
	}
}

// secondOpinion tells whether answer fits, by another library; not ok when it is
// no JSON value.
func secondOpinion(t *testing.T, schema, answer string) (fits, ok bool) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:///s.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("mem:///s.json")
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(answer))
	if err != nil {
		return false, false
	}
	return compiled.Validate(v) == nil, true
}
