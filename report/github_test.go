package report

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// However much there is to say, the step summary fits, is whole Markdown and
// says what is missing; the outcome is never what is cut.
func TestStepSummaryIsCutWithCare(t *testing.T) {
	s := scenarios()[0].summary(t)
	s.patch = strings.Repeat("+a line of a very long patch\n", 40_000)
	s.FinalMessage = strings.Repeat("word ", 60_000)
	for i := range 2000 {
		s.Denials = append(s.Denials, Denial{Action: "command", Subject: fmt.Sprintf("rm `%d` | x", i)})
		s.Tools = append(s.Tools, ToolUse{Tool: fmt.Sprintf("tool|%d", i)})
	}
	for limit := 1; limit < 600; limit += 13 { // nearly full: what stands there already must not be lost
		if text := markdownOf([]*Summary{s}, limit); len(text) > limit {
			t.Errorf("%d bytes in a budget of %d", len(text), limit)
		}
	}
	whole := len(markdownOf([]*Summary{s}, 0))
	for _, limit := range []int{600, 2000, 5000, 20_000, 100_000, 300_000, 700_000, StepSummaryLimit} {
		var b bytes.Buffer
		if err := Render(&b, "github-summary", []*Summary{s}, &Options{SummaryBytes: limit}); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		if b.Len() > limit {
			t.Errorf("%d bytes in a budget of %d", b.Len(), limit)
		}
		if !strings.HasPrefix(text, "# ✅ nightshift: success") || strings.Contains(text, "**Cut:**") != (whole > limit) {
			t.Errorf("limit %d: %.200q", limit, text)
		}
		open := ""
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			switch {
			case open == "" && strings.HasPrefix(line, "```"):
				open = strings.TrimRight(line, "abcdefghijklmnopqrstuvwxyz")
			case open != "" && line == open:
				open = ""
			}
		}
		if open != "" {
			t.Errorf("limit %d: a fence is left open", limit)
		}
		inMarkdown(t, fmt.Sprint("limit ", limit), text)
	}
}

func TestAnnotationsKeepTheLimits(t *testing.T) {
	s := scenarios()[0].summary(t)
	for i := range 40 {
		s.Findings = append(s.Findings, event.FindingReported{Title: fmt.Sprint("f", i), Severity: []string{"critical", "medium", "low"}[i%3], Path: "a b,c:d%.go", StartLine: i})
	}
	var b bytes.Buffer
	if err := Annotate(&b, s); err != nil {
		t.Fatal(err)
	}
	inAnnotations(t, b.String())
	for _, want := range []string{"::error file=a b%2Cc%3Ad%25.go,line=1,endLine=1,title=nightshift%3A f0::", "::error title=nightshift::5 more are in the report", "::notice title=nightshift::4 more"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestMasks(t *testing.T) {
	var b bytes.Buffer
	if err := Masks(&b, []string{"sesame-1", "", "abc", "two\r\nlines-x\n", "100%\x25", "sesame-1"}); err != nil {
		t.Fatal(err)
	}
	want := "::add-mask::sesame-1\n::add-mask::lines-x\n::add-mask::100%25%25\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

// A value that holds what looks like a delimiter cannot end its own output.
func TestOutputsCannotBeForged(t *testing.T) {
	s := scenarios()[0].summary(t)
	var first bytes.Buffer
	if err := Render(&first, "github-output", []*Summary{s}, nil); err != nil {
		t.Fatal(err)
	}
	// The attacker knows the delimiters of an earlier run and repeats them all.
	s.FinalMessage = first.String() + "\nexit-code<<x\n0\nx\n"
	var second bytes.Buffer
	if err := Render(&second, "github-output", []*Summary{s}, nil); err != nil {
		t.Fatal(err)
	}
	inOutputs(t, second.String())
	s.FinalMessage, s.patch = strings.Repeat("x", 1<<20), strings.Repeat("y", 1<<20)
	var big bytes.Buffer
	if err := Render(&big, "github-output", []*Summary{s}, nil); err != nil {
		t.Fatal(err)
	}
	inOutputs(t, big.String())
	if big.Len() > 200<<10 || strings.Contains(big.String(), "yyy") {
		t.Errorf("%d bytes of outputs; half a patch must not be among them", big.Len())
	}
}

// The delimiter avoids a value even if it were known.
func TestDelimiter(t *testing.T) {
	seed := []byte("seed")
	first := delimiter(seed, 0, "")
	if next := delimiter(seed, 0, "a\n"+first+"\nb"); next == first {
		t.Error("the delimiter is in the value")
	}
}
