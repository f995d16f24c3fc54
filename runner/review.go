package runner

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// Severities of findings, gravest first.
var Severities = []string{"critical", "high", "medium", "low"}

// reviewAnswer is the JSON that the review instructions ask for.
type reviewAnswer struct {
	Findings []struct {
		Title      string  `json:"title"`
		Body       string  `json:"body"`
		Confidence float64 `json:"confidence_score"`
		Priority   *int    `json:"priority"`
		Location   struct {
			Path  string `json:"absolute_file_path"`
			Range struct {
				Start int `json:"start"`
				End   int `json:"end"`
			} `json:"line_range"`
		} `json:"code_location"`
	} `json:"findings"`
	Correctness string  `json:"overall_correctness"`
	Explanation string  `json:"overall_explanation"`
	Confidence  float64 `json:"overall_confidence_score"`
}

// review is the state of a run in review mode.
type review struct {
	findings []event.FindingReported
	// structured is false when the answer was not the JSON asked for.
	structured bool
}

// finishReview turns the model's last message into the one message of a review
// and its findings. An answer in another form is passed through.
func (r *run) finishReview() {
	text := r.final
	rv := &review{}
	r.state.review = rv
	var a reviewAnswer
	if !decodeReview(text, &a) {
		r.log.Complete("", event.AgentMessage{Text: text})
		return
	}
	rv.structured = true
	var b strings.Builder
	b.WriteString(strings.TrimSpace(a.Explanation))
	switch len(a.Findings) {
	case 0:
	case 1:
		b.WriteString("\n\nReview comment:\n")
	default:
		b.WriteString("\n\nFull review comments:\n")
	}
	for _, f := range a.Findings {
		start, end := f.Location.Range.Start, max(f.Location.Range.End, f.Location.Range.Start)
		fmt.Fprintf(&b, "\n- %s — %s:%d-%d\n%s\n", f.Title, f.Location.Path, start, end, indent(f.Body))
		rv.findings = append(rv.findings, event.FindingReported{Title: f.Title, Body: f.Body, Path: r.relative(f.Location.Path),
			StartLine: start, EndLine: end, Severity: severity(f.Priority), Confidence: f.Confidence})
	}
	r.final = strings.TrimSpace(b.String())
	if r.final == "" {
		r.final = "No findings."
	}
	r.log.Complete("", event.AgentMessage{Text: r.final})
	for _, f := range rv.findings {
		r.log.Emit(f)
	}
}

// decodeReview reads the answer, also when the model put a fence around it.
func decodeReview(text string, a *reviewAnswer) bool {
	start, end := strings.IndexByte(text, '{'), strings.LastIndexByte(text, '}')
	if start < 0 || end < start {
		return false
	}
	var probe map[string]json.RawMessage
	if json.Unmarshal([]byte(text[start:end+1]), &probe) != nil || len(probe["findings"]) == 0 || string(probe["findings"]) == "null" {
		return false
	}
	return json.Unmarshal([]byte(text[start:end+1]), a) == nil
}

// severity maps the priorities of the answer: 0 is the gravest.
func severity(priority *int) string {
	if priority == nil {
		return "medium"
	}
	return Severities[min(max(*priority, 0), len(Severities)-1)]
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ")
}

// relative is path from the repository's top, as SARIF and annotations want it.
func (r *run) relative(path string) string {
	root := r.state.facts.Root
	if root == "" {
		root = r.Workdir
	}
	if rel, err := filepath.Rel(root, path); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	return path
}

// gate fails a review whose findings reach the severity of --fail-on.
func (rv *review) gate(o Outcome, failOn string) Outcome {
	if failOn == "" {
		return o
	}
	if !rv.structured {
		return Outcome{Outcome: "gate", Class: "review_unreadable", ExitCode: ExitGate,
			Message: "--fail-on " + failOn + ": the review is not in the form that was asked for, so nothing can be said of its findings"}
	}
	bound := rank(failOn)
	n := 0
	for _, f := range rv.findings {
		if rank(f.Severity) <= bound {
			n++
		}
	}
	if n == 0 {
		return o
	}
	return Outcome{Outcome: "gate", Class: "review_findings", ExitCode: ExitGate,
		Message: fmt.Sprintf("--fail-on %s: %s of that severity or worse", failOn, count(n, "finding"))}
}

func rank(severity string) int {
	for i, s := range Severities {
		if s == severity {
			return i
		}
	}
	return len(Severities)
}
