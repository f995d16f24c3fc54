package report

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// StepSummaryLimit is what GitHub takes as the summary of one step: a larger
// one is refused whole.
const StepSummaryLimit = 1 << 20

// renderStepSummary writes the Markdown report into what is left of the step's
// budget.
func renderStepSummary(w io.Writer, runs []*Summary, o *Options) error {
	limit := StepSummaryLimit
	if o.SummaryBytes > 0 {
		limit = min(limit, o.SummaryBytes)
	}
	_, err := io.WriteString(w, markdownOf(runs, limit))
	return err
}

// Outputs are capped: GitHub takes 1 MiB per job, and one value travels through
// an environment variable of 128 KiB when a later step uses it.
const (
	maxOutput      = 96 << 10
	maxOutputPatch = 96 << 10
)

// renderGitHubOutput writes step outputs. Every value has a delimiter of its
// own that is derived from all values by a digest: it cannot be known before
// the values are, so no value can hold it, and a replay gives the same bytes.
func renderGitHubOutput(w io.Writer, s *Summary, o *Options) error {
	final, patch := s.FinalMessage, s.patch
	if len(final) > maxOutput {
		final = cut(final, maxOutput)
	}
	if len(patch) > maxOutputPatch {
		patch = "" // half a patch does not apply; patch-file has it
	}
	values := [][2]string{
		{"final-message", final}, {"outcome", s.Outcome}, {"class", s.Class}, {"exit-code", strconv.Itoa(s.ExitCode)},
		{"message", s.Message}, {"thread-id", s.Run.ThreadID}, {"model", s.Run.Model},
		{"patch", patch}, {"patch-file", o.PatchFile}, {"patch-digest", s.Changes.Digest}, {"report-dir", o.ReportDir},
		{"files-changed", strconv.Itoa(len(s.Changes.Files) + s.Omitted["changes.files"])},
		{"usage", fmt.Sprintf(`{"input_tokens":%d,"cached_input_tokens":%d,"output_tokens":%d,"reasoning_output_tokens":%d}`,
			s.Usage.Input, s.Usage.CachedInput, s.Usage.Output, s.Usage.Reasoning)},
		{"cost-usd", strconv.FormatFloat(s.CostUSD, 'f', 6, 64)},
		{"denials", strconv.Itoa(s.Totals.Denials)}, {"failed-tools", strconv.Itoa(s.Totals.FailedTools)},
		{"success", strconv.FormatBool(s.Success())},
	}
	seed := sha256.New()
	for _, kv := range values {
		fmt.Fprintf(seed, "%d:%s=%d:%s", len(kv[0]), kv[0], len(kv[1]), kv[1])
	}
	var b bytes.Buffer
	for n, kv := range values {
		value := strings.ToValidUTF8(strings.ReplaceAll(kv[1], "\x00", ""), "\uFFFD")
		mark := delimiter(seed.Sum(nil), n, value)
		fmt.Fprintf(&b, "%s<<%s\n%s\n%s\n", kv[0], mark, value, mark)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// delimiter returns a line that is not in value.
func delimiter(seed []byte, n int, value string) string {
	for try := 0; ; try++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%x %d %d", seed, n, try))
		mark := "nightshift_" + hex.EncodeToString(sum[:])
		if !strings.Contains(value, mark) {
			return mark
		}
	}
}

// Annotations are limited by the service: more of one kind in one step are
// dropped without a word, so we drop them ourselves and say how many.
const maxAnnotations = 10

// Annotate writes workflow commands that GitHub shows beside the code: failures
// and denials as errors and warnings, review findings at their lines. w is the
// step's log (stderr will do).
func Annotate(w io.Writer, s *Summary) error {
	byLevel := map[string][]string{}
	for _, i := range issuesOf(s) {
		level := annotationLevel(i.severity)
		props := []string{"title=" + commandProperty("nightshift: "+PlainLine(i.title, 200))}
		if i.path != "" {
			props = append([]string{"file=" + commandProperty(i.path), "line=" + strconv.Itoa(i.line), "endLine=" + strconv.Itoa(i.endLine)}, props...)
		}
		text := cmp.Or(i.body, i.title)
		byLevel[level] = append(byLevel[level], fmt.Sprintf("::%s %s::%s\n", level, strings.Join(props, ","), commandData(Plain(cut(text, maxTitle)))))
	}
	var b strings.Builder
	for _, level := range []string{"error", "warning", "notice"} {
		lines := byLevel[level]
		keep := lines
		if len(lines) > maxAnnotations {
			keep = append(lines[:maxAnnotations-1:maxAnnotations-1], fmt.Sprintf("::%s title=nightshift::%d more are in the report\n", level, len(lines)-maxAnnotations+1))
		}
		b.WriteString(strings.Join(keep, ""))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func annotationLevel(severity string) string {
	switch severity {
	case "critical", "high":
		return "error"
	case "low":
		return "notice"
	}
	return "warning"
}

// Masks writes commands that make GitHub hide the given secrets in the log,
// line by line, since the service masks lines. Call it with secrets that the
// job was given, before anything else is written; each is shown to the service
// by this very line and by nothing else. Secrets shorter than four characters
// are left out: masking them would destroy the log.
func Masks(w io.Writer, secrets []string) error {
	var b strings.Builder
	seen := map[string]bool{}
	for _, secret := range secrets {
		for _, line := range strings.FieldsFunc(secret, func(r rune) bool { return r == '\n' || r == '\r' }) {
			if line = strings.TrimSpace(line); len(line) < 4 || seen[line] {
				continue
			}
			seen[line] = true
			b.WriteString("::add-mask::" + commandData(line) + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func commandData(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

func commandProperty(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace(s)
}
