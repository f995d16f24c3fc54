package report

import (
	"cmp"
	"io"
)

// Common Test Report Format, ctrf.io.
type ctrfReport struct {
	Format  string      `json:"reportFormat"`
	Version string      `json:"specVersion"`
	Results ctrfResults `json:"results"`
}

type ctrfResults struct {
	Tool        ctrfTool       `json:"tool"`
	Summary     ctrfSummary    `json:"summary"`
	Tests       []ctrfTest     `json:"tests"`
	Environment map[string]any `json:"environment,omitempty"`
}

type ctrfTool struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

type ctrfSummary struct {
	Tests   int   `json:"tests"`
	Passed  int   `json:"passed"`
	Failed  int   `json:"failed"`
	Pending int   `json:"pending"`
	Skipped int   `json:"skipped"`
	Other   int   `json:"other"`
	Suites  int   `json:"suites,omitempty"`
	Start   int64 `json:"start"` // milliseconds since 1970
	Stop    int64 `json:"stop"`
}

type ctrfTest struct {
	Name     string   `json:"name"`
	Status   string   `json:"status"`
	Duration int64    `json:"duration"`
	Suite    []string `json:"suite,omitempty"`
	Message  string   `json:"message,omitempty"`
	Trace    string   `json:"trace,omitempty"`
	Tags     []string `json:"tags,omitempty"`
}

func renderCTRF(w io.Writer, runs []*Summary, _ *Options) error {
	doc := ctrfReport{Format: "CTRF", Version: "0.0.0", Results: ctrfResults{Tool: ctrfTool{Name: "nightshift"}, Tests: []ctrfTest{}}}
	sum := &doc.Results.Summary
	for _, s := range runs {
		doc.Results.Tool.Version = PlainLine(s.Run.Version, 100)
		if start := s.StartedAt.UnixMilli(); !s.StartedAt.IsZero() && (sum.Start == 0 || start < sum.Start) {
			sum.Start = start
		}
		if !s.EndedAt.IsZero() {
			sum.Stop = max(sum.Stop, s.EndedAt.UnixMilli())
		}
		for _, c := range casesOf(s) {
			t := ctrfTest{Name: cmp.Or(PlainLine(c.name, 1000), c.class), Status: "passed", Duration: c.took.Milliseconds(),
				Suite: []string{PlainLine(title(s, len(runs)), 200), c.class}}
			if c.failed {
				t.Status, t.Message, t.Trace, t.Tags = "failed", Plain(c.text), Plain(c.detail), []string{PlainLine(c.kind, 100)}
				sum.Failed++
			} else {
				sum.Passed++
			}
			sum.Tests++
			doc.Results.Tests = append(doc.Results.Tests, t)
		}
	}
	if len(runs) == 1 && runs[0].Git != nil {
		env := map[string]any{}
		for k, v := range map[string]string{"commit": runs[0].Git.Commit, "branchName": runs[0].Git.Branch, "buildUrl": runs[0].Run.Job} {
			if v != "" {
				env[k] = PlainLine(v, 500)
			}
		}
		if len(env) > 0 {
			doc.Results.Environment = env
		}
	}
	return indentJSON(w, doc)
}
