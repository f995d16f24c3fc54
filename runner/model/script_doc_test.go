package model

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// TestScriptsAreDocumented: the manual of scripts names every field, and its
// examples are scripts.
func TestScriptsAreDocumented(t *testing.T) {
	data, err := os.ReadFile("../../.github/MODEL-SCRIPTS.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, v := range []any{reply{}, item{}, usage{}, match{}} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			name := typ.Field(i).Tag.Get("json")
			if name != "" && !regexp.MustCompile(`[`+"`"+`"]`+name+`[`+"`"+`"]`).MatchString(text) {
				t.Errorf("the field %q of %s is not documented", name, typ.Name())
			}
		}
	}
	blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(text, -1)
	if len(blocks) == 0 {
		t.Error("there is no example")
	}
	for _, b := range blocks {
		if _, err := ParseScript("example", []byte(strings.TrimSpace(b[1]))); err != nil {
			t.Errorf("%v\n%s", err, b[1])
		}
	}
}
