package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// Two findings of one title in one file are two, in every format, and each has a
// fingerprint that does not move with its line.
func TestFindingsOfOneTitleAreTold(t *testing.T) {
	summary := func(lines ...int) *Summary {
		s := &Summary{Complete: true}
		for _, n := range lines {
			s.Findings = append(s.Findings, event.FindingReported{Title: "unchecked error", Path: "a  b.go", StartLine: n, EndLine: n, Severity: "high"})
		}
		return s
	}
	var out bytes.Buffer
	if err := Render(&out, "codequality", []*Summary{summary(3, 30), summary(4, 31)}, nil); err != nil {
		t.Fatal(err)
	}
	var list []codeQualityIssue
	if err := json.Unmarshal(out.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].Location.Lines.Begin != 3 || list[1].Location.Lines.Begin != 30 {
		t.Errorf("%s", out.String())
	}
	for _, format := range []string{"sarif", "checkstyle"} {
		out.Reset()
		if err := Render(&out, format, []*Summary{summary(3, 30)}, nil); err != nil {
			t.Fatal(err)
		}
		if strings.Count(out.String(), "unchecked error") != 2 {
			t.Errorf("%s: %s", format, out.String())
		}
		if format == "checkstyle" && !strings.Contains(out.String(), `name="a  b.go"`) {
			t.Errorf("the path has changed: %s", out.String())
		}
	}
}

// What a service would refuse is left out, and said.
func TestSARIFSaysWhatItLeavesOut(t *testing.T) {
	s := &Summary{Complete: true}
	for range maxSARIF + 7 {
		s.Findings = append(s.Findings, event.FindingReported{Title: "x", Path: "a.go", StartLine: 1})
	}
	var out bytes.Buffer
	if err := Render(&out, "sarif", []*Summary{s}, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "7 results of all runs were left out") {
		t.Error("nothing is said of the results that are missing")
	}
}
