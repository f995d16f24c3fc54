package report

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
)

// issue is one finding of a run that a code scanning service shows: a review
// finding at its file, or something about the run itself, whose evidence is a
// line of the event log.
type issue struct {
	rule     string
	severity string // critical, high, medium, low
	title    string
	body     string
	path     string // "" when it belongs to no file of the repository
	line     int
	endLine  int
	seq      uint64
	nth      int // among those of the same rule, path and title before it
	score    float64
	seen     bool // score was given
}

// issueRules are the kinds of issues, in the order of documentation.
var issueRules = []struct{ id, name, short, full string }{
	{"review-finding", "ReviewFinding", "A finding of a review.", "The reviewing agent reported a problem in the change."},
	{"denied-action", "DeniedAction", "An action was refused.", "The agent tried something that policy, a rule or the sandbox does not allow. It was not done."},
	{"verify-failed", "VerifyFailed", "A verify command did not pass.", "A command that had to pass after the run did not."},
	{"schema-mismatch", "SchemaMismatch", "The final answer does not fit the schema.", "The final answer was checked against the output schema and does not fit."},
	{"run-failed", "RunFailed", "The run did not succeed.", "The run ended without doing what it was asked."},
}

func issuesOf(s *Summary) []issue {
	var out []issue
	same := map[string]int{}
	for _, f := range s.Findings {
		line := max(f.StartLine, 1)
		i := issue{rule: "review-finding", severity: f.Severity, title: f.Title, body: f.Body,
			path: repoPath(f.Path), line: line, endLine: max(f.EndLine, line), score: f.Confidence, seen: true}
		first := i.fingerprint()
		i.nth = same[first]
		same[first]++
		out = append(out, i)
	}
	for _, d := range s.Denials {
		out = append(out, issue{rule: "denied-action", severity: "medium", seq: d.Seq,
			title: fmt.Sprintf("refused %s: %s", d.Action, d.Subject), body: denialDetail(d)})
	}
	for _, v := range lastRounds(s.Verify) {
		if !v.Passed {
			out = append(out, issue{rule: "verify-failed", severity: "high",
				title: fmt.Sprintf("%s exited %d", v.Command, v.ExitCode), body: v.Output})
		}
	}
	if n := len(s.SchemaChecks); n > 0 && !s.SchemaChecks[n-1].Valid {
		out = append(out, issue{rule: "schema-mismatch", severity: "high", title: "the final answer does not fit the schema",
			body: strings.Join(s.SchemaChecks[n-1].Errors, "\n")})
	}
	if !s.Success() {
		out = append(out, issue{rule: "run-failed", severity: "high", title: cmp.Or(s.Message, "outcome: "+s.Outcome),
			body: strings.TrimSpace(s.Class + "\n" + s.Hint), seq: s.Records})
	}
	return out
}

// eventsFile is where issues of the run itself point to: record n is line n.
const eventsFile = "events.jsonl"

func (i issue) location() (string, int) {
	if i.path != "" {
		return i.path, i.line
	}
	return eventsFile, max(int(min(i.seq, 1<<30)), 1)
}

// fingerprint stays the same while the problem does, in whatever run and
// wherever in the file it is found. A problem that is found again in the same
// file is another one.
func (i issue) fingerprint() string {
	h := sha256.New()
	for _, part := range []string{i.rule, i.path, i.title} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	if i.nth > 0 {
		fmt.Fprintf(h, "#%d", i.nth)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// repoPath makes a path from the model relative and free of "..", so that no
// reader of a report is led out of the repository.
func repoPath(p string) string {
	clean := path.Clean("/" + strings.ReplaceAll(Plain(p), "\\", "/"))
	if clean == "/" {
		return ""
	}
	return clean[1:]
}
