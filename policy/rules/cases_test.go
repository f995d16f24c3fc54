package rules

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// parse is a test's way to make rules.
func parse(t testing.TB, text string) *Set {
	t.Helper()
	f, errs := Parse("test.rules", []byte(text), User)
	if len(errs) > 0 {
		t.Fatalf("rules: %v", errs)
	}
	return NewSet(f)
}

// outcome is the answer of an unattended run in the words of the case table, in
// a machine whose requirements let allow rules leave the sandbox.
func outcome(d Decision) string {
	switch {
	case d.Danger != "":
		return "rejected-dangerous"
	case d.Level == Forbidden:
		return "rejected-rule"
	case d.Level == Prompt:
		return "rejected-prompt"
	case d.Level == Allow && d.Plain:
		return "ran-unsandboxed"
	}
	return "ran-sandboxed"
}

// TestCases runs the table of observed decisions; where it marks a stricter
// answer that one is ours.
func TestCases(t *testing.T) {
	data, err := os.ReadFile("testdata/cases.tsv")
	if err != nil {
		t.Fatal(err)
	}
	rulesets := map[string]string{}
	rows := 0
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# ruleset "); ok {
			name, rule, _ := strings.Cut(rest, ": ")
			rulesets[name] += rule + "\n"
		}
		field := strings.Split(line, "\t")
		if strings.HasPrefix(line, "#") || field[0] == "id" || len(field) < 8 {
			continue
		}
		rows++
		// A folder outside every writable root.
		field[4] = strings.ReplaceAll(field[4], "<OUTSIDE>", "/var/outside")
		id, mode, ruleset, command, observed, matched, stricter := field[0], field[1], field[2], field[4], field[5], field[6], field[7]
		want := observed
		if stricter != "" {
			want = stricter
		}
		t.Run(id, func(t *testing.T) {
			set := parse(t, rulesets[ruleset])
			var got string
			var d Decision
			if mode == "argv" {
				var argv []string
				if err := json.Unmarshal([]byte(command), &argv); err != nil {
					t.Fatal(err)
				}
				d = set.Command(argv)
				got = d.Level.String()
			} else {
				var script string
				if err := json.Unmarshal([]byte(command), &script); err != nil {
					t.Fatal(err)
				}
				d = set.Shell(script, "/bin/bash", true)
				got = outcome(d)
			}
			if got != want {
				t.Errorf("%s: got %s, want %s\n%+v", command, got, want, d)
			}
			if stricter == "" && matched != "-" {
				have := map[string]bool{}
				for _, m := range d.Matches {
					have[strings.Join(m.Prefix, " ")+"="+m.Decision] = true
				}
				for _, m := range strings.Split(matched, ";") {
					if !have[m] {
						t.Errorf("%s: no match %q in %+v", command, m, d.Matches)
					}
				}
			}
		})
	}
	if rows < 90 {
		t.Errorf("only %d rows were read", rows)
	}
}
