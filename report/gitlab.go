package report

import (
	"fmt"
	"io"
	"strings"
)

type codeQualityIssue struct {
	Description string              `json:"description"`
	CheckName   string              `json:"check_name"`
	Fingerprint string              `json:"fingerprint"`
	Severity    string              `json:"severity"`
	Location    codeQualityLocation `json:"location"`
}

type codeQualityLocation struct {
	Path  string           `json:"path"`
	Lines codeQualityLines `json:"lines"`
}

type codeQualityLines struct {
	Begin int `json:"begin"`
}

// renderCodeQuality writes GitLab's code quality report: a plain list, without
// a byte order mark, each entry with a fingerprint of its own.
func renderCodeQuality(w io.Writer, runs []*Summary, _ *Options) error {
	out := []codeQualityIssue{}
	seen := map[string]bool{}
	for _, s := range runs {
		for _, i := range issuesOf(s) {
			if seen[i.fingerprint()] {
				continue
			}
			seen[i.fingerprint()] = true
			file, line := i.location()
			text := i.title
			if i.body != "" {
				text += "\n" + i.body
			}
			out = append(out, codeQualityIssue{Description: Plain(cut(text, maxTitle)), CheckName: i.rule,
				Fingerprint: i.fingerprint(), Severity: codeQualityLevel(i.severity),
				Location: codeQualityLocation{file, codeQualityLines{line}}})
		}
	}
	return indentJSON(w, out)
}

func codeQualityLevel(severity string) string {
	switch severity {
	case "critical":
		return "critical"
	case "high":
		return "major"
	case "low":
		return "info"
	}
	return "minor"
}

// renderDotenv writes variables for later jobs of a GitLab pipeline. The
// service allows 5 KiB, 20 variables and values without spaces and quotes, and
// expands "$" where they are used: so only tokens of harmless characters are
// written, and no text of the model.
func renderDotenv(w io.Writer, s *Summary, _ *Options) error {
	level := "none"
	if s.Sandbox != nil {
		level = s.Sandbox.Level
	}
	lost := int64(0)
	if s.Telemetry != nil {
		lost = s.Telemetry.Lost
	}
	for _, kv := range [][2]string{
		{"OUTCOME", s.Outcome}, {"CLASS", s.Class}, {"EXIT_CODE", fmt.Sprint(s.ExitCode)},
		{"THREAD_ID", s.Run.ThreadID}, {"MODEL", s.Run.Model}, {"VERSION", s.Run.Version},
		{"SANDBOX_LEVEL", level}, {"POLICY_DIGEST", s.Policy.Digest}, {"PATCH_DIGEST", s.Changes.Digest},
		{"FILES_CHANGED", fmt.Sprint(len(s.Changes.Files) + s.Omitted["changes.files"])},
		{"INPUT_TOKENS", fmt.Sprint(s.Usage.Input)}, {"CACHED_INPUT_TOKENS", fmt.Sprint(s.Usage.CachedInput)},
		{"OUTPUT_TOKENS", fmt.Sprint(s.Usage.Output)}, {"REASONING_TOKENS", fmt.Sprint(s.Usage.Reasoning)},
		{"COST_USD", fmt.Sprintf("%.6f", s.CostUSD)}, {"DURATION_MS", fmt.Sprint(s.DurationMS)},
		{"DENIALS", fmt.Sprint(s.Totals.Denials)}, {"FAILED_TOOLS", fmt.Sprint(s.Totals.FailedTools)},
		{"RETRIES", fmt.Sprint(s.Totals.ModelRetries)}, {"TELEMETRY_LOST", fmt.Sprint(lost)},
	} {
		if _, err := fmt.Fprintf(w, "NIGHTSHIFT_%s=%s\n", kv[0], harmless(kv[1])); err != nil {
			return err
		}
	}
	return nil
}

// harmless keeps letters, digits and a few signs, at most 120 of them.
func harmless(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', strings.ContainsRune("._:/+@-", r):
			b.WriteRune(r)
		default:
			b.WriteByte('_')
		}
		if b.Len() == 120 {
			break
		}
	}
	return b.String()
}
