package early

import (
	"strings"
	"testing"
)

func TestWants(t *testing.T) {
	for line, want := range map[string]bool{
		"nightshift exec hi":                       true,
		"codex e --json hi":                        true,
		"codex -c model=x exec hi":                 true,
		"nightshift resume --last hi":              true,
		"nightshift sandbox -- true":               true,
		"nightshift exec -s danger-full-access hi": false,
		"nightshift exec --yolo hi":                false,
		"nightshift exec --help":                   false,
		"nightshift batch --tasks exec":            false,
		"nightshift doctor":                        false,
		"nightshift --version":                     false,
		"nightshift -c model=x":                    false,
		"nightshift":                               false,
	} {
		if got := Wants(strings.Fields(line)); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
	if Wants(nil) {
		t.Error("no command line wants a sandbox")
	}
}
