package report

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"
)

// SARIF 2.1.0 as far as we write it. One run, whatever the number of our runs:
// code scanning services refuse several runs of one category in a file; each of
// ours is an invocation.
type sarifLog struct {
	Schema  string     `json:"$schema"`
	Version string     `json:"version"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool        sarifTool         `json:"tool"`
	Automation  sarifAutomation   `json:"automationDetails"`
	Invocations []sarifInvocation `json:"invocations"`
	Provenance  []sarifVersion    `json:"versionControlProvenance,omitempty"`
	ColumnKind  string            `json:"columnKind"`
	Results     []sarifResult     `json:"results"`
}

type sarifTool struct {
	Driver sarifDriver `json:"driver"`
}

type sarifDriver struct {
	Name    string      `json:"name"`
	Version string      `json:"version,omitempty"`
	InfoURI string      `json:"informationUri"`
	Rules   []sarifRule `json:"rules"`
}

type sarifRule struct {
	ID     string       `json:"id"`
	Name   string       `json:"name"`
	Short  sarifMessage `json:"shortDescription"`
	Full   sarifMessage `json:"fullDescription"`
	Help   sarifMessage `json:"help"`
	Where  string       `json:"helpUri"`
	Config sarifConfig  `json:"defaultConfiguration"`
}

type sarifConfig struct {
	Level string `json:"level"`
}

type sarifMessage struct {
	Text string `json:"text"`
}

type sarifAutomation struct {
	ID string `json:"id"`
}

type sarifInvocation struct {
	Successful    bool                `json:"executionSuccessful"`
	ExitCode      int                 `json:"exitCode"`
	ExitReason    string              `json:"exitCodeDescription,omitempty"`
	Start         string              `json:"startTimeUtc,omitempty"`
	End           string              `json:"endTimeUtc,omitempty"`
	Notifications []sarifNotification `json:"toolExecutionNotifications,omitempty"`
	Properties    map[string]any      `json:"properties,omitempty"`
}

type sarifNotification struct {
	Level      string         `json:"level"`
	Message    sarifMessage   `json:"message"`
	Descriptor sarifReference `json:"descriptor"`
}

type sarifReference struct {
	ID string `json:"id"`
}

type sarifVersion struct {
	URI      string        `json:"repositoryUri"`
	Revision string        `json:"revisionId,omitempty"`
	Branch   string        `json:"branch,omitempty"`
	MappedTo sarifArtifact `json:"mappedTo"`
}

type sarifResult struct {
	RuleID       string            `json:"ruleId"`
	RuleIndex    int               `json:"ruleIndex"`
	Level        string            `json:"level"`
	Message      sarifMessage      `json:"message"`
	Locations    []sarifLocation   `json:"locations"`
	Fingerprints map[string]string `json:"partialFingerprints"`
	Properties   map[string]any    `json:"properties,omitempty"`
}

type sarifLocation struct {
	Physical sarifPhysical `json:"physicalLocation"`
}

type sarifPhysical struct {
	Artifact sarifArtifact `json:"artifactLocation"`
	Region   sarifRegion   `json:"region"`
}

type sarifArtifact struct {
	URI  string `json:"uri,omitempty"`
	Base string `json:"uriBaseId,omitempty"`
}

// sourceRoot stands for the top of the repository, as code scanning services
// have it; the event log of a run is not below it.
const sourceRoot = "%SRCROOT%"

type sarifRegion struct {
	Start int `json:"startLine"`
	End   int `json:"endLine,omitempty"`
}

const homepage = "https://github.com/nightshift-ci/nightshift"

// maxSARIF is how many results GitHub's code scanning takes of one run.
const maxSARIF = 25000

func renderSARIF(w io.Writer, runs []*Summary, _ *Options) error {
	run := sarifRun{
		Tool:       sarifTool{sarifDriver{Name: "nightshift", InfoURI: homepage, Rules: sarifRules()}},
		Automation: sarifAutomation{"nightshift/run/"}, ColumnKind: "unicodeCodePoints",
		Invocations: []sarifInvocation{}, Results: []sarifResult{},
	}
	if len(runs) == 1 {
		run.Automation.ID = "nightshift/" + harmless(runs[0].Run.Mode) + "/" + harmless(runs[0].Run.ThreadID)
	}
	seen := map[string]bool{}
	omitted := 0
	for _, s := range runs {
		run.Tool.Driver.Version = harmless(s.Run.Version)
		run.Invocations = append(run.Invocations, invocationOf(s))
		if v, ok := versionOf(s); ok && !seen[v.URI+v.Revision] {
			seen[v.URI+v.Revision] = true
			run.Provenance = append(run.Provenance, v)
		}
		for _, i := range issuesOf(s) {
			if len(run.Results) == maxSARIF {
				omitted++
				continue
			}
			run.Results = append(run.Results, resultOf(s, i))
		}
	}
	if omitted > 0 {
		last := &run.Invocations[len(run.Invocations)-1]
		last.Notifications = append(last.Notifications, sarifNotification{"warning", sarifMessage{fmt.Sprintf("%d results of all runs were left out: services take %d at most", omitted, maxSARIF)}, sarifReference{"report_cut"}})
	}
	return indentJSON(w, sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}})
}

func sarifRules() []sarifRule {
	var out []sarifRule
	for _, r := range issueRules {
		level := "error"
		switch r.id {
		case "review-finding", "denied-action":
			level = "warning"
		}
		out = append(out, sarifRule{ID: r.id, Name: r.name, Short: sarifMessage{r.short}, Full: sarifMessage{r.full},
			Help: sarifMessage{r.full + " The event log of the run has the whole story."}, Where: homepage + "#reports", Config: sarifConfig{level}})
	}
	return out
}

func invocationOf(s *Summary) sarifInvocation {
	inv := sarifInvocation{Successful: s.Success(), ExitCode: s.ExitCode, ExitReason: PlainLine(s.Message, 1000)}
	if !s.StartedAt.IsZero() {
		inv.Start, inv.End = s.StartedAt.UTC().Format(time.RFC3339Nano), s.EndedAt.UTC().Format(time.RFC3339Nano)
	}
	for _, a := range s.Attention {
		inv.Notifications = append(inv.Notifications, sarifNotification{"warning", sarifMessage{PlainLine(a.Message, 1000)}, sarifReference{a.Class}})
	}
	inv.Properties = map[string]any{"thread": harmless(s.Run.ThreadID), "model": PlainLine(s.Run.Model, 200), "outcome": s.Outcome, "policyDigest": s.Policy.Digest}
	return inv
}

func versionOf(s *Summary) (sarifVersion, bool) {
	if s.Git == nil {
		return sarifVersion{}, false
	}
	u, err := url.Parse(s.Git.Remote)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh" || u.Host == "" {
		return sarifVersion{}, false
	}
	return sarifVersion{URI: u.String(), Revision: harmless(s.Git.Commit), Branch: PlainLine(s.Git.Branch, 200),
		MappedTo: sarifArtifact{Base: sourceRoot}}, true
}

func resultOf(s *Summary, i issue) sarifResult {
	file, line := i.location()
	artifact := sarifArtifact{URI: uriPath(file)}
	if i.path != "" {
		artifact.Base = sourceRoot
	}
	text := Plain(cut(i.title, maxTitle))
	if i.body != "" {
		text += "\n\n" + Plain(cut(i.body, maxText))
	}
	r := sarifResult{RuleID: i.rule, Level: sarifLevel(i.severity), Message: sarifMessage{escapeSARIF(text)},
		Locations: []sarifLocation{{sarifPhysical{artifact, sarifRegion{Start: line, End: i.endLine}}}},
		Fingerprints: map[string]string{
			"nightshift/v1": i.fingerprint(),
		},
		Properties: map[string]any{"thread": harmless(s.Run.ThreadID), "severity": PlainLine(i.severity, 20)},
	}
	if i.seen {
		r.Properties["confidence"] = i.score
	}
	for n, rule := range issueRules {
		if rule.id == i.rule {
			r.RuleIndex = n
		}
	}
	return r
}

func sarifLevel(severity string) string {
	switch severity {
	case "critical", "high":
		return "error"
	case "low":
		return "note"
	}
	return "warning"
}

// escapeSARIF keeps plain text plain: in a SARIF message [text](n) is a link
// and {0} a placeholder.
func escapeSARIF(s string) string {
	return strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, "{", "{{", "}", "}}").Replace(s)
}

// uriPath is a relative URI reference for a path.
func uriPath(p string) string {
	parts := strings.Split(p, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	if strings.Contains(parts[0], ":") {
		return "./" + strings.Join(parts, "/")
	}
	return strings.Join(parts, "/")
}
